import type { Scenario } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** A deploy on a busy evening. */
export const rollingRestart: Scenario = {
  name: 'rolling-restart',
  meaning:
    'While all play, each node in turn is told to end and started anew, as an upgrade does: nobody may lose anything.',
  options: {
    ...gathering({ clients: 600, rooms: 60, rate: 1 }),
    calm: { meaning: 'time before the first node and after each', kind: 'seconds', default: 5 },
  },
  needs_local: true,

  async run(stage) {
    const { crowd, local } = stage
    const calm = stage.number('calm')
    await gather(stage)
    await crowd.start({ rate: stage.number('rate') })
    await stage.phase('calm', calm, () => stage.pass(calm))

    for (const node of local.nodes)
      await stage.phase(node, calm + 15, async () => {
        await crowd.markPauses()
        stage.incident(`${node} is told to end`)
        await local.restart(node)
        stage.incident(`${node} serves again`)
        await stage.pass(calm)
        await crowd.takePauses()
      })

    await settle(stage)
    worstPause(stage, local.nodes)
  },
}
