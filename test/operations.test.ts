import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type arena from '../examples/arena/room.ts'
import { startService, type TestService } from './support/service.ts'

describe('what an operator sees of a node', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService()
  })
  afterAll(() => service.close())

  const runtime = async (query = '', token: string | undefined = service.internal_token) => {
    const response = await fetch(`${service.admin_url}/admin/runtime${query}`, {
      headers: token === undefined ? {} : { 'x-service-internal-token': token },
    })
    return { status: response.status, body: await response.json() }
  }

  it('is refused without the internal token', async () => {
    expect((await runtime('', 'wrong')).status).toBe(401)
    const response = await fetch(`${service.admin_url}/admin/runtime`)
    expect(response.status).toBe(401)
    expect(response.headers.get('content-type')).toContain('application/problem+json')
  })

  it('shows rooms, members and sessions, with state only when asked for', async () => {
    const { project_id: projectId, token } = await service.login({ sub: 'player-1' })
    const client = await connect(service.ws_url, { projectId, token })
    const room = await client.join<typeof arena>('arena', { key: 'seen' })
    await client.join<typeof arena>('arena', { key: 'other' })
    await room.send('move', { x: 10, y: 20 })

    const { body } = await runtime('?room_id=arena:seen')
    expect(body.node).toMatchObject({ node_id: service.node.node_id, draining: false })
    expect(body.rooms).toHaveLength(1)
    expect(body.rooms[0]).toMatchObject({
      room_id: 'arena:seen',
      project_id: projectId,
      room_type: 'arena',
      key: 'seen',
      members: [
        { member_id: room.memberId, sub: 'player-1', connected: true, node_id: service.node.node_id },
      ],
    })
    expect(body.rooms[0]).not.toHaveProperty('state')
    expect(body.sessions).toMatchObject([{ project_id: projectId, sub: 'player-1', key_id: null }])
    expect(body.sessions[0].rooms).toEqual(expect.arrayContaining(['arena:seen', 'arena:other']))

    const full = await runtime('?include_state=1&room_id=arena:seen')
    expect(full.body.rooms[0].state.players[room.memberId]).toMatchObject({ x: 10, y: 20, hp: 100 })
    client.close()
  })

  it('counts sessions, rooms, members and messages in Prometheus text', async () => {
    const { project_id: projectId, token } = await service.login()
    const before = await service.metric('service_messages_received_total{t="message"}')
    const client = await connect(service.ws_url, { projectId, token })
    const room = await client.join<typeof arena>('arena', { key: 'counted' })
    await room.send('move', { x: 1, y: 1 })

    expect(await service.metric('service_messages_received_total{t="message"}')).toBe(before + 1)
    expect(await service.metric('service_connections')).toBeGreaterThan(0)
    expect(await service.metric('service_rooms')).toBeGreaterThan(0)
    expect(await service.metric('service_members')).toBeGreaterThan(0)
    const text = await (await fetch(`${service.admin_url}/metrics`)).text()
    for (const line of text.split('\n'))
      if (line !== '' && !line.startsWith('#')) expect(line).toMatch(/^service_/)
    client.close()
  })
})
