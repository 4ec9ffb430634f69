import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A listed room for four players and twenty spectators. The place of a player who leaves goes to the spectator who joined first. */
export default defineRoom({
  type: 'quiz',
  maxPlayers: 4,
  spectators: { max: 20 },
  create: () => ({ left: 0 }),
  listing: { data: v.object({}), of: () => ({}) },
  onLeave(state, _member, ctx) {
    state.left += 1
    const [first] = ctx.spectators
    if (first) ctx.seat(first)
  },
})
