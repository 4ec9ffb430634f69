import type { Scenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** Players who stay nowhere for long. */
export const churn: Scenario = {
  name: 'churn',
  meaning: 'While all play, players leave their room and join the next one all the time.',
  options: {
    ...gathering({ clients: 300, rooms: 60, rate: 2 }),
    moves: { meaning: 'players who change rooms each second', kind: 'count', default: 50 },
    seconds: { meaning: 'for how long', kind: 'seconds', default: 20 },
  },
  service: 'any',

  async run(stage) {
    const { clients } = stage
    const [perSecond, rooms, seconds] = [
      stage.number('moves'),
      stage.number('rooms'),
      stage.number('seconds'),
    ]
    await gather(stage)
    await clients.start({ rate: stage.number('rate') })
    await stage.phase('churn', seconds, () => clients.churn({ perSecond, rooms, seconds }))
    await settle(stage)
  },
}
