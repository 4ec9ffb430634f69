import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { type Clock, timestamp } from '../../../shared/clock.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { type Fence, type Store, StoreUnavailable } from '../../../shared/store/port.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../../test/kit/seeded-random.ts'
import { DeadLetters } from './dead-letters.ts'
import { NoticeDelivery } from './delivery.ts'
import {
  ATTEMPT_MS,
  encodeNotice,
  NOTICE_METRICS,
  NoAnswer,
  type NoticeEnvironment,
  type PostNotice,
  webhook,
} from './notice.ts'

const ROOM = 'prj_a/duel:1'
const OTHER = 'prj_a/duel:2'
const LONG_MS = 7 * 86_400_000
const HOUR_MS = 3_600_000
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`

/** Answer of the backend: a status, or none until the promise resolves. */
type Answer = number | Promise<number> | { readonly status: number; readonly retryAfter: string }

/** A backend that answers notices as the test says, and 204 after that. */
class Backend {
  readonly answers: Answer[] = []
  /** Ids of all notices that arrived, in order. */
  readonly ids: string[] = []
  readonly bodies: string[] = []
  /** Requests that have no answer. */
  open = 0
  mostOpen = 0
  readonly #server: Server

  constructor() {
    this.#server = createServer(async (request, response) => {
      this.open++
      this.mostOpen = Math.max(this.mostOpen, this.open)
      let body = ''
      for await (const chunk of request) body += chunk
      this.bodies.push(body)
      this.ids.push(String(request.headers['webhook-id']))
      const answer = await (this.answers.shift() ?? 204)
      this.open--
      const { status, retryAfter } = typeof answer === 'number' ? { status: answer } : answer
      response.writeHead(status, { location: '/elsewhere', ...(retryAfter && { 'retry-after': retryAfter }) })
      response.end()
    })
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/notices`
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}

/** Store, backend and clock of a test. */
async function setup() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const backend = new Backend()
  const url = await backend.listen()
  onTestFinished(() => backend.close())
  const fences = new Map<string, Fence>()
  const post = webhook({ url, secrets: [SECRET], clock })
  /** Nodes that other nodes take for dead. */
  const dead = new Set<string>()
  const isAlive = async (node: string): Promise<boolean> => !dead.has(node)
  const environment = environmentOf(store, clock, post, isAlive)
  const deadLetters = new DeadLetters(environment)
  const claim = async (room: string, by = 'node_a'): Promise<Fence> => {
    const { fence } = (await store.rooms.claim(room, by, fences.get(room)?.epoch ?? 0, LONG_MS))!
    fences.set(room, fence)
    return fence
  }
  /** The owner of the room commits notices. */
  const write = async (room: string, ...ids: string[]): Promise<Uint8Array[]> => {
    const fence = fences.get(room)!
    const notices = ids.map((id) => noticeAt(id, clock.now()))
    await store.rooms.commit(room, fence, new Uint8Array(1), LONG_MS, notices)
    fences.set(room, { epoch: fence.epoch, version: fence.version + 1 })
    return notices
  }
  /** A room of a node that has died after it has committed these notices. */
  const left = async (room: string, ...ids: string[]): Promise<void> => {
    dead.add('node_dead')
    const fence = fences.get(room) ?? (await claim(room, 'node_dead'))
    await store.notices.set(room, fence, clock.now())
    await write(room, ...ids)
  }
  const node = (reach: Store = store, send: PostNotice = post) => {
    const { delivery, value } = nodeOf(environmentOf(reach, clock, send, isAlive), deadLetters)
    /** The node opens a room. Returns its queue, and a function that commits notices of the room. */
    const own = async (room = ROOM, mayAct = always) => {
      const queue = delivery.open(room, await claim(room), mayAct)
      const commit = async (...ids: string[]): Promise<void> => {
        await queue.announce(fences.get(room)!)
        queue.push(await write(room, ...ids))
      }
      return { queue, commit }
    }
    return { delivery, value, own }
  }
  return {
    clock,
    store,
    backend,
    url,
    environment,
    deadLetters,
    dead,
    post,
    claim,
    write,
    left,
    node,
    fences,
  }
}

const always = (): boolean => true

/** A clock that is ahead of the clock of the store. */
const ahead = (clock: FakeClock, ms: number): Clock => ({
  now: () => clock.now() + ms,
  monotonic: () => clock.monotonic(),
  schedule: (delayMs, run) => clock.schedule(delayMs, run),
})

const silent = pino({ level: 'silent' })

function environmentOf(
  store: Store,
  clock: FakeClock,
  post: PostNotice,
  isAlive: (node: string) => Promise<boolean>,
): NoticeEnvironment {
  const metrics = registerMetrics(new Registry(), NOTICE_METRICS)
  return {
    store,
    clock,
    clockOffset: { ms: 0 },
    random: new SeededRandom(3),
    log: silent,
    metrics,
    post,
    projectShare: 50,
    nodeId: 'node_a',
    isAlive,
  }
}

