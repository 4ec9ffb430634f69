import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A room that a backend calls. `report` also sends a notice. */
export default defineRoom({
  type: 'bank',
  create: () => ({ gold: 0 }),
  notices: { granted: v.object({ gold: v.number() }) },
  calls: {
    grant: {
      reply: v.number(),
      handle(state, _call, ctx) {
        state.gold += 1
        ctx.reply(state.gold)
      },
    },
    report: {
      handle(state, _call, ctx) {
        state.gold += 1
        ctx.notify('granted', { gold: state.gold })
      },
    },
  },
})
