import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** A queue for duels of two players. */
export default defineQueue({
  type: 'ranked',
  room: 'duel',
  players: 2,
  ticket: v.object({}),
  options: () => ({ map: 'desert' }),
})
