import type { Scenario } from '../scenario.ts'
import { settle } from './gather.ts'

/** A final that everybody watches. */
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
  needs_local: false,

  async run(stage) {
    const { crowd } = stage
    const [count, players, rate] = [stage.number('spectators'), stage.number('players'), stage.number('rate')]
    const [per_second, seconds] = [stage.number('ramp'), stage.number('seconds')]
    await stage.phase('players', 1, async () => {
      await crowd.connect({ count: players, per_second })
      await crowd.join({ rooms: 1, per_second })
    })
    await stage.phase('spectators', count / per_second, () =>
      crowd.watch({ count, per_second, room: 'load-0' }),
    )
    await stage.phase('play', seconds, () => crowd.play({ rate, seconds }))
    await settle(stage)
  },
}
