import type { Scenario } from '../scenario.ts'
import { nodeByNode, nodeByNodeOptions } from './node-by-node.ts'

/** A machine that loses its power. */
export const nodeKill: Scenario = {
  name: 'node-kill',
  meaning:
    'While all play, each node in turn is ended at once and started again: its rooms go on elsewhere, and no one loses anything.',
  options: nodeByNodeOptions,
  service: 'local',

  async run(stage) {
    const calm = stage.number('calm')
    await nodeByNode(stage, calm, async (node) => {
      stage.incident(`${node} is killed`)
      await stage.local.kill(node)
      await stage.pass(calm)
      await stage.local.start(node)
    })
  },
}
