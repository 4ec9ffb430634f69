import { join } from 'node:path'
import { pino } from 'pino'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type RunningNode, startNode } from '../dataplane/node.ts'
import { loadRooms } from '../dataplane/rooms/loader.ts'
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
    await vi.waitFor(() => expect(shaky.state).toEqual({ count: 25 }), 60_000)

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
        await vi.waitFor(() => expect(shaky.members).toHaveLength(2), 60_000)
        await sends[i]
      }
    }
    await Promise.all(sends)
    await vi.waitFor(() => expect(steady.state).toEqual({ count: 60 }), 60_000)
    expect(shaky.state).toEqual({ count: 60 })
    close()
  })

  it('shows a session that is away as not connected, and keeps its seat', async () => {
    const { steady, shaky, cut, close } = await players('away')
    cut()
    await steady.send('inc', { by: 1 })
    expect(steady.members.map((member) => member.memberId)).toContain(shaky.memberId)
    await vi.waitFor(() => expect(shaky.state).toEqual({ count: 1 }), 60_000)
    close()
  })
})

describe('a session that moves from node to node', () => {
  let service: TestService
  let second: RunningNode
  beforeAll(async () => {
    service = await startService({ store: 'redis' })
    second = await startNode({
      ws_port: 0,
      admin_port: 0,
      drain_seconds: 0,
      rooms: await loadRooms(join(import.meta.dirname, '../examples')),
      store: service.store,
      control_url: service.control_url,
      internal_token: service.internal_token,
      log: pino({ level: 'silent' }),
    })
  })
  afterAll(async () => {
    await second.close()
    await service.close()
  })

  /** A player whose every connection goes to the other node than the one before, and one who stays. */
  async function players(key: string) {
    const { project_id: projectId, token } = await service.login()
    const network = tamperedSocket()
    let connections = 0
    class WanderingSocket extends network.WebSocket {
      constructor(_url: string, protocols: string[]) {
        super(connections++ % 2 === 0 ? second.ws_url : service.ws_url, protocols)
      }
    }
    const steady = await connect(service.ws_url, { projectId, token })
    const wandering = await connect(service.ws_url, { projectId, token, WebSocket: WanderingSocket })
    return {
      projectId,
      token,
      steady: await steady.join<typeof counter>('counter', { key }),
      wandering: await wandering.join<typeof counter>('counter', { key }),
      client: wandering,
      cut: network.cut,
      close: () => {
        steady.close()
        wandering.close()
      },
    }
  }

  it('brings back exactly what was missed, events included, in the same seat, at every move', async () => {
    const { steady, wandering, client, cut, close } = await players('moves')
    const milestones: number[] = []
    wandering.onMessage('milestone', ({ count }) => void milestones.push(count))
    const seat = wandering.memberId
    for (let move = 1; move <= 4; move++) {
      cut()
      await steady.send('inc', { by: 5 })
      await steady.send('inc', { by: 5 })
      await vi.waitFor(() => expect(wandering.state).toEqual({ count: 10 * move }), 60_000)
    }
    expect(milestones).toEqual([10, 20, 30, 40])
    expect(wandering.memberId).toBe(seat)
    expect(client.stats).toMatchObject({ reconnects: 4, resyncs: { sequence: 0, checksum: 0, unasked: 0 } })
    close()
  })

  it('applies each reliable message once, however often it moves', async () => {
    const { steady, wandering, cut, close } = await players('once')
    const sends: Promise<void>[] = []
    for (let i = 0; i < 60; i++) {
      sends.push(wandering.send('inc', { by: 1 }))
      if (i % 20 !== 10) continue
      cut()
      await sends[i]
    }
    await Promise.all(sends)
    await vi.waitFor(() => expect(steady.state).toEqual({ count: 60 }), 60_000)
    expect(wandering.state).toEqual({ count: 60 })
    close()
  })

  it('ends within a second on both nodes when its key is revoked, and cannot come back at either', async () => {
    const project = await service.call('POST', '/projects', { name: 'test' })
    const key = await service.call('POST', `/projects/${project.id}/keys`, {})
    const { token } = await service.call('POST', '/tokens', { project_id: project.id!, key_id: key.id! })
    const options = { projectId: project.id!, token: token! }
    const clients = await Promise.all(
      [service.ws_url, second.ws_url].map((url) => connect(url, { ...options, reconnect: false })),
    )
    const closed = clients.map(
      (client) =>
        new Promise((resolve) =>
          client.onConnectionChange((status) => status === 'closed' && resolve(status)),
        ),
    )
    const revoked_at = performance.now()
    await service.call('POST', `/projects/${project.id}/keys/${key.id}/revoke`)
    await Promise.all(closed)
    expect(performance.now() - revoked_at).toBeLessThan(1000)
    for (const url of [service.ws_url, second.ws_url])
      await expect(connect(url, options)).rejects.toMatchObject({ code: 'key_revoked' })
  })
})
