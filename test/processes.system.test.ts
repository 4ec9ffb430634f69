import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type counter from '../examples/counter/room.ts'
import { callControl } from './support/calls.ts'
import { examplesFolder, runProgram } from './support/program.ts'
import { addRedisUser, asAdmin, type RedisServer, startRedis } from './support/redis-server.ts'
import { newFolder } from './support/run-folder.ts'

const INTERNAL_TOKEN = 'internal-token-of-the-process-tests'

let redis: RedisServer
let redisUrls: { readonly control: string; readonly node: string }
beforeAll(async () => {
  redis = await startRedis()
  redisUrls = {
    control: await addRedisUser(redis.url, 'roomful-control'),
    node: await addRedisUser(redis.url, 'roomful-node'),
  }
})
afterAll(() => redis.close())

/** Starts control as a process. Returns a function that starts nodes. Control and nodes are different users of one Redis. */
async function deployment() {
  const control = runProgram(['control'], {
    REDIS_URL: redisUrls.control,
    KEYRING_SECRET: 'a-keyring-secret-of-32-characters',
    INTERNAL_TOKEN,
    CONTROL_PORT: '0',
  })
  const [, controlUrl] = (await control.said(/ready: api (http:\/\/[\d.:]+)/)) as [string, string]
  const nodeEnv = {
    REDIS_URL: redisUrls.node,
    INTERNAL_TOKEN,
    CONTROL_URL: controlUrl,
    ROOMS_DIR: examplesFolder(),
    WS_PORT: '0',
    ADMIN_PORT: '0',
    DRAIN_SECONDS: '0',
    NODE_LEASE_MS: '500',
  }
  const startNode = async (env: Record<string, string> = {}) => {
    const node = runProgram(['dataplane'], { ...nodeEnv, ...env })
    const [, wsUrl, adminUrl] = (await node.said(
      /ready: websocket (ws:\/\/[\d.:]+), admin (http:\/\/[\d.:]+)/,
    )) as [string, string, string]
    return { node, ws_url: wsUrl, admin_url: adminUrl }
  }
  const post = (path: string, body: object) => callControl(controlUrl, 'POST', path, body)
  const { id: projectId = '' } = await post('/projects', { name: 'processes' })
  const { id: keyId = '' } = await post(`/projects/${projectId}/keys`, { name: 'of a game' })
  const { token = '' } = await post('/tokens', { project_id: projectId, key_id: keyId })
  const revoke = () => post(`/projects/${projectId}/keys/${keyId}/revoke`, {})
  return { startNode, node_env: nodeEnv, credentials: { projectId, token }, key_id: keyId, revoke }
}

/** Joins when the room is available: the lease of a dead owner must expire first. */
const joinCounter = async (wsUrl: string, credentials: { projectId: string; token: string }) => {
  const client = await connect(wsUrl, credentials)
  return vi.waitFor(
    async () => ({ client, room: await client.join<typeof counter>('counter', { key: 'kept' }) }),
    60_000,
  )
}

