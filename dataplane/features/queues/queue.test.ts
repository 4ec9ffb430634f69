import { pino } from 'pino'
import * as v from 'valibot'
import { beforeEach, describe, expect, it } from 'vitest'
import type { Match } from '../../../shared/protocol/messages.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { type BenchOptions, RoomBench } from '../../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../../test/support/rooms/test-member.ts'
import { defineRoom } from '../../room/definition.ts'
import { InstalledTypes } from '../../room/installed-types.ts'
import { type RequestAnswer, type RoomAddress, type RoomRequest, roomIdOf } from '../../traffic.ts'
import { defineQueue } from './queue.ts'
import type { QueueSpec } from './tickets.ts'

const duel = (rules: { durability?: 'none' | 'journal'; maxPlayers?: number } = {}) =>
  defineRoom({ type: 'duel', maxPlayers: 2, ...rules, create: () => ({}) })

const TICKET = v.object({ elo: v.number(), region: v.optional(v.string()) })
type Rules = Partial<QueueSpec<'ranked', typeof TICKET, 'duel'>>

const ranked = (rules: Rules = {}) =>
  defineQueue({
    type: 'ranked',
    room: 'duel',
    players: 2,
    ticket: TICKET,
    near: ({ elo }) => elo,
    fits: (a, b, { waitedMs }) => Math.abs(a.elo - b.elo) <= 50 + waitedMs / 100,
    ...rules,
  })

function raise(message: string): never {
  throw new Error(message)
}

/** `refused`: it has too few seats. `broken`: its code has failed. An object: texts of `admit` for the players that it has refused. */
type Answer = 'done' | 'refused' | 'unknown' | 'broken' | { readonly [player: string]: string }

const CODES = { refused: 'room_full', unknown: 'timeout', broken: 'room_logic_failed' } as const

/** Rooms of matches. The test decides when they answer. */
class Rooms {
  readonly asked: {
    readonly what: string
    readonly order: { room: string; players: readonly string[]; options: unknown }
    readonly id: string
  }[] = []
  /** Default: each request is carried out immediately. */
  answers = (_what: string, _players: readonly string[]): Promise<Answer> => Promise.resolve('done')

  readonly request = async (address: RoomAddress, request: RoomRequest): Promise<RequestAnswer> => {
    const { op: what } = request.do
    const players = 'subs' in request.do ? request.do.subs : []
    const order = { room: roomIdOf(address), players, options: request.create?.options }
    this.asked.push({ what, order, id: request.id })
    const answer = await this.answers(what, players)
    if (answer === 'done') return { reply: { reserved: true }, epoch: 1, seq: 1 }
    if (typeof answer === 'object') return { reply: { refused: answer }, epoch: 1, seq: 1 }
    return { code: CODES[answer], message: answer }
  }
}

class SettableClock extends FakeClock {
  offsetMs = 0

  override now(): number {
    return super.now() + this.offsetMs
  }
}

class Bench {
  readonly rooms = new Rooms()
  readonly bench: RoomBench

  constructor(rules: Rules = {}, options: BenchOptions = {}) {
    const { request } = this.rooms
    this.bench = new RoomBench([ranked(rules), duel({ maxPlayers: 20 })], { request, ...options })
  }

  /** `data`: the claim of the token. */
  join(sub: string, elo: number, { session = sub, data, ...options }: { [name: string]: unknown } = {}) {
    const { region, ...others } = options
    const ticket = { elo, ...(region !== undefined && { region }) }
    return this.bench.join('ranked', session as string, {
      sub,
      key: 'default',
      // A queue needs no support for layers.
      layers: false,
      ...(data !== undefined && { data: data as never }),
      options: { ticket, ...others } as never,
    })
  }

  get state() {
    return this.bench.describe('ranked', 'default')?.state as {
      waiting: number
      tickets: Record<string, { since: number; ticket: object; order?: string }>
      orders: Record<string, unknown>
      parties: Record<string, unknown>
    }
  }

  get waiting() {
    return Object.entries(this.state.tickets)
      .filter(([, { order }]) => order === undefined)
      .map(([player]) => player)
      .sort()
  }

  /** Series of a metric of queues, by their labels. */
  async series(name: string): Promise<Record<string, number>> {
    const { values } = await this.bench.registry.getSingleMetric(name)!.get()
    return Object.fromEntries(values.map(({ labels, value }) => [Object.values(labels).join(' '), value]))
  }

  /** Returns the code with which a member's ticket has ended or was refused, with the text of a refusal. */
  endOf(member: TestMember): string | undefined {
    const { code, message, match } = this.#ended(member)
    if (match) return 'matched'
    return code?.endsWith('_refused') && message !== undefined ? `${code}: ${message}` : code
  }

  matchOf(member: TestMember) {
    return this.#ended(member).match
  }

  #ended({ memberId }: TestMember): { code?: string; message?: string; match?: Match | undefined } {
    const left = this.bench.sentOf('left').findLast(({ member_id: id }) => id === memberId)
    const refused = this.bench.sentOf('refused').findLast(({ member_id: id }) => id === memberId)
    return left?.farewell ?? refused ?? {}
  }

  advance(ms: number) {
    return this.bench.advance(ms, 50)
  }
}

