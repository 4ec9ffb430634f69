import { defineQueue, defineRoom } from 'roomful'
import * as v from 'valibot'

export const MATCH_PLAYERS = 3
export const PARTY_SIZE = 2
/** Tickets of one level fit. */
export const LEVELS = 2

/** Name of a ticket: its player, its number and the number of its party, which is 0 for none. */
export const ticketName = (player: string, number: number, party = 0): string =>
  `${player}/${number}/${party}`
export const playerOf = (ticket: string): string => ticket.split('/')[0]!
/** Undefined: the ticket is of no party. */
export const partyOf = (ticket: string): string | undefined => {
  const party = ticket.split('/')[2]!
  return party === '0' ? undefined : party
}

/** The room of a match. It writes down who has a seat, and who has ever had one. */
export const matchRoom = defineRoom({
  type: 'chaos-match',
  maxMembers: MATCH_PLAYERS,
  sameSub: 'replace',
  idleSeconds: 3,
  reconnectSeconds: 10,
  options: v.object({ tickets: v.optional(v.array(v.string()), []) }),
  create: ({ tickets }) => ({
    tickets,
    /** By member id, the player. */
    seats: {} as { [memberId: string]: string },
    /** By player. */
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

/** A queue for three. */
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
