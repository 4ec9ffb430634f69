import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/** What of `roomful` the small package has, and under which names: `roomful/client` is `roomful-client` itself. */
const CLIENT = /^\.\/client(?=\/|$)/
const SHARED = [
  'version',
  'keywords',
  'license',
  'type',
  'engines',
  'author',
  'publishConfig',
  'sideEffects',
] as const
const IMPORTED = /(?:from|import)\s*\(?\s*['"](\.{1,2}\/[^'"]+)\.js['"]/g

type Exports = Record<string, string | { readonly types: string; readonly default: string }>

const README = `# roomful-client

The client of [roomful](https://www.npmjs.com/package/roomful) alone: what \`roomful/client\`, \`roomful/client/motion\`, \`roomful/client/queue\` and \`roomful/react\` are in the whole package, from the same sources and
with the same version, without what only servers need. Take it for a page that is built apart from its rooms.

\`\`\`ts
import { connect } from 'roomful-client'
import { useRoom } from 'roomful-client/react'
\`\`\`
`

/**
 * Writes the package `roomful-client` into `target`: the part of `dist/` under `root` that clients are made of, which has to be built.
 * Rejects when it would need a package that is no peer.
 */
export async function stageClient(root: string, target: string): Promise<void> {
  const whole = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  const exported: Exports = {}
  for (const [path, files] of Object.entries(whole.exports as Exports)) {
    if (CLIENT.test(path)) exported[path.replace(CLIENT, '.')] = files
    else if (path === './react' || path === './package.json') exported[path] = files
  }
  const files = new Set(
    Object.values(exported).flatMap((entry) => (typeof entry === 'string' ? [] : Object.values(entry))),
  )
  for (const file of files) {
    const text = await readFile(join(root, file), 'utf8')
    const suffix = file.endsWith('.d.ts') ? '.d.ts' : '.js'
    for (const [, path] of text.matchAll(IMPORTED)) files.add(`./${join(dirname(file), path + suffix)}`)
    await mkdir(dirname(join(target, file)), { recursive: true })
    await cp(join(root, file), join(target, file))
  }
  const { react } = whole.peerDependencies
  const description = {
    name: 'roomful-client',
    ...Object.fromEntries(SHARED.map((name) => [name, whole[name]])),
    description: 'The client of roomful, a realtime game backend: for pages, without the server.',
    exports: exported,
    files: ['dist', 'CHANGELOG.md'],
    peerDependencies: { react },
    peerDependenciesMeta: { react: { optional: true } },
  }
  await writeFile(join(target, 'package.json'), `${JSON.stringify(description, null, 2)}\n`)
  await writeFile(join(target, 'README.md'), README)
  for (const file of ['CHANGELOG.md', 'LICENSE']) await cp(join(root, file), join(target, file))
}
