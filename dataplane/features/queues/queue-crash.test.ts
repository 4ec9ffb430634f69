import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Clock } from '../../../shared/clock.ts'
import { type BenchOptions, RoomBench } from '../../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../../test/support/rooms/test-member.ts'
import { defineRoom, type RoomDefinition } from '../../room/definition.ts'
import { defineQueue } from './queue.ts'

const duel = defineRoom({ type: 'duel', maxPlayers: 2, create: () => ({}) })

/** A room of a match that decides about each player within 100 ms. `refuses`: name of a player, or nobody. */
const deciding = (clock: () => Clock, refuses: string) =>
  defineRoom({
    type: 'duel',
    maxPlayers: 2,
    create: () => ({}),
    async admit({ sub }) {
      await new Promise<void>((resolve) => clock().schedule(100, resolve))
      return sub === refuses ? 'no' : undefined
    },
  })
const ranked = defineQueue({
  type: 'ranked',
  room: 'duel',
  players: 2,
  ticket: v.object({ elo: v.number() }),
  fits: (a, b) => a.elo === b.elo,
})

const PLAYERS = { cleo: 1, ada: 2, bob: 2 }
type Name = keyof typeof PLAYERS

const join = (bench: RoomBench, name: Name, session: string = name): TestMember =>
  bench.askToJoin('ranked', session, {
    sub: name,
    key: 'default',
    requestId: session === name ? PLAYERS[name] * 10 + name.length : 1000,
    options: { ticket: { elo: PLAYERS[name] } },
  })

/** The match that a member was sent, by the end of its seat or the refusal of its join. `refused`: the room has refused the player. */
function matchOf(benches: readonly RoomBench[], memberIds: readonly string[]): string | undefined {
  for (const { sent } of benches)
    for (const message of sent) {
      if (!('member_id' in message) || !memberIds.includes(message.member_id)) continue
      if (message.kind !== 'left' && message.kind !== 'refused') continue
      const end = message.kind === 'left' ? message.farewell : message
      if (end.match) return end.match.room_id
      if (end.code === 'join_refused') return 'refused'
    }
  return undefined
}

/**
 * Plays a match on a node that dies with its `write`-th write to the store, counted from the second ticket. `lands`: the store has that
 * write, but the node does not get the answer. Another node takes over `awayMs` later, and the clients act there as clients do. With
 * `refuses`, the room of the match decides about its players.
 */
async function crash(
  write: number,
  lands: boolean,
  { queue = ranked as RoomDefinition, awayMs = 0, refuses = undefined as string | undefined } = {},
) {
  /** Rooms that were asked to reserve seats. */
  const asked = new Set<string>()
  // An answer takes longer than a search for other matches.
  const request =
    (bench: () => RoomBench): NonNullable<BenchOptions['request']> =>
    (room, request) => {
      asked.add(`duel:${room.key}`)
      const { clock } = bench()
      const later = new Promise<void>((resolve) => clock.schedule(250, resolve))
      return later.then(() => bench().request(room.roomType, request, room.key))
    }
  const match = refuses === undefined ? duel : deciding(() => node.clock, refuses)
  const node: RoomBench = new RoomBench([queue, match], { request: request(() => node) })
  for (const name of ['cleo', 'ada'] as const) join(node, name)
  await node.advance(200, 5)
  const { store } = node
  let writes = store.writes
  const last = writes + write
  Object.defineProperty(store, 'writes', {
    get: () => writes,
    set(value: number) {
      writes = value
      if (value >= last) store.mood = value === last && lands ? 'silent' : 'deaf'
    },
  })
  join(node, 'bob')
  await node.advance(1000, 5)
  const died = store.mood !== 'fine'
  node.mayAct = false
  node.clock.advance(awayMs)
  const heir: RoomBench = node.successor([...node.members.values()], {
    request: request(() => heir),
    seed: 2,
  })
  const told = (name: Name) => matchOf([node, heir], [name, `${name} again`])
  for (const name of ['ada', 'bob', 'cleo'] as const) {
    if (told(name)) continue
    const member = heir.members.get(name)
    if (!member?.inRoom) join(heir, name)
    else
      heir.send(
        'ranked',
        name,
        {
          kind: 'attach',
          ask: 1,
          edge: 'node_a',
          turn: 1,
          codec: member.codec,
          session_id: member.sessionId,
          epoch: member.epoch,
          seq: member.seq,
          settled: 0,
          through: 0,
        },
        'default',
      )
    await heir.untilIdle()
    // Its seat has ended, so it joins again.
    if (!told(name) && !member?.inRoom && member?.errors.length) join(heir, name, `${name} again`)
  }
  await heir.advance(12_000, 100)
  const seatsOf = (room: string) => heir.describe('duel', room.slice('duel:'.length))?.reservations ?? []
  const kept = () => [...asked].filter((room) => seatsOf(room).length > 0)
  const rooms = kept()
  // The tickets of a match that was cancelled are kept apart for 30 s.
  if (awayMs > 0) await heir.advance(33_000, 100)
  rooms.push(...kept())
  const state = heir.describe('ranked', 'default')?.state as {
    tickets: Record<string, unknown>
    orders: object
  }
  const tickets = Object.keys(state.tickets)
  return { died, ada: told('ada'), bob: told('bob'), rooms, tickets, orders: state.orders }
}

