import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as v from 'valibot'
import { afterEach, describe, expect, it } from 'vitest'
import { recordingLog } from '../../test/support/redis-store.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'
import { developRooms } from './loader.ts'

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
  it('keeps the state of its running rooms, and handles their next message the new way', async () => {
    const { bench, ann } = await roomWith(stepping(1), ['ann'])
    await bench.say('steps', 'ann', 'go', null)
    bench.host.replaceRoom(stepping(10))
    await bench.say('steps', 'ann', 'go', null)
    expect([ann.state, ann.faults]).toEqual([{ at: 11 }, []])
  })

  it('leaves rooms alone whose state does not fit any more', async () => {
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
    expect(logged()).toMatch(/"reason":"running rooms of type count keep their state; .*"create has changed"/)
  })

  it('logs nothing if create is the same, if a migration makes the new state, or if no room of the type runs', async () => {
    const { log, logged } = recordingLog()
    const { bench } = await roomWith(first, ['ann'], { log })
    bench.host.replaceRoom(first)
    bench.host.replaceRoom(counting(() => ({ dots: 0, waves: 0 }), 2))
    const { host } = new RoomBench([first], { log })
    host.replaceRoom(counting(() => ({ dots: 0, waves: 0 })))
    expect(logged()).toContain('room type count was replaced')
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
    /** Waits for the definition: one edit can be seen twice, since a system may tell of it late. */
    const idle = (seconds: number) => expect.poll(() => changes.at(-1)?.idleSeconds).toBe(seconds)
    return { folder, rooms: developed.rooms, logged, idle }
  }

  it('brings an edited room type, and keeps quiet about one that is broken, except in the log', async () => {
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

  it('loads a room type that was broken at the start once it is repaired, and the others before', async () => {
    const { folder, rooms, logged, idle } = await watchedFolder(async (into) => {
      await writeFile(join(into, 'broken.ts'), 'export default defineRoom({')
      await writeFile(join(into, 'whole.ts'), source(1).replace('watched', 'whole'))
    })
    expect(rooms.map(({ type }) => type)).toEqual(['whole'])
    expect(logged()).toMatch(/broken\.ts cannot be loaded: .*"msg":"room file failed"/)
    await writeFile(join(folder, 'broken.ts'), source(2))
    await idle(2)
  })

  it('ignores a helper at the start, and loads the rooms beside it again when it is edited', async () => {
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

  it('refuses a second file of one type, and accepts a file that was renamed', async () => {
    const { folder, logged, idle } = await watchedFolder((into) =>
      writeFile(join(into, 'watched.ts'), source(1)),
    )
    await writeFile(join(folder, 'other.ts'), source(2))
    await expect.poll(logged).toMatch(/watched\.ts and .*other\.ts both define the room type/)
    await rm(join(folder, 'watched.ts'))
    await writeFile(join(folder, 'other.ts'), source(3))
    await idle(3)
  })

  // Many editors write another file and rename it over the old one. A watch of the file itself would end with the first time.
  it('sees every edit of a file that is replaced by another each time', async () => {
    const { folder, idle } = await watchedFolder((into) => writeFile(join(into, 'watched.ts'), source(1)))
    for (const idleSeconds of [2, 3, 4]) {
      await writeFile(join(folder, 'watched.ts.new'), source(idleSeconds))
      await rename(join(folder, 'watched.ts.new'), join(folder, 'watched.ts'))
      await idle(idleSeconds)
    }
  })

  it('sees a room type that comes in a folder of its own, and what is beside it', async () => {
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
