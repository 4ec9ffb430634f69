import * as option from '../option-kinds.ts'
import type { Timing } from '../result.ts'
import type { RunContext } from '../scenario.ts'

/** Time limit for the answers to the last messages. */
const SETTLE_SECONDS = 10

/** Options of a scenario whose players gather first. */
export const gathering = (players: { clients: number; rooms: number; rate: number }) => ({
  clients: option.count('players', players.clients),
  rooms: option.count('rooms they are spread over', players.rooms),
  rate: option.decimal('reliable messages each player sends per second', players.rate),
  ramp: option.count('players who come each second', 100),
})

/** Connects the players, and joins their rooms. */
export async function gather(
  ctx: RunContext,
  { clients: count, rooms, ramp: perSecond }: { clients: number; rooms: number; ramp: number },
): Promise<void> {
  const { clients } = ctx
  await ctx.phase('connect', count / perSecond, () => clients.connect({ count, perSecond }))
  await ctx.phase('join', count / perSecond, () => clients.join({ rooms, perSecond }))
}

/** Stops sending, and waits for the answers. */
export async function settle(ctx: RunContext): Promise<void> {
  await ctx.clients.stop()
  await ctx.phase('settle', 1, () => ctx.clients.settle({ withinSeconds: SETTLE_SECONDS }))
}

/** Adds the longest pause in these phases as a figure. */
export function worstPause(ctx: RunContext, phases: readonly string[]): void {
  const timed = phases.map((phase) => ctx.timed('pause', phase)).filter(({ count }) => count > 0)
  if (timed.length === 0) return
  const value = Math.max(...timed.map(({ max }) => max))
  ctx.figure({ name: 'worst pause of a player', value, unit: 'ms' })
}

/** Adds the 99th percentile of a timing in a phase as a figure. */
export function timeFigure(ctx: RunContext, name: string, timing: Timing, phase: string): void {
  const { count, p99 } = ctx.timed(timing, phase)
  if (count > 0) ctx.figure({ name, value: p99, unit: 'ms' })
}
