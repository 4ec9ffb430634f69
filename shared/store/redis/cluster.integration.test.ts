import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import {
  asAdmin,
  type RedisCluster,
  startRedis,
  startRedisCluster,
} from '../../../test/support/redis-server.ts'
import {
  expectUnavailable,
  listening,
  openRedisStore,
  silent,
  whenBack,
} from '../../../test/support/redis-store.ts'
import { systemClock } from '../../clock.ts'
import { systemRandom } from '../../random.ts'
import { bytes, LONG_MS, text } from '../testing/harness.ts'
import { parseAddress } from './address.ts'
import { RedisBus } from './bus.ts'
import { Clients } from './clients.ts'
import { ClusterServers, slotOf } from './cluster.ts'
import { Observers } from './connection.ts'
import { redisStore } from './redis.ts'

const PREFIX = 'roomful:'

describe('on a Cluster of three masters', () => {
  let cluster: RedisCluster
  beforeAll(async () => {
    cluster = await startRedisCluster()
  })
  afterAll(() => cluster.close())

  it('computes the slot of a key as the servers do', async () => {
    const keys = ['', 'a', 'ü😀', '{a}b', 'x{}y', 'x{a', '}{b}', 'roomful:{room:p/a:k}:record', '123456789']
    const slots = await asAdmin(cluster.nodes[0]!.url, (redis) =>
      Promise.all(keys.map((key) => redis.cluster('KEYSLOT', key))),
    )
    expect(keys.map(slotOf)).toEqual(slots)
  })

  it('is not accepted as a single server', async () => {
    const opening = redisStore({ url: cluster.nodes[0]!.url, log: silent })
    await expect(opening).rejects.toThrow('the URL must start with redis+cluster://')
  })

  it('is found through one server that answers', async () => {
    const { host } = new URL(cluster.nodes[1]!.url)
    const store = await openRedisStore({ keyPrefix: PREFIX, url: `redis+cluster://127.0.0.1:1,${host}` })
    for (let n = 0; n < 20; n++) {
      expect(await store.records.write([{ put: `found:${n}`, value: bytes('x') }])).toBe(true)
    }
  })

  it('follows a slot to another master, and restores its subscriptions there', async () => {
    const store = await openRedisStore({ keyPrefix: PREFIX, url: cluster.url })
    const [slot, elsewhere] = [slotOf(`${PREFIX}moving`), slotOf(`${PREFIX}moving`) < 8000 ? 16_000 : 100]
    const told = await listening(store, 'moving')
    await cluster.move(slot, elsewhere)
    await vi.waitFor(() => expect(told.gaps).toBeGreaterThan(0), { timeout: 60_000 })
    expect(await store.bus.listeners(['moving'])).toEqual([1])
    expect(await store.bus.publish('moving', bytes('here'))).toBe(1)
    await vi.waitFor(() => expect(told.heard).toEqual(['here']), 60_000)
    expect(await store.records.write([{ put: 'moving', value: bytes('x') }])).toBe(true)
    await store.records.write([{ remove: 'moving' }])
  })

  it('finds a key that has moved before its slot, and waits for keys that are moving', async () => {
    const store = await openRedisStore({ keyPrefix: PREFIX, url: cluster.url })
    const [room, other] = ['p/a:ask', 'p/a:ask'].map((room) => `${PREFIX}{room:${room}}`)
    const slot = slotOf(room!)
    const from = await cluster.masterOf(slot)
    const to = await cluster.masterOf(slot < 8000 ? 16_000 : 100)
    const claim = (await store.rooms.claim('p/a:ask', 'node_a', 0, LONG_MS))!
    await store.rooms.snapshot('p/a:ask', claim.fence, bytes('s'), LONG_MS)
    await store.rooms.commit('p/a:ask', { ...claim.fence, version: 1 }, bytes('e'), LONG_MS)

    const [fromId, toId] = await Promise.all(
      [from, to].map((node) => asAdmin(node.url, async (redis) => String(await redis.cluster('MYID')))),
    )
    const { port } = new URL(to.url)
    const migrate = (part: string) =>
      asAdmin(from.url, (redis) => redis.migrate('127.0.0.1', port, `${other}:${part}`, 0, 1000))
    await asAdmin(to.url, (redis) => redis.cluster('SETSLOT', slot, 'IMPORTING', fromId!))
    await asAdmin(from.url, (redis) => redis.cluster('SETSLOT', slot, 'MIGRATING', toId!))
    await migrate('record')
    const inspecting = store.rooms.inspect('p/a:ask')
    for (const part of ['epoch', 'snapshot', 'journal']) await migrate(part)
    expect(await inspecting).toEqual({ epoch: claim.fence.epoch, version: 2, owner: 'node_a' })
    expect(await store.rooms.commit('p/a:ask', { ...claim.fence, version: 2 }, bytes('f'), LONG_MS)).toBe(
      true,
    )
    for (const node of [to, from])
      await asAdmin(node.url, (redis) => redis.cluster('SETSLOT', slot, 'NODE', toId!))
    const next = await store.rooms.claim('p/a:ask', 'node_b', claim.fence.epoch, LONG_MS)
    expect([text(next?.snapshot), next?.journal.map(text)]).toEqual(['s', ['e', 'f']])
  })

  it('continues after the servers have lost the scripts', async () => {
    const store = await openRedisStore({ keyPrefix: PREFIX, url: cluster.url })
    const lock = () => store.locks.withLock('forgotten', { ttlMs: LONG_MS, waitMs: 0 }, async () => 'done')
    expect([await store.rooms.inspect('p/a:none'), await lock()]).toEqual([undefined, 'done'])
    for (const node of cluster.nodes) await asAdmin(node.url, (redis) => redis.script('FLUSH'))
    expect([await store.rooms.inspect('p/a:none'), await lock()]).toEqual([undefined, 'done'])
  })

  it('publishes to all servers if they have no sharded pub/sub, and does not know the listeners', async () => {
    const address = parseAddress(cluster.url)
    const clients = new Clients(address, { random: systemRandom, timeoutMs: 2000 })
    const servers = new ClusterServers({
      observers: new Observers(),
      clients,
      seeds: address.endpoints,
      clock: systemClock,
      log: silent,
      timeoutMs: 2000,
    })
    onTestFinished(() => servers.close())
    await servers.opened(5000)
    const bus = new RedisBus(servers, PREFIX, { mode: 'flood', clock: systemClock })
    const heard: string[] = []
    const end = await bus.subscribe('flood', (message) => heard.push(`${text(message)}`))
    expect(await bus.publish('flood', bytes('x'))).toBe(1)
    await vi.waitFor(() => expect(heard).toEqual(['x']), 60_000)
    expect(await bus.listeners(['flood'])).toBeUndefined()
    await end()
    expect(await bus.publish('flood', bytes('y'))).toBe(0)
  })
})

