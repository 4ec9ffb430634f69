import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** The smallest room there is: one number that everyone can raise. */
export default defineRoom({
  type: 'counter',
  messages: {
    inc: {
      data: v.object({
        by: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(100)), 1),
      }),
    },
  },
  events: { milestone: v.object({ count: v.number() }) },
  sync: { rate: 0 },
  durability: 'journal',
  create: () => ({ count: 0 }),

  onMessage(state, { data }, ctx) {
    const before = state.count
    state.count += data.by
    // One event for each multiple of ten that is reached or passed: 8 + 25 = 33 celebrates 10, 20 and 30.
    for (let ten = (Math.floor(before / 10) + 1) * 10; ten <= state.count; ten += 10) {
      ctx.emit('milestone', { count: ten })
    }
  },
})
