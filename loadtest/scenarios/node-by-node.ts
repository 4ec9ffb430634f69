import * as option from '../option.ts'
import type { Stage } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** The options of a scenario that does something to one node after the other. */
export const nodeByNodeOptions = {
  ...gathering({ clients: 600, rooms: 60, rate: 1 }),
  calm: option.seconds('time before the first node, and after what is done to each', 5),
}

/**
 * While all play, does something to each node in turn, and times the longest pause of each player meanwhile. `work` ends with the node
 * serving again; `seconds`: how long that is expected to take.
 */
export async function nodeByNode(
  stage: Stage,
  { calm, rate, ...players }: option.Values<typeof nodeByNodeOptions>,
  seconds: number,
  work: (node: string) => Promise<void>,
): Promise<void> {
  const { clients, local } = stage
  await gather(stage, players)
  await clients.start({ rate })
  await stage.phase('calm', calm, () => stage.pass(calm))

  for (const node of local.nodes)
    await stage.phase(node, seconds + calm, async () => {
      await clients.markPauses()
      await work(node)
      stage.incident(`${node} serves again`)
      await stage.pass(calm)
      await clients.takePauses()
    })

  await settle(stage)
  worstPause(stage, local.nodes)
}
