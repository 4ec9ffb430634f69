import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Size of the state as JSON. */
export const TREASURE_BYTES = 50_000

/** A target of attacks: a large state, and messages that the room refuses. */
export default defineRoom({
  type: 'vault',
  maxPlayers: 1000,
  messages: { knock: { data: v.object({}) }, add: { data: v.object({ n: v.number() }) } },
  sync: { rate: 20 },
  durability: 'journal',
  create: () => ({ sum: 0, treasure: 'x'.repeat(TREASURE_BYTES) }),
  onMessage(state, { type, data }, ctx) {
    if (type === 'knock') ctx.refuse('it stays shut')
    else if ('n' in data) state.sum += data.n
  },
})
