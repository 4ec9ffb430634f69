// @ts-check
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join, relative, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'

/** Arguments and files of a new game. Plain JavaScript, so that it starts without a build. */

const TEMPLATES = new URL('./templates/', import.meta.url)
const NAMES = readdirSync(TEMPLATES)
const DEFAULT = 'vanilla'
/** Files of every game. */
const COMMON = new URL('./common/', import.meta.url)
/** Room, test and style of the templates without rooms. */
const BOARD = new URL('./board/', import.meta.url)

/**
 * Reads the arguments of `command`, such as `npm create roomful`. For invalid ones it ends the process with 2 and an explanation, after
 * `--help` with 0. Paths are relative to `base`.
 * @param {string} command
 * @param {string} base
 * @returns {Promise<{ folder: string, template: string }>}
 */
export async function readArguments(command, base) {
  const help = `Usage: ${command} <folder> -- [options]

  folder             folder of the new game; if it is missing, the command asks for the folder
  --template NAME    ${NAMES.join(', ')} [${DEFAULT}]
  --help             this text
`
  /** @type {(message: string) => never} */
  const fail = (message) => {
    process.stderr.write(`${command}: ${message}\n\n${help}`)
    process.exit(2)
  }
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 19))
    fail(`this is Node ${process.versions.node}: install 20.19 or newer`)
  const { values, positionals } = parse(fail)
  if (values.help) {
    process.stdout.write(help)
    process.exit(0)
  }
  const { template } = values
  if (!NAMES.includes(template)) fail(`${template} is no template; there are ${NAMES.join(', ')}`)
  if (positionals.length > 1)
    fail(`${positionals[1]} is one word too many; options need a -- in front of them`)
  const folder = resolve(base, positionals[0] ?? (await askFolder(fail)))
  if (existsSync(folder) && readdirSync(folder).length > 0) fail(`${folder} is not empty`)
  return { folder, template }
}

/** @param {(message: string) => never} fail */
function parse(fail) {
  try {
    return parseArgs({
      options: {
        template: { type: 'string', default: DEFAULT },
        help: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error))
  }
}

/** @param {(message: string) => never} fail */
async function askFolder(fail) {
  if (!process.stdin.isTTY) fail('the name of the folder is missing')
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const answer = await terminal.question('Folder of the game [my-game]: ')
  terminal.close()
  return answer.trim() || 'my-game'
}

/**
 * Writes the files of a game that depends on this version of roomful.
 * @param {{ folder: string, template: string }} game
 */
export function writeGame({ folder, template }) {
  const own = new URL(`${template}/`, TEMPLATES)
  const parts = existsSync(new URL('rooms', own)) ? [COMMON, own] : [COMMON, BOARD, own]
  for (const part of parts) cpSync(part, folder, { recursive: true })
  // npm does not include a .gitignore in packages.
  renameSync(join(folder, 'gitignore'), join(folder, '.gitignore'))

  const { version } = JSON.parse(readFileSync(new URL('./package.json', import.meta.url), 'utf8'))
  const file = join(folder, 'package.json')
  const manifest = JSON.parse(readFileSync(file, 'utf8'))
  manifest.name =
    basename(folder)
      .toLowerCase()
      .replaceAll(/[^a-z0-9-]+/g, '-')
      .replaceAll(/^-+|-+$/g, '') || 'my-game'
  manifest.dependencies.roomful = `^${version}`
  writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`)
}

/**
 * Prints how to play the new game. `base`: working directory of the terminal.
 * @param {{ folder: string, template: string }} game
 * @param {string} base
 * @param {readonly string[]} commands
 */
export function sayNext({ folder, template }, base, commands) {
  const path = relative(base, folder)
  const players =
    template === 'backend'
      ? 'Open it in two browsers, or in a private window: each browser is a player.\nrooms/ and backend/ run on the server, src/ in the browser. Edit all of them while you play.'
      : 'Open it in two tabs: each tab is a player.\nrooms/board.ts runs on the server, src/ in the browser. Edit both while you play.'
  process.stdout.write(`
${basename(folder)} is ready:

  cd ${path.length < folder.length ? path : folder}
${commands.map((command) => `  ${command}\n`).join('')}
npm run dev prints an address after "Local". ${players}
`)
}