describe('defineQueue', () => {
  it('rejects an invalid definition, and names the valid form', () => {
    expect(() => ranked({ players: 0 })).toThrow(
      /players is 0; it must be 1 to 100, or \{ min, max, waitSeconds \}/,
    )
    expect(() => ranked({ players: { min: 3, max: 2, waitSeconds: 1 } })).toThrow(/players is/)
    expect(() => ranked({ near: 1 as never })).toThrow(/near is 1; it must be a function/)
    expect(() => ranked({ fit: () => true } as never)).toThrow(/fit: write fits/)
  })

  it('does not load with a room type that cannot reserve the seats of its matches', () => {
    expect(() => new InstalledTypes([ranked()])).toThrow(
      /the queue "ranked" makes matches in the room type "duel", which does not exist/,
    )
    expect(() => new InstalledTypes([ranked(), duel({ durability: 'none' })])).toThrow(/durability none/)
    expect(() => new InstalledTypes([ranked({ players: 3 }), duel()])).toThrow(
      /3 players, but its maxPlayers is 2/,
    )
    expect(new InstalledTypes([ranked(), duel()]).all).toHaveLength(2)
  })
})

/** Takes the rating from the token. */
const signed: Rules = {
  entry: (_ticket, { data }, ctx) => {
    const elo = data?.elo
    return typeof elo === 'number' ? { elo } : ctx.refuse('no rating yet')
  },
}

describe('entry', () => {
  it('decides what the queue matches by, whatever the client has sent', async () => {
    const queue = new Bench(signed)
    await queue.join('ada', 1200, { data: { elo: 1200 } })
    await queue.join('mallory', 1200, { data: { elo: 2900 } })
    await queue.advance(500)
    expect(queue.rooms.asked).toEqual([])
    await queue.join('bob', 2900, { data: { elo: 1210 } })
    await queue.advance(200)
    expect(queue.rooms.asked.map(({ order }) => order.players)).toEqual([['ada', 'bob']])
    expect(queue.state.tickets.mallory!.ticket).toEqual({ elo: 2900 })
  })

  it('refuses a ticket with a reason for the player', async () => {
    const queue = new Bench(signed)
    expect(queue.endOf(await queue.join('ada', 1200))).toBe('ticket_refused: no rating yet')
    expect(queue.state.tickets).toEqual({})
  })

  it('is called once for a ticket, whatever a later token says', async () => {
    let calls = 0
    const queue = new Bench({
      entry: ({ elo }, { data }) => ({ elo: elo + Number(data?.bonus), calls: ++calls }),
    })
    await queue.join('ada', 1200, { data: { bonus: 1 } })
    const before = queue.state.tickets.ada
    await queue.advance(2000)
    const again = await queue.join('ada', 1200, { session: 'again', data: { bonus: 2 } })
    expect([again.inRoom, queue.endOf(again)]).toEqual([true, undefined])
    expect(queue.state.tickets.ada).toMatchObject({ ticket: { elo: 1201, calls: 1 }, since: before!.since })
    expect(queue.endOf(await queue.join('ada', 1201, { session: 'other' }))).toBe('already_queued')
  })

  it.each<[string, () => unknown]>([
    ['throws', () => raise('no database')],
    ['returns nothing', () => undefined],
    ['returns a promise', () => Promise.reject(new Error('too late'))],
    ['returns more than 512 bytes of JSON', () => ({ elo: 1, region: 'x'.repeat(500) })],
    ['refuses without a text', () => 'refuse'],
  ])('fails the ticket with room_logic_failed if it %s', async (_what, run) => {
    const queue = new Bench({
      entry: (_ticket, _player, ctx) => {
        const returned = run()
        return returned === 'refuse' ? ctx.refuse('') : (returned as { elo: number })
      },
    })
    const ada = await queue.join('ada', 1200)
    expect(ada.errors).toMatchObject([{ code: 'room_logic_failed' }])
    expect(queue.state.tickets).toEqual({})
    expect((await queue.series('service_queue_failures_total'))['ranked entry']).toBe(1)
  })
})

