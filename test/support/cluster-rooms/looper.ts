import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A room that counts, and does not return where it is asked not to. */
export const looper = defineRoom({
  type: 'looper',
  messages: { add: { data: v.null() }, loop: { data: v.null() } },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 600,
  options: v.object({ loop_in_admit: v.optional(v.boolean()) }),
  create: () => ({ count: 0 }),
  async admit(_member, { loop_in_admit: loopInAdmit }) {
    await Promise.resolve()
    while (loopInAdmit);
  },
  onMessage(state, { type }) {
    state.count++
    while (type === 'loop') state.count++
  },
})

export default looper
