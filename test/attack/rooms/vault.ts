import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** How large its state is, as text. */
export const TREASURE_BYTES = 50_000

/** What attackers like: a state that costs much to tell, and messages that are refused. */
export default defineRoom({
  type: 'vault',
  maxMembers: 1000,
  messages: { knock: { data: v.object({}) }, add: { data: v.object({ n: v.number() }) } },
  sync: { rate: 20 },
  durability: 'journal',
  create: () => ({ sum: 0, treasure: 'x'.repeat(TREASURE_BYTES) }),
  onMessage(state, { type, data }, ctx) {
    if (type === 'knock') ctx.refuse('it stays shut')
    else if ('n' in data) state.sum += data.n
  },
})
