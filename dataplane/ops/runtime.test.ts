import { setImmediate as nextTurn } from 'node:timers/promises'
import { Hono } from 'hono'
import { describe, expect, it } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { Slices } from '../../shared/slices.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Bus } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { nodeInfo, roomDescription, sessionDescription } from '../../test/support/descriptions.ts'
import { type ClusterNodeDescription, type Found, textFinder } from '../descriptions.ts'
import { answerInSlices, ClusterSearch } from './runtime.ts'

describe('the answer', () => {
  const PIECE = 'x'.repeat(8192)
  /** Number of these pieces in a slice. */
  const A_SLICE = 4

  /** Answers with this many pieces, the last of which may be a failure. `made`: number of requested pieces. */
  function ask(pieces: number, failure?: Error) {
    const seen = { made: 0, broke: [] as unknown[] }
    const app = new Hono().onError((_, c) => c.body(null, 500))
    app.get('/', (c) =>
      answerInSlices(
        c,
        (function* () {
          for (; seen.made < pieces; seen.made++) yield PIECE
          if (failure) throw failure
        })(),
        new Slices(new FakeClock(), 1),
        (error) => seen.broke.push(error),
      ),
    )
    return { seen, response: Promise.resolve(app.request('/')) }
  }

  describe('an answer in slices', () => {
    it('lets other work run after each slice', async () => {
      const { seen, response } = ask(200)
      let before = 0
      let most = 0
      let goingOn = true
      const others = (async () => {
        while (goingOn) {
          await nextTurn()
          most = Math.max(most, seen.made - before)
          before = seen.made
        }
      })()
      const text = await (await response).text()
      goingOn = false
      await others
      expect(text.length).toBe(200 * PIECE.length)
      expect(most).toBeGreaterThan(0)
      expect(most).toBeLessThanOrEqual(A_SLICE)
    })

    it('is made only as fast as it is read, and ends if the reader disconnects', async () => {
      const { seen, response } = ask(200)
      const reader = (await response).body!.getReader()
      await reader.read()
      for (let turn = 0; turn < 50; turn++) await nextTurn()
      const made = seen.made
      expect(made).toBeLessThanOrEqual(3 * A_SLICE)
      await reader.cancel()
      for (let turn = 0; turn < 50; turn++) await nextTurn()
      expect(seen.made).toBe(made)
    })

    it('reports nothing if the reader disconnects during a slice', async () => {
      const { seen, response } = ask(200)
      const reader = (await response).body!.getReader()
      await reader.read()
      await reader.cancel()
      for (let turn = 0; turn < 50; turn++) await nextTurn()
      expect(seen.broke).toEqual([])
    })

    it('breaks the connection if a piece cannot be made, and reports the error', async () => {
      const failure = new Error('a room that cannot be described')
      const { seen, response } = ask(200, failure)
      await expect((await response).text()).rejects.toThrow()
      expect(seen).toEqual({ made: 200, broke: [failure] })
      // Nothing of a smaller answer has been sent yet.
      const small = ask(2, failure)
      expect([(await small.response).status, small.seen.broke]).toEqual([500, []])
    })

    it('is sent as one piece if it is small', async () => {
      const { response } = ask(2)
      const answer = await response
      expect(await answer.text()).toBe(PIECE + PIECE)
      expect(answer.headers.get('content-type')).toBe('application/json')
    })
  })
})

const node = (nodeId: string, self: boolean, alive = true): ClusterNodeDescription => ({
  ...nodeInfo(nodeId, { admin_url: `http://${nodeId}:9100` }),
  self,
  alive,
})

const room = (roomId: string) => roomDescription(roomId, { member_count: 3, connected_count: 2 })

const session = (sessionId: string, sub: string) =>
  sessionDescription(sessionId, { sub, rooms: ['arena:lobby-1'] })

function matching<T>(
  items: readonly T[],
  nameOf: (item: T) => string,
  q = '',
  limit = items.length,
): Found<T> {
  const found = items.filter((item) => textFinder(q)?.(nameOf(item)))
  return { items: found.slice(0, limit), found: found.length, total: items.length }
}

