import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import {
  asRedisUser,
  limitedUsersFile,
  redisFile,
  startRedisWith,
} from '../../../test/support/redis-server.ts'
import { freshPrefix, openRedisStore } from '../../../test/support/redis-store.ts'
import { newFolder } from '../../../test/support/run-folder.ts'
import { type StoreObserver, StoreUnavailable } from '../port.ts'
import { bytes, LONG_MS } from '../testing/harness.ts'
import { redisStore } from './redis.ts'
import { figuresOf } from './servers.ts'

/** Records all calls. */
function recorder(): StoreObserver & { readonly heard: string[] } {
  const heard: string[] = []
  const hear = (how: string) => (operation: string, seconds: number) => {
    expect(seconds).toBeGreaterThan(0)
    heard.push(`${operation} ${how}`)
  }
  return { heard, answered: hear('answered'), failed: hear('failed') }
}

it('reports every command, whether it was answered or not, until the observer is removed', async () => {
  const server = await startRedisWith({})
  onTestFinished(() => server.close())
  const store = await openRedisStore({
    url: server.url,
    keyPrefix: freshPrefix(),
    commandTimeoutMs: 1000,
  })
  const observer = recorder()
  const end = store.vitals.observe(observer)
  const asked = () => observer.heard.filter((one) => one.startsWith('read'))
  await store.records.read(['a', 'b'])
  expect(asked()).toEqual(['read answered', 'read answered'])
  expect(store.vitals.reachable).toBe(true)

  await server.stop()
  await expect(store.records.read(['a'])).rejects.toThrow(StoreUnavailable)
  expect(asked().slice(2)).toEqual(['read failed'])
  await vi.waitFor(() => expect(store.vitals.reachable).toBe(false), 60_000)

  await server.start()
  await vi.waitFor(() => expect(store.vitals.reachable).toBe(true), 60_000)
  end()
  await store.records.read(['a'])
  expect(asked()).toHaveLength(3)
})

it('reports why a store that answers PING accepts no writes: full, no permission, a replica', async () => {
  const server = await startRedisWith({})
  onTestFinished(() => server.close())
  const redis = new Redis(server.url)
  await redis.call('ACL', 'SETUSER', 'node', 'on', '>secret', '~*', '&*', '+@all')
  const url = server.url.replace('redis://', 'redis://node:secret@')
  const store = await openRedisStore({ url, keyPrefix: freshPrefix(), commandTimeoutMs: 1000 })
  await store.ping()

  const write = () => store.records.write([{ put: 'a', value: bytes('x') }])
  await redis.config('SET', 'maxmemory', '1')
  const full = { name: 'StoreUnavailable', failure: 'store_full', reply: 'OOM' }
  await expect(store.ping()).rejects.toMatchObject(full)
  await expect(write()).rejects.toMatchObject(full)
  await redis.config('SET', 'maxmemory', '0')
  await store.ping()

  await redis.call('ACL', 'SETUSER', 'node', '-set', '-hset')
  const forbidden = { name: 'StoreRefused', failure: 'store_refused', reply: 'NOPERM' }
  await expect(store.ping()).rejects.toMatchObject(forbidden)
  await expect(write()).rejects.toMatchObject(forbidden)
  await redis.call('ACL', 'SETUSER', 'node', '+@all')

  await redis.replicaof('127.0.0.1', '1')
  await expect(store.ping()).rejects.toMatchObject({ failure: 'store_refused', reply: 'READONLY' })
  await redis.replicaof('NO', 'ONE')

  await redis.call('ACL', 'SETUSER', 'node', 'resetpass', '>another')
  await redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  await vi.waitFor(
    () => expect(store.ping()).rejects.toMatchObject({ failure: 'store_refused', reply: 'WRONGPASS' }),
    60_000,
  )
  redis.disconnect()
  await server.stop()
  await vi.waitFor(
    () => expect(store.ping()).rejects.toMatchObject({ failure: 'store_unreachable', reply: undefined }),
    60_000,
  )
})