const noticeAt = (id: string, at: number): Uint8Array =>
  encodeNotice(id, {
    type: 'won',
    project_id: 'prj_a',
    room_id: 'duel:1',
    epoch: 7,
    seq: 3,
    at: timestamp(at),
    data: { by: id },
  })

function nodeOf(environment: NoticeEnvironment, deadLetters: DeadLetters) {
  const registry = new Registry()
  const metrics = registerMetrics(registry, NOTICE_METRICS)
  const delivery = new NoticeDelivery({ ...environment, metrics }, deadLetters)
  delivery.start()
  // Not awaited: a node that was killed never stops.
  onTestFinished(() => void delivery.stop())
  const value = async (name: string, labels = '') => {
    const line = (await registry.metrics()).split('\n').find((one) => one.startsWith(`${name}${labels} `))
    return Number(line?.split(' ').at(-1))
  }
  return { delivery, value }
}

/** A store that stops answering when its process is killed. */
function killable(store: Store) {
  let alive = true
  const reach = <T extends object>(target: T): T =>
    new Proxy(target, {
      get: (_, name) => {
        const value: unknown = Reflect.get(target, name, target)
        if (typeof value === 'object' && value !== null) return reach(value)
        if (typeof value !== 'function') return value
        return (...args: unknown[]) =>
          alive ? Reflect.apply(value, target, args) : new Promise(() => undefined)
      },
    })
  return { store: reach(store), kill: () => (alive = false) }
}

const soon = (check: () => unknown) => vi.waitFor(check, { interval: 1, timeout: 5000 })

/** Advances the clock in steps of a second until the check holds. Returns the milliseconds. */
async function passed(clock: FakeClock, check: () => boolean, mostMs: number): Promise<number> {
  const began = clock.monotonic()
  while (!check()) {
    if (clock.monotonic() - began > mostMs) throw new Error(`not within ${mostMs} ms`)
    clock.advance(1000)
    // Real requests take a few turns of the event loop.
    for (let turn = 0; turn < 20 && !check(); turn++) await new Promise((resolve) => setImmediate(resolve))
  }
  return clock.monotonic() - began
}

const pending = (store: Store, room = ROOM) => store.notices.count(room)
const indexed = async ({ notices }: Store) =>
  (await Promise.all([0, 1, 2, 3].map((part) => notices.rooms(part, 10)))).flat()

afterEach(() => void vi.restoreAllMocks())

