import { spawnSync } from 'node:child_process'
import { chmod, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import { bundlePage } from '../../dataplane/ops/admin-page.ts'

/** `npm run build`: the package in dist/: JavaScript, declarations, assets, and the SDK for browsers in one file. */

/**
 * Returns a script for browsers, such as the SDK, with all its imports: `entry`, a file path, as one minified ES module. Rejects with the
 * messages of esbuild.
 */
async function bundleClient(entry: string): Promise<string> {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    legalComments: 'none',
    logLevel: 'silent',
  })
  return result.outputFiles[0]!.text
}

const RELATIVE_TS = /((?:from|import)\s*\(?\s*['"])(\.{1,2}\/[^'"]*)\.ts(['"])/g

/**
 * Keeps the declarations below `folder` that users can reach: those of `entries` (paths below it) and of all their imports. Removes the
 * others. The kept files then import each other as `.js`, which every compiler resolves. The compiler leaves `.ts` there.
 */
async function keepDeclarations(folder: string, entries: readonly string[]): Promise<number> {
  const kept = new Set(entries.map((entry) => join(folder, entry)))
  for (const file of kept) {
    const text = await readFile(file, 'utf8')
    for (const [, , imported] of text.matchAll(RELATIVE_TS)) kept.add(join(dirname(file), `${imported}.d.ts`))
    await writeFile(file, text.replace(RELATIVE_TS, '$1$2.js$3'))
  }
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    if (entry.name.endsWith('.d.ts') && !kept.has(file)) await rm(file)
  }
  return kept.size
}

/**
 * Files that are not copied: sources that are compiled, pages of the documentation, loaders of TypeScript, and the admin page, which is
 * bundled.
 */
const LEFT_OUT = /\.(tsx?|md)$|-from-source\.mjs$|dataplane\/ops\/page\//

/** Folders whose other files (Lua, HTML, CSS, JSON …) go into the package. */
const FOLDERS = ['shared', 'control', 'dataplane', 'client', 'examples', 'deploy/local', 'deploy/balancer']

/** Copies the files that the compiler does not handle from `root` to the same paths under `target`. Resolves with their number. */
async function copyAssets(root: string, target: string): Promise<number> {
  let copied = 0
  for (const folder of FOLDERS) {
    const entries = await readdir(join(root, folder), { recursive: true, withFileTypes: true })
    for (const entry of entries) {
      const file = join(entry.parentPath, entry.name)
      if (!entry.isFile() || LEFT_OUT.test(file)) continue
      await cp(file, join(target, file.slice(root.length)))
      copied += 1
    }
  }
  return copied
}

/** Returns the commit of the build: `COMMIT` if there is no repository, as in an image, otherwise that of the checkout. */
function commit(): string {
  if (process.env.COMMIT) return process.env.COMMIT
  const words = ['describe', '--always', '--dirty', '--abbrev=12', '--exclude=*']
  const git = spawnSync('git', words, { cwd: root, encoding: 'utf8' })
  return git.status === 0 ? git.stdout.trim() : 'unknown'
}

const root = fileURLToPath(new URL('../../', import.meta.url))
const dist = `${root}dist/`
const say = (text: string) => process.stdout.write(`${text}\n`)

await rm(dist, { recursive: true, force: true })

const compiler = fileURLToPath(new URL('../bin/tsc', import.meta.resolve('typescript')))
const compiled = spawnSync(process.execPath, [compiler, '-p', `${root}deploy/build/tsconfig.build.json`], {
  stdio: 'inherit',
})
if (compiled.status !== 0) {
  say('dist/ was not built: the sources do not compile')
  process.exit(1)
}
// TypeScript's helper for `import(name)` reads `this` at the top level of a module, of which bundlers warn each user of the SDK.
const connection = `${dist}client/connection.js`
const code = await readFile(connection, 'utf8')
const plain = code.replace(/\(this && this\.\w+\) \|\| /, '')
if (plain === code) throw new Error(`${connection} has no helper of TypeScript: remove this step`)
await writeFile(connection, plain)

const declarations = await keepDeclarations(dist, [
  'dataplane/index.d.ts',
  'dataplane/features/saves/postgres.d.ts',
  'client/index.d.ts',
  'client/motion.d.ts',
  'client/queue.d.ts',
  'client/react.d.ts',
  'server/index.d.ts',
  'test/kit/index.d.ts',
])
say(`compiled to dist/, with ${declarations} declarations`)

say(`copied ${await copyAssets(root, dist)} other files`)

await writeFile(`${dist}client/roomful.min.js`, await bundleClient(`${dist}client/index.js`))
say('bundled dist/client/roomful.min.js')

// It needs React, which is not a dependency of the package.
const cards = `${dist}examples/cards/page.js`
await writeFile(cards, await bundleClient(cards))
say('bundled the page of the card game')

for (const page of ['deploy/admin-page/', 'deploy/playground/']) {
  await mkdir(dist + page, { recursive: true })
  const parts = await bundlePage(pathToFileURL(root + page))
  await writeFile(`${dist + page}page.json`, JSON.stringify(parts))
}
say('bundled the admin page and the playground')

const explorer = fileURLToPath(import.meta.resolve('openapi-explorer/dist/browser/openapi-explorer.min.js'))
await cp(explorer, `${dist}control/explorer.js`)
await cp(join(dirname(explorer), '../../LICENSE'), `${dist}control/explorer.LICENSE`)
say('copied OpenAPI Explorer, for /docs of control')

await writeFile(`${dist}build.json`, JSON.stringify({ commit: commit() }))

await chmod(`${dist}deploy/cli/roomful.js`, 0o755)