it('reports how full a server is', async () => {
  const server = await startRedisWith({ settings: { maxmemory: '64mb' } })
  onTestFinished(() => server.close())
  const store = await openRedisStore({ url: server.url, keyPrefix: freshPrefix() })
  const [before] = await store.vitals.servers()
  expect(before).toMatchObject({ maxMemoryBytes: 64 * 1024 * 1024, evictedKeys: 0 })
  expect(before!.name).toBe(new URL(server.url).host)
  expect(before!.connectedClients).toBeGreaterThanOrEqual(2)

  await store.records.write([{ put: 'large', value: bytes('x'.repeat(5_000_000)), ttlMs: LONG_MS }])
  const [after] = await store.vitals.servers()
  expect(after!.usedMemoryBytes - before!.usedMemoryBytes).toBeGreaterThan(4_900_000)
  expect(after!.commandsProcessed).toBeGreaterThan(before!.commandsProcessed)
})

it('reports the replicas of a server that needs some for its writes', async () => {
  const server = await startRedisWith({ settings: { 'repl-diskless-sync-delay': '0' } })
  onTestFinished(() => server.close())
  const store = await openRedisStore({ url: server.url, keyPrefix: freshPrefix() })
  const good = async () => (await store.vitals.servers())[0]!.goodReplicas
  expect(await good()).toBeUndefined()
  const redis = new Redis(server.url)
  onTestFinished(() => redis.disconnect())
  await redis.config('SET', 'min-replicas-to-write', '1')
  expect(await good()).toBe(0)
  const { hostname, port } = new URL(server.url)
  const replica = await startRedisWith({ settings: { replicaof: `${hostname} ${port}` } })
  onTestFinished(() => replica.close())
  await vi.waitFor(async () => expect(await good()).toBe(1), 60_000)
  await replica.stop()
  await vi.waitFor(async () => expect(await good()).toBe(0), 60_000)
})

describe('the user default of a server', () => {
  async function opened(users: string, settings: Record<string, string>) {
    const place = await newFolder()
    const aclfile = join(place, 'users.acl')
    await writeFile(aclfile, users)
    const server = await startRedisWith({ settings: { ...settings, aclfile } })
    onTestFinished(() => server.close())
    const logged: string[] = []
    const log = pino({ level: 'error' }, { write: (line: string) => void logged.push(JSON.parse(line).msg) })
    const store = await redisStore({ url: asRedisUser(server.url, 'roomful-node'), log })
    onTestFinished(() => store.close())
    const loses = async () => (await store.vitals.servers())[0]!.restartLosesData
    return { server, aclfile, logged, loses }
  }

  it.each([
    ['may replay the append-only file', redisFile('users.acl'), 'yes'],
    ['need not replay anything', limitedUsersFile(), 'no'],
  ])('gives no warning if it %s', async (_, users, appendonly) => {
    const { logged, loses } = await opened(users, { appendonly })
    expect([logged, await loses()]).toEqual([[], false])
  })

  it('gives a warning if it may not replay the append-only file, until the server has restarted with other users', async () => {
    const { server, aclfile, logged, loses } = await opened(limitedUsersFile(), { appendonly: 'yes' })
    expect(logged).toEqual([expect.stringMatching(/^a restart of Redis would lose all data: /)])
    expect(await loses()).toBe(true)
    await writeFile(aclfile, redisFile('users.acl'))
    await server.restart()
    await vi.waitFor(async () => expect(await loses()).toBe(false), 60_000)
  })
})

it('returns 0 for a value that the server does not report', () => {
  expect(figuresOf('# Memory\r\nused_memory:123\r\nused_memory_human:1K\r\n')).toEqual({
    usedMemoryBytes: 123,
    maxMemoryBytes: 0,
    connectedClients: 0,
    commandsProcessed: 0,
    evictedKeys: 0,
    goodReplicas: undefined,
  })
})
