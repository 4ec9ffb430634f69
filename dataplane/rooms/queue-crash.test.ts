import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type BenchOptions, RoomBench, type TestMember } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { defineQueue } from './queue.ts'

const duel = defineRoom({ type: 'duel', maxMembers: 2, create: () => ({}) })
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

/** The match that a member was told, by the end of its seat or the refusal of its join. */
function matchOf(benches: readonly RoomBench[], memberIds: readonly string[]): string | undefined {
  for (const { sent } of benches)
    for (const message of sent) {
      if (!('member_id' in message) || !memberIds.includes(message.member_id)) continue
      const text =
        message.kind === 'left' ? message.farewell.message : message.kind === 'refused' ? message.message : ''
      if (text?.startsWith('matched ')) return JSON.parse(text.slice(8)).room_id
    }
  return undefined
}

/**
 * Plays a match on a node whose `write`-th write to the store, counted from the second ticket, is the last. `lands`: the store has it, but the node
 * does not hear of it. Then another node takes over, and the clients do there what clients do.
 */
async function crash(write: number, lands: boolean) {
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
  const node: RoomBench = new RoomBench([ranked, duel], { request: request(() => node) })
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
  await node.die()
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
    await heir.settle()
    // Its seat is not there: it joins again.
    if (!told(name) && !member?.inRoom && member?.errors.length) join(heir, name, `${name} again`)
  }
  await heir.advance(12_000, 100)
  const state = heir.describe('ranked', 'default')?.state as {
    tickets: Record<string, unknown>
    orders: object
  }
  return { died, ada: told('ada'), bob: told('bob'), rooms: [...asked], state }
}

describe('A match whose queue and room lose their node', () => {
  for (const lands of [false, true])
    it(`is made exactly once, whichever write is the last, and the last write ${lands ? 'lands' : 'is lost'}`, async () => {
      for (let write = 1; ; write++) {
        const { died, ada, bob, rooms, state } = await crash(write, lands)
        const at = `write ${write}`
        expect(ada, at).toMatch(/^duel:/)
        expect(bob, at).toBe(ada)
        expect(rooms, at).toEqual([ada])
        expect(Object.keys(state.tickets), at).toEqual(['cleo'])
        expect(state.orders, at).toEqual({})
        if (!died) {
          expect(write).toBeGreaterThan(4)
          break
        }
      }
    })
})
