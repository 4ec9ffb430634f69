import * as option from '../option-kinds.ts'
import type { RunContext } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** Options of a scenario that changes one node after the other. */
export const nodeByNodeOptions = {
  ...gathering({ clients: 600, rooms: 60, rate: 1 }),
  calm: option.seconds('time before the first node, and after what is done to each', 5),
}

/** While all play, runs `work` on each node in turn, and times the longest pause of each player. `seconds`: expected duration of `work`. */
export async function nodeByNode(
  ctx: RunContext,
  { calm, rate, ...players }: option.Values<typeof nodeByNodeOptions>,
  seconds: number,
  work: (node: string) => Promise<void>,
): Promise<void> {
  const { clients, local } = ctx
  await gather(ctx, players)
  await clients.start({ rate })
  await ctx.phase('calm', calm, () => ctx.pass(calm))

  for (const node of local.nodes)
    await ctx.phase(node, seconds + calm, async () => {
      await clients.markPauses()
      await work(node)
      ctx.incident(`${node} serves again`)
      await ctx.pass(calm)
      await clients.takePauses()
    })

  await settle(ctx)
  worstPause(ctx, local.nodes)
}
