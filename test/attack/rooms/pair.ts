import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Two players who do not know each other, and find each other with `joinOrCreate`. */
export default defineRoom({
  type: 'pair',
  maxPlayers: 2,
  listing: { data: v.object({}), of: () => ({}) },
  create: () => ({}),
})
