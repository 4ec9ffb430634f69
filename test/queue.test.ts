import * as v from 'valibot'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { RoomfulError } from '../client/index.ts'
import { withQueues } from '../client/queue.ts'
import { defineQueue, defineRoom } from '../dataplane/index.ts'
import { type Player, type TestRooms, testRooms } from './kit/index.ts'

const duel = defineRoom({
  type: 'duel',
  maxPlayers: 4,
  options: v.object({ map: v.string() }),
  create: ({ map }) => ({ map, subs: [] as (string | null)[] }),
  onJoin(state, member) {
    state.subs.push(member.sub)
  },
})

const ranked = defineQueue({
  type: 'ranked',
  room: 'duel',
  players: 2,
  ticket: v.object({ elo: v.number() }),
  near: ({ elo }) => elo,
  fits: (a, b, { waitedMs }) => Math.abs(a.elo - b.elo) <= 50 + waitedMs / 100,
  options: () => ({ map: 'desert' }),
  reconnectSeconds: 20,
})

const signed = defineQueue({
  type: 'signed',
  room: 'duel',
  players: 2,
  ticket: v.object({ mode: v.string() }),
  entry: ({ mode }, { data }, ctx) =>
    typeof data?.elo === 'number' ? { mode, elo: data.elo } : ctx.refuse('no rating yet'),
  near: ({ elo }) => elo,
  fits: (a, b) => Math.abs(a.elo - b.elo) <= 50,
  options: (tickets) => ({ map: tickets[0]!.mode }),
})

const trio = defineQueue({
  ...{ type: 'trio', room: 'duel', players: 3 },
  ticket: v.object({}),
  options: () => ({ map: 'ice' }),
})

/** Calls of `admit`. */
let asked: (string | null)[]
/** Its `admit` refuses cheats, and its `create` fails on the map `void`. */
const guarded = defineRoom({
  type: 'guarded',
  maxPlayers: 2,
  options: v.object({ map: v.string() }),
  create({ map }) {
    if (map === 'void') throw new Error('no such map')
    return { subs: [] as (string | null)[] }
  },
  admit({ sub, data }) {
    asked.push(sub)
    return data?.cheat ? 'no cheats' : undefined
  },
  onJoin(state, member) {
    state.subs.push(member.sub)
  },
})

const fair = defineQueue({
  type: 'fair',
  room: 'guarded',
  players: 2,
  ticket: v.object({ map: v.string() }),
  shard: ({ map }) => map,
  options: ([first]) => ({ map: first!.map, key: 'mine' }),
  giveUpSeconds: 30,
})

type Game = TestRooms<[typeof duel, typeof ranked, typeof signed, typeof trio, typeof guarded, typeof fair]>
let t: Game
beforeEach(async () => {
  asked = []
  t = (await testRooms([duel, ranked, signed, trio, guarded, fair])) as unknown as Game
})
afterEach(() => t.close())

const queue = (sub: string, elo: number, options = {}, player: Player = {}) =>
  t.queue('ranked', { elo }, { sub, ...player }, options)

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'resolved',
    (error: unknown) => (error instanceof RoomfulError ? error.code : error),
  )

/** The error with which a queue names the match of a ticket. */
const matched = (room_id: string): RoomfulError =>
  new RoomfulError('matched', 'the match is made', { cause: { room_id, options: {} } })

/** The part of a client's room that a ticket uses. */
const seat = {
  status: 'joined',
  memberId: 'mem_1',
  onMembersChange: () => {},
  onStateChange: () => {},
  onLeave: () => {},
}

