import type { Scenario } from '../scenario.ts'
import { gather, gathering, settle } from './gather.ts'

/** What the service promises. */
const WITHIN_MS = 1000
const PATIENCE_SECONDS = 10

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

    const closed_ms = await stage.phase('revoke', 1, async () => {
      stage.incident('the key is revoked')
      await key.revoke()
      return crowd.awaitRevoked({ within_seconds: PATIENCE_SECONDS })
    })
    await stage.phase('the others', calm, () => stage.pass(calm))
    await settle(stage)

    const slow = closed_ms.filter((ms) => ms > WITHIN_MS)
    const missing = count - closed_ms.length
    stage.check({
      name: 'revocation',
      meaning: 'A revoked key closes every session under it within a second.',
      violations: slow.length + missing,
      note: `${closed_ms.length} of ${count} sessions closed`,
      examples: [
        ...(missing > 0 ? [`${missing} sessions were not closed within ${PATIENCE_SECONDS} s`] : []),
        ...slow.slice(0, 5).map((ms) => `a session was closed after ${Math.round(ms)} ms`),
      ],
    })
    stage.figure({ name: 'slowest close after the revocation', value: Math.max(0, ...closed_ms), unit: 'ms' })
  },
}
