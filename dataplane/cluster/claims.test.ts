import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type Claim, type Locks, type RoomQuota, StoreUnavailable } from '../../shared/store/port.ts'
import { noTracer } from '../../shared/tracing/tracer.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import type { Place } from '../place.ts'
import { Claims } from './claims.ts'
import { CLUSTER_METRICS } from './metrics.ts'

const ROOM = 'prj_a/arena:one'
const log = pino({ level: 'silent' })

const claimOf = (place: Place): Claim => {
  if (place.at !== 'here') throw new Error(`the room is not here: ${JSON.stringify(place)}`)
  return place.claim
}

/** Some nodes on one store. `view`: the living nodes, and the time from which claims are allowed, as all of them see it. */
function parts(quota: RoomQuota = { maxRooms: 0, maxLasting: 0, perMinute: 0 }) {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const view = {
    alive: new Set<string>(),
    /** Nodes that are alive as far as is known without the store. */
    known: new Set<string>(),
    listenedAt: new Map<string, number>(),
    allowed_at: 0,
    mayAct: true,
    judged: 0,
  }
  const seen = { locked: 0, results: [] as string[] }
  const locks: Locks = {
    withLock: (name, options, work) => {
      seen.locked++
      return store.locks.withLock(name, options, work)
    },
  }
  const claims = (nodeId: string) =>
    new Claims(
      {
        nodeId,
        tracer: noTracer,
        store: { rooms: store.rooms, locks },
        clock,
        log,
        metrics: {
          ...registerMetrics(new Registry(), CLUSTER_METRICS),
          claims: { inc: ({ result }) => void seen.results.push(result) },
        },
        recordTtlMs: 600_000,
        quota,
      },
      { valid: () => view.mayAct },
      {
        isAlive: (other) => view.known.has(other),
        listenedAt: (other) => view.listenedAt.get(other),
        judge: async (other) => {
          view.judged++
          return view.alive.has(other) ? 'alive' : 'dead'
        },
        get claimsAllowedAt() {
          return view.allowed_at
        },
      },
    )
  const live = (...nodes: string[]) => {
    for (const node of nodes) view.alive.add(node)
  }
  const elapse = async (ms: number) => {
    for (let left = ms; left > 0; left -= 50) {
      clock.advance(50)
      await nextTurn()
    }
  }
  /** State of a promise so far. */
  const watch = <T>(promise: Promise<T>) => {
    const watched: { result?: T } = {}
    void promise.then((result) => {
      watched.result = result
    })
    return watched
  }
  return { clock, store, view, seen, claims, live, elapse, watch }
}