describe('Queue', () => {
  let queue: Bench
  beforeEach(() => {
    queue = new Bench()
  })

  it('matches two tickets that fit as soon as the second arrives, and notifies their players only after the seats are reserved', async () => {
    let answer = (_answer: Answer) => {}
    queue.rooms.answers = () => new Promise((resolve) => (answer = resolve))
    const [ada, bob] = [await queue.join('ada', 1200), await queue.join('bob', 1240)]
    await queue.advance(200)
    expect(queue.rooms.asked).toMatchObject([
      { what: 'reserve', order: { players: ['ada', 'bob'], options: {} } },
    ])
    expect([queue.endOf(ada), queue.endOf(bob)]).toEqual([undefined, undefined])
    answer('done')
    await queue.advance(200)
    const { room } = queue.rooms.asked[0]!.order
    expect(room).toMatch(/^duel:[0-9a-f]{32}$/)
    for (const member of [ada, bob]) expect(queue.matchOf(member)).toEqual({ room_id: room, options: {} })
    expect(queue.state).toMatchObject({ tickets: {}, orders: {} })
  })

  it('describes itself to operators: waiting and oldest ticket, pending and finished matches, failures', async () => {
    const figures = () => queue.bench.queues.describe()[0]
    queue = new Bench({
      fits: (a) => {
        if (a.elo === 0) throw new Error('no elo')
        return true
      },
    })
    let answer = (_answer: Answer) => {}
    queue.rooms.answers = () => new Promise((resolve) => (answer = resolve))
    await queue.join('ada', 0)
    await queue.advance(100)
    await queue.join('bob', 1200)
    await queue.advance(1000)
    await queue.join('carl', 1200)
    await queue.advance(100)
    const { since } = queue.state.tickets.ada!
    const oldest_since = new Date(since).toISOString()
    expect(figures()).toMatchObject({
      room_id: 'ranked:default',
      waiting: 1,
      oldest_since,
      pending_matches: 1,
    })
    expect(figures()).toMatchObject({ matches: 0, failures: expect.any(Number) })
    expect(figures()!.failures).toBeGreaterThan(0)
    answer('done')
    await queue.advance(100)
    expect(figures()).toMatchObject({ waiting: 1, pending_matches: 0, matches: 1 })
    const oldestSeconds = (queue.bench.clock.now() - since) / 1000
    expect(await queue.series('service_queue_oldest_seconds')).toEqual({ ranked: oldestSeconds })
    expect(await queue.series('service_queue_tickets')).toEqual({ ranked: 1 })
  })

  it('replies how long a ticket has waited, and refuses with already_queued if the member means another ticket', async () => {
    const ada = await queue.join('ada', 1200)
    await queue.advance(5000)
    const ask = (ref: number, data: object) =>
      queue.bench.say('ranked', 'ada', 'ticket', data as never, ref, 'default')
    await ask(1, { ticket: { elo: 1200 } })
    await ask(2, { ticket: { elo: 1300 } })
    await ask(3, { ticket: { elo: 1200 }, party: `2-${'a'.repeat(32)}` })
    await queue.advance(200)
    expect(ada.errors).toMatchObject([2, 3].map((ref) => ({ ref, code: 'already_queued' })))
  })

  it('recognizes a ticket by the data that the client gave, if the schema returns other data each time', async () => {
    let calls = 0
    const counted = v.pipe(
      TICKET,
      v.transform((ticket) => ({ ...ticket, call: ++calls })),
    )
    queue = new Bench({ ticket: counted as never })
    await queue.join('ada', 1200)
    await queue.advance(200)
    const again = await queue.join('ada', 1200, { session: 'again' })
    expect([queue.endOf(again), again.inRoom]).toEqual([undefined, true])
    for (const [ref, elo] of [
      [1, 1200],
      [2, 1300],
    ] as const)
      await queue.bench.say('ranked', 'again', 'ticket', { ticket: { elo } }, ref, 'default')
    await queue.advance(200)
    expect(again.errors).toMatchObject([{ ref: 2, code: 'already_queued' }])
    expect(queue.endOf(await queue.join('ada', 1300, { session: 'other' }))).toBe('already_queued')
  })

  it('answers a player who joins again within 30 s of its match with the same match', async () => {
    await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    await queue.advance(200)
    const { room } = queue.rooms.asked[0]!.order
    const again = await queue.join('ada', 1200, { session: 'again' })
    expect(queue.matchOf(again)).toEqual({ room_id: room, options: {} })
    const next = await queue.join('ada', 1200, { session: 'next', seen: room })
    expect(next.inRoom).toBe(true)
    await queue.advance(31_000)
    const later = await queue.join('bob', 1200, { session: 'later' })
    expect(later.inRoom || queue.rooms.asked.length > 1).toBe(true)
  })

  it('does not answer with a match that the player has left on an earlier page', async () => {
    await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    await queue.advance(200)
    const { room } = queue.rooms.asked[0]!.order
    await queue.join('ada', 1200, { session: 'next', seen: room })
    queue.bench.leave('ranked', 'next', 'default')
    await queue.advance(200)
    expect((await queue.join('ada', 1200, { session: 'reloaded' })).inRoom).toBe(true)
  })

  it('returns the tickets to the front with their old age, after the cancellation is confirmed, and not before', async () => {
    const answers: ((answer: Answer) => void)[] = []
    queue.rooms.answers = () => new Promise((resolve) => answers.push(resolve))
    await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    const before = { ...queue.state.tickets }
    await queue.advance(300)
    answers[0]!('unknown')
    await queue.advance(300)
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve', 'cancel'])
    expect(queue.rooms.asked[1]!.id).toBe(queue.rooms.asked[0]!.id)
    expect(queue.waiting).toEqual([])
    answers[1]!('unknown')
    await queue.advance(1500)
    expect([queue.rooms.asked.at(-1)?.what, queue.waiting]).toEqual(['cancel', []])
    queue.rooms.answers = () => new Promise(() => {})
    const cleo = await queue.join('cleo', 1200)
    answers[2]!('done')
    await queue.advance(2000)
    // The oldest is matched again, under another id, and with another player.
    const [last] = queue.rooms.asked.slice(-1)
    expect(last).toMatchObject({ what: 'reserve', order: { players: ['ada', 'cleo'] } })
    expect(last!.id).not.toBe(queue.rooms.asked[0]!.id)
    expect(queue.state.tickets.ada?.since).toBe((before.ada as { since: number }).since)
    expect(cleo.inRoom).toBe(true)
  })

  it('cancels a match whose room has answered after more than 20 s', async () => {
    let answer = (_answer: Answer) => {}
    queue.rooms.answers = (what) =>
      what === 'cancel' ? Promise.resolve('done') : new Promise((resolve) => (answer = resolve))
    const ada = await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    await queue.advance(21_000)
    answer('done')
    await queue.advance(200)
    expect(queue.rooms.asked.map(({ what }) => what).slice(0, 2)).toEqual(['reserve', 'cancel'])
    expect(queue.endOf(ada)).toBeUndefined()
  })

  it('does not return the ticket of a player who has left while its match was pending', async () => {
    const answers: ((answer: Answer) => void)[] = []
    queue.rooms.answers = () => new Promise((resolve) => answers.push(resolve))
    await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    await queue.advance(200)
    queue.bench.leave('ranked', 'ada', 'default')
    await queue.advance(200)
    answers[0]!('refused')
    await queue.advance(200)
    answers[1]!('done')
    await queue.advance(200)
    expect(queue.waiting).toEqual(['bob'])
  })

  it('cancels the match of a player who leaves while it is pending, notifies nobody, and the player can queue again', async () => {
    const answers: ((answer: Answer) => void)[] = []
    queue.rooms.answers = () => new Promise((resolve) => answers.push(resolve))
    await queue.join('ada', 1200)
    const bob = await queue.join('bob', 1200)
    await queue.advance(200)
    queue.bench.leave('ranked', 'ada', 'default')
    await queue.advance(200)
    const again = await queue.join('ada', 3000, { session: 'again' })
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve', 'cancel'])
    answers[0]!('done')
    await queue.advance(200)
    expect([queue.endOf(bob), queue.waiting]).toEqual([undefined, ['ada']])
    answers[1]!('done')
    await queue.advance(200)
    expect([again.inRoom, queue.endOf(again), queue.waiting]).toEqual([true, undefined, ['ada', 'bob']])
    queue.bench.leave('ranked', 'again', 'default')
    await queue.advance(200)
    expect((await queue.join('ada', 1200, { session: 'third' })).inRoom).toBe(true)
  })

  it('does not ask the room of a match about a player who has left before the match is committed', async () => {
    await queue.join('ada', 1200)
    const options = { ticket: { elo: 1200 } }
    queue.bench.askToJoin('ranked', 'bob', { sub: 'bob', key: 'default', options })
    queue.bench.leave('ranked', 'bob', 'default')
    await queue.advance(500)
    expect([queue.rooms.asked.map(({ what }) => what), queue.waiting]).toEqual([['cancel'], ['ada']])
  })

  it('matches a party together with others that fit, or not at all', async () => {
    queue = new Bench({ players: 4, fits: (a, b) => Math.abs(a.elo - b.elo) <= 50 })
    const code = `2-${'a'.repeat(32)}`
    await queue.join('ada', 1200, { party: code })
    for (const sub of ['x', 'y']) await queue.join(sub, 1200)
    await queue.advance(2000)
    expect(queue.rooms.asked).toEqual([])
    await queue.join('bob', 1900, { party: code })
    await queue.advance(2000)
    expect(queue.rooms.asked).toEqual([])
    const other = `2-${'b'.repeat(32)}`
    await queue.join('cleo', 1210, { party: other })
    await queue.join('dan', 1220, { party: other })
    await queue.advance(2000)
    expect(queue.rooms.asked.map(({ order }) => [...order.players].sort())).toEqual([
      ['cleo', 'dan', 'x', 'y'],
    ])
  })

  it('refuses a third player in a party of two, and an invalid party code', async () => {
    const code = `2-${'a'.repeat(32)}`
    queue = new Bench({ players: 4 })
    for (const sub of ['ada', 'bob']) await queue.join(sub, 1200, { party: code })
    expect(queue.endOf(await queue.join('cleo', 1200, { party: code }))).toBe('party_full')
    const bad = await queue.join('dan', 1200, { party: '5-abc' })
    expect(bad.errors[0]).toMatchObject({ code: 'invalid_options' })
  })

  it('never lets tickets of different shards meet', async () => {
    queue = new Bench({ shard: ({ region }) => region ?? '' })
    await queue.join('ada', 1200, { region: 'eu' })
    await queue.join('bob', 1200, { region: 'us' })
    await queue.advance(2000)
    expect(queue.rooms.asked).toEqual([])
    await queue.join('cleo', 1200, { region: 'us' })
    await queue.advance(200)
    expect(queue.rooms.asked.map(({ order }) => order.players)).toEqual([['bob', 'cleo']])
  })

  it('gives a player one ticket, also if its data belongs to another shard', async () => {
    queue = new Bench({ shard: ({ region }) => region ?? '' })
    await queue.join('ada', 1200, { region: 'eu' })
    expect(queue.endOf(await queue.join('ada', 1200, { region: 'us', session: 'other' }))).toBe(
      'already_queued',
    )
  })

  it('drops tickets that older code has kept for players who left while their match was pending', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const older = { ...ranked(), onLeave: () => {} }
    Object.assign(queue, { bench: new RoomBench([older, duel()], { clock, store, ...queue.rooms }) })
    queue.rooms.answers = () => new Promise(() => {})
    const pairs = { ada: 1200, bob: 1200, cleo: 3000, dan: 3000 }
    const members: TestMember[] = []
    for (const [sub, elo] of Object.entries(pairs)) members.push(await queue.join(sub, elo))
    await queue.advance(200)
    for (const sub of ['ada', 'cleo']) queue.bench.leave('ranked', sub, 'default')
    await queue.advance(200)
    expect(Object.keys(queue.state.orders)).toHaveLength(2)
    queue.bench.mayAct = false
    const heir = new Bench({}, { clock, store, nodeId: 'node_b' })
    for (const member of members) heir.bench.members.set(member.memberId, member)
    let reserves: Answer = 'refused'
    heir.rooms.answers = (what) => Promise.resolve(what === 'reserve' ? reserves : 'done')
    const again = await heir.join('ada', 1200, { session: 'again' })
    await heir.advance(500)
    expect(heir.waiting).toEqual(['ada', 'bob', 'dan'])
    reserves = 'done'
    await heir.advance(35_000)
    expect(heir.waiting).toEqual(['dan'])
    expect(heir.matchOf(again)).toEqual(heir.matchOf(members[1]!))
  })

  it('sends no member the data of another', async () => {
    const ada = await queue.join('ada', 1234)
    await queue.join('secret', 7777)
    await queue.advance(5000)
    expect(ada.state).toEqual({ waiting: 2 })
    for (const payload of ada.received)
      expect(Buffer.from(payload).toString('latin1')).not.toMatch(/secret|7777/)
  })

  it('reserves the seat of a match for the session of a player without sub', async () => {
    const bench = new RoomBench([ranked(), duel()])
    const options = { ticket: { elo: 1 } }
    for (const session of ['a', 'b']) await bench.join('ranked', session, { key: 'default', options })
    await bench.advance(500, 5)
    const key = bench.sentOf('left')[0]!.farewell.match!.room_id.slice('duel:'.length)
    expect((await bench.join('duel', 'stranger', { key })).errors[0]?.code).toBe('room_full')
    for (const session of ['a', 'b']) expect((await bench.join('duel', session, { key })).errors).toEqual([])
  })

  it('makes one match if the store does not answer for 5 s', async () => {
    const bench = new RoomBench([ranked(), duel()])
    for (const sub of ['ada', 'bob']) {
      bench.askToJoin('ranked', sub, { sub, key: 'default', options: { ticket: { elo: 1 } } })
      await bench.advance(20, 5)
      bench.store.mood = 'deaf'
    }
    await bench.advance(5000, 50)
    expect(bench.sentOf('left')).toEqual([])
    bench.store.mood = 'fine'
    await bench.advance(5000, 50)
    const rooms = bench.sentOf('left').map(({ farewell }) => farewell.match!.room_id)
    expect([rooms.length, new Set(rooms).size]).toEqual([2, 1])
  })

  it('makes matches that the quota of its players would not allow', async () => {
    const bench = new RoomBench([ranked(), duel()], { quota: { perMinute: 1, maxLasting: 1 } })
    const options = { ticket: { elo: 1 } }
    for (const round of [1, 2, 3]) {
      for (const sub of ['ada', 'bob']) {
        const { match } = bench.sentOf('left').at(-1)?.farewell ?? {}
        const seen = match && { seen: match.room_id }
        await bench.join('ranked', sub, { sub, key: 'default', options: { ...options, ...seen } })
      }
      await bench.advance(500, 50)
      expect(bench.sentOf('left')).toHaveLength(round * 2)
    }
  })

  it('cancels a match whose room the quota of the project refuses, and its tickets wait again', async () => {
    const bench = new RoomBench([ranked(), duel()], { quota: { maxRooms: 1 } })
    for (const sub of ['ada', 'bob'])
      await bench.join('ranked', sub, { sub, key: 'default', options: { ticket: { elo: 1 } } })
    await bench.advance(300, 50)
    expect(bench.sentOf('left')).toEqual([])
    const { orders, tickets } = bench.describe('ranked', 'default')!.state as unknown as Bench['state']
    expect(orders).toEqual({})
    expect(Object.values(tickets).map(({ order }) => order)).toEqual([undefined, undefined])
  })

  it('makes a match of players with long names', async () => {
    const bench = new RoomBench([ranked({ players: 25 }), duel({ maxPlayers: 25 })])
    for (let i = 0; i < 25; i++)
      await bench.join('ranked', `m${i}`, {
        sub: `${i}${'😀'.repeat(200)}`,
        key: 'default',
        options: { ticket: { elo: 1 } },
      })
    await bench.advance(3000, 50)
    expect(bench.sentOf('left')).toHaveLength(25)
  })

  it('cancels a match whose handler has failed, because the state would be too large', async () => {
    const options = () => ({ map: 'x'.repeat(480) })
    queue = new Bench({ players: 20, options }, { limits: { stateBytes: 6000 } })
    const players = Array.from({ length: 20 }, (_, i) => `p${i}`)
    for (const sub of players) await queue.join(sub, 1200)
    await queue.advance(5000)
    expect([queue.waiting, queue.rooms.asked.map(({ what }) => what)]).toEqual([[], ['reserve']])
    await queue.advance(17_000)
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve', 'cancel'])
    expect(queue.waiting).toHaveLength(20)
  })

  it('makes no more matches without an answer than its room may have tasks', async () => {
    queue = new Bench({}, { limits: { tasks: 2 } })
    const answers: ((answer: Answer) => void)[] = []
    queue.rooms.answers = () => new Promise((resolve) => answers.push(resolve))
    for (const elo of [1000, 2000, 3000]) for (const sub of ['a', 'b']) await queue.join(`${sub} ${elo}`, elo)
    await queue.advance(3000)
    expect([answers.length, queue.waiting]).toEqual([2, ['a 3000', 'b 3000']])
    expect(queue.bench.counts['limit tasks']).toBeGreaterThan(0)
    answers[0]!('done')
    await queue.advance(3000)
    expect([answers.length, queue.waiting]).toEqual([3, []])
    expect(queue.bench.counts['error room_logic_failed']).toBeUndefined()
  })

  it('counts the reached limit of tasks once for each search, however many matches the search finds', async () => {
    queue = new Bench({ fits: (_a, _b, { waitedMs }) => waitedMs >= 2000 }, { limits: { tasks: 2 } })
    queue.rooms.answers = () => new Promise(() => {})
    for (let n = 0; n < 20; n++) await queue.join(`p${n}`, 1000)
    while (queue.rooms.asked.length === 0) await queue.advance(50)
    expect([queue.rooms.asked.length, queue.waiting.length]).toEqual([2, 16])
    expect(queue.bench.counts['limit tasks']).toBe(1)
  })

  it('counts no reached limit of tasks while no ticket waits for a match', async () => {
    queue = new Bench({}, { limits: { tasks: 2 } })
    queue.rooms.answers = () => new Promise(() => {})
    for (const elo of [1000, 2000]) for (const sub of ['a', 'b']) await queue.join(`${sub} ${elo}`, elo)
    await queue.advance(3000)
    expect([queue.rooms.asked.length, queue.waiting]).toEqual([2, []])
    expect(queue.bench.counts['limit tasks']).toBeUndefined()
  })

  it('refuses a ticket when the state has half of its maximum size, so that matches can still be made', async () => {
    queue = new Bench({ players: 3 }, { limits: { stateBytes: 40_000 } })
    const ends: (string | undefined)[] = []
    for (let i = 0; i < 200; i++)
      ends.push(queue.endOf(await queue.join(`player ${i}`.padEnd(250, 'x'), i * 1000, { session: `s${i}` })))
    const places = ends.filter((end) => end === undefined).length
    expect([places > 40, places < 100]).toEqual([true, true])
    expect(new Set(ends)).toEqual(new Set([undefined, 'queue_full']))
  })

  it('sends the number of waiting tickets at most once a second', async () => {
    queue = new Bench({ fits: () => false })
    const numbers: number[] = []
    for (let n = 1; n <= 40; n++) {
      await queue.join(`p${n}`, 1000)
      await queue.advance(100)
      if (queue.state.waiting !== numbers.at(-1)) numbers.push(queue.state.waiting)
    }
    expect(numbers.length).toBeGreaterThanOrEqual(4)
    expect(numbers.length).toBeLessThanOrEqual(6)
  })

  it('matches the others although a ticket fails each match, and ends that ticket', async () => {
    queue = new Bench({
      options(tickets) {
        if (tickets.some(({ elo }) => elo === 1201)) throw new Error('no map for 1201')
        return {}
      },
    })
    const first = ['ada', 'bad', 'bob', 'cleo', 'dan']
    const members: TestMember[] = []
    for (const sub of first) members.push(await queue.join(sub, sub === 'bad' ? 1201 : 1200))
    await queue.advance(1500)
    for (let i = 0; i < 10; i++) {
      await queue.join(`late ${i}`, 1200)
      await queue.advance(5000)
    }
    const players = queue.rooms.asked.flatMap(({ order }) => order.players)
    for (const sub of ['ada', 'bob', 'cleo', 'dan', 'late 0']) expect(players).toContain(sub)
    expect(players).not.toContain('bad')
    expect(members.map((member) => queue.endOf(member)).indexOf('match_failed')).toBe(first.indexOf('bad'))
  })

  it('tries again after a failed match even if the clock of its node has gone back by an hour', async () => {
    const clock = new SettableClock()
    queue = new Bench({}, { clock })
    queue.rooms.answers = async (what) => (what === 'reserve' ? 'refused' : 'done')
    for (const sub of ['ada', 'bob']) await queue.join(sub, 1200)
    await queue.advance(500)
    expect(queue.waiting).toEqual(['ada', 'bob'])
    queue.rooms.answers = async () => 'done'
    clock.offsetMs = -3_600_000
    await queue.advance(3000)
    expect(queue.waiting).toEqual([])
  })

  it('starts a search after the shard that has used up the comparisons of the last search', async () => {
    let looked: string[] = []
    queue = new Bench({
      players: 12,
      shard: ({ region }) => region ?? '',
      fits(a, b) {
        looked.push(a.region ?? '')
        return a.elo === b.elo
      },
    })
    // Ten tickets of a kind fit, but a match needs twelve, so each search ends only at its limit.
    for (let i = 0; i < 40; i++) await queue.join(`eu ${i}`, i % 4, { region: 'eu' })
    for (let i = 0; i < 2; i++) await queue.join(`us ${i}`, i, { region: 'us' })
    const first = new Set<string>()
    for (let i = 0; i < 25; i++) {
      looked = []
      await queue.advance(100)
      if (looked[0]) first.add(looked[0])
    }
    expect(first).toEqual(new Set(['eu', 'us']))
  })

  it('limits the data of a ticket to 512 bytes, and refuses options that it does not know', async () => {
    expect((await queue.join('ada', 1, { region: 'x'.repeat(600) })).errors[0]?.message).toMatch(/limit: 512/)
    expect((await queue.join('bob', 1, { elo: 5 })).errors[0]?.code).toBe('invalid_options')
  })

  it('continues if options throws: the tickets wait, and the error is counted', async () => {
    queue = new Bench({
      options() {
        throw new Error('no map')
      },
    })
    await queue.join('ada', 1200)
    await queue.join('bob', 1200)
    await queue.advance(3000)
    expect(queue.waiting).toEqual(['ada', 'bob'])
    expect(queue.rooms.asked).toEqual([])
    expect((await queue.series('service_queue_failures_total'))['ranked options']).toBeGreaterThan(0)
  })
})

