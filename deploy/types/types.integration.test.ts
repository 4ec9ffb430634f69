import { spawnSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { foundFor, luaPath, programOr } from '../../test/support/debian-package.ts'
import { runProgram } from '../../test/support/program.ts'
import { newFolder } from '../../test/support/run-folder.ts'

const ROOMS = 'test/support/typed-rooms'

const python3 = foundFor('types for Python', () => programOr('python3'))
const lua = foundFor('types for Lua', luaPath)

/** Prints how many types Python has resolved. */
const RESOLVE = `
import typing, zoo
types = [value for value in vars(zoo).values() if typing.is_typeddict(value)]
for value in types: typing.get_type_hints(value)
print(len(types))
`

const TYPED = `---@class TypedStatePlayersValue
---@field name string
---@field team? "blue"|"red"
---@field hand? string[]
---@field at number[]
---@field friends TypedStatePlayersValue[]

---The state, by its type in TypeScript.
---@class TypedState
---@field open boolean
---@field players table<string, TypedStatePlayersValue>
---@field winner roomful.Null|string
---@field notes any # any in TypeScript
`

it.runIf(python3)('prints a module in which Python can resolve every type', async () => {
  const { ended, output } = runProgram(['types', '--lang', 'python', ROOMS])
  expect(await ended).toBe(0)
  const folder = await newFolder()
  await writeFile(join(folder, 'zoo.py'), output())
  const python = spawnSync(python3!, ['-c', RESOLVE], { cwd: folder, encoding: 'utf8' })
  expect(python.stderr).toBe('')
  expect(Number(python.stdout)).toBe(output().match(/TypedDict[()]/g)!.length)
})

it.runIf(lua)('prints a file that Lua can load, with the types that states have in TypeScript', async () => {
  const { ended, output } = runProgram(['types', '--lang', 'lua', ROOMS])
  expect(await ended).toBe(0)
  expect(output()).toContain(TYPED)
  const loaded = spawnSync(lua!, ['-'], { input: output(), encoding: 'utf8' })
  expect([loaded.status, loaded.stderr]).toEqual([0, ''])
})

it('exits with 2, and says which room file cannot be loaded', async () => {
  const folder = await newFolder()
  await writeFile(join(folder, 'broken.mjs'), 'throw new Error("no database")')
  const { ended, output } = runProgram(['types', '--lang', 'lua', folder])
  expect(await ended).toBe(2)
  expect(output()).toMatch(/^roomful types: .*broken\.mjs cannot be loaded: no database \(line 1\)\nSee /)
})