/** Nodes of one cluster that know each other and those in `strangers`, each with its rooms and sessions. */
async function cluster(
  things: Record<string, { rooms?: string[]; sessions?: [string, string][] }>,
  { strangers = [], dead = [] }: { strangers?: string[]; dead?: string[] } = {},
) {
  const clock = new FakeClock()
  const { bus } = memoryStore({ clock })
  const logged: string[] = []
  const published: string[] = []
  const observed: Bus = {
    publish: (channel, bytes) => {
      published.push(`${channel} ${new TextDecoder().decode(bytes)}`)
      return bus.publish(channel, bytes)
    },
    subscribe: (...args) => bus.subscribe(...args),
    listeners: (channels) => bus.listeners(channels),
  }
  const names = Object.keys(things)
  const searches = new Map<string, ClusterSearch>()
  for (const [nodeId, { rooms = [], sessions = [] }] of Object.entries(things)) {
    const search = new ClusterSearch({
      nodeId: nodeId,
      bus: observed,
      clock,
      random: new SeededRandom(),
      log: createLog({ logLevel: 'info' }, {}, { write: (line) => void logged.push(line) }),
      describeCluster: () => [
        node(nodeId, true),
        ...names.filter((name) => name !== nodeId).map((name) => node(name, false)),
        ...strangers.map((name) => node(name, false)),
        ...dead.map((name) => node(name, false, false)),
      ],
      describeRooms: ({ q, limit }) => matching(rooms.map(room), ({ room_id: roomId }) => roomId, q, limit),
      describeSessions: ({ q, limit }) =>
        matching(
          sessions.map(([id, sub]) => session(id, sub)),
          ({ session_id: sessionId, sub }) => `${sessionId} ${sub}`,
          q,
          limit,
        ),
    })
    await search.start()
    searches.set(nodeId, search)
  }
  return { bus, clock, logged, published, search: (name: string) => searches.get(name)! }
}