describe('A match whose admit refuses a player', () => {
  const refusing = (name: string, queue: Bench) => {
    queue.rooms.answers = async (_what, players) =>
      players.includes(name) ? { [name]: 'no cheats' } : 'done'
  }

  it('ends the tickets of that player and of its party, and the others wait again with their age, notified of nothing', async () => {
    const queue = new Bench({ players: 4 })
    refusing('bob', queue)
    const party = `2-${'a'.repeat(32)}`
    const [ada, bob] = [await queue.join('ada', 1200, { party }), await queue.join('bob', 1200, { party })]
    const cleo = await queue.join('cleo', 1200)
    await queue.advance(100)
    const before = queue.state.tickets.cleo!.since
    const dan = await queue.join('dan', 1200)
    await queue.advance(200)
    expect([ada, bob, cleo, dan].map((member) => queue.endOf(member))).toEqual([
      'party_refused',
      'join_refused: no cheats',
      undefined,
      undefined,
    ])
    expect([queue.waiting, queue.state.tickets.cleo!.since]).toEqual([['cleo', 'dan'], before])
    expect(queue.state).toMatchObject({ orders: {}, parties: {} })
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve'])
  })

  it('lets the other player have a match as soon as the next ticket fits', async () => {
    const queue = new Bench()
    refusing('mallory', queue)
    const ada = await queue.join('ada', 1200)
    await queue.join('mallory', 1200)
    await queue.advance(200)
    await queue.join('bob', 1200)
    await queue.advance(200)
    expect(queue.rooms.asked.at(-1)?.order.players).toEqual(['ada', 'bob'])
    expect(queue.matchOf(ada)?.room_id).toBe(queue.rooms.asked.at(-1)?.order.room)
  })

  it('refuses a player for a minute after three refusals in ten minutes', async () => {
    const queue = new Bench()
    refusing('mallory', queue)
    let session = 0
    const enter = async () => {
      const member = await queue.join('mallory', 1200, { session: `m${++session}` })
      await queue.advance(200)
      return queue.endOf(member)
    }
    await queue.join('ada', 1200)
    expect([await enter(), await enter(), await enter()]).toEqual(Array(3).fill('join_refused: no cheats'))
    await queue.advance(4500)
    expect(await enter()).toBe('ticket_refused: wait 56 s')
    await queue.advance(56_000)
    expect(await enter()).toBe('join_refused: no cheats')
    expect(await enter()).toBe('ticket_refused: wait 60 s')
    await queue.advance(601_000)
    expect([await enter(), await enter()]).toEqual(Array(2).fill('join_refused: no cheats'))
  })

  it.each(['is empty for 40 s', 'has no owner for 40 s'])(
    'refuses the player for a minute and no longer if the queue %s until then',
    async (how) => {
      const clock = new FakeClock()
      const store = memoryStore({ clock })
      let queue = new Bench({}, { clock, store })
      refusing('mallory', queue)
      const ada = await queue.join('ada', 1200)
      for (const session of ['m1', 'm2', 'm3']) {
        await queue.join('mallory', 1200, { session })
        await queue.advance(200)
      }
      queue.bench.leave('ranked', ada.memberId, 'default')
      await queue.advance(400)
      if (how === 'is empty for 40 s') await queue.advance(40_000)
      else {
        queue.bench.mayAct = false
        clock.advance(40_000)
        queue = new Bench({}, { clock, store, nodeId: 'node_b' })
      }
      const text = queue.endOf(await queue.join('mallory', 1200, { session: 'm4' }))
      expect(text).toBe('ticket_refused: wait 20 s')
    },
  )

  it('remembers the last 1,000 refusals', async () => {
    const queue = new Bench({ players: 1 })
    queue.rooms.answers = async (_what, [player]) => ({ [player!]: 'no cheats' })
    let session = 0
    const enter = async (...players: readonly string[]) => {
      for (const sub of players)
        queue.bench.askToJoin('ranked', `s${++session}`, {
          ...{ sub, key: 'default' },
          options: { ticket: { elo: 1200 } },
        })
      await queue.advance(200)
      return queue.endOf(queue.bench.members.get(`s${session}`)!)
    }
    for (let i = 0; i < 3; i++) await enter('mallory')
    const others = Array.from({ length: 997 }, (_, i) => `player ${i}`)
    while (others.length > 0) await enter(...others.splice(0, 90))
    expect(await enter('mallory')).toMatch(/^ticket_refused/)
    await enter('one more')
    expect(await enter('mallory')).toMatch(/^join_refused/)
  })

  it('refuses no player for longer than a minute if the clock of the node has gone back by an hour', async () => {
    const clock = new SettableClock()
    const queue = new Bench({}, { clock })
    refusing('mallory', queue)
    await queue.join('ada', 1200)
    for (const session of ['m1', 'm2', 'm3']) {
      await queue.join('mallory', 1200, { session })
      await queue.advance(200)
    }
    clock.offsetMs = -3_600_000
    expect((await queue.join('mallory', 1200, { session: 'm4' })).inRoom).toBe(true)
  })
})

