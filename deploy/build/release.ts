import { spawnSync } from 'node:child_process'
import { realpathSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

/**
 * `npm run release -- [--version 0.2.0] [--dry-run]`: builds, and then runs this program. It makes the packages in `release/` from the build,
 * checks each with publint and arethetypeswrong, and publishes them in the order of their dependencies. `--dry-run` publishes nothing.
 * `--version` only writes the version into every package.
 */

const root = fileURLToPath(new URL('../../', import.meta.url))
const starter = join(root, 'deploy/create')

/** Runs a program of this project, or npm. Ends the release if it fails. */
function run(program: string, words: readonly string[], cwd: string): void {
  const path = `${join(root, 'node_modules/.bin')}:${process.env.PATH}`
  const { status } = spawnSync(program, words, { cwd, stdio: 'inherit', env: { ...process.env, PATH: path } })
  if (status === 0) return
  process.stderr.write(`release: ${program} ${words.join(' ')} failed in ${cwd}: nothing after it was done\n`)
  process.exit(1)
}

const read = async (folder: string) => JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))

async function release(): Promise<void> {
  const { values } = parseArgs({
    options: { version: { type: 'string' }, 'dry-run': { type: 'boolean', default: false } },
  })
  if (values.version !== undefined) {
    for (const folder of [root, starter])
      run('npm', ['version', values.version, '--no-git-tag-version', '--allow-same-version'], folder)
    return
  }

  const { version } = await read(root)
  const starterVersion = (await read(starter)).version
  if (starterVersion !== version) {
    process.stderr.write(
      `release: roomful is ${version}, create-roomful ${starterVersion}: give both one with --version\n`,
    )
    process.exit(1)
  }

  const release = join(root, 'release')
  await rm(release, { recursive: true, force: true })
  await mkdir(release)
  const staged = await mkdtemp(join(tmpdir(), 'roomful-release-'))
  const client = join(staged, 'client')
  const create = join(staged, 'create')
  await mkdir(client)
  await stageClient(root, client)
  await cp(starter, create, { recursive: true })
  for (const file of ['CHANGELOG.md', 'LICENSE']) await cp(join(root, file), join(create, file))

  const packages = [
    { folder: client, typed: true },
    { folder: root, typed: true },
    { folder: create, typed: false },
  ]
  for (const { folder, typed } of packages) {
    run('publint', ['--strict'], folder)
    run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', release], folder)
    const { name } = await read(folder)
    const profile = ['--profile', 'esm-only']
    if (typed) run('attw', [join(release, `${name}-${version}.tgz`), ...profile], root)
  }
  // Only after all checks have passed.
  for (const { folder } of packages) {
    const { name } = await read(folder)
    const dryRun = values['dry-run'] ? ['--dry-run'] : []
    run('npm', ['publish', '--ignore-scripts', ...dryRun, `./${name}-${version}.tgz`], release)
  }
  await rm(staged, { recursive: true, force: true })
  process.stdout.write(`release: the packages are in ${release}\n`)
}

/** Exports of `roomful` that the small package has too. `roomful/client` is the main export of `roomful-client`. */
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
 * Writes the package `roomful-client` into `target`: the files of `dist/` under `root` that a client needs. They must be built. Rejects if
 * it needs a package that is not a peer.
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

// Node resolves symbolic links in the URL of a module, but not in its arguments.
if (realpathSync(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) await release()
