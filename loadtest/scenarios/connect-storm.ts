import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { gather, settle, timeFigure } from './gather.ts'

/** The evening a game is in the news. */
export const connectStorm = defineScenario({
  name: 'connect-storm',
  meaning: 'Many clients come at once, faster than they usually do, and all want to play.',
  options: {
    clients: option.count('clients', 500),
    'per-second': option.count('how many of them come each second', 500),
    rooms: option.count('rooms they are spread over', 50),
    rate: option.decimal('reliable messages each of them sends per second', 1),
    seconds: option.seconds('how long they play afterwards', 10),
  },
  service: 'any',

  async run(ctx, { clients, 'per-second': ramp, rooms, rate, seconds }) {
    await gather(ctx, { clients, rooms, ramp })
    await ctx.phase('play', seconds, () => ctx.clients.play({ rate, seconds }))
    await settle(ctx)
    for (const what of ['connect', 'join'] as const) timeFigure(ctx, `${what} p99`, what, what)
  },
})