describe('The tickets of a failed match', () => {
  it('are not put together again for 30 s', async () => {
    const queue = new Bench()
    queue.rooms.answers = async (what) => (what === 'reserve' ? 'refused' : 'done')
    for (const sub of ['ada', 'bob']) await queue.join(sub, 1200)
    await queue.advance(29_000)
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve', 'cancel'])
    await queue.advance(3000)
    expect(queue.rooms.asked.map(({ what }) => what)).toEqual(['reserve', 'cancel', 'reserve', 'cancel'])
  })

  it('are not put together again for 30 s, also if they are a party that plays alone', async () => {
    const queue = new Bench()
    const party = `2-${'a'.repeat(32)}`
    queue.rooms.answers = async (what) => (what === 'reserve' ? 'refused' : 'done')
    for (const sub of ['ada', 'bob']) await queue.join(sub, 1200, { party })
    await queue.advance(29_000)
    expect(queue.rooms.asked).toHaveLength(2)
  })

  it('end with match_failed after three matches with other players each, if code of the game has failed', async () => {
    const lines: string[] = []
    const log = pino({ level: 'error' }, { write: (line) => lines.push(JSON.parse(line).msg) })
    const queue = new Bench({}, { log })
    queue.rooms.answers = async (what, players) =>
      what === 'reserve' && players.includes('ada') ? 'broken' : 'done'
    const ada = await queue.join('ada', 1200)
    const others: TestMember[] = []
    for (const sub of ['bob', 'cleo', 'dan']) {
      expect(queue.endOf(ada)).toBeUndefined()
      others.push(await queue.join(sub, 1200))
      await queue.advance(5000)
    }
    expect(queue.endOf(ada)).toBe('match_failed')
    expect(others.map((member) => queue.endOf(member))).not.toContain('match_failed')
    expect(lines).toContain('a match of the queue failed')
    expect(await queue.series('service_queue_failures_total')).toMatchObject({ 'ranked room_logic': 3 })
  })

  it('end with match_failed after three matches if they are a party that plays alone', async () => {
    const queue = new Bench()
    const party = `2-${'a'.repeat(32)}`
    queue.rooms.answers = async (what) => (what === 'reserve' ? 'broken' : 'done')
    const members = [await queue.join('ada', 1200, { party }), await queue.join('bob', 1200, { party })]
    await queue.advance(90_000)
    expect(members.map((member) => queue.endOf(member))).toEqual(['match_failed', 'match_failed'])
    expect(queue.rooms.asked.filter(({ what }) => what === 'reserve')).toHaveLength(3)
  })

  it.each<[string, Answer, readonly string[]]>([
    ['has met the same player each time', 'broken', ['bob', 'bob', 'bob', 'bob']],
    ['has had failures that no code of the game has caused', 'unknown', ['bob', 'cleo', 'dan', 'eve']],
  ])('wait on if their player %s', async (_what, answer, others) => {
    const queue = new Bench()
    queue.rooms.answers = async (what) => (what === 'reserve' ? answer : 'done')
    const ada = await queue.join('ada', 1200)
    for (const [n, sub] of others.entries()) {
      const other = await queue.join(sub, 1200, { session: `other ${n}` })
      await queue.advance(90_000)
      queue.bench.leave('ranked', other.memberId, 'default')
      await queue.advance(1000)
    }
    expect(queue.rooms.asked.filter(({ what }) => what === 'reserve').length).toBeGreaterThan(3)
    expect([queue.endOf(ada), queue.waiting]).toEqual([undefined, ['ada']])
  })
})

