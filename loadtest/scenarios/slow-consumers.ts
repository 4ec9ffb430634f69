import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle, timeFigure } from './gather.ts'

/** A message with this text still fits into the default of MAX_MESSAGE_BYTES. */
const MOST_BYTES = 16_000

/** Phones in a tunnel. */
export const slowConsumers = defineScenario({
  name: 'slow-consumers',
  meaning:
    'Some clients stop reading for a while: no one else may notice, and they have to see the same in the end.',
  options: {
    ...gathering({ clients: 50, rooms: 5, rate: 5 }),
    bytes: option.option(
      'N',
      'text that each message brings to all in the room',
      option.wholeNumber(
        MOST_BYTES,
        `1 to ${MOST_BYTES}: nodes refuse messages above MAX_MESSAGE_BYTES (16384)`,
      ),
      15_000,
    ),
    share: option.share('how many of the clients stop reading', 0.1),
    seconds: option.seconds('how long they do not read', 30),
    calm: option.seconds('time before and after', 10),
  },
  service: 'any',

  async run(ctx, { share, seconds, calm, rate, bytes, ...players }) {
    const { clients } = ctx
    await gather(ctx, players)
    await clients.start({ rate, bytes })
    await ctx.phase('all read', calm, () => ctx.pass(calm))
    const closed = await ctx.phase('some do not', seconds, async () => {
      ctx.incident(`${Math.round(share * 100)} % stop reading`)
      const closed = await clients.stall({ share, seconds })
      ctx.incident('all read again')
      return closed
    })
    await ctx.phase('all read again', calm, () => ctx.pass(calm))
    await settle(ctx)
    ctx.figure({ name: 'clients closed for reading too slowly', value: closed, unit: '' })
    for (const phase of ['all read', 'some do not', 'all read again'])
      timeFigure(ctx, `round trip p99, ${phase}`, 'rtt', phase)
  },
})
