import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A target of backend attacks: calls that change the state, reply more than 4 KiB, and send a notice. */
export default defineRoom({
  type: 'bank',
  maxPlayers: 1000,
  durability: 'journal',
  create: () => ({ sum: 0 }),
  notices: { told: v.object({ url: v.string() }) },
  calls: {
    take: {
      data: v.object({ n: v.number(), text: v.optional(v.string(), '') }),
      reply: v.object({ sum: v.number() }),
      handle(state, { data: { n } }, ctx) {
        state.sum += n
        ctx.reply({ sum: state.sum })
      },
    },
    brag: {
      reply: v.string(),
      handle(state, _, ctx) {
        state.sum += 1
        ctx.reply('x'.repeat(4097))
      },
    },
    tell: {
      data: v.object({ url: v.string() }),
      handle: (_, { data }, ctx) => ctx.notify('told', data),
    },
  },
})
