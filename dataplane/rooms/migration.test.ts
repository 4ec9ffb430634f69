import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import { codeOf, ROOT } from '../../test/support/pages/pages.ts'
import { type BenchOptions, RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'

const count = { inc: { data: v.null() } }

/** Three versions of one room type: a count, a list of counts, a count by name. */
const first = defineRoom({
  type: 'counts',
  sync: { rate: 0 },
  messages: count,
  create: () => ({ count: 0 }),
  onMessage: (state) => void state.count++,
})
const TO_LIST = (state: { count: number }) => ({ counts: [state.count] })
const second = defineRoom({
  type: 'counts',
  sync: { rate: 0 },
  version: 2,
  migrate: { 1: TO_LIST },
  messages: count,
  create: () => ({ counts: [0] }),
  onMessage: (state) => void state.counts[0]!++,
})
const third = (toNames: (state: { counts: number[]; by_name?: object }) => unknown): RoomDefinition =>
  defineRoom({
    type: 'counts',
    sync: { rate: 0 },
    version: 3,
    migrate: { 1: TO_LIST, 2: toNames },
    messages: count,
    create: () => ({ by_name: { all: 0 } }),
    onMessage: (state) => void state.by_name.all++,
  })
const inPlace = third((state) => {
  state.by_name = { all: state.counts[0] }
  delete (state as { counts?: unknown }).counts
})

/** A room of the first version, in which ann has counted to two, and then its node has died. */
async function orphan(options: BenchOptions = {}) {
  const bench = new RoomBench([first], options)
  const ann = await bench.join('counts', 'ann')
  await bench.say('counts', 'ann', 'inc', null, 1)
  await bench.say('counts', 'ann', 'inc', null, 2)
  bench.store.mood = 'deaf'
  const { store } = bench.successor()
  /** A node with other code has the same store. */
  const node = (definition: RoomDefinition, nodeId = 'node_b') => {
    const other = new RoomBench([definition], { clock: bench.clock, store: store.store, nodeId })
    other.members.set('ann', ann)
    bench.members.delete('ann')
    return other
  }
  const inspect = () => store.store.rooms.inspect('prj_test/counts:a')
  return { ann, node, inspect }
}

it('docs/guides/changing-state.md shows two versions, the second of which goes on with a room of the first', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-versions-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
  const codes = codeOf('docs/guides/changing-state.md', 'ts').slice(0, 2)
  const [before, after] = await Promise.all(
    codes.map(async (code, index) => {
      const file = join(folder, `version-${index + 1}.ts`)
      await writeFile(file, code)
      return (await import(/* @vite-ignore */ file)).default as RoomDefinition
    }),
  )
  const bench = new RoomBench([before!])
  const ann = await bench.join('duel', 'ann')
  await bench.say('duel', 'ann', 'strike', { target: 'ann' }, 1)
  await bench.host.close()
  const heir = new RoomBench([after!], { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' })
  heir.members.set('ann', ann)
  await heir.resume('duel', ann)
  await heir.advance(100)
  expect([ann.state, ann.resyncs]).toEqual([{ fighters: { ann: { hp: 90, shield: 0 } } }, 0])
})

describe('a room type with a newer version of its state', () => {
  it('brings the state there through every version between, which members see as the next update', async () => {
    const { ann, node, inspect } = await orphan()
    const { seq } = ann
    const owner = node(inPlace)
    await owner.resume('counts', ann)
    expect([ann.state, ann.seq, ann.resyncs, ann.faults]).toEqual([{ by_name: { all: 2 } }, seq + 1, 0, []])
    expect([owner.counts.migrated, (await inspect())?.stateVersion]).toEqual([1, 3])
    await owner.say('counts', 'ann', 'inc', null, 3)
    expect([ann.state, ann.acked]).toEqual([{ by_name: { all: 3 } }, 3])
  })

  it('does so once: the next owner goes on with what there is', async () => {
    const { ann, node } = await orphan()
    const owner = node(second)
    await owner.resume('counts', ann)
    await owner.host.close()
    const heir = node(second, 'node_c')
    heir.members.set('ann', ann)
    await heir.resume('counts', ann)
    await heir.say('counts', 'ann', 'inc', null, 3)
    expect([ann.state, ann.resyncs, heir.counts.migrated]).toEqual([{ counts: [3] }, 0, undefined])
  })

  it('is not claimed by a node whose code is older, whether it asks or was given the room before it knew', async () => {
    const { ann, node, inspect } = await orphan()
    const owner = node(second)
    await owner.resume('counts', ann)
    await owner.host.close()
    const before = await inspect()
    const old = node(first, 'node_c')
    const bob = await old.join('counts', 'bob')
    expect(bob.errors).toMatchObject([
      { code: 'room_unavailable', message: expect.stringContaining('too old') },
    ])
    expect(await inspect()).toEqual(before)
  })

  it.each<[string, RoomDefinition]>([
    [
      'throws',
      third(() => {
        throw new Error('a secret')
      }),
    ],
    ['makes what is no state', third(() => ({ by_name: { all: Number.NaN } }))],
    ['returns a promise', third(() => Promise.resolve({}))],
    ['returns what it assigns', third((state) => (state.counts.length = 3))],
    ['returns null', third(() => null)],
  ])('keeps a room shut whose migrate %s, and loses nothing of it', async (_, broken) => {
    const { ann, node, inspect } = await orphan()
    const shut = node(broken)
    const bob = await shut.join('counts', 'bob')
    expect(bob.errors).toMatchObject([
      {
        code: 'room_unavailable',
        message: expect.stringMatching(/version 1 could not be brought to version 3/),
      },
    ])
    expect(JSON.stringify(bob.errors)).not.toContain('secret')
    expect([shut.host.size, shut.counts.failed]).toEqual([0, 1])
    expect(await inspect()).toMatchObject({ owner: null })
    const owner = node(second, 'node_c')
    owner.members.set('ann', ann)
    await owner.resume('counts', ann)
    expect(ann.state).toEqual({ counts: [2] })
  })

  it('brings running rooms there when a file is replaced, and leaves those alone that it cannot', async () => {
    const bench = new RoomBench([second])
    const ann = await bench.join('counts', 'ann')
    bench.host.replaceRoom(
      third(() => {
        throw new Error('not yet')
      }),
    )
    await bench.say('counts', 'ann', 'inc', null, 1)
    expect(ann.state).toEqual({ counts: [1] })
    bench.host.replaceRoom(inPlace)
    await bench.say('counts', 'ann', 'inc', null, 2)
    expect(ann.state).toEqual({ by_name: { all: 2 } })
    // A successor of a node that dies now does not migrate again.
    expect((await bench.store.store.rooms.inspect('prj_test/counts:a'))?.stateVersion).toBe(3)
    bench.host.replaceRoom(second)
    await bench.say('counts', 'ann', 'inc', null, 3)
    expect([ann.state, ann.faults]).toEqual([{ by_name: { all: 3 } }, []])
  })
})
