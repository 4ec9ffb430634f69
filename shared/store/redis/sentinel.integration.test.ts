import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import {
  asAdmin,
  type RedisSentinel,
  startRedisSentinel,
  startRedisWith,
  until,
} from '../../../test/support/redis-server.ts'
import {
  expectUnavailable,
  listening,
  openRedisStore,
  recordingLog,
  silent,
  whenBack,
} from '../../../test/support/redis-store.ts'
import { bytes, LONG_MS, text } from '../testing/harness.ts'
import { redisStore } from './redis.ts'

describe('behind three Sentinels', () => {
  let set: RedisSentinel
  beforeAll(async () => {
    set = await startRedisSentinel()
  })
  afterAll(() => set.close())

  it('does not accept a replica as the master', async () => {
    const replica = set.servers.find(({ url }) => url !== set.servers[0]!.url)!
    await expect(redisStore({ url: replica.url, log: silent })).rejects.toThrow('the store is a replica')
  })

  it('needs one Sentinel that answers', async () => {
    const [first] = set.sentinels.map(({ url }) => new URL(url).host)
    const store = await openRedisStore({ url: `redis+sentinel://127.0.0.1:1,${first}/games` })
    await store.ping()
  })
})

describe('a Redis store whose Sentinels appoint another master', () => {
  it.each([
    ['on demand', (set: RedisSentinel) => set.failover()],
    ['since it was killed', (set: RedisSentinel) => set.killMaster()],
    ['since it hangs', async (set: RedisSentinel) => (await set.master()).pause()],
  ])('goes on with it by itself: %s', async (_, lose) => {
    const set = await startRedisSentinel()
    onTestFinished(() => set.close())
    const before = await set.master()
    const store = await openRedisStore({ url: set.url, commandTimeoutMs: 1000 })
    let returns = 0
    store.onReturn(() => returns++)
    const told = await listening(store, 'c')
    const { fence } = (await store.rooms.claim('p/a:k', 'node_a', 0, LONG_MS))!
    await asAdmin(before.url, (redis) => redis.wait(1, 1000))

    await lose(set)
    await until('another master is there', async () => (await set.master()) !== before)
    const after = await set.master()
    // The old master answers until it learns of the switch, and writes to it are lost.
    await vi.waitFor(() => expect([returns > 0, told.gaps > 0]).toEqual([true, true]), { timeout: 60_000 })
    expect(await whenBack(() => store.rooms.commit('p/a:k', fence, bytes('e'), LONG_MS))).toBe(true)
    const journal = await asAdmin(after.url, (redis) => redis.lrange('roomful:{room:p/a:k}:journal', 0, -1))
    expect(journal).toEqual(['e'])
    await vi.waitFor(async () => expect(await store.bus.listeners(['c'])).toEqual([1]), { timeout: 60_000 })
    expect(await store.bus.publish('c', bytes('here'))).toBe(1)
    await vi.waitFor(() => expect(told.heard).toEqual(['here']), 60_000)
  })

  it('rejects with StoreUnavailable while there is no master', async () => {
    const set = await startRedisSentinel({ replicas: 0 })
    onTestFinished(() => set.close())
    const store = await openRedisStore({ url: set.url, commandTimeoutMs: 1000 })
    const dead = await set.killMaster()
    await expectUnavailable(store.ping())
    await expectUnavailable(store.bus.subscribe('c', () => undefined))
    await dead.start()
    await whenBack(() => store.ping())
  })
})

describe('opening a Redis store by its Sentinels', () => {
  it('fails in bounded time, with the reason, if no Sentinel answers or knows the master', async () => {
    const set = await startRedisSentinel({ replicas: 0 })
    onTestFinished(() => set.close())
    const { log, logged } = recordingLog()
    const open = (url: string) => redisStore({ url, log, connectTimeoutMs: 3000 })
    await expect(open('redis+sentinel://127.0.0.1:1/games')).rejects.toThrow(
      /no connection to the store: no Sentinel names a master: 127\.0\.0\.1:1 does not answer \(.*ECONNREFUSED/,
    )
    await expect(open(set.url.replace('/games', '/films'))).rejects.toThrow(
      /no connection to the store: no Sentinel names a master: 127\.0\.0\.1:\d+ knows no master "films"/,
    )
    expect(logged()).toContain('knows no master')
    expect(logged()).not.toContain('sentinels are unreachable')
  })

  it('fails with the reason if the master does not accept the password, or is a replica that was not promoted', async () => {
    const master = await startRedisWith({ settings: { requirepass: 'for-the-master' } })
    onTestFinished(() => master.close())
    const { port } = new URL(master.url)
    const sentinel = await startRedisWith({
      sentinel: [`sentinel monitor games 127.0.0.1 ${port} 1`, 'sentinel auth-pass games for-the-master'],
    })
    onTestFinished(() => sentinel.close())
    const { host } = new URL(sentinel.url)
    const open = (password: string) =>
      redisStore({ url: `redis+sentinel://:${password}@${host}/games`, log: silent, connectTimeoutMs: 3000 })
    await expect(open('guess')).rejects.toThrow(
      new RegExp(
        `no connection to the store: the Sentinels name 127\\.0\\.0\\.1:${port} as the master: .*WRONGPASS`,
      ),
    )
    const withPassword = master.url.replace('redis://', 'redis://:for-the-master@')
    await asAdmin(withPassword, (redis) => redis.replicaof('127.0.0.1', 1))
    await expect(open('for-the-master')).rejects.toThrow(/is a replica that was not promoted/)
  })

  it('sends the Sentinels and the master their separate passwords', async () => {
    const master = await startRedisWith({ settings: { requirepass: 'for-the-master' } })
    onTestFinished(() => master.close())
    const sentinel = await startRedisWith({
      sentinel: [
        `sentinel monitor games 127.0.0.1 ${new URL(master.url).port} 1`,
        'sentinel auth-pass games for-the-master',
        'requirepass for-the-sentinel',
      ],
    })
    onTestFinished(() => sentinel.close())
    const { host } = new URL(sentinel.url)
    const url = `redis+sentinel://:for-the-master@${host}/games/1?sentinel_password=for-the-sentinel`
    const store = await openRedisStore({ url, connectTimeoutMs: 3000 })
    await store.records.write([{ put: 'k', value: bytes('x') }])
    expect(text((await store.records.read(['k']))[0]?.value)).toBe('x')
    const wrong = redisStore({
      url: url.replace('=for-the-sentinel', '=guess'),
      log: silent,
      connectTimeoutMs: 3000,
    })
    await expect(wrong).rejects.toThrow(
      /no connection to the store: no Sentinel names a master: .* refuses sentinel_username or sentinel_password \(.*(WRONGPASS|NOAUTH)/,
    )
  })
})
