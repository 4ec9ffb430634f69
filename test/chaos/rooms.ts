import { defineQueue, defineRoom } from 'roomful'
import * as v from 'valibot'
import { REFUSALS } from './room-logic.ts'

const LOBBY_SEATS = 3
/** Longer than all clock jumps of a run together, so that a reservation ends only by the join of its player. */
const RESERVED_SECONDS = 24 * 3600

/** State of a lobby room. The room counts its seats, to detect that the service has given one seat to two players. */
export type LobbyState = {
  phase: 'open' | 'closed'
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** By sub. */
  reserved: { [sub: string]: true }
  turns: number
  /** Hidden from all members: a mark without readers. */
  secret: string
  wrong: { name: 'seat_twice'; message: string }[]
}

/** A room that players find by lists, codes and reservations. Its row contains everything that `listing.of` receives. */
export const lobbyRoom = defineRoom({
  type: 'chaos-lobby',
  maxMembers: LOBBY_SEATS,
  codes: true,
  // Empty rooms stay listed for 6 s, so that an owner can die and leave the row of an empty room.
  idleSeconds: 6,
  reconnectSeconds: 10,
  create: (): LobbyState => ({ phase: 'open', seats: {}, reserved: {}, turns: 0, secret: '', wrong: [] }),
  layers: { secret: null },
  listing: {
    data: v.object({ phase: v.string(), seen: v.string() }),
    of: (state) => (state.phase === 'open' ? { phase: state.phase, seen: JSON.stringify(state) } : null),
  },
  messages: {
    turn: {
      data: v.null(),
      handle(state) {
        state.phase = state.phase === 'open' ? 'closed' : 'open'
        count(state)
      },
    },
    reserve: {
      data: v.object({ sub: v.string() }),
      reply: v.object({ reserved: v.boolean() }),
      handle(state, { data: { sub } }, ctx) {
        const isMember = Object.values(state.seats).includes(sub)
        if (ctx.reserve(sub, RESERVED_SECONDS) && !isMember) state.reserved[sub] = true
        count(state)
        ctx.reply({ reserved: state.reserved[sub] === true })
      },
    },
  },
  onJoin(state, { id, sub }) {
    delete state.reserved[sub ?? '']
    state.seats[id] = sub ?? ''
    count(state)
  },
  onLeave(state, { id }) {
    delete state.seats[id]
    count(state)
  },
})

function count(state: LobbyState): void {
  state.turns += 1
  state.secret = `§lobby#${state.turns}()§`
  const [seats, reserved] = [Object.values(state.seats), Object.keys(state.reserved)]
  if (seats.length + reserved.length <= LOBBY_SEATS || state.wrong.length > 0) return
  const message = `${seats.join(', ')} have a seat, and ${reserved.join(', ')} a reservation, in a room with ${LOBBY_SEATS} seats`
  state.wrong.push({ name: 'seat_twice', message })
}

/** State of a bank. It keeps each call that had an effect, to detect a second effect. */
export type BankState = {
  /** Number of effects. */
  total: number
  /** By call, the value of `total` with its effect. */
  effects: { [call: string]: number }
  /** By member id, the player's sub. */
  seats: { [memberId: string]: string }
  /** Calls with a second effect. */
  twice: string[]
}

/** A room that backends call. It sends notices. */
export const bankRoom = (durability: 'journal' | 'snapshot') =>
  defineRoom({
    type: `chaos-bank-${durability}`,
    durability,
    idleSeconds: 3600,
    reconnectSeconds: 10,
    create: (): BankState => ({ total: 0, effects: {}, seats: {}, twice: [] }),
    events: { granted: v.string() },
    notices: {
      granted: v.object({ call: v.string(), part: v.number() }),
      over: v.object({ total: v.number() }),
    },
    calls: {
      grant: {
        data: v.object({
          call: v.string(),
          refuse: v.nullable(v.picklist(REFUSALS)),
          notices: v.number(),
        }),
        reply: v.object({ total: v.number() }),
        handle(state, { data: { call, refuse, notices } }, ctx) {
          if (state.effects[call] !== undefined) state.twice.push(call)
          state.total += 1
          state.effects[call] = state.total
          ctx.emit('granted', call)
          for (let part = 0; part < notices; part++) ctx.notify('granted', { call, part })
          ctx.reply({ total: state.total })
          if (refuse === 'room_logic_refused') ctx.refuse(`${call} asked to be refused`)
          if (refuse === 'room_logic_failed') throw new Error(`${call} asked for a failure`)
        },
      },
    },
    onJoin(state, { id, sub }) {
      state.seats[id] = sub ?? ''
    },
    onLeave(state, { id }) {
      delete state.seats[id]
    },
    onDispose(state, ctx) {
      ctx.notify('over', { total: state.total })
    },
  })

export const MATCH_PLAYERS = 3
export const PARTY_SIZE = 2
/** Number of levels. Tickets of the same level match. */
export const LEVELS = 2

/** Name of a ticket: player, number, and party number (0: no party). */
export const ticketName = (player: string, number: number, party = 0): string =>
  `${player}/${number}/${party}`
export const playerOf = (ticket: string): string => ticket.split('/')[0]!
/** Party number of a ticket. Undefined: none. */
export const partyOf = (ticket: string): string | undefined => {
  const party = ticket.split('/')[2]!
  return party === '0' ? undefined : party
}

/** The room of a match. Its state has the players with a seat, and all players that ever had a seat. */
export const matchRoom = defineRoom({
  type: 'chaos-match',
  maxMembers: MATCH_PLAYERS,
  sameSub: 'replace',
  idleSeconds: 3,
  reconnectSeconds: 10,
  options: v.object({ tickets: v.optional(v.array(v.string()), []) }),
  create: ({ tickets }) => ({
    tickets,
    /** Player of each member id. */
    seats: {} as { [memberId: string]: string },
    /** Players that ever had a seat. */
    came: {} as { [player: string]: true },
  }),
  onJoin(state, { id, sub }) {
    state.seats[id] = sub ?? ''
    state.came[sub ?? ''] = true
  },
  onLeave(state, { id }) {
    delete state.seats[id]
  },
})

/** A queue for matches of three players. */
export const chaosQueue = defineQueue({
  type: 'chaos-queue',
  room: 'chaos-match',
  players: MATCH_PLAYERS,
  reconnectSeconds: 10,
  ticket: v.object({ name: v.string(), level: v.number() }),
  near: ({ level }) => level,
  fits: (a, b) => a.level === b.level,
  options: (tickets) => ({ tickets: tickets.map(({ name }) => name) }),
})
