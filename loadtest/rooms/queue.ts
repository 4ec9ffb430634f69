import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** A queue for two. The room of a match gets the names of its tickets, which are the names of their players. */
const queue = defineQueue({
  type: 'load-queue',
  room: 'load-match',
  players: 2,
  ticket: v.object({ name: v.string(), level: v.number() }),
  near: ({ level }) => level,
  fits: (a, b) => a.level === b.level,
  options: (tickets) => ({ tickets: tickets.map(({ name }) => name) }),
})
export default queue
export type LoadQueue = typeof queue
