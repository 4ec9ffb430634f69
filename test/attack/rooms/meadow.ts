import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** The bystanders' room: small, fast and durable. */
export default defineRoom({
  type: 'meadow',
  maxPlayers: 1000,
  messages: { add: { data: v.object({ n: v.number() }) } },
  sync: { rate: 20 },
  durability: 'journal',
  create: () => ({ sum: 0 }),
  onMessage(state, { data }) {
    state.sum += data.n
  },
})
