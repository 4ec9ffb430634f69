import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { pino } from 'pino'
import * as v from 'valibot'
import { afterEach, describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'
import { watchRooms } from './watch.ts'

const stepping = (step: number, state?: v.GenericSchema) =>
  defineRoom({
    type: 'steps',
    messages: { go: { data: v.null() } },
    sync: { rate: 0 },
    ...(state ? { state } : {}),
    create: () => ({ at: 0 }),
    on_message(state) {
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

  it('brings an edited room type, and keeps quiet about one that is broken, except in the log', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'roomful-watch-'))
    closings.push(() => rm(folder, { recursive: true }))
    const source = (idle_seconds: number) =>
      `import { defineRoom } from '${new URL('./definition.ts', import.meta.url).href}'
       export default defineRoom({ type: 'watched', idle_seconds: ${idle_seconds}, create: () => ({}) })`
    const file = join(folder, 'watched.ts')
    await writeFile(file, source(1))
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
    let next = something()
    await writeFile(file, source(2))
    await next
    expect(changes.map(({ idle_seconds }) => idle_seconds)).toEqual([2])
    next = something()
    await writeFile(file, 'export default defineRoom({')
    await next
    expect(lines.at(-1)).toMatch(/watched\.ts cannot be loaded: .*the old definition stays/)
    next = something()
    await writeFile(file, source(3))
    await next
    expect(changes.map(({ idle_seconds }) => idle_seconds)).toEqual([2, 3])
  })
})
