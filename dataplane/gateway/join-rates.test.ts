import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { timestamp } from '../../shared/clock.ts'
import type { TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'

let test: TestGateway
let ref = 0
beforeEach(async () => {
  test = await TestGateway.start({ joinsPerSecond: 1 })
})
afterEach(() => test.close())

/** Asks for a seat; what the answer is: `joined`, or the code of the error. */
async function join(client: TestClient, key: string): Promise<string> {
  const own = ++ref
  client.send({ t: 'join', ref: own, room_type: 'arena', options: { key } })
  return vi.waitFor(() => {
    const answer = client.received.find((message) => 'ref' in message && message.ref === own)
    if (answer === undefined) throw new Error(`no answer to join ${own}`)
    return answer.t === 'error' ? answer.code : answer.t
  })
}

const leave = async (client: TestClient, key: string): Promise<void> => {
  client.send({ t: 'leave', ref: ++ref, room_id: `arena:${key}` })
  await client.next('left', (left) => left.ref === ref)
}

describe('joins in quick succession', () => {
  it('are refused to a player, whichever session they come with, and to no other player', async () => {
    const { client: first } = await test.hello()
    const { client: second } = await test.hello()
    expect(await join(first, 'one')).toBe('joined')
    await leave(first, 'one')
    expect(await join(first, 'one')).toBe('joined')
    expect(await join(second, 'one')).toBe('joined')
    expect(await join(second, 'two')).toBe('rate_limited')
    const { client: third } = await test.hello()
    expect(await join(third, 'one')).toBe('rate_limited')
    const { client: other } = await test.hello(await test.token({ sub: 'bob' }))
    expect(await join(other, 'one')).toBe('joined')
    test.clock.advance(1000)
    expect([await join(third, 'one'), await join(first, 'two')]).toEqual(['joined', 'rate_limited'])
    test.clock.advance(1000)
    expect(await join(first, 'two')).toBe('joined')
  })

  it('are counted for each session where the token names no player', async () => {
    const now = test.clock.now()
    const token = await test.control.token({
      project_id: 'prj_one',
      key_id: 'key_a',
      issued_at: timestamp(now),
      expires_at: timestamp(now + 300_000),
    })
    const { client: first } = await test.hello(token)
    const { client: second } = await test.hello(token)
    const answers = []
    for (const key of ['1', '2', '3', '4']) answers.push(await join(first, key))
    expect(answers).toEqual(['joined', 'joined', 'joined', 'rate_limited'])
    expect(await join(second, '1')).toBe('joined')
  })
})
