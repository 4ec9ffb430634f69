import * as option from '../option-kinds.ts'
import type { Percentiles, Timing } from '../result.ts'
import type { RunContext } from '../scenario.ts'

/** How many seconds everything sent may take to be acked once nothing is sent any more. */
const SETTLE_SECONDS = 10

/** The options of a scenario whose players gather before something happens to them. */
export const gathering = (players: { clients: number; rooms: number; rate: number }) => ({
  clients: option.count('players', players.clients),
  rooms: option.count('rooms they are spread over', players.rooms),
  rate: option.decimal('reliable messages each player sends per second', players.rate),
  ramp: option.count('players who come each second', 100),
})

/** The players connect and join their rooms. */
export async function gather(
  ctx: RunContext,
  { clients: count, rooms, ramp: perSecond }: { clients: number; rooms: number; ramp: number },
): Promise<void> {
  const { clients } = ctx
  await ctx.phase('connect', count / perSecond, () => clients.connect({ count, perSecond }))
  await ctx.phase('join', count / perSecond, () => clients.join({ rooms, perSecond }))
}

/** Nothing is sent any more, and everything sent arrives. */
export async function settle(ctx: RunContext): Promise<void> {
  await ctx.clients.stop()
  await ctx.phase('settle', 1, () => ctx.clients.settle({ withinSeconds: SETTLE_SECONDS }))
}

/** Adds the longest of the pauses that were timed in these phases as a figure. */
export function worstPause(ctx: RunContext, phases: readonly string[]): void {
  const timed = phases.map((phase) => ctx.timed('pause', phase)).filter(({ count }) => count > 0)
  if (timed.length === 0) return
  const value = Math.max(...timed.map(({ max }) => max))
  ctx.figure({ name: 'worst pause of a player', value, unit: 'ms' })
}

/** Adds one statistic of what was timed in a phase as a figure, unless there was nothing to time. */
export function timeFigure(
  ctx: RunContext,
  name: string,
  { timing, phase, statistic }: { timing: Timing; phase: string; statistic: keyof Percentiles },
): void {
  const timed = ctx.timed(timing, phase)
  if (timed.count > 0) ctx.figure({ name, value: timed[statistic], unit: 'ms' })
}
