import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Returns the multiples of ten above `from`, up to and including `to`. */
function tens(from: number, to: number): number[] {
  const reached: number[] = []
  for (let ten = (Math.floor(from / 10) + 1) * 10; ten <= to; ten += 10) reached.push(ten)
  return reached
}

/** The smallest room: one number that every member can increase. */
export default defineRoom({
  type: 'counter',
  create: () => ({ count: 0 }),
  messages: {
    inc: {
      data: v.object({
        by: v.optional(
          v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(100)),
          1,
        ),
      }),
      handle(state, { data }, ctx) {
        const before = state.count
        state.count += data.by
        for (const count of tens(before, state.count)) ctx.emit('milestone', { count })
      },
    },
    /** Increases the number by one and replies with it. */
    take: {
      reply: v.object({ count: v.number() }),
      handle(state, _input, ctx) {
        state.count += 1
        for (const count of tens(state.count - 1, state.count))
          ctx.emit('milestone', { count })
        ctx.reply({ count: state.count })
      },
    },
  },
  events: { milestone: v.object({ count: v.number() }) },
  sync: { rate: 0 },
  durability: 'journal',
})
