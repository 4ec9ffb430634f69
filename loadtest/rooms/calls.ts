import { defineRoom } from 'roomful'
import * as v from 'valibot'

const data = v.object({ gold: v.number() })
const reply = v.object({ total: v.number() })

/** A room that backends call and whose members send requests. Each answer contains the number of applied requests of its kind. */
const calls = defineRoom({
  type: 'load-calls',
  maxPlayers: 10,
  durability: 'journal',
  sync: { rate: 0 },
  create: () => ({ calls: 0, requests: 0, gold: 0 }),
  calls: {
    grant: {
      data,
      reply,
      handle(state, { data: { gold } }, ctx) {
        state.calls += 1
        state.gold += gold
        ctx.reply({ total: state.calls })
      },
    },
  },
  messages: {
    grant: {
      data,
      reply,
      rate: { perSecond: 10_000, burst: 10_000 },
      handle(state, { data: { gold } }, ctx) {
        state.requests += 1
        state.gold += gold
        ctx.reply({ total: state.requests })
      },
    },
  },
})
export default calls
export type CallsRoom = typeof calls
