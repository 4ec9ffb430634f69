import * as option from '../option.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle, timeFigure } from './gather.ts'

/** Phones in a tunnel. */
export const slowConsumers = defineScenario({
  name: 'slow-consumers',
  meaning:
    'Some clients stop reading for a while: no one else may notice, and they have to see the same in the end.',
  options: {
    ...gathering({ clients: 50, rooms: 5, rate: 5 }),
    bytes: option.count('text that each message brings to all in the room', 15_000),
    share: option.share('how many of the clients stop reading', 0.1),
    seconds: option.seconds('how long they do not read', 30),
    calm: option.seconds('time before and after', 10),
  },
  service: 'any',

  async run(stage, { share, seconds, calm, rate, bytes, ...players }) {
    const { clients } = stage
    await gather(stage, players)
    await clients.start({ rate, bytes })
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
})
