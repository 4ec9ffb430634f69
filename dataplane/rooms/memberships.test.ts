import { expect, it } from 'vitest'
import { Membership, Memberships } from './memberships.ts'

const limits = { messages: 8, bytes: 1024 }

/** A membership of the subscription `mem_a`. */
const membership = (joinRequest: number) =>
  new Membership(
    {
      member: { id: 'mem_a', sub: 'ann', connected: true, data: null },
      sessionId: 'ses_a',
      joinRequest,
      edge: 'node_a',
      codec: 'roomful.v1.json',
      lastRef: 0,
      outcomes: [],
      forgotten: 0,
    },
    limits,
  )

it('a departure that is delivered late leaves the next membership of the same subscription', () => {
  const memberships = new Memberships()
  const first = membership(1)
  memberships.add(first)
  memberships.remove(first)
  const second = membership(2)
  memberships.add(second)
  memberships.release(first)
  expect(memberships.ofSubscription('mem_a')).toBe(second)
})
