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
  needs_local: false,

  async run(stage) {
    const { crowd } = stage
    const [count, per_second] = [stage.number('clients'), stage.number('per-second')]
    const [rooms, rate, seconds] = [stage.number('rooms'), stage.number('rate'), stage.number('seconds')]

    await stage.phase('connect', count / per_second, () => crowd.connect({ count, per_second }))
    await stage.phase('join', count / per_second, () => crowd.join({ rooms, per_second }))
    await stage.phase('play', seconds, () => crowd.play({ rate, seconds }))
    await stage.phase('settle', 1, () => crowd.settle({ within_seconds: 10 }))

    for (const what of ['connect', 'join'] as const)
      timeFigure(stage, `${what} p99`, { timing: what, phase: what, statistic: 'p99' })
  },
}
