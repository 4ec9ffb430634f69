import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { gather, settle, timeFigure } from './gather.ts'

/** An ordinary evening. */
export const steady = defineScenario({
  name: 'steady',
  meaning: 'Rooms full of members, who all send at the same rate.',
  options: {
    rooms: option.count('rooms', 20),
    members: option.count('members in each room', 10),
    rate: option.decimal('reliable messages each member sends per second', 5),
    seconds: option.seconds('how long they play', 30),
    ramp: option.count('members who come each second', 100),
  },
  service: 'any',

  async run(ctx, { rooms, members, rate, seconds, ramp }) {
    await gather(ctx, { clients: rooms * members, rooms, ramp })
    await ctx.phase('play', seconds, () => ctx.clients.play({ rate, seconds }))
    await settle(ctx)
    timeFigure(ctx, 'round trip p99 while all play', 'rtt', 'play')
  },
})
