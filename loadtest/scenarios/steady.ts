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
  service: 'any',

  async run(stage) {
    const { clients } = stage
    const [rooms, rate, seconds] = [stage.number('rooms'), stage.number('rate'), stage.number('seconds')]
    const [count, perSecond] = [rooms * stage.number('members'), stage.number('ramp')]

    await stage.phase('connect', count / perSecond, () => clients.connect({ count, perSecond }))
    await stage.phase('join', count / perSecond, () => clients.join({ rooms, perSecond }))
    await stage.phase('play', seconds, () => clients.play({ rate, seconds }))
    await stage.phase('settle', 1, () => clients.settle({ withinSeconds: 10 }))

    const of = { timing: 'rtt', phase: 'play', statistic: 'p99' } as const
    timeFigure(stage, 'round trip p99 while all play', of)
  },
}
