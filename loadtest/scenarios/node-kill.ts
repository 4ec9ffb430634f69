import type { Scenario } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** A machine that loses its power. */
export const nodeKill: Scenario = {
  name: 'node-kill',
  meaning:
    'While all play, each node in turn is ended at once and started anew: its rooms go on elsewhere, and nobody loses anything.',
  options: {
    ...gathering({ clients: 600, rooms: 60, rate: 1 }),
    calm: { meaning: 'time before the first node and after each blow', kind: 'seconds', default: 5 },
  },
  needs_local: true,

  async run(stage) {
    const { crowd, local } = stage
    const calm = stage.number('calm')
    await gather(stage)
    await crowd.start({ rate: stage.number('rate') })
    await stage.phase('calm', calm, () => stage.pass(calm))

    for (const node of local.nodes)
      await stage.phase(node, 2 * calm, async () => {
        await crowd.markPauses()
        stage.incident(`${node} is killed`)
        await local.kill(node)
        await stage.pass(calm)
        await local.start(node)
        stage.incident(`${node} serves again`)
        await stage.pass(calm)
        await crowd.takePauses()
      })

    await settle(stage)
    worstPause(stage, local.nodes)
  },
}
