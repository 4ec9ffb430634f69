import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { settle } from './gather.ts'

/** A final that all watch. */
export const bigRoom = defineScenario({
  name: 'big-room',
  meaning: 'A few play in one room, and thousands watch it through all nodes.',
  options: {
    spectators: option.count('who only watch', 2000),
    players: option.count('who play, and check everything they see', 10),
    rate: option.decimal('reliable messages each player sends per second', 1),
    ramp: option.count('spectators who come each second', 100),
    seconds: option.seconds('how long they play', 20),
  },
  service: 'any',

  async run(ctx, { spectators: count, players, rate, ramp: perSecond, seconds }) {
    const { clients } = ctx
    await ctx.phase('players', 1, async () => {
      await clients.connect({ count: players, perSecond })
      await clients.join({ rooms: 1, perSecond })
    })
    await ctx.phase('spectators', count / perSecond, () =>
      clients.watch({ count, perSecond, room: 'load-0' }),
    )
    await ctx.phase('play', seconds, () => clients.play({ rate, seconds }))
    await settle(ctx)
  },
})
