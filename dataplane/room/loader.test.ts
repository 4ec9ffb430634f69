import { appendFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { recordingLog } from '../../test/support/redis-store.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, isRoomDefinition, type RoomDefinition } from './definition.ts'
import { InstalledTypes } from './installed-types.ts'
import { codeHash, developRooms, loadRooms, reloadRoom, roomsHash } from './loader.ts'

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
    const rejects = (folder: string, says: RegExp) =>
      expect(loadRooms(folder)).rejects.toMatchObject({
        name: 'RoomsFolderUnusable',
        message: expect.stringMatching(says),
      })
    await rejects(await folderOf({}), /has no room types/)
    await rejects('/nowhere/at/all', /cannot be read: ENOENT/)
    await rejects(join(await folderOf({ 'a.txt': '' }), 'a.txt'), /cannot be read: ENOTDIR/)
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

describe('edited room types', () => {
  const stepping = (step: number, state?: v.GenericSchema) =>
    defineRoom({
      type: 'steps',
      messages: { go: { data: v.null() } },
      sync: { rate: 0 },
      ...(state ? { state } : {}),
      create: () => ({ at: 0 }),
      onMessage(state) {
        state.at += step
      },
    })

  describe('a room type that is replaced', () => {
    it('changes the hash and the version that other nodes see', () => {
      const types = new InstalledTypes([stepping(1)])
      expect([types.hash, types.versions]).toEqual(['unknown', { steps: 1 }])
      types.replace({ ...stepping(2), codeHash: 'bbb', version: 2 })
      const hash = roomsHash([{ type: 'steps', codeHash: 'bbb' }])
      expect([types.hash, types.versions]).toEqual([hash, { steps: 2 }])
    })

    it('keeps the state of its running rooms, and handles their next message with the new code', async () => {
      const { bench, ann } = await roomWith(stepping(1), ['ann'])
      await bench.say('steps', 'ann', 'go', null)
      bench.host.replaceRoom(stepping(10))
      await bench.say('steps', 'ann', 'go', null)
      expect([ann.state, ann.faults]).toEqual([{ at: 11 }, []])
    })

    it('does not change rooms whose state does not fit any more', async () => {
      const { bench, ann } = await roomWith(stepping(1), ['ann'])
      bench.host.replaceRoom(stepping(10, v.object({ at: v.string() })))
      await bench.say('steps', 'ann', 'go', null)
      expect(ann.state).toEqual({ at: 1 })
      bench.host.replaceRoom(stepping(10, v.object({ at: v.number() })))
      await bench.say('steps', 'ann', 'go', null)
      expect(ann.state).toEqual({ at: 11 })
    })
  })

  describe('a room type whose create has changed', () => {
    const counting = (create: () => object, version = 1) =>
      defineRoom({
        type: 'count',
        version,
        create,
        ...(version === 2 ? { migrate: { 1: () => ({ dots: 0, waves: 0 }) } } : {}),
      })
    const first = counting(() => ({ dots: 0 }))

    it('logs that running rooms keep their state', async () => {
      const { log, logged } = recordingLog()
      const { bench } = await roomWith(first, ['ann'], { log })
      bench.host.replaceRoom(counting(() => ({ dots: 0, waves: 0 })))
      expect(logged()).toMatch(
        /"reason":"running rooms of type count keep their state; .*"create has changed"/,
      )
    })

    it('logs nothing if create is the same, if a migration makes the new state, or if no room of the type runs', async () => {
      const { log, logged } = recordingLog()
      const { bench } = await roomWith(first, ['ann'], { log })
      bench.host.replaceRoom(first)
      bench.host.replaceRoom(counting(() => ({ dots: 0, waves: 0 }), 2))
      const { host } = new RoomBench([first], { log })
      host.replaceRoom(counting(() => ({ dots: 0, waves: 0 })))
      expect(logged()).toContain('room type replaced')
      expect(logged()).not.toContain('create has changed')
    })
  })

  describe('watching a folder', () => {
    const closings: (() => unknown)[] = []
    afterEach(async () => {
      for (const close of closings.splice(0).reverse()) await close()
    })

    const source = (idleSeconds: number) =>
      `import { defineRoom } from '${new URL('./definition.ts', import.meta.url).href}'
     export default defineRoom({ type: 'watched', idleSeconds: ${idleSeconds}, create: () => ({}) })`

    async function watchedFolder(prepare: (folder: string) => Promise<unknown> = async () => {}) {
      const folder = await mkdtemp(join(tmpdir(), 'roomful-watch-'))
      closings.push(() => rm(folder, { recursive: true }))
      await prepare(folder)
      const { log, logged } = recordingLog()
      const changes: RoomDefinition[] = []
      const developed = await developRooms(folder, log)
      developed.watch((definition) => void changes.push(definition))
      closings.push(() => developed.close())
      /** Waits for the definition. One edit can be reported twice, because the system may report it late. */
      const idle = (seconds: number) => expect.poll(() => changes.at(-1)?.idleSeconds).toBe(seconds)
      return { folder, rooms: developed.rooms, logged, idle }
    }

    it('reports an edited room type, and only logs one that cannot be loaded', async () => {
      const { folder, logged, idle } = await watchedFolder(async (into) => {
        await writeFile(join(into, 'package.json'), '{ "type": "module" }')
        await writeFile(join(into, 'watched.ts'), source(1))
      })
      const file = join(folder, 'watched.ts')
      await writeFile(file, source(2))
      await idle(2)
      await writeFile(file, 'export default defineRoom({')
      await expect.poll(logged).toMatch(/watched\.ts cannot be loaded: .*the old definition stays/)
      await writeFile(file, `throw new Error('boom')\nexport {}`)
      await expect.poll(logged).toMatch(/watched\.ts cannot be loaded: boom \(line 1\); the old/)
      await writeFile(file, source(3))
      await idle(3)
      await writeFile(file, 'export default 1')
      await expect
        .poll(logged)
        .toMatch(/watched\.ts has no export default defineRoom.*; the old definition stays/)
      await rm(file)
      await expect.poll(logged).toMatch(/"file":".*watched\.ts","msg":"room file gone/)
    })

    it('loads a broken room type after its repair, and the others before', async () => {
      const { folder, rooms, logged, idle } = await watchedFolder(async (into) => {
        await writeFile(join(into, 'broken.ts'), 'export default defineRoom({')
        await writeFile(join(into, 'whole.ts'), source(1).replace('watched', 'whole'))
      })
      expect(rooms.map(({ type }) => type)).toEqual(['whole'])
      expect(logged()).toMatch(/broken\.ts cannot be loaded: .*"msg":"room file failed"/)
      await writeFile(join(folder, 'broken.ts'), source(2))
      await idle(2)
    })

    it('ignores a helper at the start, and loads the rooms beside it again after an edit of the helper', async () => {
      const { folder, rooms, logged, idle } = await watchedFolder(async (into) => {
        await writeFile(join(into, 'idle.ts'), 'export const idle = 2')
        await writeFile(
          join(into, 'watched.ts'),
          `import { idle } from './idle.ts'\n${source(1).replace('idleSeconds: 1', 'idleSeconds: idle')}`,
        )
      })
      expect(rooms.map(({ idleSeconds }) => idleSeconds)).toEqual([2])
      expect(logged()).toMatch(/idle\.ts","msg":"room file ignored/)
      await writeFile(join(folder, 'idle.ts'), 'export const idle = 3')
      await idle(3)
    })

    it('refuses a second file of one type, and accepts a renamed file', async () => {
      const { folder, logged, idle } = await watchedFolder((into) =>
        writeFile(join(into, 'watched.ts'), source(1)),
      )
      await writeFile(join(folder, 'other.ts'), source(2))
      await expect.poll(logged).toMatch(/watched\.ts and .*other\.ts both define the room type/)
      await rm(join(folder, 'watched.ts'))
      await writeFile(join(folder, 'other.ts'), source(3))
      await idle(3)
    })

    // Many editors write another file and rename it over the old one. A watch of the file itself would end with the first edit.
    it('sees every edit of a file that is replaced by another each time', async () => {
      const { folder, idle } = await watchedFolder((into) => writeFile(join(into, 'watched.ts'), source(1)))
      for (const idleSeconds of [2, 3, 4]) {
        await writeFile(join(folder, 'watched.ts.new'), source(idleSeconds))
        await rename(join(folder, 'watched.ts.new'), join(folder, 'watched.ts'))
        await idle(idleSeconds)
      }
    })

    it('sees a room type in a new folder, and edits of the files beside it', async () => {
      const { folder, idle } = await watchedFolder()
      await mkdir(join(folder, 'watched'))
      await writeFile(join(folder, 'watched/idle.ts'), 'export const idle = 2')
      await writeFile(
        join(folder, 'watched/room.ts'),
        `import { idle } from './idle.ts'\n${source(1).replace('idleSeconds: 1', 'idleSeconds: idle')}`,
      )
      await idle(2)
      await writeFile(join(folder, 'watched/idle.ts'), 'export const idle = 3')
      await idle(3)
    })
  })
})
