import type { Closed } from '../clients/clients.ts'
import * as option from '../option-kinds.ts'
import type { Check } from '../result.ts'
import { defineScenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** What the service promises. */
const WITHIN_MS = 1000
const PATIENCE_SECONDS = 10
const EXAMPLES = 3

/** A key that fell into wrong hands. */
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
    await clients.start({ rate: rate })
    await ctx.phase('calm', calm, () => ctx.pass(calm))

    const closed = await ctx.phase('revoke', 1, async () => {
      ctx.incident('the key is revoked')
      await key.revoke()
      return clients.awaitRevoked({ withinSeconds: PATIENCE_SECONDS })
    })
    await ctx.phase('the others', calm, () => ctx.pass(calm))
    await settle(ctx)

    ctx.check(revocation(closed, count))
    const slowest = closed.toSorted((a, b) => a.seenMs - b.seenMs).at(-1)
    if (!slowest) return
    ctx.figure({ name: 'slowest close after the revocation', value: slowest.seenMs, unit: 'ms' })
    const ownMs = slowest.seenMs - slowest.openMs
    ctx.figure({ name: 'of that the generator’s own delay, at most', value: ownMs, unit: 'ms' })
  },
})

/**
 * Every session that was seen to close too late counts. Whether the service was late is certain where the session was still open after the
 * time allowed; else the generator may have looked too late.
 */
export function revocation(closed: readonly Closed[], count: number): Check {
  const late = closed.filter(({ seenMs }) => seenMs > WITHIN_MS)
  const certain = late.filter(({ openMs }) => openMs > WITHIN_MS)
  const missing = count - closed.length
  const told = `${closed.length} of ${count} sessions closed`
  const blame = `${certain.length} by the service for certain, ${late.length - certain.length} perhaps only seen late by the generator`
  return {
    name: 'revocation',
    meaning: 'A revoked key closes every session under it within a second.',
    violations: late.length + missing,
    note: late.length === 0 ? told : `${told}, ${late.length} late: ${blame}`,
    examples: [
      ...(missing > 0 ? [`${missing} sessions were not closed within ${PATIENCE_SECONDS} s`] : []),
      ...certain.slice(0, EXAMPLES).map(example),
      ...late
        .filter((each) => !certain.includes(each))
        .slice(0, EXAMPLES)
        .map(example),
    ],
  }
}

function example({ seenMs, openMs }: Closed): string {
  const [seen, open] = [Math.round(seenMs), Math.round(openMs)]
  return openMs > WITHIN_MS
    ? `a session was still open after ${open} ms, and seen to be closed after ${seen} ms`
    : `a session was seen to be closed after ${seen} ms by a generator that had looked after ${open} ms and not since`
}
