import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** Brings two players together who have won about as many games. */
export default defineQueue({
  type: 'cards-ranked',
  room: 'cards',
  players: 2,
  reconnectSeconds: 20,
  // The page counts its wins. In a competitive game, the token would have them.
  ticket: v.object({ wins: v.pipe(v.number(), v.integer(), v.minValue(0)) }),
  near: ({ wins }) => wins,
  // Each second of waiting allows one win more between the players.
  fits: (a, b, { waitedMs }) => Math.abs(a.wins - b.wins) <= 3 + waitedMs / 1000,
})
