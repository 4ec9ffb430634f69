import { defineScenario } from '../scenario.ts'
import { nodeByNode, nodeByNodeOptions } from './node-by-node.ts'

/** How long a node is expected to drain, to end and to start. */
const RESTART_SECONDS = 15

/** A deploy on a busy evening. */
export const rollingRestart = defineScenario({
  name: 'rolling-restart',
  meaning:
    'While all play, each node in turn is told to end and started again, as an upgrade does: no one may lose anything.',
  options: nodeByNodeOptions,
  service: 'local',

  run: (ctx, values) =>
    nodeByNode(ctx, values, RESTART_SECONDS, async (node) => {
      ctx.incident(`${node} is told to end`)
      await ctx.local.restart(node)
    }),
})
