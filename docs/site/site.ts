import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/**
 * `npm run site`: builds the pages of docs/ and the reference of the package's entry points as a static site, in docs/site/dist. It fails
 * for a link without a target, and for a public export without a comment. `-- --serve` shows the site. Its tools are installed in docs/site
 * by this command only.
 */

const folder = fileURLToPath(new URL('.', import.meta.url))
const root = fileURLToPath(new URL('../..', import.meta.url))

/** Runs a program in the folder. Exits with its exit code unless that is 0. */
function run(command: string, words: readonly string[]): void {
  const { status, error } = spawnSync(command, words, { cwd: folder, stdio: 'inherit' })
  if (error) throw error
  if (status !== 0) process.exit(status ?? 1)
}
const tool = (name: string, ...words: string[]): void => run(`${folder}node_modules/.bin/${name}`, words)

/** Returns true if the packages of package-lock.json are installed. */
function installed(): boolean {
  const [lock, done] = ['package-lock.json', 'node_modules/.package-lock.json'].map((name) => folder + name)
  return existsSync(done!) && statSync(done!).mtimeMs >= statSync(lock!).mtimeMs
}

/** Returns the sources of the package's exports, such as `client/index.ts`. */
function entryPoints(): string[] {
  const manifest: { exports: Record<string, string | { types?: string }> } = JSON.parse(
    readFileSync(`${root}package.json`, 'utf8'),
  )
  const types = Object.values(manifest.exports).map((entry) => (typeof entry === 'object' ? entry.types : ''))
  const sources = types
    .filter(Boolean)
    .map((path) => path!.replace('./dist/', root).replace(/\.d\.ts$/, '.ts'))
  return [...new Set(sources)].map((path) => (existsSync(path) ? path : `${path}x`))
}

if (process.argv.includes('--serve')) tool('vitepress', 'preview')
else {
  if (!installed()) run('npm', ['ci', '--no-audit', '--no-fund'])
  tool('typedoc', ...entryPoints())
  tool('vitepress', 'build')
}
