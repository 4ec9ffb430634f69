import { spawnSync } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { stageClient } from './client-package.ts'

/**
 * `npm run release -- [--version 0.2.0] [--dry-run]`: builds the packages into `release/`, checks each with publint and arethetypeswrong, and
 * publishes them in the order of their dependencies. `--dry-run` publishes nothing. `--version` writes the version into every package and does
 * nothing else.
 */

const root = fileURLToPath(new URL('../../', import.meta.url))
const starter = join(root, 'deploy/create')
const { values } = parseArgs({
  options: { version: { type: 'string' }, 'dry-run': { type: 'boolean', default: false } },
})

/** Runs a program of this project, or npm; ends the release where it fails. */
function run(program: string, words: readonly string[], cwd: string): void {
  const path = `${join(root, 'node_modules/.bin')}:${process.env.PATH}`
  const { status } = spawnSync(program, words, { cwd, stdio: 'inherit', env: { ...process.env, PATH: path } })
  if (status === 0) return
  process.stderr.write(`release: ${program} ${words.join(' ')} failed in ${cwd}: nothing after it was done\n`)
  process.exit(1)
}

const read = async (folder: string) => JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))

if (values.version !== undefined) {
  for (const folder of [root, starter])
    run('npm', ['version', values.version, '--no-git-tag-version', '--allow-same-version'], folder)
  process.exit()
}

const { version } = await read(root)
const starterVersion = (await read(starter)).version
if (starterVersion !== version) {
  process.stderr.write(
    `release: roomful is ${version}, create-roomful ${starterVersion}: give both one with --version\n`,
  )
  process.exit(1)
}

run('npm', ['run', '--silent', 'build'], root)
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
// Only when all are as they should be.
for (const { folder } of packages) {
  const { name } = await read(folder)
  const dryRun = values['dry-run'] ? ['--dry-run'] : []
  run('npm', ['publish', '--ignore-scripts', ...dryRun, `./${name}-${version}.tgz`], release)
}
await rm(staged, { recursive: true, force: true })
process.stdout.write(`release: the packages are in ${release}\n`)
