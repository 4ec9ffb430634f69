import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { beforeAll, describe, expect, it } from 'vitest'

const run = promisify(execFile)
const NODE_MODULES = fileURLToPath(new URL('../../node_modules', import.meta.url))

/** Imports its arguments, ends the compiler, and prints the stacks of the modules' errors, and the child processes. */
const PROGRAM = `
import { execFileSync } from 'node:child_process'
import { endCompiler, importTypeScript } from './loader.mjs'
const children = () =>
  execFileSync('ps', ['-A', '-o', 'ppid=,args='], { encoding: 'utf8' })
    .split('\\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith(process.pid + ' ') && !line.endsWith('args='))
const stacks = []
for (const file of process.argv.slice(2)) {
  try {
    const { default: exported } = await importTypeScript(file)
    ;(exported.default ?? exported).run()
  } catch ({ stack }) {
    stacks.push(stack.split('\\n'))
  }
}
endCompiler()
console.log(JSON.stringify({ stacks, children: children() }))
process.exit()
`

const MODULE = `import { fail } from './fail.ts'
type Text = string
const text: Text = 'boom'
export default { run: () => fail(text) }
`
const HELPER = `

export function fail(text: string): never {
  throw new Error(text)
}
`

/** Output of a process that was started like an installed one: compiled, and without tsx. */
let said: { readonly stacks: readonly string[][]; readonly children: readonly string[] }
/** A deployment's folder of rooms has no package.json, and holds CommonJS. */
const FOLDERS = { CommonJS: '{}', 'ES modules': '{ "type": "module" }' }

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-typescript-'))
  const files: Record<string, string> = { 'main.mjs': PROGRAM }
  await build({
    entryPoints: [fileURLToPath(new URL('./loader.ts', import.meta.url))],
    outfile: join(folder, 'loader.mjs'),
    bundle: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
  })
  for (const [name, description] of Object.entries(FOLDERS)) {
    files[`${name}/package.json`] = description
    files[`${name}/room.ts`] = MODULE
    files[`${name}/fail.ts`] = HELPER
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
  await symlink(NODE_MODULES, join(folder, 'node_modules'))
  const rooms = Object.keys(FOLDERS).map((name) => join(folder, name, 'room.ts'))
  const { stdout } = await run(process.execPath, [join(folder, 'main.mjs'), ...rooms], {
    // It would not compile what it has compiled before.
    env: { ...process.env, NODE_OPTIONS: '', TSX_DISABLE_CACHE: '1' },
  })
  said = JSON.parse(stdout)
})

describe('importTypeScript', () => {
  it.each(Object.keys(FOLDERS))('gives the stacks of %s file and line', (name) => {
    const [, first, second] = said.stacks[Object.keys(FOLDERS).indexOf(name)]!
    expect([first, second]).toEqual([
      expect.stringMatching(new RegExp(`fail \\(/.*${name}/fail\\.ts:4:9\\)$`)),
      expect.stringMatching(new RegExp(`run \\(/.*${name}/room\\.ts:4:\\d+\\)$`)),
    ])
  })
})

describe('endCompiler', () => {
  it('leaves no process of the compiler behind', () => {
    expect(said.children).toEqual([])
  })
})
