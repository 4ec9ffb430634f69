import { defineScenario } from '../scenario.ts'
import { nodeByNode, nodeByNodeOptions } from './node-by-node.ts'

/** A machine that loses its power. */
export const nodeKill = defineScenario({
  name: 'node-kill',
  meaning:
    'While all play, each node in turn is ended at once and started again: its rooms go on elsewhere, and no one loses anything.',
  options: nodeByNodeOptions,
  service: 'local',

  run: (ctx, values) =>
    nodeByNode(ctx, values, values.calm, async (node) => {
      ctx.incident(`${node} is killed`)
      await ctx.local.process(node).kill()
      await ctx.pass(values.calm)
      await ctx.local.process(node).start()
    }),
})
