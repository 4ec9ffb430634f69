import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type counter from '../examples/counter/room.ts'
import { startService, type TestService } from './support/service.ts'
import { tamperedSocket } from './support/tampered-socket.ts'

describe.each(['memory', 'redis'] as const)('a lost connection, on %s', (store) => {
  let service: TestService
  beforeAll(async () => {
    service = await startService({ store })
  })
  afterAll(() => service.close())

  async function players(key: string) {
    const { project_id: projectId, token } = await service.login()
    const network = tamperedSocket()
    const steady = await connect(service.ws_url, { projectId, token })
    const shaky = await connect(service.ws_url, { projectId, token, WebSocket: network.WebSocket })
    return {
      steady: await steady.join<typeof counter>('counter', { key }),
      shaky: await shaky.join<typeof counter>('counter', { key }),
      client: shaky,
      cut: network.cut,
      close: () => {
        steady.close()
        shaky.close()
      },
    }
  }

  it('brings back exactly what was missed, events included, in the same seat', async () => {
    const { steady, shaky, client, cut, close } = await players('missed')
    const milestones: number[] = []
    shaky.onMessage('milestone', ({ count }) => void milestones.push(count))
    const seat = shaky.memberId

    cut()
    for (let i = 0; i < 5; i++) await steady.send('inc', { by: 5 })
    await vi.waitFor(() => expect(shaky.state).toEqual({ count: 25 }))

    expect(milestones).toEqual([10, 20])
    expect(shaky.memberId).toBe(seat)
    expect(client.stats).toMatchObject({ reconnects: 1, resyncs: { sequence: 0, checksum: 0, unasked: 0 } })
    close()
  })

  it('applies each reliable message once, however often the connection is cut', async () => {
    const { steady, shaky, cut, close } = await players('once')
    const sends: Promise<void>[] = []
    for (let i = 0; i < 60; i++) {
      sends.push(shaky.send('inc', { by: 1 }))
      if (i % 20 === 10) {
        cut()
        await vi.waitFor(() => expect(shaky.members).toHaveLength(2))
        await sends[i]
      }
    }
    await Promise.all(sends)
    await vi.waitFor(() => expect(steady.state).toEqual({ count: 60 }))
    expect(shaky.state).toEqual({ count: 60 })
    close()
  })

  it('shows a session that is away as not connected, and keeps its seat', async () => {
    const { steady, shaky, cut, close } = await players('away')
    cut()
    await steady.send('inc', { by: 1 })
    expect(steady.members.map((member) => member.memberId)).toContain(shaky.memberId)
    await vi.waitFor(() => expect(shaky.state).toEqual({ count: 1 }))
    close()
  })
})
