#!/usr/bin/env node
// @ts-check
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'

/** `npm create roomful [folder]`: writes a game that runs into a folder. Plain JavaScript, so that it starts at once. */

const TEMPLATES = new URL('./templates/', import.meta.url)
const NAMES = readdirSync(TEMPLATES)
const DEFAULT = 'vanilla'
/** What every game has: the room, its test, the style. */
const COMMON = new URL('./common/', import.meta.url)
const HELP = `Usage: npm create roomful [folder] -- [options]

  folder             where the game goes; asked for when it is left out at a terminal
  --template NAME    ${NAMES.join(', ')} [${DEFAULT}]
  --help             this text
`

/** @param {string} message */
function fail(message) {
  process.stderr.write(`create-roomful: ${message}\n\n${HELP}`)
  process.exit(2)
}

async function askFolder() {
  if (!process.stdin.isTTY) fail('the name of the folder is missing')
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const answer = await terminal.question('Folder of the game [my-game]: ')
  terminal.close()
  return answer.trim() || 'my-game'
}

function readArguments() {
  const options = /** @type {const} */ ({
    template: { type: 'string', default: DEFAULT },
    help: { type: 'boolean', default: false },
  })
  try {
    return parseArgs({ options, allowPositionals: true })
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error))
  }
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19)) {
  process.stderr.write(
    `create-roomful: this is Node ${process.versions.node}, and 20.19 or newer is needed\n`,
  )
  process.exit(2)
}
const { values, positionals } = readArguments()
if (values.help) {
  process.stdout.write(HELP)
  process.exit(0)
}
const { template = '' } = values
if (!NAMES.includes(template)) fail(`${template} is no template; there are ${NAMES.join(', ')}`)
if (positionals.length > 1) fail(`${positionals[1]} is one word too many`)
const folder = resolve(positionals[0] ?? (await askFolder()))
if (existsSync(folder) && readdirSync(folder).length > 0) fail(`${folder} is not empty`)

for (const part of [COMMON, new URL(`${template}/`, TEMPLATES)]) cpSync(part, folder, { recursive: true })
// npm leaves a .gitignore out of packages.
renameSync(join(folder, 'gitignore'), join(folder, '.gitignore'))

const { version } = JSON.parse(readFileSync(new URL('./package.json', import.meta.url), 'utf8'))
const file = join(folder, 'package.json')
const game = JSON.parse(readFileSync(file, 'utf8'))
game.name =
  basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '') || 'my-game'
game.dependencies.roomful = `^${version}`
writeFileSync(file, `${JSON.stringify(game, null, 2)}\n`)

process.stdout.write(`
${positionals[0] ?? basename(folder)} is ready:

  cd ${positionals[0] ?? basename(folder)}
  npm install
  npm run dev     # then open the address it prints, in two tabs

rooms/board.ts is what happens on the server, src/ what players see: edit both while you play.
`)
