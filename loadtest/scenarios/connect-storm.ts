import type { Scenario } from '../scenario.ts'
import { timeFigure } from './gather.ts'

/** The evening a game is in the news. */
export const connectStorm: Scenario = {
  name: 'connect-storm',
  meaning: 'Many clients come at once, faster than they usually do, and all want to play.',
  options: {
    clients: { meaning: 'clients', kind: 'count', default: 500 },
    'per-second': { meaning: 'how many of them come each second', kind: 'count', default: 500 },
    rooms: { meaning: 'rooms they are spread over', kind: 'count', default: 50 },
    rate: { meaning: 'reliable messages each of them sends per second', kind: 'number', default: 1 },
    seconds: { meaning: 'how long they play afterwards', kind: 'seconds', default: 10 },
  },
  service: 'any',

  async run(stage) {
    const { clients } = stage
    const [count, perSecond] = [stage.number('clients'), stage.number('per-second')]
    const [rooms, rate, seconds] = [stage.number('rooms'), stage.number('rate'), stage.number('seconds')]

    await stage.phase('connect', count / perSecond, () => clients.connect({ count, perSecond }))
    await stage.phase('join', count / perSecond, () => clients.join({ rooms, perSecond }))
    await stage.phase('play', seconds, () => clients.play({ rate, seconds }))
    await stage.phase('settle', 1, () => clients.settle({ withinSeconds: 10 }))

    for (const what of ['connect', 'join'] as const)
      timeFigure(stage, `${what} p99`, { timing: what, phase: what, statistic: 'p99' })
  },
}