/** The problems after a crash at each write. Expected: ada and bob have one room, no other room keeps seats, and cleo waits. */
async function broken(lands: boolean, options: Parameters<typeof crash>[2] = {}) {
  const wrong: object[] = []
  for (let write = 1; ; write++) {
    const { died, ...found } = await crash(write, lands, options)
    const { ada, bob, rooms, tickets, orders } = found
    const isOnce = ada?.startsWith('duel:') && ada === bob && rooms.every((room) => room === ada)
    if (!isOnce || tickets.join() !== 'cleo' || Object.keys(orders).length > 0)
      wrong.push({ write, ...found })
    if (died) continue
    expect(write).toBeGreaterThan(4)
    return wrong
  }
}

type Task = { run: (...all: unknown[]) => unknown; handle: (...all: unknown[]) => unknown }
type Tickets = { tickets: { [player: string]: object } }

/** A queue with a bug in one task. */
function mistaken(name: 'reserve' | 'cancel', change: (task: Task) => Partial<Task>): RoomDefinition {
  const tasks = ranked.tasks as unknown as { [name: string]: Task }
  const task = tasks[name]!
  return { ...ranked, tasks: { ...tasks, [name]: { ...task, ...change(task) } } } as never
}

/** The tickets of a match stay in the queue. */
const forgetful = mistaken('reserve', ({ handle }) => ({
  handle(state, ...others) {
    const { tickets } = state as Tickets
    const before = JSON.parse(JSON.stringify(tickets)) as Tickets['tickets']
    handle(state, ...others)
    for (const [player, row] of Object.entries(before)) tickets[player] ??= row
  },
}))

/** Tickets wait again although the room has not confirmed that their match is cancelled. */
const hasty = mistaken('cancel', () => ({ run: async () => true }))

/** Players are notified of a match that its room has refused. */
const heedless = mistaken('reserve', ({ handle }) => ({
  handle: (state, ended, ...others) =>
    handle(state, { ...(ended as object), value: { reserved: true } }, ...others),
}))

/** Longer than the time that the room of a match has to answer. */
const LATE = { awayMs: 21_000 }

describe('A match whose queue and room lose their node', () => {
  for (const lands of [false, true])
    it(`is made exactly once, whichever write is the last, and the last write ${lands ? 'lands' : 'is lost'}`, async () => {
      expect(await broken(lands)).toEqual([])
    })

  for (const lands of [false, true])
    it(`is made exactly once if its room decides about the players, and the last write ${lands ? 'lands' : 'is lost'}`, async () => {
      expect(await broken(lands, { refuses: 'nobody' })).toEqual([])
    })

  for (const lands of [false, true])
    it(`is never made if its room refuses a player, whose ticket ends, and the last write ${lands ? 'lands' : 'is lost'}`, async () => {
      for (let write = 1, died = true; died; write++) {
        const { died: hasDied, ...found } = await crash(write, lands, { refuses: 'bob' })
        expect({ write, ...found }).toEqual({
          write,
          ...{ ada: undefined, bob: 'refused', rooms: [], orders: {} },
          tickets: ['cleo', 'ada'],
        })
        died = hasDied
      }
    })

  it('is made exactly once when the next node takes over so late that the match is cancelled', async () => {
    expect(await broken(true, LATE)).toEqual([])
  })

  it('is found to be made twice, or to keep seats, if the queue has a bug', async () => {
    expect(await broken(true, { queue: forgetful })).not.toEqual([])
    expect(await broken(true, { queue: hasty, ...LATE })).not.toEqual([])
    expect((await crash(100, true, { queue: heedless, refuses: 'bob' })).ada).toMatch(/^duel:/)
  })
})
