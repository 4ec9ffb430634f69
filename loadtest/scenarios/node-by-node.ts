import * as option from '../option-kinds.ts'
import { defineScenario, type RunContext } from '../scenario.ts'
import { gather, gathering, settle, worstPause } from './gather.ts'

/** Options of a scenario that changes one node after the other. */
const options = {
  ...gathering({ clients: 600, rooms: 60, rate: 1 }),
  calm: option.seconds('time before the first node, and after what is done to each', 5),
}

/** While all play, runs `work` on each node in turn, and times the longest pause of each player. `seconds`: expected duration of `work`. */
async function nodeByNode(
  ctx: RunContext,
  { calm, rate, ...players }: option.Values<typeof options>,
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

/** Time for a node to drain, end and start. */
const RESTART_SECONDS = 15

/** A deploy on a busy evening. */
export const rollingRestart = defineScenario({
  name: 'rolling-restart',
  meaning:
    'While all play, each node in turn is told to end and started again, as an upgrade does: no one may lose anything.',
  options,
  service: 'local',

  run: (ctx, values) =>
    nodeByNode(ctx, values, RESTART_SECONDS, async (node) => {
      ctx.incident(`${node} is told to end`)
      await ctx.local.restart(node)
    }),
})

/** A machine that loses its power. */
export const nodeKill = defineScenario({
  name: 'node-kill',
  meaning:
    'While all play, each node in turn is ended at once and started again: its rooms go on elsewhere, and no one loses anything.',
  options,
  service: 'local',

  run: (ctx, values) =>
    nodeByNode(ctx, values, values.calm, async (node) => {
      ctx.incident(`${node} is killed`)
      await ctx.local.process(node).kill()
      await ctx.pass(values.calm)
      await ctx.local.process(node).start()
    }),
})