describe('a node as a process', () => {
  it('continues when a second process starts with its NODE_ID, which exits with code 2', async () => {
    const { startNode, node_env: nodeEnv, credentials } = await deployment()
    const name = { NODE_ID: 'the-one', NODE_LEASE_MS: '2000' }
    const first = await startNode(name)
    const { client, room } = await joinCounter(first.ws_url, credentials)
    const second = runProgram(['dataplane'], { ...nodeEnv, ...name })
    let sent = 0
    while (second.child.exitCode === null) {
      await room.send('inc', { by: 1 })
      sent += 1
    }
    expect(await second.ended).toBe(2)
    expect(second.output()).toContain(
      'dataplane cannot start: another process runs as the node the-one: it has renewed its lease for 2000 ms; stop that process, or give this process another NODE_ID',
    )
    expect(second.output()).not.toContain('ready:')
    await room.send('inc', { by: 1 })
    expect(room.state.count).toBe(sent + 1)
    client.close()
  })

  it('exits with code 2 if ROOMS_DIR cannot be read or has no room types, and with 1 if a room file fails', async () => {
    const { node_env: env } = await deployment()
    const folder = await newFolder()
    const file = join(folder, 'note.txt')
    await writeFile(file, 'no folder')
    const failing = await newFolder()
    await writeFile(join(failing, 'duel.mjs'), 'throw new Error("no duel today")')
    for (const [roomsDir, code, says] of [
      [join(folder, 'nowhere'), 2, 'nowhere cannot be read: ENOENT'],
      [file, 2, 'note.txt cannot be read: ENOTDIR'],
      [folder, 2, 'has no room types'],
      [failing, 1, 'duel.mjs cannot be loaded: no duel today'],
    ] as const) {
      const { ended, output } = runProgram(['dataplane'], { ...env, ROOMS_DIR: roomsDir })
      expect([await ended, output()]).toEqual([code, expect.stringContaining(says)])
    }
  })

  it('exits with code 3 when another process has taken its NODE_ID while it was suspended', async () => {
    const { startNode, credentials } = await deployment()
    const first = await startNode({ NODE_ID: 'the-one' })
    const before = await joinCounter(first.ws_url, credentials)
    await before.room.send('inc', { by: 1 })
    first.node.child.kill('SIGSTOP')
    const second = await startNode({ NODE_ID: 'the-one' })
    first.node.child.kill('SIGCONT')
    expect(await first.node.ended).toBe(3)
    expect(first.node.output()).toMatch(/"level":"error".*NODE_ID must be another for each process/)
    before.client.close()
    const after = await joinCounter(second.ws_url, credentials)
    await after.room.send('inc', { by: 1 })
    expect(after.room.state.count).toBe(2)
    after.client.close()
  })
})

/** Returns the commands that Redis has refused. */
const refusals = () => asAdmin(redis.url, (admin) => admin.call('ACL', 'LOG'))

/** Sends a command as a user. Returns the error, or a text if the command succeeds. */
async function refusal(url: string, command: string, ...args: string[]): Promise<string> {
  const client = new Redis(url, { retryStrategy: () => null })
  try {
    await client.call(command, ...args)
    return `${command} ${args[0]} was done`
  } catch (error) {
    return (error as Error).message
  } finally {
    client.disconnect()
  }
}

describe('the two users of Redis', () => {
  // Game code runs in nodes. With a node's password, it must not be able to admit a revoked player.
  it('have all rights that they need, and no rights of the other user', async () => {
    const { startNode, credentials, key_id: keyId, revoke } = await deployment()
    const first = await startNode()
    const second = await startNode()
    const before = await joinCounter(first.ws_url, credentials)
    const after = await joinCounter(second.ws_url, credentials)
    await after.room.send('inc', { by: 3 })
    await vi.waitFor(() => expect(before.room.state).toEqual({ count: 3 }), 180_000)
    const ended = new Promise<string>((resolve) => {
      after.client.onConnectionChange((status, reason) => status === 'closed' && resolve(reason!.code))
    })
    await revoke()
    expect(await ended).toBe('revoked')
    expect(await refusals()).toEqual([])

    const { control, node } = redisUrls
    const key = `roomful:{control}:key:${keyId}`
    const room = `roomful:{room:${credentials.projectId}/counter:kept}:record`
    const tries = await Promise.all([
      refusal(node, 'HSET', key, 'v', 'active'),
      refusal(node, 'EVAL', 'return redis.call("DEL", KEYS[1])', '1', key),
      refusal(node, 'HGET', key, 'v'),
      refusal(node, 'HGET', 'roomful:{control}:keyring', 'v'),
      refusal(node, 'ZREM', 'roomful:{control}:projects', credentials.projectId),
      refusal(control, 'HSET', room, 'epoch', '1'),
      refusal(control, 'DEL', 'roomful:{nodes}:lease:node-1'),
      refusal(control, 'GET', 'roomful:session:ses_1'),
      refusal(control, 'PUBLISH', 'roomful:node:node-1', 'anything'),
      refusal(node, 'FLUSHALL'),
      refusal(control, 'CONFIG', 'SET', 'maxmemory', '1'),
    ])
    for (const error of tries) expect(error).toMatch(/^NOPERM/)
  })
})
