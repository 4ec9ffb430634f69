import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { expectClose } from '../../test/support/gateway/test-client.ts'
import { TestPair } from '../../test/support/gateway/test-pair.ts'

let pair: TestPair
beforeEach(async () => {
  pair = await TestPair.start()
})
afterEach(() => pair.close())

const end = (node: 'a' | 'b', sessionId: string, projectId = 'prj_one') =>
  pair[node].gateway.endSession(projectId, sessionId)

describe('A session that an operator ends', () => {
  it.each(['a', 'b'] as const)(
    'at node %s is closed at its node, leaves its rooms and cannot resume',
    async (node) => {
      const { client, welcome, joined } = await pair.a.join()
      const leaving = pair.owner.next('leave')
      expect(await end(node, welcome.session_id)).toBe(true)
      await expectClose(client, 'revoked', /operator ended the session/)
      expect(await leaving).toMatchObject({ member_id: joined.member_id, reason: 'session_ended' })
      expect(pair.owner.of('leave')).toHaveLength(1)
      await expectClose(await pair.a.resume(welcome), 'resume_failed', /no such session/)
      expect([pair.a.gateway.sessions, pair.b.gateway.sessions]).toEqual([0, 0])
      // The token is as good as before.
      await (await pair.a.hello()).client.roundTrip()
    },
  )

  it('may have lost its socket, and its node may not answer', async () => {
    const { client, welcome } = await pair.a.join()
    await pair.owner.lose(client)
    pair.deaf = true
    const leaving = pair.owner.next('leave')
    expect(await end('b', welcome.session_id)).toBe(true)
    expect(await leaving).toMatchObject({ reason: 'session_ended' })
  })

  it('is of the project that was named, and is there once', async () => {
    const { client, welcome } = await pair.a.hello()
    expect(await end('b', welcome.session_id, 'prj_two')).toBe(false)
    await client.roundTrip()
    expect(await end('b', welcome.session_id)).toBe(true)
    await expectClose(client, 'revoked', /operator/)
    expect(await end('a', welcome.session_id)).toBe(false)
  })
})
