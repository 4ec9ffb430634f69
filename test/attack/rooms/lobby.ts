import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Fields of the data in the list. */
const FIELDS = Array.from({ length: 20 }, (_, n) => `f${n}`)

/** A listed room. Its row has the number of its last message. */
export default defineRoom({
  type: 'lobby',
  maxPlayers: 1000,
  messages: { set: { data: v.object({ n: v.number() }) } },
  durability: 'none',
  listing: {
    data: v.object(
      Object.fromEntries(FIELDS.map((field) => [field, v.optional(v.union([v.number(), v.string()]))])),
    ),
    of: ({ n }) => ({ f0: n }),
  },
  create: () => ({ n: 0 }),
  onMessage(state, { data }) {
    state.n = data.n
  },
})
