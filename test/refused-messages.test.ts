import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestClient } from './support/gateway/test-client.ts'
import { startService, type TestService } from './support/service.ts'

/** A room that keeps three refusals of each member, and a client without the SDK. */
describe('a client that comes back', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService({ node: { maxUnackedMessages: 3 } })
  })
  afterAll(() => service.close())

  const FIRST = 2
  const LAST = 12

  /** Refs 2 to 11 were refused, 12 was applied, and the client sends all of them again. Tells what it is answered, in order. */
  async function sendsAgain(key: string, settled?: number): Promise<string[]> {
    const { projectId, token } = await service.login()
    const roomId = `counter:${key}`
    /** One after the other: the node keeps no more of a member that are not settled than the room keeps refusals. */
    const send = async (client: TestClient, from: number): Promise<void> => {
      for (let ref = from; ref < LAST; ref++) {
        client.send({ t: 'message', room_id: roomId, type: 'nonsense', data: null, ref })
        const { code } = await client.next('error', (error) => error.ref === ref)
        if (code !== 'outcome_unknown') await client.next('ack', (ack) => ack.ref >= ref)
      }
      client.send({ t: 'message', room_id: roomId, type: 'inc', data: {}, ref: LAST })
    }
    const client = await TestClient.open(service.wsUrl)
    client.send({ t: 'hello', project_id: projectId, token })
    const { session_id: sessionId, resume_token: resumeToken } = await client.next('welcome')
    client.send({ t: 'join', ref: 1, room_type: 'counter', options: { key } })
    const { epoch, seq } = await client.next('state.snapshot')
    await send(client, FIRST)
    await client.next('ack', ({ ref }) => ref === LAST)
    client.ws.terminate()
    await client.closed

    const back = await TestClient.open(service.wsUrl)
    const rooms = [{ room_id: roomId, epoch, seq, ...(settled !== undefined && { settled }) }]
    back.send({
      t: 'hello',
      project_id: projectId,
      resume: { session_id: sessionId, resume_token: resumeToken, rooms },
    })
    await back.next('welcome')
    for (let i = 0; i < 3; i++) await back.next('error')
    await send(back, settled === undefined ? FIRST : settled + 1)
    back.send({ t: 'message', room_id: roomId, type: 'inc', data: {}, ref: LAST + 1 })
    await back.next('ack', ({ ref }) => ref === LAST + 1)
    expect(back.received.findLast(({ t }) => t === 'state.patch')).toMatchObject({ ops: [{ value: 2 }] })
    back.ws.terminate()
    return back.received.flatMap((message) => {
      if (message.t === 'error') return `${message.ref} ${message.code}`
      return message.t === 'ack' ? `ack ${message.ref}` : []
    })
  }

  const refused = [9, 10, 11].map((ref) => `${ref} unknown_type`)

  it('without ever having said what it knows is never acked what was refused, though the room has forgotten', async () => {
    const told = await sendsAgain('forgotten')
    const unknown = [2, 3, 4, 5, 6, 7, 8].map((ref) => `${ref} outcome_unknown`)
    expect(told.slice(0, 11)).toEqual([...refused, ...unknown, refused[0]])
    const rest = told.slice(11)
    expect(rest.filter((line) => !line.startsWith('ack'))).toEqual(refused.slice(1))
    expect(rest).toContain(`ack ${LAST}`)
  })

  it('and says that it knows all that is forgotten is acked at once', async () => {
    const told = await sendsAgain('known', 8)
    expect(told.slice(0, 4)).toEqual([...refused, `ack ${LAST}`])
    expect(told).not.toContainEqual(expect.stringContaining('outcome_unknown'))
  })
})
