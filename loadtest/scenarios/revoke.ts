import * as option from '../option-kinds.ts'
import type { Check } from '../result.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** The promise of the service. */
const WITHIN_MS = 1000
const WAIT_SECONDS = 10
const MAX_EXAMPLES = 5

/** A stolen key. */
export const revoke = defineScenario({
  name: 'revoke',
  meaning:
    'A key is revoked while the players who came with it play among others: it closes their sessions within a second, and no one else’s.',
  options: {
    ...gathering({ clients: 300, rooms: 30, rate: 2 }),
    revoked: option.count('further players, who come with the key', 300),
    calm: option.seconds('time before and after', 5),
  },
  service: 'any',

  async run(ctx, { revoked: count, calm, rate, ...players }) {
    const { clients } = ctx
    const { rooms, ramp: perSecond } = players
    await gather(ctx, players)
    const key = await clients.underKey()
    await ctx.phase('connect under the key', count / perSecond, () => clients.connect({ count, perSecond }))
    await ctx.phase('join under the key', count / perSecond, () => clients.join({ rooms, perSecond }))
    await clients.start({ rate })
    await ctx.phase('calm', calm, () => ctx.pass(calm))
    const closed = await ctx.phase('revoke', 1, async () => {
      ctx.incident('the key is revoked')
      await key.revoke()
      return clients.awaitRevoked({ withinSeconds: WAIT_SECONDS })
    })
    await ctx.phase('the others', calm, () => ctx.pass(calm))
    await settle(ctx)
    ctx.check(revocation(closed, count))
    if (closed.length > 0)
      ctx.figure({ name: 'slowest close after the revocation', value: Math.max(...closed), unit: 'ms' })
  },
})

/** Judges the times at which sessions were seen to close. A busy generator may see them late; the report says when it was busy. */
export function revocation(closedMs: readonly number[], count: number): Check {
  const late = closedMs.filter((ms) => ms > WITHIN_MS)
  const missing = count - closedMs.length
  const note = `${closedMs.length} of ${count} sessions closed`
  return {
    name: 'revocation',
    meaning: 'A revoked key closes every session under it within a second.',
    violations: late.length + missing,
    note: late.length === 0 ? note : `${note}, ${late.length} late`,
    examples: [
      ...(missing > 0 ? [`${missing} sessions were not closed within ${WAIT_SECONDS} s`] : []),
      ...late.slice(0, MAX_EXAMPLES).map((ms) => `a session was closed after ${Math.round(ms)} ms`),
    ],
  }
}
