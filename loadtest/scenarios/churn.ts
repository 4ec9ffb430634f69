import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** Players who stay nowhere for long. */
export const churn = defineScenario({
  name: 'churn',
  meaning: 'While all play, players leave their room and join the next one all the time.',
  options: {
    ...gathering({ clients: 300, rooms: 60, rate: 2 }),
    moves: option.count('players who change rooms each second', 50),
    seconds: option.seconds('for how long', 20),
  },
  service: 'any',

  async run(ctx, { moves, seconds, rate, ...players }) {
    const { clients } = ctx
    const { rooms } = players
    await gather(ctx, players)
    await clients.start({ rate })
    await ctx.phase('churn', seconds, () => clients.churn({ perSecond: moves, rooms, seconds }))
    await settle(ctx)
  },
})
