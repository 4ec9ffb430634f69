import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A listed room of four seats, one map for all of them. */
export default defineRoom({
  type: 'duel',
  maxPlayers: 4,
  options: v.object({ map: v.string() }),
  create: ({ map }): { map: string } => ({ map }),
  listing: { data: v.object({ map: v.string() }), of: ({ map }) => ({ map }) },
})