describe('giveUpSeconds', () => {
  it('ends a ticket with gave_up, but not while its match is being made', async () => {
    const queue = new Bench({ giveUpSeconds: 10 })
    const answers: ((answer: Answer) => void)[] = []
    queue.rooms.answers = () => new Promise((resolve) => answers.push(resolve))
    const [ada, bob] = [await queue.join('ada', 1200), await queue.join('bob', 1200)]
    const cleo = await queue.join('cleo', 5000)
    await queue.advance(9800)
    expect(queue.endOf(cleo)).toBeUndefined()
    await queue.advance(400)
    expect([ada, bob, cleo].map((member) => queue.endOf(member))).toEqual([undefined, undefined, 'gave_up'])
    answers[0]!('unknown')
    await queue.advance(200)
    answers[1]!('done')
    await queue.advance(200)
    expect([ada, bob].map((member) => queue.endOf(member))).toEqual(['gave_up', 'gave_up'])
    expect(queue.state.tickets).toEqual({})
  })

  it('ends a ticket also if the room of its cancelled match does not answer, as the 60 s of an incomplete party do', async () => {
    const queue = new Bench({ giveUpSeconds: 90 })
    queue.rooms.answers = async (what) => (what === 'reserve' ? 'unknown' : new Promise(() => {}))
    const party = `2-${'a'.repeat(32)}`
    const members = [await queue.join('ada', 1200), await queue.join('bob', 1200)]
    members.push(await queue.join('cleo', 5000, { party }), await queue.join('dan', 5000, { party }))
    await queue.advance(1000)
    queue.bench.leave('ranked', members[3]!.memberId, 'default')
    await queue.advance(58_000)
    expect(members.map((member) => queue.endOf(member))).toEqual(Array(4).fill(undefined))
    await queue.advance(3000)
    expect(queue.endOf(members[2]!)).toBe('party_timeout')
    await queue.advance(30_000)
    expect([queue.endOf(members[0]!), queue.endOf(members[1]!)]).toEqual(['gave_up', 'gave_up'])
  })

  it('does not count the time without an owner, as the time of an incomplete party', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const queue = new Bench({ giveUpSeconds: 90 }, { clock, store })
    const members = [
      await queue.join('ada', 1200),
      await queue.join('bob', 5000, { party: `2-${'a'.repeat(32)}` }),
    ]
    await queue.advance(20_000)
    queue.bench.mayAct = false
    clock.advance(60_000)
    const heir = new Bench({ giveUpSeconds: 90 }, { clock, store, nodeId: 'node_b' })
    for (const member of members) heir.bench.members.set(member.memberId, member)
    await heir.join('cleo', 9000)
    await heir.advance(35_000)
    expect(members.map((member) => heir.endOf(member))).toEqual([undefined, undefined])
    await heir.advance(12_000)
    expect(members.map((member) => heir.endOf(member))).toEqual([undefined, 'party_timeout'])
    await heir.advance(30_000)
    expect(heir.endOf(members[0]!)).toBe('gave_up')
  })

  it('ends no ticket in an outage of the store of 60 s', async () => {
    const queue = new Bench({ giveUpSeconds: 70 })
    const members = [
      await queue.join('ada', 1200),
      await queue.join('bob', 5000, { party: `2-${'a'.repeat(32)}` }),
      await queue.join('cleo', 9000),
    ]
    await queue.advance(10_000)
    const { store } = queue.bench
    store.mood = 'deaf'
    await queue.advance(100)
    await queue.join('dan', 9000)
    await queue.advance(60_000)
    store.mood = 'fine'
    // The match that was being made has failed, and its tickets were kept apart for 30 s.
    await queue.advance(40_000)
    expect(members.map((member) => queue.endOf(member))).toEqual([undefined, undefined, 'matched'])
  })
})