describe('a claim', () => {
  it('creates a new room for this node, if it may be created', async () => {
    const { claims, store, seen } = parts()
    expect(await claims('node_a').claim(ROOM, {})).toMatchObject({ why: 'absent' })
    expect(await store.rooms.inspect(ROOM)).toBeUndefined()
    expect(await claims('node_a').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({
      claim: { fence: { version: 0 }, journal: [] },
    })
    expect(await store.rooms.inspect(ROOM)).toMatchObject({ owner: 'node_a' })
    expect(seen).toEqual({ locked: 0, results: ['absent', 'claimed'] })
  })

  it('leaves rooms of living nodes alone, and takes rooms of dead nodes over with a higher epoch', async () => {
    const { claims, live, store, view, seen } = parts()
    live('node_a')
    const first = claimOf(await claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
    await store.rooms.snapshot(ROOM, first.fence, Uint8Array.of(1), 60_000)
    expect(await claims('node_b').claim(ROOM, { creator: 'sub:ada' })).toEqual({
      at: 'node',
      nodeId: 'node_a',
    })
    view.alive.delete('node_a')
    const second = claimOf(await claims('node_b').claim(ROOM, {}))
    expect(second.fence.epoch).toBeGreaterThan(first.fence.epoch)
    expect(second.snapshot).toEqual(Uint8Array.of(1))
    expect(seen).toEqual({ locked: 1, results: ['claimed', 'elsewhere', 'taken_over'] })
  })

  it('of an orphan has the time since its owner was last seen, or since its last write if that is shorter or the owner is unknown', async () => {
    const { clock, claims, view } = parts()
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    clock.advance(60_000)
    view.listenedAt.set('node_a', clock.monotonic())
    clock.advance(3000)
    const owners = ['node_b', 'node_c', 'node_d']
    const idle: unknown[] = []
    for (const owner of owners) {
      idle.push(claimOf(await claims(owner).claim(ROOM, {})).idleMs)
      clock.advance(500)
      if (owner === 'node_b') view.listenedAt.set('node_b', clock.monotonic() - 9000)
    }
    expect(idle).toEqual([3000, 500, 500])
  })

  it('takes a released room, and a room whose record names this node, without a look at other nodes', async () => {
    const { claims, store, view, seen } = parts()
    const { fence } = claimOf(await claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
    expect(await claims('node_a').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({
      claim: { fence: { epoch: fence.epoch + 1 } },
    })
    const { epoch, version } = (await store.rooms.inspect(ROOM))!
    await store.rooms.release(ROOM, { epoch, version }, { forget: false, ttlMs: 1000 })
    expect(await claims('node_b').claim(ROOM, {})).toMatchObject({ claim: { journal: [] } })
    expect([view.judged, seen.locked]).toEqual([0, 0])
  })

  it('of an orphan succeeds at one of many nodes, and only this node inspects it', async () => {
    const { claims, live, store, view, seen } = parts()
    live('node_a')
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    view.alive.delete('node_a')
    const nodes = ['node_b', 'node_c', 'node_d', 'node_e']
    live(...nodes)
    let asked = 0
    const { claim } = store.rooms
    store.rooms.claim = (...args) => {
      asked++
      return claim.apply(store.rooms, args)
    }
    const results = await Promise.all(nodes.map((node) => claims(node).claim(ROOM, { creator: 'sub:ada' })))
    expect(results.filter((result) => result.at === 'node')).toHaveLength(3)
    expect([asked, seen.locked]).toEqual([1, 4])
  })

  it('is not blocked forever by a node that crashed during a recovery', async () => {
    const { claims, store, elapse, watch } = parts()
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    void store.locks.withLock(`claim:${ROOM}`, { ttlMs: 1500, waitMs: 0 }, () => new Promise(() => {}))
    const claimed = watch(claims('node_b').claim(ROOM, { creator: 'sub:ada' }))
    await elapse(1000)
    expect(claimed.result).toBeUndefined()
    await elapse(1000)
    expect(claimed.result).toMatchObject({ claim: { fence: {} } })
  })

  it('waits until claims are allowed, and then reads the owner again', async () => {
    const { claims, live, view, elapse, watch } = parts()
    live('node_a')
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    view.alive.delete('node_a')
    view.allowed_at = 2000
    const claimed = watch(claims('node_b').claim(ROOM, { creator: 'sub:ada' }))
    await elapse(1950)
    expect(claimed.result).toBeUndefined()
    live('node_a')
    await elapse(100)
    expect(claimed.result).toEqual({ at: 'node', nodeId: 'node_a' })
  })

  it('counts no room as absent if the store has lost its data since the question', async () => {
    const { claims, store, live, view, elapse, watch } = parts()
    let answer = (_: undefined): void => {}
    vi.spyOn(store.rooms, 'open').mockReturnValueOnce(new Promise((resolve) => (answer = resolve)))
    const found = watch(claims('node_c').claim(ROOM, {}))
    await elapse(100)
    view.allowed_at = Number.POSITIVE_INFINITY
    answer(undefined)
    await elapse(1000)
    live('node_a')
    view.allowed_at = 0
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    await elapse(200)
    expect(found.result).toEqual({ at: 'node', nodeId: 'node_a' })
  })

  it('takes a free room with the command that reads its owner, unless claims are not allowed when it is sent', async () => {
    const { claims, store, view, elapse, watch } = parts()
    const [open, claim] = [vi.spyOn(store.rooms, 'open'), vi.spyOn(store.rooms, 'claim')]
    const inspect = vi.spyOn(store.rooms, 'inspect')
    const { fence } = claimOf(await claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
    await store.rooms.release(ROOM, fence, { forget: false, ttlMs: 60_000 })
    claimOf(await claims('node_b').claim(ROOM, {}))
    expect([open.mock.calls.length, inspect.mock.calls.length]).toEqual([2, 0])
    // The command has waited for the connection, and the store may be another one.
    const send = store.rooms.open.bind(store.rooms)
    open.mockImplementationOnce(async (...asked) => {
      view.allowed_at = Number.POSITIVE_INFINITY
      return send(...asked)
    })
    claim.mockClear()
    const late = watch(claims('node_a').claim('prj_a/arena:two', { creator: 'sub:ada' }))
    await elapse(1000)
    expect([late, await store.rooms.inspect('prj_a/arena:two'), claim.mock.calls]).toEqual([
      {},
      undefined,
      [],
    ])
    view.allowed_at = 0
    await elapse(600)
    expect([late.result, claim.mock.calls]).toMatchObject([{ at: 'here' }, []])
  })

  it('is not needed to find that a room does not exist: inspect waits as long as a claim', async () => {
    const { claims, live, view, elapse, watch } = parts()
    const asker = claims('node_c')
    expect(await asker.inspect(ROOM)).toBeUndefined()
    view.allowed_at = 2000
    const found = watch(asker.inspect(ROOM))
    await elapse(1500)
    expect(found).toEqual({})
    live('node_a')
    view.allowed_at = 0
    await claims('node_a').claim(ROOM, { creator: 'sub:ada' })
    view.allowed_at = 2000
    await elapse(600)
    expect(found.result).toMatchObject({ owner: 'node_a' })
    view.allowed_at = Number.POSITIVE_INFINITY
    expect(await asker.inspect(ROOM)).toMatchObject({ owner: 'node_a' })
    const never = asker.inspect('prj_a/arena:two').catch((error: Error) => error.name)
    await elapse(10_100)
    expect(await never).toBe('StoreUnavailable')
  })

  it('waits for the lease of its node, and fails with unavailable after 10 s', async () => {
    const { claims, view, elapse, watch } = parts()
    view.mayAct = false
    const first = watch(claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
    await elapse(4000)
    view.mayAct = true
    await elapse(200)
    expect(first.result).toMatchObject({ claim: { fence: {} } })
    view.mayAct = false
    const second = watch(claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
    await elapse(10_100)
    expect(second.result).toMatchObject({ why: 'unavailable' })
  })

  describe('with the record of an earlier inspect', () => {
    /** A room of `node_a`, its record, and the calls of `open` since then. */
    const owned = async () => {
      const bench = parts()
      await bench.claims('node_a').claim(ROOM, { creator: 'sub:ada' })
      const seen = await bench.claims('node_b').inspect(ROOM)
      return { ...bench, seen, open: vi.spyOn(bench.store.rooms, 'open') }
    }

    it('recovers an orphan without another read of its owner', async () => {
      const { claims, seen, open } = await owned()
      expect(await claims('node_b').claim(ROOM, { seen })).toMatchObject({ at: 'here', from: 'node_a' })
      expect(open).not.toHaveBeenCalled()
    })

    it('reads the owner again if another node was faster', async () => {
      const { claims, live, seen, open } = await owned()
      await claims('node_c').claim(ROOM, { seen })
      live('node_c')
      expect(await claims('node_b').claim(ROOM, { seen })).toEqual({ at: 'node', nodeId: 'node_c' })
      expect(open).toHaveBeenCalledOnce()
    })

    it('leaves the room to a node that is known to be alive, without a read of its lease', async () => {
      const { claims, seen, view } = await owned()
      view.known.add('node_a')
      expect(await claims('node_b').claim(ROOM, { seen })).toEqual({ at: 'node', nodeId: 'node_a' })
      expect(view.judged).toBe(0)
    })
  })

  describe('of a room whose project cannot be counted', () => {
    const uncounted = async () => {
      const bench = parts()
      await bench.claims('node_a').claim('prj_a/arena:theirs', { creator: 'sub:ada' })
      bench.live('node_a')
      vi.spyOn(bench.store.rooms, 'reserve').mockRejectedValue(new StoreUnavailable('the server is away'))
      return bench
    }

    it('still finds the owner of a room that runs', async () => {
      const { claims } = await uncounted()
      expect(await claims('node_b').claim('prj_a/arena:theirs', { creator: 'sub:ada' })).toEqual({
        at: 'node',
        nodeId: 'node_a',
      })
    })

    it('releases a room that it has claimed', async () => {
      const { claims, store } = await uncounted()
      expect(await claims('node_b').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({ why: 'unavailable' })
      expect((await store.rooms.inspect(ROOM))?.owner ?? null).toBeNull()
    })
  })

  describe('of a room that may not be created', () => {
    const full = () => parts({ maxRooms: 1, maxLasting: 0, perMinute: 0 })

    it('leaves the room without an owner', async () => {
      const { claims, store } = full()
      await claims('node_a').claim('prj_a/arena:other', { creator: 'sub:ada' })
      expect(await claims('node_a').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({
        why: 'project_full',
      })
      expect((await store.rooms.inspect(ROOM))?.owner ?? null).toBeNull()
    })

    it('keeps the content of a room that is no longer counted', async () => {
      const { claims, store } = full()
      const { fence } = claimOf(await claims('node_a').claim(ROOM, { creator: 'sub:ada' }))
      await store.rooms.snapshot(ROOM, fence, Uint8Array.of(1), Number.POSITIVE_INFINITY)
      await store.rooms.release(ROOM, { ...fence, version: fence.version + 1 }, { forget: false })
      const counted = vi.spyOn(store.rooms, 'reserve').mockResolvedValueOnce('project_full')
      expect(await claims('node_b').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({
        why: 'project_full',
      })
      expect(counted).toHaveBeenCalledOnce()
      const again = claimOf(await claims('node_b').claim(ROOM, {}))
      expect(again.snapshot).toEqual(Uint8Array.of(1))
    })
  })

  it('returns unavailable if the store does not answer', async () => {
    const { claims, store, seen } = parts()
    await store.close()
    expect(await claims('node_a').claim(ROOM, { creator: 'sub:ada' })).toMatchObject({ why: 'unavailable' })
    expect(seen.results).toEqual(['unavailable'])
  })
})