describe('NoticeDelivery of rooms of this node', () => {
  it('posts the notices of a room in their order, one at a time, and removes each', async () => {
    const { clock, store, backend, node } = await setup()
    const { value, own } = node()
    const { commit } = await own()
    await commit('a', 'b')
    await commit('c')
    await soon(async () => expect(await pending(store)).toBe(0))
    expect([backend.ids, backend.mostOpen]).toEqual([['a', 'b', 'c'], 1])
    expect(JSON.parse(backend.bodies[0]!)).toEqual({
      type: 'won',
      project_id: 'prj_a',
      room_id: 'duel:1',
      epoch: 7,
      seq: 3,
      at: '2026-01-01T00:00:00.000Z',
      data: { by: 'a' },
    })
    expect(await value('service_notice_attempts_total', '{result="delivered"}')).toBe(3)
    expect(await indexed(store)).toEqual([ROOM])
    await passed(clock, () => false, 10_000).catch(() => undefined)
    await soon(async () => expect(await indexed(store)).toEqual([]))
    await commit('d')
    expect(await indexed(store)).toEqual([ROOM])
    await soon(() => expect(backend.ids).toEqual(['a', 'b', 'c', 'd']))
  })

  it('needs no command of the store for a notice but its announcement and its removal', async () => {
    const { store, backend, node } = await setup()
    const { commit } = await node().own()
    await commit('first')
    await soon(async () => expect(await pending(store)).toBe(0))
    const commands: string[] = []
    for (const name of ['set', 'take', 'oldest', 'count', 'remove'] as const) {
      const call = store.notices[name].bind(store.notices) as (...args: unknown[]) => Promise<never>
      vi.spyOn(store.notices, name).mockImplementation((...args: unknown[]) => {
        commands.push(name)
        return call(...args)
      })
    }
    await commit('second')
    await soon(() => expect(commands).toEqual(['set', 'remove']))
    expect(backend.ids).toEqual(['first', 'second'])
  })

  it('delivers in order if more notices wait than the node keeps in memory', async () => {
    const { clock, store, backend, node } = await setup()
    backend.answers.push(500)
    const { commit, queue } = await node().own()
    const ids = Array.from({ length: 150 }, (_, i) => `n${i}`)
    for (let i = 0; i < ids.length; i += 10) await commit(...ids.slice(i, i + 10))
    expect(queue.size).toBe(150)
    await passed(clock, () => backend.ids.length === 151, 20_000)
    expect(backend.ids).toEqual(['n0', ...ids])
    await soon(async () => expect([await pending(store), queue.size]).toEqual([0, 0]))
  })

  it('posts nothing of a room while another node may own it', async () => {
    const { clock, store, backend, node } = await setup()
    let mayAct = false
    const { commit } = await node().own(ROOM, () => mayAct)
    await commit('a')
    await commit('b')
    await expect(passed(clock, () => backend.ids.length > 0, 5000)).rejects.toThrow('not within')
    mayAct = true
    await passed(clock, () => backend.ids.length === 2, 5000)
    await soon(async () => expect(await pending(store)).toBe(0))
    expect(backend.ids).toEqual(['a', 'b'])
  })

  it('delivers what an earlier owner has left before its own notices', async () => {
    const { store, backend, left, node, fences } = await setup()
    await left(ROOM, 'a', 'b')
    const { delivery } = node()
    const { fence } = (await store.rooms.claim(ROOM, 'node_b', fences.get(ROOM)!.epoch, LONG_MS))!
    const queue = delivery.open(ROOM, fence, always)
    queue.recover()
    const own = [noticeAt('c', 0)]
    await queue.announce(fence)
    await store.rooms.commit(ROOM, fence, new Uint8Array(1), LONG_MS, own)
    queue.push(own)
    await soon(async () => expect(await pending(store)).toBe(0))
    const first = backend.ids.filter((id, i) => backend.ids.indexOf(id) === i)
    expect(first).toEqual(['a', 'b', 'c'])
  })

  it('removes a notice later, and does not send it again, if the store does not answer the removal', async () => {
    const { clock, store, backend, node } = await setup()
    vi.spyOn(store.notices, 'remove').mockRejectedValueOnce(new StoreUnavailable('down'))
    const { commit } = await node().own()
    await commit('a', 'b')
    await passed(clock, () => backend.ids.length === 2, 5000)
    await soon(async () => expect(await pending(store)).toBe(0))
    expect(backend.ids).toEqual(['a', 'b'])
  })

  it('gives a project all places, and half of them while another project has notices', async () => {
    const { clock, store, node } = await setup()
    let open = 0
    let mostOpen = 0
    const delivered: string[] = []
    const { own } = node(store, ({ projectId, id }) => {
      if (projectId !== 'prj_a') return Promise.resolve({ status: 204 }).finally(() => delivered.push(id))
      mostOpen = Math.max(mostOpen, ++open)
      return new Promise((resolve) => {
        clock.schedule(10_000, () => {
          open--
          resolve({ status: 500 })
        })
      })
    })
    const write = async (projectId: string, count: number): Promise<string[]> => {
      const ids = Array.from({ length: count }, (_, index) => `${projectId}/duel:${index}`)
      for (const id of ids) await (await own(id)).commit(id)
      return ids
    }
    await write('prj_a', 400)
    await soon(() => expect(open).toBe(64))
    const ids = await write('prj_b', 20)
    await passed(clock, () => delivered.length === ids.length, 15_000)
    expect(delivered.sort()).toEqual(ids.sort())
    mostOpen = 0
    await passed(clock, () => mostOpen === 32, 30_000)
    for (let second = 0; second < 20; second++) await passed(clock, () => false, 1000).catch(() => undefined)
    expect(mostOpen).toBe(32)
  })

  it('delivers for other rooms while the backend has not answered for one', async () => {
    const { backend, node } = await setup()
    let answer = (_status: number): void => {}
    backend.answers.push(new Promise((resolve) => (answer = resolve)))
    const { own } = node()
    await (await own(ROOM)).commit('slow')
    await soon(() => expect(backend.ids).toEqual(['slow']))
    await (await own(OTHER)).commit('x', 'y')
    await soon(() => expect(backend.ids).toEqual(['slow', 'x', 'y']))
    answer(204)
  })

  it.each([500, 503, 408, 425, 429, 302])(
    'tries again after %i with the same id and body, and keeps the order',
    async (status) => {
      const { clock, backend, node, store } = await setup()
      backend.answers.push(status, status)
      const { value, own } = node()
      await (await own()).commit('a', 'b')
      await soon(async () =>
        expect(await value('service_notice_attempts_total', '{result="failed"}')).toBe(1),
      )
      clock.advance(999)
      expect(backend.ids).toEqual(['a'])
      await passed(clock, () => backend.ids.length === 4, 10_000)
      expect(backend.ids).toEqual(['a', 'a', 'a', 'b'])
      expect(new Set(backend.bodies.slice(0, 3)).size).toBe(1)
      await soon(async () => expect(await pending(store)).toBe(0))
    },
  )

  it('waits 1 s after the first failure, twice as long after each, and at most 5 minutes', async () => {
    const { clock, backend, node } = await setup()
    backend.answers.push(...Array(11).fill(500))
    const { value, own } = node()
    await (await own()).commit('a')
    await soon(() => expect(backend.ids.length).toBe(1))
    const waits: number[] = []
    for (let count = 2; count <= 12; count++)
      waits.push((await passed(clock, () => backend.ids.length === count, 400_000)) / 1000)
    const expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    for (const [i, wait] of waits.entries()) {
      expect(wait).toBeGreaterThanOrEqual(expected[i]! - 1)
      expect(wait).toBeLessThanOrEqual(expected[i]! + 2)
    }
    await soon(async () => expect(await value('service_notices_oldest_seconds')).toBe(0))
  })

  it.each([
    [429, '20', 20],
    [503, '20', 20],
    [503, 'Thu, 01 Jan 2026 00:01:00 GMT', 60],
    [429, '86400', 3600],
    [429, '0', 1],
    [429, 'Wed, 31 Dec 2025 00:00:00 GMT', 1],
    [429, 'soon', 1],
    [500, '20', 1],
  ])(
    'after %i with retry-after %s, the next attempt follows after about %i s',
    async (status, retryAfter, seconds) => {
      const { clock, backend, node } = await setup()
      backend.answers.push({ status, retryAfter })
      const { value, own } = node()
      await (await own()).commit('a', 'b')
      await soon(async () =>
        expect(await value('service_notice_attempts_total', '{result="failed"}')).toBe(1),
      )
      const waited = await passed(clock, () => backend.ids.length > 1, 4_000_000)
      expect(waited / 1000).toBeGreaterThanOrEqual(seconds - 1)
      expect(waited / 1000).toBeLessThanOrEqual(seconds + 6)
      await soon(() => expect(backend.ids).toEqual(['a', 'a', 'b']))
    },
  )

  it('sends one attempt at a time while the backend cannot be reached, and all notices within 20 s of its return', async () => {
    const { clock, store, node } = await setup()
    let away = true
    let open = 0
    let mostOpen = 0
    const attempts: number[] = []
    const { own } = node(store, async () => {
      mostOpen = Math.max(mostOpen, ++open)
      attempts.push(clock.monotonic())
      await new Promise((resolve) => setImmediate(resolve))
      open--
      if (away) throw new Error('ECONNREFUSED')
      return { status: 204 }
    })
    const rooms = Array.from({ length: 200 }, (_, n) => `prj_a/duel:${n}`)
    for (const room of rooms) await (await own(room)).commit(room)
    await passed(clock, () => clock.monotonic() > 60_000, 62_000)
    mostOpen = 0
    attempts.length = 0
    await passed(clock, () => clock.monotonic() > 660_000, 602_000)
    expect(mostOpen).toBe(1)
    expect(attempts.length).toBeLessThanOrEqual(600 / 15 + 2)
    away = false
    const waiting = async () => (await Promise.all(rooms.map((room) => pending(store, room)))).filter(Boolean)
    let left = await waiting()
    for (let second = 0; second < 20 && left.length > 0; second++) {
      await passed(clock, () => false, 0).catch(() => undefined)
      left = await waiting()
    }
    expect(left).toEqual([])
  })

  it.each([
    ['has no answer within 10 s', async () => Promise.reject(new NoAnswer())],
    ['gets 503', async () => ({ status: 503 })],
  ])('delivers for other rooms within 30 s while each notice of one room %s', async (_, bad) => {
    const { clock, node, store } = await setup()
    const posted: string[] = []
    const { own } = node(store, async ({ id }) => {
      posted.push(id)
      if (id !== 'bad') return { status: 204 }
      await new Promise<void>((resolve) => void clock.schedule(ATTEMPT_MS, resolve))
      return bad()
    })
    await (await own()).commit('bad')
    const { commit } = await own(OTHER)
    await passed(clock, () => posted.length === 9, 600_000)
    await passed(clock, () => false, 1000).catch(() => undefined)
    await commit('good')
    await passed(clock, () => posted.includes('good'), 30_000)
  })

  it('delivers for another project at once while the backend answers 503 for all rooms of one', async () => {
    const { clock, node, store } = await setup()
    const posted: string[] = []
    const { own } = node(store, async ({ id, projectId }) => {
      posted.push(id)
      return { status: projectId === 'prj_a' ? 503 : 204 }
    })
    for (let n = 0; n < 30; n++) await (await own(`prj_a/duel:${n}`)).commit(`a${n}`)
    await passed(clock, () => posted.length >= 60, 60_000)
    await (await own('prj_b/duel:1')).commit('b')
    await soon(() => expect(posted).toContain('b'))
  })

  it('reports the age of the oldest notice that the backend does not accept', async () => {
    const { clock, backend, node } = await setup()
    backend.answers.push(...Array(9).fill(500))
    const { value, own } = node()
    await (await own()).commit('a')
    await passed(clock, () => backend.ids.length === 9, 600_000)
    await soon(async () => expect(await value('service_notices_oldest_seconds')).toBeGreaterThan(200))
  })

  it('ends an attempt after 10 s, ignores its late answer, and tries again', async () => {
    const { clock, backend, node, store } = await setup()
    let answer = (_status: number): void => {}
    backend.answers.push(new Promise((resolve) => (answer = resolve)))
    const { value, own } = node()
    await (await own()).commit('a', 'b')
    await soon(() => expect(backend.open).toBe(1))
    clock.advance(9000)
    expect(await value('service_notices_oldest_seconds')).toBe(9)
    clock.advance(1000)
    await soon(async () => expect(await value('service_notice_attempts_total', '{result="failed"}')).toBe(1))
    answer(204)
    expect(await pending(store)).toBe(2)
    await passed(clock, () => backend.ids.length === 3, 10_000)
    expect(backend.ids).toEqual(['a', 'a', 'b'])
    await soon(async () => expect(await pending(store)).toBe(0))
  })

  it.each([400, 401, 404, 410, 422])(
    'moves a notice to the dead letters after %i, and sends the next',
    async (status) => {
      const { backend, node, store, deadLetters } = await setup()
      backend.answers.push(status)
      const { value, own } = node()
      await (await own()).commit('bad', 'good')
      await soon(async () => expect(await pending(store)).toBe(0))
      expect(backend.ids).toEqual(['bad', 'good'])
      expect(await deadLetters.describe('prj_a', 10)).toMatchObject({
        pending: { rooms: 0, notices: 0 },
        dead_letters: [{ id: 'bad', room_id: 'duel:1', data: { by: 'bad' }, reason: `HTTP ${status}` }],
        next_cursor: null,
      })
      expect(await value('service_notice_attempts_total', '{result="dead"}')).toBe(1)
    },
  )

  it.each([0, HOUR_MS])(
    'delivers at once what a room leaves when it ends here, if the clock of the node is %d ms ahead',
    async (aheadMs) => {
      const { backend, claim, clock, deadLetters, environment, fences, store } = await setup()
      const { delivery } = nodeOf({ ...environment, clock: ahead(clock, aheadMs) }, deadLetters)
      const queue = delivery.open(ROOM, await claim(ROOM), always)
      queue.end()
      await queue.announce(fences.get(ROOM)!)
      const notices = [noticeAt('last', 0)]
      await store.rooms.release(ROOM, fences.get(ROOM)!, { forget: true, ttlMs: 1000, notices })
      queue.push(notices)
      await soon(async () => expect(await indexed(store)).toEqual([]))
      expect(backend.ids).toEqual(['last'])
    },
  )

  it('stays in the index while announced notices are being written, also if the room had no notice for 10 s', async () => {
    const { clock, store, backend, node, fences, write } = await setup()
    const { commit, queue } = await node().own()
    await commit('a')
    await soon(async () => expect(await pending(store)).toBe(0))
    await queue.announce(fences.get(ROOM)!)
    await passed(clock, () => false, 11_000).catch(() => undefined)
    const written = await write(ROOM, 'b')
    expect(await indexed(store)).toEqual([ROOM])
    queue.push(written)
    await soon(() => expect(backend.ids).toEqual(['a', 'b']))
    await passed(clock, () => false, 11_000).catch(() => undefined)
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it('stays in the index if the room ends here before the answer to a write with notices', async () => {
    const { clock, store, backend, node, fences, write, dead } = await setup()
    const { queue } = await node().own()
    await queue.announce(fences.get(ROOM)!)
    await write(ROOM, 'a')
    queue.end()
    dead.add('node_a')
    await passed(clock, () => backend.ids.length === 1, 20_000)
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it('stays in the index if the room ends here before its rewritten notices are counted', async () => {
    const { clock, store, backend, node, fences, write, dead } = await setup()
    const { queue } = await node().own()
    await soon(() => expect(queue.uncounted).toBe(false))
    vi.spyOn(store.notices, 'count').mockRejectedValue(new StoreUnavailable('down'))
    await queue.announce(fences.get(ROOM)!)
    await write(ROOM, 'a')
    queue.recover()
    queue.end()
    dead.add('node_a')
    await passed(clock, () => backend.ids.length === 1, 20_000)
  })

  it('counts what an earlier owner has left once, if the store does not answer the entry in the index', async () => {
    const { clock, store, backend, claim, write, node } = await setup()
    await claim(ROOM, 'node_z')
    await write(ROOM, 'a', 'b', 'c')
    backend.answers.push(500)
    const set = vi.spyOn(store.notices, 'set').mockRejectedValue(new StoreUnavailable('down'))
    const { queue } = await node().own()
    queue.recover()
    await passed(clock, () => set.mock.calls.length >= 3, 10_000)
    expect(queue.size).toBe(3)
    set.mockRestore()
    await passed(clock, () => backend.ids.length === 4, 20_000)
    expect(backend.ids).toEqual(['a', 'a', 'b', 'c'])
  })

  it('sends a notice that the store has in place of an accepted one, which it has lost', async () => {
    const { clock, store, backend, node, write } = await setup()
    const remove = vi.spyOn(store.notices, 'remove').mockRejectedValueOnce(new StoreUnavailable('down'))
    const { commit, queue } = await node().own()
    await commit('a')
    await soon(() => expect(remove).toHaveBeenCalledTimes(1))
    const [a] = await store.notices.oldest(ROOM, 1)
    await store.notices.remove(ROOM, a!)
    await write(ROOM, 'b')
    queue.recover()
    await passed(clock, () => backend.ids.length === 2, 5000)
    expect(backend.ids).toEqual(['a', 'b'])
  })

  it('leaves the index when a room without notices ends here', async () => {
    const { node, store, fences } = await setup()
    const { commit, queue } = await node().own()
    await commit('a')
    await soon(async () => expect(await pending(store)).toBe(0))
    await store.rooms.release(ROOM, fences.get(ROOM)!, { forget: true, ttlMs: 1000 })
    queue.end()
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })
})

describe('NoticeDelivery of rooms without an owner', () => {
  it('is done by one node for each room, with one request at a time', async () => {
    const { store, backend, left, node } = await setup()
    const ids = Array.from({ length: 20 }, (_, i) => `n${i}`)
    await left(ROOM, ...ids)
    for (let i = 0; i < 3; i++) node()
    await soon(async () => expect(await pending(store)).toBe(0))
    expect([backend.ids, backend.mostOpen]).toEqual([ids, 1])
  })

  it('is tried again after at most 5 minutes by a node whose clock is an hour ahead of the store’s', async () => {
    const { backend, clock, deadLetters, environment, left } = await setup()
    backend.answers.push(500)
    await left(ROOM, 'a')
    nodeOf({ ...environment, clock: ahead(clock, HOUR_MS), clockOffset: { ms: HOUR_MS } }, deadLetters)
    await passed(clock, () => backend.ids.length === 2, 310_000)
  })

  it('leaves a room to its owner, and to the other nodes if that dies', async () => {
    const { clock, store, backend, claim, write, dead, node } = await setup()
    await store.notices.set(ROOM, await claim(ROOM, 'node_b'), clock.now())
    await write(ROOM, 'a')
    node()
    await passed(clock, () => clock.monotonic() >= 60_000, 61_000)
    expect([backend.ids, await pending(store)]).toEqual([[], 1])
    dead.add('node_b')
    await passed(clock, () => backend.ids.length === 1, 21_000)
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it('probes the backend with another room if the due room has an owner', async () => {
    const { clock, claim, store, left, write, node } = await setup()
    let away = true
    const posted: string[] = []
    node(store, async ({ id }) => {
      posted.push(id)
      if (away) throw new Error('ECONNREFUSED')
      return { status: 204 }
    })
    for (const name of ['x', 'y', 'z']) await left(`prj_a/duel:${name}`, name)
    await passed(clock, () => posted.length >= 10, 300_000)
    for (let n = 0; n < 20; n++) {
      const room = `prj_a/duel:owned${n}`
      await store.notices.set(room, await claim(room, 'node_b'), 0)
      await write(room, 'owned')
    }
    away = false
    posted.length = 0
    await passed(clock, () => posted.length === 3, 60_000)
    expect(posted).not.toContain('owned')
  })

  it('delivers what an earlier owner has left in a room of this node whose type has no notices any more', async () => {
    const { clock, store, backend, claim, write, node } = await setup()
    await store.notices.set(ROOM, await claim(ROOM, 'node_z'), clock.now())
    await write(ROOM, 'a')
    const { queue } = await node().own()
    await passed(clock, () => backend.ids.length === 1, 20_000)
    await soon(() => expect(queue.size).toBe(0))
    await passed(clock, () => false, 11_000).catch(() => undefined)
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it('delivers for a room that this node could not release', async () => {
    const { clock, store, backend, claim, write, node } = await setup()
    await store.notices.set(ROOM, await claim(ROOM, 'node_a'), clock.now())
    await write(ROOM, 'a')
    node()
    await soon(async () => expect(await pending(store)).toBe(0))
    expect(backend.ids).toEqual(['a'])
  })

  it('does not report the age of a notice that another node has delivered', async () => {
    const { clock, store, backend, left, node } = await setup()
    backend.answers.push(500)
    const dying = killable(store)
    await left(ROOM, 'a')
    const { value } = node(dying.store)
    await soon(() => expect(backend.ids).toHaveLength(1))
    await soon(async () => {
      clock.advance(1)
      expect(await value('service_notices_oldest_seconds')).toBeGreaterThan(0)
    })
    dying.kill()
    node()
    await passed(clock, () => backend.ids.length === 2, 30_000)
    clock.advance(30_000)
    expect(await value('service_notices_oldest_seconds')).toBe(0)
  })

  it('moves a notice to the dead letters if the backend has not accepted it for 24 h', async () => {
    const { clock, backend, left, node, deadLetters, store } = await setup()
    await left(ROOM, 'old')
    clock.advance(24 * HOUR_MS - 1000)
    await left(ROOM, 'new')
    backend.answers.push(500, 500)
    node()
    await soon(() => expect(backend.ids).toEqual(['old']))
    await passed(clock, () => backend.ids.length === 3, 400_000)
    expect(backend.ids).toEqual(['old', 'old', 'new'])
    await soon(async () => expect(await pending(store)).toBe(0))
    expect((await deadLetters.describe('prj_a', 10)).dead_letters.map(({ id }) => id)).toEqual(['old'])
  })

  it('keeps a room in the index while a suspended owner may still write what it has announced', async () => {
    const { clock, backend, claim, write, dead, node, store } = await setup()
    await store.notices.set(ROOM, await claim(ROOM, 'node_b'), clock.now())
    dead.add('node_b')
    node()
    await passed(clock, () => clock.monotonic() >= 60_000, 61_000)
    expect(await indexed(store)).toEqual([ROOM])
    await write(ROOM, 'late')
    await passed(clock, () => backend.ids.length === 1, 21_000)
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it('removes a room from the index if its owner has lost the room before it wrote', async () => {
    const { clock, store, claim, dead, node } = await setup()
    await store.notices.set(ROOM, await claim(ROOM), clock.now())
    await claim(ROOM, 'node_b')
    dead.add('node_a').add('node_b')
    node()
    await soon(async () => expect(await indexed(store)).toEqual([]))
  })

  it.each(['before', 'after'] as const)(
    'another node continues if the node is killed %s the backend has received a notice',
    async (when) => {
      const { clock, backend, left, node, store, post } = await setup()
      const doomed = killable(store)
      const send: PostNotice = async (...args) => {
        if (when === 'after') await post(...args)
        doomed.kill()
        return new Promise(() => undefined)
      }
      await left(ROOM, 'a', 'b')
      node(doomed.store, send)
      await soon(() => expect(backend.ids.length).toBe(when === 'after' ? 1 : 0))
      await soon(async () => expect(await store.notices.take(0, { limit: 9, againMs: 1 })).toEqual([]))
      node()
      const ms = await passed(clock, () => backend.ids.at(-1) === 'b', 25_000)
      expect(ms).toBeGreaterThan(14_000)
      expect(backend.ids).toEqual(when === 'after' ? ['a', 'a', 'b'] : ['a', 'b'])
      await soon(async () => expect(await indexed(store)).toEqual([]))
    },
  )

  it('delivers for 1,000 ended rooms within 60 s after the backend was away for 10 minutes, and asks the store little until then', async () => {
    const { clock, store, left, node } = await setup()
    let away = true
    const ids: string[] = []
    const send: PostNotice = async ({ id }) => {
      await new Promise((resolve) => setImmediate(resolve))
      if (away) throw new Error('ECONNREFUSED')
      ids.push(id)
      return { status: 204 }
    }
    const rooms = Array.from({ length: 1000 }, (_, n) => `prj_a/duel:${n}`)
    for (const room of rooms) await left(room, `${room}-1`, `${room}-2`)
    let commands = 0
    const counts =
      <A extends unknown[], R>(call: (...args: A) => R) =>
      (...args: A): R => {
        commands++
        return call(...args)
      }
    const { notices, rooms: records } = store
    for (const name of ['set', 'take', 'oldest', 'remove'] as const)
      Object.assign(notices, {
        [name]: counts(notices[name].bind(notices) as (...args: unknown[]) => unknown),
      })
    Object.assign(records, { inspect: counts(records.inspect.bind(records)) })
    for (let i = 0; i < 3; i++) node(store, send)
    const began = clock.monotonic()
    await passed(clock, () => clock.monotonic() - began >= 600_000, 601_000)
    expect(ids).toEqual([])
    // Three nodes, each with a probe and a look at four parts every few seconds.
    expect(commands / 600).toBeLessThan(10)
    away = false
    commands = 0
    const tookMs = await passed(clock, () => ids.length >= 2000, 60_000)
    expect(tookMs).toBeLessThanOrEqual(60_000)
    expect(commands / 2000).toBeLessThan(6)
    for (const room of rooms) expect(ids.indexOf(`${room}-1`)).toBeLessThan(ids.indexOf(`${room}-2`))
  })

  it('hands its rooms to other nodes when it stops, and does not wait longer than 2 s for the backend', async () => {
    const { clock, backend, left, node, store } = await setup()
    backend.answers.push(new Promise(() => undefined))
    await left(ROOM, 'a')
    const { delivery, value } = node()
    await soon(() => expect(backend.open).toBe(1))
    const stopped = delivery.stop()
    clock.advance(2000)
    await stopped
    expect(await value('service_notice_attempts_total', '{result="failed"}')).toBe(0)
    node()
    await soon(() => expect(backend.ids).toEqual(['a', 'a']))
    await soon(async () => expect(await pending(store)).toBe(0))
  })
})

describe('dead letters', () => {
  it('are resent, the oldest first, until the backend does not accept one', async () => {
    const { clock, backend, deadLetters } = await setup()
    const ids = ['a', 'b', 'c']
    for (const id of ids) {
      await deadLetters.add('prj_a', { id, body: JSON.stringify({ type: 'won', data: id }) }, 'HTTP 400')
      clock.advance(1000)
    }
    const left = async () => (await deadLetters.describe('prj_a', 10)).dead_letters.map(({ id }) => id)
    expect(await left()).toEqual(['c', 'b', 'a'])
    backend.answers.push(204, 500)
    expect(await deadLetters.resend('prj_a')).toEqual({
      delivered: 1,
      failed: { id: 'b', reason: 'HTTP 500' },
    })
    expect([backend.ids, await left()]).toEqual([
      ['a', 'b'],
      ['c', 'b'],
    ])
    expect(await deadLetters.resend('prj_a', 'c')).toEqual({ delivered: 1 })
    expect(await deadLetters.resend('prj_b')).toEqual({ delivered: 0 })
    expect(await deadLetters.resend('prj_a')).toEqual({ delivered: 1 })
    expect([backend.ids, await left()]).toEqual([['a', 'b', 'c', 'b'], []])
  })

  it('are listed page by page, the newest first', async () => {
    const { clock, deadLetters } = await setup()
    for (let i = 0; i < 5; i++) {
      await deadLetters.add('prj_a', { id: `n${i}`, body: '{}' }, 'HTTP 400')
      clock.advance(1)
    }
    const first = await deadLetters.describe('prj_a', 3)
    const second = await deadLetters.describe('prj_a', 3, first.next_cursor!)
    const ids = [first, second].map(({ dead_letters: letters }) => letters.map(({ id }) => id))
    expect([ids, second.next_cursor]).toEqual([
      [
        ['n4', 'n3', 'n2'],
        ['n1', 'n0'],
      ],
      null,
    ])
  })

  it('are deleted with all notices of a project, and with those of no other', async () => {
    const { backend, left, node, deadLetters, store } = await setup()
    backend.answers.push(400, 500)
    const { own } = node()
    await (await own()).commit('dead', 'waiting')
    await soon(async () => expect(backend.ids).toContain('waiting'))
    await left(OTHER, 'waiting as well')
    const foreign = `b${ROOM}`
    await left(foreign, 'foreign')
    await deadLetters.removeAll('prj_a')
    expect(await deadLetters.describe('prj_a', 9)).toMatchObject({
      pending: { rooms: 0, notices: 0 },
      dead_letters: [],
    })
    expect([await indexed(store), await pending(store, foreign)]).toEqual([[foreign], 1])
  })

  it('are deleted in two passes of a long index, however many of its rooms are of the project', async () => {
    const { deadLetters, store } = await setup()
    const index = Array.from({ length: 10_000 }, (_, n) => `prj_${n % 100 === 0 ? 'a' : 'b'}/board:${n}`)
    let pages = 0
    store.notices.drop = async (room) => void index.splice(index.indexOf(room), 1)
    store.notices.rooms = async (part, limit, skip = 0) => {
      if (part > 0) return []
      pages++
      return index.slice(skip, skip + limit)
    }
    await deadLetters.removeAll('prj_a')
    expect(index.filter((room) => room.startsWith('prj_a/'))).toEqual([])
    // 11 pages of up to 1,000 rooms with, and 10 without those of the project.
    expect([index.length, pages]).toEqual([9900, 21])
  })

  it('end after 30 days', async () => {
    const { clock, deadLetters } = await setup()
    const letters = async () => (await deadLetters.describe('prj_a', 9)).dead_letters.length
    await deadLetters.add('prj_a', { id: 'a', body: '{}' }, 'HTTP 400')
    clock.advance(30 * 24 * HOUR_MS - 1)
    expect(await letters()).toBe(1)
    clock.advance(1)
    expect(await letters()).toBe(0)
  })

  it('are resent although the oldest in the index have expired, and those leave the index', async () => {
    const { backend, clock, store, deadLetters } = await setup()
    const add = (id: string) => deadLetters.add('prj_a', { id, body: '{}' }, 'HTTP 400')
    for (const id of ['a', 'b']) await add(id)
    clock.advance(20 * 24 * HOUR_MS)
    await add('c')
    clock.advance(10 * 24 * HOUR_MS + 1)
    backend.answers.push(400)
    expect((await deadLetters.resend('prj_a')).failed?.id).toBe('c')
    const members = await store.records.page('{room_dead_notices:prj_a}', { limit: 10 })
    expect(members.map((member) => member.split(' ')[1])).toEqual(['c'])
  })

  it('are at most 10,000 of a project: the oldest are deleted, and counted', async () => {
    const { backend, clock, environment } = await setup()
    const dropped: number[] = []
    const counted = { inc: (count = 1) => dropped.push(count) }
    const metrics = { ...environment.metrics, deadNoticesDropped: counted }
    const letters = new DeadLetters({ ...environment, metrics })
    for (let i = 0; i <= 10_000; i++) {
      await letters.add('prj_a', { id: `n${i}`, body: '{}' }, 'HTTP 400')
      clock.advance(1)
    }
    expect(dropped).toEqual([100])
    backend.answers.push(400)
    expect((await letters.resend('prj_a')).failed?.id).toBe('n100')
    expect(await letters.resend('prj_a', 'n10000')).toEqual({ delivered: 1 })
  })
})
