import type { Check } from '../result.ts'
import type { Closed, Scenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** What the service promises. */
const WITHIN_MS = 1000
const PATIENCE_SECONDS = 10
const EXAMPLES = 3

/** A key that fell into wrong hands. */
export const revoke: Scenario = {
  name: 'revoke',
  meaning:
    'A key is revoked while the players who came with it play among others: it closes their sessions within a second, and nobody else’s.',
  options: {
    ...gathering({ clients: 300, rooms: 30, rate: 2 }),
    revoked: { meaning: 'further players, who come with the key', kind: 'count', default: 300 },
    calm: { meaning: 'time before and after', kind: 'seconds', default: 5 },
  },
  needs_local: false,

  async run(stage) {
    const { crowd } = stage
    const [count, rooms, per_second] = [stage.number('revoked'), stage.number('rooms'), stage.number('ramp')]
    const calm = stage.number('calm')
    await gather(stage)
    const key = await crowd.underKey()
    await stage.phase('connect under the key', count / per_second, () => crowd.connect({ count, per_second }))
    await stage.phase('join under the key', count / per_second, () => crowd.join({ rooms, per_second }))
    await crowd.start({ rate: stage.number('rate') })
    await stage.phase('calm', calm, () => stage.pass(calm))

    const closed = await stage.phase('revoke', 1, async () => {
      stage.incident('the key is revoked')
      await key.revoke()
      return crowd.awaitRevoked({ within_seconds: PATIENCE_SECONDS })
    })
    await stage.phase('the others', calm, () => stage.pass(calm))
    await settle(stage)

    stage.check(revocation(closed, count))
    const slowest = closed.toSorted((a, b) => a.seen_ms - b.seen_ms).at(-1)
    if (!slowest) return
    stage.figure({ name: 'slowest close after the revocation', value: slowest.seen_ms, unit: 'ms' })
    const own_ms = slowest.seen_ms - slowest.open_ms
    stage.figure({ name: 'of that the generator’s own delay, at most', value: own_ms, unit: 'ms' })
  },
}

/**
 * Every session that was seen to close too late counts. Whether the service was late is certain where the session was still open after the
 * time allowed; else the generator may have looked too late.
 */
export function revocation(closed: readonly Closed[], count: number): Check {
  const late = closed.filter(({ seen_ms }) => seen_ms > WITHIN_MS)
  const certain = late.filter(({ open_ms }) => open_ms > WITHIN_MS)
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

function example({ seen_ms, open_ms }: Closed): string {
  const [seen, open] = [Math.round(seen_ms), Math.round(open_ms)]
  return open_ms > WITHIN_MS
    ? `a session was still open after ${open} ms, and seen to be closed after ${seen} ms`
    : `a session was seen to be closed after ${seen} ms by a generator that had looked after ${open} ms and not since`
}
