import type { Scenario } from '../scenario.ts'
import { timeFigure } from './gather.ts'

/** An ordinary evening. */
export const steady: Scenario = {
  name: 'steady',
  meaning: 'Rooms full of members, who all send at the same rate.',
  options: {
    rooms: { meaning: 'rooms', kind: 'count', default: 20 },
    members: { meaning: 'members in each room', kind: 'count', default: 10 },
    rate: { meaning: 'reliable messages each member sends per second', kind: 'number', default: 5 },
    seconds: { meaning: 'how long they play', kind: 'seconds', default: 30 },
    ramp: { meaning: 'members who come each second', kind: 'count', default: 100 },
  },
  needs_local: false,

  async run(stage) {
    const { crowd } = stage
    const [rooms, rate, seconds] = [stage.number('rooms'), stage.number('rate'), stage.number('seconds')]
    const [count, per_second] = [rooms * stage.number('members'), stage.number('ramp')]

    await stage.phase('connect', count / per_second, () => crowd.connect({ count, per_second }))
    await stage.phase('join', count / per_second, () => crowd.join({ rooms, per_second }))
    await stage.phase('play', seconds, () => crowd.play({ rate, seconds }))
    await stage.phase('settle', 1, () => crowd.settle({ within_seconds: 10 }))

    const of = { timing: 'rtt', phase: 'play', statistic: 'p99' } as const
    timeFigure(stage, 'round trip p99 while all play', of)
  },
}
