import type { Scenario } from '../scenario.ts'
import { settle } from './gather.ts'

/** A final that all watch. */
export const bigRoom: Scenario = {
  name: 'big-room',
  meaning: 'A few play in one room, and thousands watch it through all nodes.',
  options: {
    spectators: { meaning: 'who only watch', kind: 'count', default: 2000 },
    players: { meaning: 'who play, and check everything they see', kind: 'count', default: 10 },
    rate: { meaning: 'reliable messages each player sends per second', kind: 'number', default: 1 },
    ramp: { meaning: 'spectators who come each second', kind: 'count', default: 100 },
    seconds: { meaning: 'how long they play', kind: 'seconds', default: 20 },
  },
  service: 'any',

  async run(stage) {
    const { clients } = stage
    const [count, players, rate] = [stage.number('spectators'), stage.number('players'), stage.number('rate')]
    const [perSecond, seconds] = [stage.number('ramp'), stage.number('seconds')]
    await stage.phase('players', 1, async () => {
      await clients.connect({ count: players, perSecond })
      await clients.join({ rooms: 1, perSecond })
    })
    await stage.phase('spectators', count / perSecond, () =>
      clients.watch({ count, perSecond, room: 'load-0' }),
    )
    await stage.phase('play', seconds, () => clients.play({ rate, seconds }))
    await settle(stage)
  },
}
