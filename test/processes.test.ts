import { connect } from 'roomful/client'
import { describe, expect, inject, it, vi } from 'vitest'
import type counter from '../examples/counter/room.ts'
import { type Program, runProgram } from './support/program.ts'

const INTERNAL_TOKEN = 'internal-token-of-the-process-tests'

/** Control and one node as processes of their own, on the Redis of the tests. */
async function deployment() {
  const shared = {
    REDIS_URL: inject('redisUrl'),
    KEY_PREFIX: `processes-${crypto.randomUUID()}:`,
    INTERNAL_TOKEN,
  }
  const control = runProgram(['control'], { ...shared, CONTROL_PORT: '0' })
  const [, control_url] = (await control.said(/ready: api (http:\/\/[\d.:]+)/)) as [string, string]
  const startNode = async (env: Record<string, string> = {}) => {
    const node = runProgram(['dataplane'], {
      ...shared,
      CONTROL_URL: control_url,
      WS_PORT: '0',
      ADMIN_PORT: '0',
      DRAIN_SECONDS: '0',
      NODE_LEASE_MS: '500',
      ...env,
    })
    const [, ws_url, admin_url] = (await node.said(
      /ready: websocket (ws:\/\/[\d.:]+), admin (http:\/\/[\d.:]+)/,
    )) as [string, string, string]
    return { node, ws_url, admin_url }
  }
  const post = async (path: string, body: object) => {
    const response = await fetch(`${control_url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    return (await response.json()) as { id: string; token: string }
  }
  const { id: projectId } = await post('/projects', { name: 'processes' })
  const { token } = await post('/tokens', { project_id: projectId })
  return { startNode, credentials: { projectId, token } }
}

/** Joins as soon as the room can be had: a dead owner's lease has to run out first. */
const joinCounter = async (ws_url: string, credentials: { projectId: string; token: string }) => {
  const client = await connect(ws_url, credentials)
  return vi.waitFor(
    async () => ({ client, room: await client.join<typeof counter>('counter', { key: 'kept' }) }),
    10_000,
  )
}

const ends = async ({ child, ended }: Program, signal: NodeJS.Signals) => {
  child.kill(signal)
  return ended
}

describe('a node as a process', () => {
  it('keeps every acked message of a journal room through kill -9', async () => {
    const { startNode, credentials } = await deployment()
    const first = await startNode()
    const before = await joinCounter(first.ws_url, credentials)
    let acked = 0
    const flood = (async () => {
      for (;;) {
        await before.room.send('inc', { by: 1 })
        acked += 1
        if (acked === 200) first.node.child.kill('SIGKILL')
      }
    })()
    flood.catch(() => {})
    await first.node.ended
    before.client.close()

    const second = await startNode()
    const after = await joinCounter(second.ws_url, credentials)
    expect(acked).toBeGreaterThanOrEqual(200)
    expect(after.room.state.count).toBeGreaterThanOrEqual(acked)
    expect(after.room.state.count).toBeLessThanOrEqual(acked + 1)
    after.client.close()
  })

  it('saves its rooms and ends with 0 at SIGTERM', async () => {
    const { startNode, credentials } = await deployment()
    const first = await startNode()
    const before = await joinCounter(first.ws_url, credentials)
    await before.room.send('inc', { by: 7 })
    expect(await ends(first.node, 'SIGTERM')).toBe(0)
    before.client.close()

    const second = await startNode()
    const after = await joinCounter(second.ws_url, credentials)
    expect(after.room.state).toEqual({ count: 7 })
    after.client.close()
  })

  it('drains over HTTP: tells its clients, and ends with 0', async () => {
    const { startNode, credentials } = await deployment()
    const { node, ws_url, admin_url } = await startNode()
    const { client } = await joinCounter(ws_url, credentials)
    const statuses: string[] = []
    client.onConnectionChange((status) => void statuses.push(status))
    const response = await fetch(`${admin_url}/admin/drain`, {
      method: 'POST',
      headers: { 'x-service-internal-token': INTERNAL_TOKEN },
    })
    expect(response.status).toBe(202)
    expect(await node.ended).toBe(0)
    await vi.waitFor(() => expect(statuses).toContain('reconnecting'), 10_000)
    client.close()
  })
})