describe('a search over the cluster', () => {
  it('finds rooms and sessions by any part of their names, whichever node has them', async () => {
    const { search } = await cluster({
      node_a: { rooms: ['arena:lobby-2', 'arena:other'] },
      node_b: { rooms: ['arena:lobby-1'], sessions: [['ses_x', 'bob']] },
      node_c: {},
    })
    const { rooms, sessions, found, silent } = await search('node_a').find('LOBBY', 10)
    expect(rooms).toEqual([
      {
        room_id: 'arena:lobby-1',
        project_id: 'prj_1',
        member_count: 3,
        connected_count: 2,
        node_id: 'node_b',
        admin_url: 'http://node_b:9100',
      },
      expect.objectContaining({ room_id: 'arena:lobby-2', node_id: 'node_a' }),
    ])
    expect([sessions, found, silent]).toEqual([[], { rooms: 2, sessions: 0 }, []])
    expect((await search('node_c').find('bob', 10)).sessions).toEqual([
      {
        session_id: 'ses_x',
        project_id: 'prj_1',
        sub: 'bob',
        rooms: ['arena:lobby-1'],
        node_id: 'node_b',
        admin_url: 'http://node_b:9100',
      },
    ])
  })

  it('returns no more than the limit, also from each node, but counts all matches', async () => {
    const keys = Array.from({ length: 30 }, (_, n) => `arena:room-${10 + n}`)
    const { search, published } = await cluster({
      node_a: { rooms: keys.filter((_, n) => n % 2 === 0) },
      node_b: { rooms: keys.filter((_, n) => n % 2 === 1) },
    })
    const { rooms, found } = await search('node_a').find('room-', 5)
    expect(rooms.map(({ room_id: roomId }) => roomId)).toEqual(keys.slice(0, 5))
    expect(found.rooms).toBe(30)
    const answer = published.find((each) => each.includes('"answer"'))!
    expect(answer.match(/arena:room/g)).toHaveLength(5)
    expect(published).toHaveLength(2)
  })

  it('names the nodes that do not answer, and waits for them at most 1.5 s', async () => {
    const { bus, clock, search } = await cluster(
      { node_a: { rooms: ['arena:lobby'] }, node_b: { rooms: ['arena:lobby-b'] } },
      { strangers: ['node_old', 'node_stuck'], dead: ['node_dead'] },
    )
    // This node gets the question, and does not answer. A node of an older version does not even get it.
    const asked = new Promise<void>((resolve) => {
      void bus.subscribe('search:node_stuck', () => resolve())
    })
    const answer = search('node_a').find('lobby', 10)
    await asked
    // The others have answered by then.
    await nextTurn()
    clock.advance(1500)
    const { rooms, silent } = await answer
    expect(rooms.map(({ room_id: roomId }) => roomId)).toEqual(['arena:lobby', 'arena:lobby-b'])
    expect(silent).toEqual(['node_old', 'node_stuck'])
    // It does not wait if no node could answer.
    const { search: alone } = await cluster({ node_a: {} }, { strangers: ['node_old'] })
    expect((await alone('node_a').find('x', 1)).silent).toEqual(['node_old'])
  })

  it('continues while the store is unavailable', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const search = new ClusterSearch({
      nodeId: 'node_a',
      bus: { ...store.bus, publish: () => Promise.reject(new Error('away')) } as Bus,
      clock,
      random: new SeededRandom(),
      log: createLog({ logLevel: 'error' }, {}),
      describeCluster: () => [node('node_a', true), node('node_b', false)],
      describeRooms: ({ q, limit }) =>
        matching([room('arena:lobby')], ({ room_id: roomId }) => roomId, q, limit),
      describeSessions: ({ q }) => matching([], () => '', q),
    })
    const { rooms, silent } = await search.find('lobby', 10)
    expect([rooms.length, silent]).toEqual([1, ['node_b']])
  })

  it('accepts only valid questions and answers, and logs the others', async () => {
    const { bus, logged, published, search } = await cluster({
      node_a: {},
      node_b: { rooms: ['arena:lobby'] },
    })
    const send = (value: unknown) =>
      bus.publish(
        'search:node_b',
        new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value)),
      )
    const ask = (q: string, limit: number) =>
      send({ kind: 'ask', call: 'c', from: 'node_a', body: { q, limit } })
    await send('{')
    await send({ kind: 'drain' })
    await ask('lobby', 1e6)
    await ask('', 10)
    // An answer without a question.
    await send({
      kind: 'answer',
      call: 'c',
      from: 'node_a',
      body: { rooms: [], sessions: [], found: { rooms: 0, sessions: 0 } },
    })
    expect(published).toEqual([])
    expect(logged).toHaveLength(4)
    expect((await search('node_a').find('lobby', 10)).rooms).toHaveLength(1)
  })

  it('keeps unreadable messages of other nodes, with the names of their players, out of the log', async () => {
    const { bus, logged } = await cluster({ node_a: {} })
    const session = { project_id: 'prj_1', session_id: 'ses_x', sub: 'bob', rooms: 5 }
    const body = { rooms: [], sessions: [session], found: { rooms: 0, sessions: 1 } }
    const answer = { kind: 'answer', call: 'c', from: 'node_b', body }
    await bus.publish('search:node_a', new TextEncoder().encode(JSON.stringify(answer)))
    expect(logged).toHaveLength(1)
    expect(logged[0]).toContain('sessions.0.rooms')
    expect(logged[0]).not.toMatch(/bob|ses_x/)
    expect(logged[0]!.length).toBeLessThan(1000)
  })

  it('ends with its node', async () => {
    const { search, clock } = await cluster({ node_a: {}, node_b: {} })
    await search('node_b').stop()
    expect((await search('node_a').find('x', 1)).silent).toEqual(['node_b'])
    expect(clock.pending).toBe(0)
  })
})
