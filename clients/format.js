/**
 * `node clients/format.js [--write]`: checks the clients in Lua with StyLua and those in Python with ruff, as compiled to WebAssembly.
 * Prints each problem, and exits 1 if there is one. With `--write`, it formats the files instead of printing that they are not formatted.
 * Editors and the command lines of both tools read the same settings: `lua/stylua.toml` and `python/pyproject.toml`.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PositionEncoding, Workspace } from '@astral-sh/ruff-wasm-nodejs'
import * as stylua from '@johnnymorganz/stylua'
import { parse } from 'smol-toml'

const here = fileURLToPath(new URL('.', import.meta.url))
const writes = process.argv.includes('--write')

const settingsOf = (path) => parse(readFileSync(join(here, path), 'utf8'))

/** Names of the settings of StyLua whose values are names, and the values. */
const STYLUA_NAMES = {
  indent_type: stylua.IndentType,
  collapse_simple_statement: stylua.CollapseSimpleStatement,
}
const styluaSettings = settingsOf('lua/stylua.toml')

function formatLua(code) {
  const config = stylua.Config.new() // `formatCode` consumes it.
  for (const [name, value] of Object.entries(styluaSettings))
    config[name] = STYLUA_NAMES[name]?.[value] ?? value
  return stylua.formatCode(code, config, undefined, stylua.OutputVerification.None)
}

const ruff = new Workspace(settingsOf('python/pyproject.toml').tool.ruff, PositionEncoding.Utf16)

const LANGUAGES = [
  { folder: 'lua', ending: '.lua', format: formatLua, problems: () => [] },
  {
    folder: 'python',
    ending: '.py',
    format: (code) => ruff.format(code),
    problems: (code) =>
      ruff.check(code).map(({ start_location: { row }, code, message }) => `${row}: ${code} ${message}`),
  },
]

function tell(problem) {
  process.stdout.write(`${problem}\n`)
  process.exitCode = 1
}

for (const { folder, ending, format, problems } of LANGUAGES) {
  for (const name of readdirSync(join(here, folder), { recursive: true }).filter((one) =>
    one.endsWith(ending),
  )) {
    const path = join(here, folder, name)
    const code = readFileSync(path, 'utf8')
    const formatted = format(code)
    for (const problem of problems(formatted)) tell(`clients/${folder}/${name}:${problem}`)
    if (formatted === code) continue
    if (writes) writeFileSync(path, formatted)
    else tell(`clients/${folder}/${name}: not formatted: npm run format`)
  }
}
