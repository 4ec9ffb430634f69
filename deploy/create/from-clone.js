// @ts-check
import { spawnSync } from 'node:child_process'
import { readdirSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { readArguments, sayNext, writeGame } from './game.js'

/** `npm run new ../my-game`: creates a game in a new folder, and installs it with the package that this clone builds. */

const clone = fileURLToPath(new URL('../../', import.meta.url))
// npm runs scripts in the folder of the clone's package.json.
const base = process.env.INIT_CWD ?? process.cwd()
const game = await readArguments('npm run new', base)
const { folder } = game

/** @type {(doing: string, words: readonly string[], cwd: string) => void} */
function npm(doing, words, cwd) {
  process.stdout.write(`${doing} …\n`)
  // On Windows, npm is a script for the shell.
  const shell = process.platform === 'win32'
  const { status, stdout, stderr } = spawnSync('npm', words, { cwd, encoding: 'utf8', shell })
  if (status === 0) return
  process.stderr.write(`${stdout}${stderr}npm run new: npm ${words.join(' ')} failed in ${cwd}\n`)
  // Another attempt needs an empty folder.
  rmSync(folder, { recursive: true })
  process.exit(1)
}

writeGame(game)
npm('Building roomful', ['pack', '--silent', '--pack-destination', folder], clone)
const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'))
const quiet = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
npm('Installing the game', ['install', ...quiet, `./${tarball}`], folder)
sayNext(game, base, ['npm run dev'])
