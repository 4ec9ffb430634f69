import type { Scenario } from '../scenario.ts'
import { gather, gathering, settle, timeFigure } from './gather.ts'

/** Phones in a tunnel. */
export const slowConsumers: Scenario = {
  name: 'slow-consumers',
  meaning:
    'Some clients stop reading for a while: no one else may notice, and they have to see the same in the end.',
  options: {
    ...gathering({ clients: 50, rooms: 5, rate: 5 }),
    bytes: { meaning: 'text that each message brings to all in the room', kind: 'count', default: 15_000 },
    share: { meaning: 'how many of the clients stop reading', kind: 'share', default: 0.1 },
    seconds: { meaning: 'how long they do not read', kind: 'seconds', default: 30 },
    calm: { meaning: 'time before and after', kind: 'seconds', default: 10 },
  },
  service: 'any',

  async run(stage) {
    const { clients } = stage
    const [share, seconds, calm] = [stage.number('share'), stage.number('seconds'), stage.number('calm')]
    await gather(stage)
    await clients.start({ rate: stage.number('rate'), bytes: stage.number('bytes') })
    await stage.phase('all read', calm, () => stage.pass(calm))
    const closed = await stage.phase('some do not', seconds, async () => {
      stage.incident(`${Math.round(share * 100)} % stop reading`)
      const closed = await clients.stall({ share, seconds })
      stage.incident('all read again')
      return closed
    })
    await stage.phase('all read again', calm, () => stage.pass(calm))
    await settle(stage)
    stage.figure({ name: 'clients closed for reading too slowly', value: closed, unit: '' })
    for (const phase of ['all read', 'some do not', 'all read again'])
      timeFigure(stage, `round trip p99, ${phase}`, { timing: 'rtt', phase, statistic: 'p99' })
  },
}
