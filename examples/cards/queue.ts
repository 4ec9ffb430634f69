import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** Brings two players together who have won about as many games. */
export default defineQueue({
  type: 'cards-ranked',
  room: 'cards',
  players: 2,
  reconnectSeconds: 20,
  ticket: v.object({}),
  // The backend counts the wins, and writes them into the token. A player cannot choose them.
  entry: (_ticket, { data }) => ({ wins: typeof data?.wins === 'number' ? data.wins : 0 }),
  near: ({ wins }) => wins,
  // Each second of waiting allows one win more between the players.
  fits: (a, b, { waitedMs }) => Math.abs(a.wins - b.wins) <= 3 + waitedMs / 1000,
})