describe('client.queue', () => {
  it('joins the room of the match, with the options that the queue has chosen', async () => {
    const [ada, bob] = [await queue('ada', 1200), await queue('bob', 1210)]
    const [one, other] = [await ada.matched, await bob.matched]
    expect(one.id).toBe(other.id)
    expect(one.id).toMatch(/^duel:[0-9a-f]{32}$/)
    expect(one.state).toEqual({ map: 'desert', subs: ['ada', 'bob'] })
  })

  it('asks admit of the match once for each player, although options returns a key, which the queue chooses', async () => {
    const tickets = [
      await t.queue('fair', { map: 'ice' }, { sub: 'ada' }),
      await t.queue('fair', { map: 'ice' }, { sub: 'bob' }),
    ]
    for (const { matched } of tickets) expect((await matched).id).toMatch(/^guarded:[0-9a-f]{32}$/)
    expect(asked).toEqual(['ada', 'bob'])
  })

  it.each([
    ['left', undefined, undefined],
    ['kicked', matched('duel:a'), 'duel:a'],
  ])(
    'rejects with already_queued if the seat of an earlier page has other data, and ends that ticket (%s)',
    async (reason, error, seen) => {
      const asked: unknown[] = []
      let end = (_reason: string, _error?: RoomfulError): void => {}
      const room = {
        ...seat,
        onLeave: (callback: typeof end) => {
          end = callback
        },
        leave: async () => end(reason, error),
        request: async () => {
          throw new RoomfulError('already_queued', 'the player has a ticket with other data')
        },
      }
      const join = async (_type: string, options: { seen?: string }) => {
        if (asked.push(options.seen) > 1) throw new RoomfulError('rate_limited', 'enough')
        return room
      }
      const client = withQueues({ join, serverTime: () => 0, schedule: () => () => {} } as never)
      expect(await codeOf(client.queue('ranked', {} as never).matched)).toBe('already_queued')
      expect(await codeOf(client.queue('ranked', {} as never).matched)).toBe('rate_limited')
      expect(asked).toEqual([undefined, seen])
    },
  )

  it('queues again if the match that the queue names is over for the player', async () => {
    const asked: unknown[] = []
    const join = async (type: string, { seen }: { seen?: string }) => {
      if (type === 'duel') throw new RoomfulError('room_full', 'the room has no free seat')
      asked.push(seen)
      if (seen === undefined) throw matched('duel:a')
      throw new RoomfulError('rate_limited', 'enough')
    }
    const client = withQueues({ join, serverTime: () => 0, schedule: () => () => {} } as never)
    expect(await codeOf(client.queue('ranked', {} as never).matched)).toBe('rate_limited')
    expect(asked).toEqual([undefined, 'duel:a'])
  })

  it('rejects with cancelled if the match is made while the ticket is cancelled, and the next ticket does not get that match', async () => {
    const asked: unknown[] = []
    const match = matched('duel:a')
    let end = (_reason: string, _error: RoomfulError): void => {}
    const room = {
      ...seat,
      onLeave: (callback: typeof end) => {
        end = callback
      },
      leave: async () => end('kicked', match),
      request: () => new Promise(() => {}),
    }
    const join = async (_type: string, { seen }: { seen?: string }) => {
      asked.push(seen)
      if (seen !== undefined) throw new RoomfulError('rate_limited', 'enough')
      return room
    }
    const client = withQueues({ join, serverTime: () => 0, schedule: () => () => {} } as never)
    const ticket = client.queue('ranked', {} as never)
    await Promise.resolve()
    await Promise.resolve()
    await ticket.cancel()
    expect(await codeOf(ticket.matched)).toBe('cancelled')
    expect(await codeOf(client.queue('ranked', {} as never).matched)).toBe('rate_limited')
    expect(asked).toEqual([undefined, 'duel:a'])
  })

  it.each([false, true])(
    'gets a match that arrives together with the join from the next join, or rejects with cancelled (cancel: %s)',
    async (isCancelled) => {
      const found = { id: 'duel:a' }
      const asked: string[] = []
      const join = async (type: string) => {
        if (type === 'duel') return found
        if (asked.push(type) === 1) return { ...seat, status: 'left', leave: async () => {} }
        throw matched('duel:a')
      }
      const client = withQueues({ join, serverTime: () => 0, schedule: () => () => {} } as never)
      const ticket = client.queue('ranked', {} as never)
      if (isCancelled) void ticket.cancel()
      if (isCancelled) expect(await codeOf(ticket.matched)).toBe('cancelled')
      else expect(await ticket.matched).toBe(found)
      expect(asked).toEqual(['ranked', 'ranked'])
    },
  )

  it('rejects with seat_lost and the reason if the player is kicked or banned while it waits', async () => {
    const room = {
      ...seat,
      onLeave: (end: (reason: string, error: RoomfulError) => void) =>
        end('kicked', new RoomfulError('not_in_room', 'gave_up')),
      request: () => new Promise(() => {}),
    }
    const client = withQueues({
      join: async () => room,
      serverTime: () => 0,
      schedule: () => () => {},
    } as never)
    await expect(client.queue('ranked', {} as never).matched).rejects.toMatchObject({
      code: 'seat_lost',
      message: 'gave_up',
    })
  })

  it('sends the queue the match that the player has left, and no match of another queue', async () => {
    const asked: unknown[] = []
    const join = async (type: string, { seen }: { seen?: string }) => {
      asked.push([type, seen])
      if (type !== 'duel') throw matched(`duel:${type}`)
      asked.pop()
      return {}
    }
    const client = withQueues({ join, serverTime: () => 0, schedule: () => () => {} } as never)
    for (const type of ['ranked', 'trio', 'ranked']) await client.queue(type, {} as never).matched
    expect(asked).toEqual([
      ['ranked', undefined],
      ['trio', undefined],
      ['ranked', 'duel:ranked'],
    ])
  })

  it('shows the waiting time and the number of waiting tickets', async () => {
    const ada = await queue('ada', 1200)
    const statuses: unknown[] = []
    ada.onChange((status) => statuses.push(status))
    await queue('bob', 3000)
    await t.advance(3000)
    expect(ada.waiting).toBe(2)
    expect(ada.waitedMs).toBeGreaterThanOrEqual(3000)
    expect(statuses.at(-1)).toMatchObject({ waiting: 2 })
  })

  it('rejects with cancelled after cancel, and the queue forgets the ticket', async () => {
    const ada = await queue('ada', 1200)
    const ended = codeOf(ada.matched)
    await ada.cancel()
    expect(await ended).toBe('cancelled')
    const bob = await queue('bob', 1200)
    const cleo = await queue('cleo', 1200)
    expect((await bob.matched).id).toBe((await cleo.matched).id)
  })

  it('rejects with already_queued for other data, and gives the ticket to a newer client with the same data', async () => {
    const ada = await queue('ada', 1200)
    const other = await queue('ada', 1300)
    expect(await codeOf(other.matched)).toBe('already_queued')
    await t.advance(4000)
    const again = await queue('ada', 1200)
    expect(again.waitedMs).toBeGreaterThanOrEqual(4000)
    expect(await codeOf(ada.matched)).toBe('replaced')
  })

  it('keeps the ticket of a client that was disconnected for less than reconnectSeconds, and its match', async () => {
    const ada = await queue('ada', 1200)
    await t.drop(ada)
    const bob = await queue('bob', 1200)
    const room = await bob.matched
    await t.advance(5000)
    await t.reconnect(ada)
    expect((await ada.matched).id).toBe(room.id)
  })

  it('rejects with seat_lost after a longer disconnection', async () => {
    const ada = await queue('ada', 1200)
    await t.drop(ada)
    await t.advance(30_000)
    await t.reconnect(ada)
    expect(await codeOf(ada.matched)).toBe('seat_lost')
    const bob = await queue('bob', 1200)
    await t.advance(5000)
    expect(bob.waiting).toBeLessThanOrEqual(1)
  })

  it('rejects with the code of a refused join', async () => {
    const wrong = await t.queue('ranked', { elo: 'high' } as never, { sub: 'ada' })
    expect(await codeOf(wrong.matched)).toBe('invalid_options')
  })

  it('rejects with ticket_refused and the text if entry refuses the ticket', async () => {
    const ticket = await t.queue('signed', { mode: 'ice' }, { sub: 'ada' })
    await expect(ticket.matched).rejects.toMatchObject({
      code: 'ticket_refused',
      message: 'no rating yet',
      retryable: false,
    })
  })

  it('brings an honest player together with an honest one, although a cheat sends a forged rating', async () => {
    const enter = (sub: string, elo: number, sent: object = {}) =>
      t.queue('signed', { mode: 'ice', ...sent } as never, { sub, data: { elo } })
    const ada = await enter('ada', 1200)
    const mallory = await enter('mallory', 2900, { elo: 1200 })
    await t.advance(3000)
    const bob = await enter('bob', 1210)
    const room = await ada.matched
    expect((await bob.matched).id).toBe(room.id)
    // The faster one joins first.
    expect(room.state).toEqual({
      map: 'ice',
      subs: expect.toSatisfy((subs: string[]) => subs.toSorted().join() === 'ada,bob'),
    })
    expect(mallory.waitedMs).toBeGreaterThanOrEqual(3000)
  })

  it('rejects with join_refused if admit of the match refuses the player, and the other has a match within 2 s of the next ticket', async () => {
    const ada = await t.queue('fair', { map: 'ice' }, { sub: 'ada' })
    const mallory = await t.queue('fair', { map: 'ice' }, { sub: 'mallory', data: { cheat: true } })
    await expect(mallory.matched).rejects.toMatchObject({ code: 'join_refused', message: 'no cheats' })
    const bob = await t.queue('fair', { map: 'ice' }, { sub: 'bob' })
    const before = t.now
    const room = await ada.matched
    expect(t.now - before).toBeLessThan(2000)
    expect((await bob.matched).id).toBe(room.id)
    expect([...room.state.subs].sort()).toEqual(['ada', 'bob'])
  })

  it('rejects with match_failed after three matches whose create throws, each with other players', async () => {
    const enter = (sub: string) => t.queue('fair', { map: 'void' }, { sub })
    const ada = await enter('ada')
    const failed = codeOf(ada.matched)
    for (const sub of ['bob', 'cleo', 'dan']) {
      await enter(sub)
      await t.advance(5000)
    }
    expect(await failed).toBe('match_failed')
  })

  it('rejects with gave_up after giveUpSeconds, and calls onChange each second until then', async () => {
    const ada = await t.queue('fair', { map: 'ice' }, { sub: 'ada' })
    const seconds = new Set<number>()
    ada.onChange(({ waitedMs }) => seconds.add(Math.floor(waitedMs / 1000)))
    const gaveUp = codeOf(ada.matched)
    await t.advance(32_000)
    expect(await gaveUp).toBe('gave_up')
    expect(seconds.size).toBeGreaterThanOrEqual(29)
    const before = seconds.size
    await t.advance(5000)
    expect(seconds.size).toBe(before)
  })

  it('brings a party into one match', async () => {
    const { client } = { client: withQueues({} as never) }
    const { code } = await client.party({ size: 2 })
    expect(code).toMatch(/^2-[0-9a-f]{32}$/)
    const party = [
      await t.queue('trio', {}, { sub: 'ada' }, { party: code }),
      await t.queue('trio', {}, { sub: 'cleo' }),
      await t.queue('trio', {}, { sub: 'bob' }, { party: code }),
    ]
    const rooms = []
    for (const ticket of party) rooms.push((await ticket.matched).id)
    expect(new Set(rooms).size).toBe(1)
  })

  it('rejects a party whose size no match can have', async () => {
    const client = withQueues({} as never)
    await expect(client.party({ size: 0 })).rejects.toMatchObject({ code: 'invalid_options' })
    const big = await t.queue('ranked', { elo: 1 }, { sub: 'ada' }, { party: `9-${'a'.repeat(32)}` })
    expect(await codeOf(big.matched)).toBe('invalid_options')
  })

  it('rejects with party_timeout if the party is not complete after 60 s', async () => {
    const ada = await queue('ada', 1200, { party: `2-${'a'.repeat(32)}` })
    await t.advance(30_000)
    expect(await codeOf(ada.matched)).toBe('party_timeout')
  })
})

describe('A queue whose owner is killed', () => {
  it('keeps waiting tickets with their age', async () => {
    const [ada, bob] = [await queue('ada', 1200), await queue('bob', 1500)]
    await t.advance(10_000)
    await t.killOwner(ada)
    await t.advance(16_000)
    const before = t.now
    expect((await ada.matched).id).toBe((await bob.matched).id)
    // They fit after 25 s. With a new age, they would wait 9 s longer.
    expect(t.now - before).toBeLessThan(5000)
  })
})