describe('a Redis store on a Cluster whose master is killed', () => {
  it('continues with the replica, and reports the gap and the return', async () => {
    const cluster = await startRedisCluster({ replicas: 1 })
    onTestFinished(() => cluster.close())
    const store = await openRedisStore({ keyPrefix: PREFIX, url: cluster.url, commandTimeoutMs: 1000 })
    const slot = slotOf(`${PREFIX}lost`)
    let returns = 0
    store.onReturn(() => returns++)
    const told = await listening(store, 'lost')
    const room = await store.rooms.claim('p/a:lost', 'node_a', 0, LONG_MS)
    await store.records.write([{ put: 'lost', value: bytes('kept') }])
    await asAdmin((await cluster.masterOf(slot)).url, (redis) => redis.wait(1, 1000))

    await cluster.kill(slot)
    await expectUnavailable(store.records.write([{ put: 'lost', value: bytes('new') }]))
    // For any room: the reachable servers may have lost data that the unreachable one has.
    const opening = { owner: 'node_b', ttlMs: LONG_MS, stateVersion: 1, creator: 'ada' }
    const rooms = Array.from({ length: 12 }, (_, n) => `p/a:${n}`)
    const found = rooms.map((name) => store.rooms.open(name, opening, () => returns === 0))
    for (const one of await Promise.allSettled(found))
      expect(one.status === 'fulfilled' && one.value).toBeFalsy()
    expect(await whenBack(() => store.records.write([{ put: 'lost', value: bytes('new') }]))).toBe(true)
    await vi.waitFor(() => expect([returns, told.gaps > 0]).toEqual([1, true]), { timeout: 60_000 })
    expect(await store.bus.listeners(['lost'])).toEqual([1])
    expect(await store.bus.publish('lost', bytes('here'))).toBe(1)
    await vi.waitFor(() => expect(told.heard).toEqual(['here']), 60_000)
    expect(await whenBack(() => store.rooms.commit('p/a:lost', room!.fence, bytes('e'), LONG_MS))).toBe(true)
    await store.ping()
    expect(await store.locks.withLock('lost', { ttlMs: 1000, waitMs: 0 }, async () => 'done')).toBe('done')
  })
})

describe('opening a Redis store on a Cluster', () => {
  it('fails in bounded time if no server answers, with the reason', async () => {
    const opening = redisStore({
      url: 'redis+cluster://127.0.0.1:1',
      log: silent,
      connectTimeoutMs: 1000,
    })
    await expect(opening).rejects.toThrow(/no connection to the store: .*ECONNREFUSED/)
  })

  it('fails if slots have no master, with their number', async () => {
    const cluster = await startRedisCluster()
    onTestFinished(() => cluster.close())
    for (const node of cluster.nodes) await asAdmin(node.url, (redis) => redis.cluster('DELSLOTS', 7))
    const opening = redisStore({ url: cluster.url, log: silent, connectTimeoutMs: 1500 })
    await expect(opening).rejects.toThrow('1 of the 16384 slots of the Cluster have no master')
  })

  it('fails with a server that is not a Cluster', async () => {
    const server = await startRedis()
    onTestFinished(() => server.close())
    const opening = redisStore({
      url: server.url.replace('redis://', 'redis+cluster://'),
      log: silent,
      connectTimeoutMs: 1000,
    })
    await expect(opening).rejects.toThrow(/cluster support disabled/)
  })
})
