import * as option from '../option-kinds.ts'
import { defineScenario } from '../scenario.ts'
import { cpuSeconds } from './cpu.ts'

/** Bans that the load test writes in a second, about. */
const BANS_PER_SECOND = 10_000
const START_SECONDS = 3

/** What many bans cost those who are not banned. */
export const bans = defineScenario({
  name: 'bans',
  meaning:
    'Players connect, and control restarts: without bans, and with many. Neither may cost more with them.',
  options: {
    bans: option.count('banned players', 100_000),
    'per-second': option.count('players who connect each second', 50),
    seconds: option.seconds('how long they do', 10),
  },
  service: 'local',
  local: { direct: true },
  runs: 3,

  async run(ctx, { bans, 'per-second': perSecond, seconds }) {
    const { local, visitors } = ctx
    const projectId = await ctx.phase('open', 1, () => visitors.open({ perSecond }))
    const banned = Array.from({ length: bans }, (_, number) => `banned-${number}`)
    // Code and caches for the first handshakes are not part of their cost.
    await ctx.phase('warm', seconds, () => visitors.visit({ perSecond, seconds }))
    const samples = {
      without: { cpu: [] as number[], start: [] as number[] },
      with: { cpu: [] as number[], start: [] as number[] },
    }
    for (let run = 1; run <= ctx.runs; run++)
      for (const side of ['without', 'with'] as const) {
        const isBanned = side === 'with'
        if (isBanned || run > 1)
          await ctx.phase(`${isBanned ? 'bans' : 'unbans'} ${run}`, bans / BANS_PER_SECOND, () =>
            local.setBans(projectId, banned, isBanned),
          )
        await ctx.phase(`${side} bans ${run}`, seconds, async () => {
          const before = await cpuSeconds(ctx, local.nodes)
          await visitors.visit({ perSecond, seconds })
          const used = (await cpuSeconds(ctx, local.nodes)) - before
          samples[side].cpu.push((1000 * used) / (perSecond * seconds))
        })
        await ctx.phase(`start ${side} bans ${run}`, START_SECONDS, async () => {
          const [control = ''] = local.controls
          await local.end(control)
          const began = performance.now()
          await local.process(control).start()
          samples[side].start.push(performance.now() - began)
        })
      }
    for (const side of ['without', 'with'] as const) {
      const title = side === 'with' ? `with ${bans.toLocaleString('en-US')} bans` : 'without bans'
      ctx.samples({ name: `CPU of a handshake, ${title}`, unit: 'ms', values: samples[side].cpu })
      ctx.samples({ name: `start of control, ${title}`, unit: 'ms', values: samples[side].start })
    }
    const last = banned.at(-1)!
    const refusal = await visitors.refusal(last)
    ctx.check({
      name: 'bans',
      meaning: 'A banned player is refused.',
      violations: refusal === 'banned' ? 0 : 1,
      note: `${last}: ${refusal ?? 'let in'}`,
      examples: [],
    })
  },
})
