import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { pino } from 'pino'
import * as v from 'valibot'
import { afterEach, describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'
import { watchRooms } from './loader.ts'

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
    const bench = new RoomBench([stepping(1)])
    const ann = await bench.join('steps', 'ann')
    bench.message('steps', 'ann', 'go', null)
    await bench.settle()
    bench.host.replaceRoom(stepping(10))
    bench.message('steps', 'ann', 'go', null)
    await bench.settle()
    expect([ann.state, ann.faults]).toEqual([{ at: 11 }, []])
  })

  it('leaves rooms alone whose state does not fit any more', async () => {
    const bench = new RoomBench([stepping(1)])
    const ann = await bench.join('steps', 'ann')
    bench.host.replaceRoom(stepping(10, v.object({ at: v.string() })))
    bench.message('steps', 'ann', 'go', null)
    await bench.settle()
    expect(ann.state).toEqual({ at: 1 })
    bench.host.replaceRoom(stepping(10, v.object({ at: v.number() })))
    bench.message('steps', 'ann', 'go', null)
    await bench.settle()
    expect(ann.state).toEqual({ at: 11 })
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
    const lines: string[] = []
    const hear: (() => void)[] = []
    const heard = () => hear.splice(0).map((go) => go())
    const log = pino(
      new Writable({
        write: (line, _, done) => {
          lines.push(String(line))
          heard()
          done()
        },
      }),
    )
    const changes: RoomDefinition[] = []
    const watching = watchRooms(
      folder,
      (definition) => {
        changes.push(definition)
        heard()
      },
      log,
    )
    closings.push(() => watching.close())
    const something = () => new Promise<void>((go) => hear.push(go))
    const idles = () => changes.map(({ idleSeconds }) => idleSeconds)
    return { folder, lines, something, idles }
  }

  it('brings an edited room type, and keeps quiet about one that is broken, except in the log', async () => {
    const { folder, lines, something, idles } = await watchedFolder((into) =>
      writeFile(join(into, 'watched.ts'), source(1)),
    )
    const file = join(folder, 'watched.ts')
    let next = something()
    await writeFile(file, source(2))
    await next
    expect(idles()).toEqual([2])
    next = something()
    await writeFile(file, 'export default defineRoom({')
    await next
    expect(lines.at(-1)).toMatch(/watched\.ts cannot be loaded: .*the old definition stays/)
    next = something()
    await writeFile(file, source(3))
    await next
    expect(idles()).toEqual([2, 3])
  })

  // Many editors write another file and rename it over the old one. A watch of the file itself would end with the first time.
  it('sees every edit of a file that is replaced by another each time', async () => {
    const { folder, something, idles } = await watchedFolder((into) =>
      writeFile(join(into, 'watched.ts'), source(1)),
    )
    for (const idleSeconds of [2, 3, 4]) {
      const next = something()
      await writeFile(join(folder, 'watched.ts.new'), source(idleSeconds))
      await rename(join(folder, 'watched.ts.new'), join(folder, 'watched.ts'))
      await next
    }
    expect(idles()).toEqual([2, 3, 4])
  })

  it('sees a room type that comes in a folder of its own, and what is beside it', async () => {
    const { folder, something, idles } = await watchedFolder()
    let next = something()
    await mkdir(join(folder, 'watched'))
    await writeFile(join(folder, 'watched/idle.ts'), 'export const idle = 2')
    await writeFile(
      join(folder, 'watched/room.ts'),
      `import { idle } from './idle.ts'\n${source(1).replace('idleSeconds: 1', 'idleSeconds: idle')}`,
    )
    await next
    next = something()
    await writeFile(join(folder, 'watched/idle.ts'), 'export const idle = 3')
    await next
    expect(idles()).toEqual([2, 3])
  })
})
