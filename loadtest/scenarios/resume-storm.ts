import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** What a network does that fails for a moment. */
export const resumeStorm = defineScenario({
  name: 'resume-storm',
  meaning:
    'While all play, all sockets are cut at once, several times: every session has to go on, and soon.',
  options: {
    ...gathering({ clients: 600, rooms: 60, rate: 1 }),
    storms: option.count('how often all sockets are cut', 3),
    calm: option.seconds('time before and after each storm', 5),
  },
  service: 'any',

  async run(ctx, { calm, rate, storms: times, ...players }) {
    const { clients } = ctx
    await gather(ctx, players)
    await clients.start({ rate })
    await ctx.phase('calm', calm, () => ctx.pass(calm))

    const storms = Array.from({ length: times }, (_, index) => `storm ${index + 1}`)
    for (const storm of storms)
      await ctx.phase(storm, calm + 1, async () => {
        await clients.markPauses()
        ctx.incident('all sockets are cut')
        await clients.cut({ share: 1 })
        ctx.incident('all clients are back, or were given up')
        await ctx.pass(calm)
        await clients.takePauses()
      })

    await settle(ctx)
    worstPause(ctx, storms)
  },
})
