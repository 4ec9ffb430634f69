import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Claim } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { Claims } from './claims.ts'
import { leaseKey } from './lease.ts'

const ROOM = 'prj_a/arena:one'
const log = pino({ level: 'silent' })

function parts() {
  const store = memoryStore({ clock: new FakeClock() })
  const claims = (node_id: string) => new Claims({ node_id, store, log })
  const live = (node_id: string) =>
    store.records.write([{ put: leaseKey(node_id), value: new Uint8Array(0), ttl_ms: 2000 }])
  return { store, claims, live }
}

describe('a claim', () => {
  it('makes a room that is nowhere this node’s, when it is to be made', async () => {
    const { claims, store } = parts()
    expect(await claims('node_a').claim(ROOM, { create: false })).toBe('absent')
    expect(await store.rooms.inspect(ROOM)).toBeUndefined()
    expect(await claims('node_a').claim(ROOM, { create: true })).toMatchObject({
      fence: { version: 0 },
      journal: [],
    })
    expect(await store.rooms.inspect(ROOM)).toMatchObject({ owner: 'node_a' })
  })

  it('leaves the rooms of living nodes alone, and takes those of dead ones under a higher epoch', async () => {
    const { claims, live, store } = parts()
    await live('node_a')
    const first = (await claims('node_a').claim(ROOM, { create: true })) as Claim
    await store.rooms.snapshot(ROOM, first.fence, Uint8Array.of(1), 60_000)
    expect(await claims('node_b').claim(ROOM, { create: true })).toBe('elsewhere')
    await store.records.write([{ remove: leaseKey('node_a') }])
    const second = (await claims('node_b').claim(ROOM, { create: false })) as Claim
    expect(second.fence.epoch).toBeGreaterThan(first.fence.epoch)
    expect(second.snapshot).toEqual(Uint8Array.of(1))
  })

  it('takes what was released, and what the node is said to own but does not run', async () => {
    const { claims, live, store } = parts()
    await live('node_a')
    const { fence } = (await claims('node_a').claim(ROOM, { create: true })) as Claim
    expect(await claims('node_a').claim(ROOM, { create: true })).toMatchObject({
      fence: { epoch: fence.epoch + 1 },
    })
    const { epoch, version } = (await store.rooms.inspect(ROOM))!
    await store.rooms.release(ROOM, { epoch, version }, { forget: false, ttl_ms: 1000 })
    expect(await claims('node_b').claim(ROOM, { create: false })).toMatchObject({ journal: [] })
  })

  it('goes to one of many who want the room at once', async () => {
    const { claims, live } = parts()
    const nodes = ['node_a', 'node_b', 'node_c', 'node_d']
    for (const node of nodes) await live(node)
    const results = await Promise.all(nodes.map((node) => claims(node).claim(ROOM, { create: true })))
    expect(results.filter((result) => typeof result === 'object')).toHaveLength(1)
    expect(results.filter((result) => result === 'elsewhere')).toHaveLength(3)
  })

  it('says so when the store does not answer', async () => {
    const { claims, store } = parts()
    await store.close()
    expect(await claims('node_a').claim(ROOM, { create: true })).toBe('unavailable')
  })
})
