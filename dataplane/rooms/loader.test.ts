import { appendFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { recordingLog } from '../../test/support/redis-store.ts'
import { isRoomDefinition } from './definition.ts'
import { codeHash, loadRooms, reloadRoom, roomsHash } from './loader.ts'

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))
const DEFINITION = new URL('./definition.ts', import.meta.url).href
const folders: string[] = []

/** A folder with these files; `ROOM` in a file is a minimal room type of that name. */
async function folderOf(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-rooms-'))
  folders.push(folder)
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true })
    await writeFile(path, content)
  }
  return folder
}

const room = (type: string, count = 0): string => `
import { defineRoom } from '${DEFINITION}'
const state: { count: number } = { count: ${count} }
export default defineRoom({ type: '${type}', create: () => state })
`

afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true })
})

describe('loadRooms', () => {
  it('loads the examples, which import the package by its name', async () => {
    const definitions = await loadRooms(EXAMPLES)
    expect(definitions.map(({ type }) => type)).toEqual([
      'arena',
      'cards-ranked',
      'cards',
      'counter',
      'notes',
      'tictactoe',
    ])
    expect(definitions.every(isRoomDefinition)).toBe(true)
  })

  it('finds modules of the folder itself, and room and queue files of its subfolders, in TypeScript, without a build', async () => {
    const folder = await folderOf({
      'lobby.ts': room('lobby'),
      'chess/room.ts': room('chess'),
      'chess/queue.ts': room('chess-queue'),
      'chess/board.ts': 'throw new Error("not a room")',
      'lobby.test.ts': 'throw new Error("not a room")',
      'chat.suite.ts': 'throw new Error("not a room")',
      'pages/index.html': '',
    })
    expect((await loadRooms(folder)).map(({ type }) => type)).toEqual(['chess-queue', 'chess', 'lobby'])
  })

  it.each([
    ['that cannot be read', 'export default {', /a\.ts cannot be loaded/],
    ['whose definition is wrong', room('b:c'), /a\.ts: room type "b:c": type is "b:c"/],
    [
      'that imports what is not installed there',
      "import 'not-installed'\nexport default 1",
      /a\.ts cannot be loaded: it imports not-installed, which is not installed in its folder or above: npm install not-installed there$/,
    ],
  ])('names the file %s', async (_, content, message) => {
    await expect(loadRooms(await folderOf({ 'a.ts': content }))).rejects.toThrow(message)
  })

  it('ignores a file that has no room, and logs that', async () => {
    const folder = await folderOf({
      'a.ts': room('a'),
      'almost.ts': 'export default { type: "b" }',
      'words.ts': 'export const words = ["sun"]',
    })
    const { log, logged } = recordingLog()
    expect((await loadRooms(folder, log)).map(({ type }) => type)).toEqual(['a'])
    for (const file of ['almost', 'words'])
      expect(logged()).toMatch(new RegExp(`${file}\\.ts","msg":"room file ignored: it has no export default`))
  })

  it('names both files of one type', async () => {
    const folder = await folderOf({ 'a.ts': room('same'), 'b.ts': room('same') })
    await expect(loadRooms(folder)).rejects.toThrow(/a\.ts and .*b\.ts both define the room type "same"/)
  })

  it('rejects a folder without room types', async () => {
    await expect(loadRooms(await folderOf({}))).rejects.toThrow(/has no room types/)
    await expect(loadRooms('/nowhere/at/all')).rejects.toThrow(/cannot be read/)
  })

  it('reads the present version of an edited file, and of its imports', async () => {
    const folder = await folderOf({ 'a.ts': room('a', 1) })
    const file = join(folder, 'a.ts')
    expect((await reloadRoom(file))?.create({})).toEqual({ count: 1 })
    await writeFile(join(folder, 'two.ts'), 'export const two = 2')
    await writeFile(file, `import { two } from './two.ts'\n${room('a').replace('count: 0', 'count: two')}`)
    expect((await reloadRoom(file))?.create({})).toEqual({ count: 2 })
    await writeFile(join(folder, 'two.ts'), 'export const two = 22')
    expect((await reloadRoom(file))?.create({})).toEqual({ count: 22 })
  })
})

describe('code hash', () => {
  const FILES = {
    'duel/room.ts': `import { strike } from './rules.ts'\nimport words from '../words.json'\nexport default strike`,
    'duel/rules.ts': `import './deep'\nexport { strike } from "../shared/strike.js"`,
    'duel/deep/index.ts': '',
    'shared/strike.ts': 'export const strike = 1',
    'words.json': '[]',
    'duel/page.ts': '',
  }
  let folder: string
  /** Hash of the room as it is now. */
  const hash = () => codeHash(join(folder, 'duel/room.ts'))

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'roomful-code-'))
    for (const [name, content] of Object.entries(FILES)) {
      await mkdir(dirname(join(folder, name)), { recursive: true })
      await writeFile(join(folder, name), content)
    }
  })

  afterAll(() => rm(folder, { recursive: true }))

  /** Returns true if an edit of a file changes the hash. */
  async function changesWith(file: string): Promise<boolean> {
    const before = await hash()
    await appendFile(join(folder, file), ' ')
    return (await hash()) !== before
  }

  describe('codeHash', () => {
    it('is the same for the same files in another folder', async () => {
      const before = await hash()
      expect(before).toMatch(/^[0-9a-f]{12}$/)
      await rename(folder, `${folder}-moved`)
      folder += '-moved'
      expect(await hash()).toBe(before)
    })

    it.each(['duel/room.ts', 'duel/rules.ts', 'duel/deep/index.ts', 'shared/strike.ts', 'words.json'])(
      'differs when %s differs',
      async (file) => {
        expect(await changesWith(file)).toBe(true)
      },
    )

    it('does not depend on files that the room does not import', async () => {
      expect(await changesWith('duel/page.ts')).toBe(false)
    })
  })

  describe('roomsHash', () => {
    const duel = { type: 'duel', codeHash: 'aaa' }
    const chess = { type: 'chess', codeHash: 'bbb' }

    it('differs with the code of any type, and not with the order', () => {
      expect(roomsHash([duel, chess])).toBe(roomsHash([chess, duel]))
      expect(roomsHash([duel, { ...chess, codeHash: 'ccc' }])).not.toBe(roomsHash([duel, chess]))
    })

    it('is unknown for a room type that was not loaded from a file', () => {
      expect(roomsHash([duel, { type: 'chess' }])).toBe('unknown')
    })
  })
})
