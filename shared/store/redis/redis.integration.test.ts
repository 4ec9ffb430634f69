import { Redis } from 'ioredis'
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { FaultyLink } from '../../../test/support/faulty-link.ts'
import { type RedisServer, startRedis } from '../../../test/support/redis-server.ts'
import {
  expectUnavailable,
  freshPrefix,
  openRedisStore,
  recordingLog,
  silent,
  storeUnderTest,
} from '../../../test/support/redis-store.ts'
import { EPOCH_OUTLIVES_MS, REMOVED_ROW_MS, type Store, StoreUnavailable } from '../port.ts'
import { describeStore } from '../testing/conformance.ts'
import { bytes, everyByte, LONG_MS, text } from '../testing/harness.ts'
import { SCRIPTS } from './clients.ts'
import { type RedisStoreOptions, redisStore } from './redis.ts'
import { RedisRooms } from './rooms.ts'
import type { Server } from './servers.ts'

describeStore('the Redis store', () => storeUnderTest({ url: inject('redisUrl'), keyPrefix: freshPrefix() }))

/** A separate server, which the test may stop. */
async function ownServer(): Promise<RedisServer> {
  const server = await startRedis()
  onTestFinished(() => server.close())
  return server
}

/** A proxy to the shared server, which the test may break. */
async function ownLink(): Promise<FaultyLink> {
  const link = await FaultyLink.open(inject('redisUrl'))
  onTestFinished(() => link.close())
  return link
}

const openStore = (options: Partial<RedisStoreOptions> & { url: string }): Promise<Store> =>
  openRedisStore({ keyPrefix: freshPrefix(), ...options })

/** A separate connection, to inspect the server. */
function admin(url: string): Redis {
  const redis = new Redis(url, { scripts: SCRIPTS })
  redis.on('error', () => undefined)
  onTestFinished(() => redis.disconnect())
  return redis
}

describe('a list in Redis', () => {
  const row = { roomId: 'duel:a', epoch: 7, version: 1, value: bytes('x') }

  it('starts a new copy for a reader that was away for two minutes, after removed rows were forgotten', async () => {
    const [url, keyPrefix] = [inject('redisUrl'), freshPrefix()]
    const { listings } = await openStore({ url, keyPrefix })
    await listings.write('p/duel', { ...row, roomId: 'duel:b' }, LONG_MS)
    await listings.write('p/duel', row, LONG_MS)
    const { cursor } = await listings.changes('p/duel', '', 10)
    await listings.write('p/duel', { ...row, version: 2, value: undefined }, LONG_MS)
    expect(await listings.changes('p/duel', cursor, 10)).toMatchObject({ restarted: false })
    // Simulates that both happened two minutes ago.
    await admin(url).zadd(`${keyPrefix}{list:p/duel}:expiry`, 1, 'duel:a')
    const old = cursor.replace(/\d+$/, (since) => String(Number(since) - REMOVED_ROW_MS))
    expect(await listings.changes('p/duel', old, 10)).toMatchObject({
      restarted: true,
      rooms: [{ roomId: 'duel:b' }],
    })
  })

  it('starts new copies on a promoted replica that is behind', async () => {
    const [url, keyPrefix] = [inject('redisUrl'), freshPrefix()]
    const { listings } = await openStore({ url, keyPrefix })
    await listings.write('p/duel', row, LONG_MS)
    await listings.write('p/duel', { ...row, version: 2 }, LONG_MS)
    const { cursor } = await listings.changes('p/duel', '', 10)
    await admin(url).hset(`${keyPrefix}{list:p/duel}`, 'changes', 1)
    await admin(url).zadd(`${keyPrefix}{list:p/duel}:order`, 1, 'duel:a')
    expect(await listings.changes('p/duel', cursor, 10)).toMatchObject({ restarted: true, rooms: [{}] })
  })

  it('leaves no key after its last row, and no key without expiry unless a row has none', async () => {
    const [url, keyPrefix] = [inject('redisUrl'), freshPrefix()]
    const { listings } = await openStore({ url, keyPrefix })
    const lifetimes = async () => {
      const keys = await admin(url).keys(`${keyPrefix}*`)
      return Promise.all(keys.map((key) => admin(url).pttl(key)))
    }
    await listings.write('p/duel', row, LONG_MS)
    await listings.write('p/duel', { ...row, roomId: 'duel:b' }, 1000)
    for (const ms of await lifetimes()) {
      expect(ms).toBeGreaterThan(LONG_MS)
      expect(ms).toBeLessThanOrEqual(LONG_MS + REMOVED_ROW_MS)
    }
    await listings.write('p/duel', { ...row, version: 2 }, Number.POSITIVE_INFINITY)
    expect(await lifetimes()).toEqual([-1, -1, -1, -1])
    await listings.write('p/duel', { ...row, version: 3, value: undefined }, LONG_MS)
    for (const ms of await lifetimes()) expect(ms).toBeLessThanOrEqual(2 * REMOVED_ROW_MS)
  })
})

describe('several stores on one Redis', () => {
  it('send themselves probes while they have subscribers', async () => {
    const { url } = await ownServer()
    await openStore({ url })
    const listening = await openStore({ url })
    const tried: string[] = []
    const redis = admin(url)
    redis.on('pmessage', (_, channel: string) => tried.push(channel))
    await redis.psubscribe('*probe:*')
    await listening.bus.subscribe('c', () => {})
    // The other one would have sent two by then.
    await vi.waitFor(() => expect(tried.length).toBeGreaterThanOrEqual(3), 60_000)
    expect(new Set(tried).size).toBe(1)
  })

  it('are separate with different prefixes', async () => {
    const url = inject('redisUrl')
    const [one, two] = [await openStore({ url }), await openStore({ url })]
    const heard: string[] = []
    await two.bus.subscribe('c', (message) => heard.push(`${text(message)}`))
    await one.records.write([
      { put: '{t}:k', value: bytes('one') },
      { index: '{t}:i', add: 'one' },
    ])
    await one.rooms.claim('p/a:k', 'node_one', 0, LONG_MS)
    expect(await one.bus.publish('c', bytes('one'))).toBe(0)
    expect(await two.records.read(['{t}:k'])).toEqual([undefined])
    expect(await two.records.page('{t}:i', { limit: 9 })).toEqual([])
    expect(await two.rooms.inspect('p/a:k')).toBeUndefined()
    expect(await two.bus.publish('c', bytes('two'))).toBe(1)
    await vi.waitFor(() => expect(heard).toEqual(['two']), 60_000)
  })

  it('are one store with the same prefix', async () => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const [one, two] = [await openStore({ url, keyPrefix }), await openStore({ url, keyPrefix })]
    await one.records.write([{ put: 'k', value: bytes('one') }])
    expect(text((await two.records.read(['k']))[0]?.value)).toBe('one')
    await one.bus.subscribe('c', () => undefined)
    await two.bus.subscribe('c', () => undefined)
    expect(await one.bus.publish('c', bytes('x'))).toBe(2)
  })

  // Regression: the owner uncounted the room after another node had created it again.
  it('count a room that one of them creates again while another ends it', async () => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const other = await openStore({ url, keyPrefix })
    const redis = admin(url)
    const quota = { maxRooms: 1, maxLasting: 0, perMinute: 0 }
    const make = (room: string) => other.rooms.reserve(room, 'ada', quota, LONG_MS)
    const ending = new RedisRooms(
      {
        away: false,
        run: async (operation, _, send) => {
          const answer = await send(redis, {} as Server)
          if (operation === 'release') expect(await make('p/a:k')).toBe('reserved')
          return answer
        },
      },
      keyPrefix,
    )
    await ending.reserve('p/a:k', 'ada', quota, LONG_MS)
    const { fence } = (await ending.claim('p/a:k', 'node_one', 0, LONG_MS))!
    expect(await ending.release('p/a:k', fence, { forget: true, ttlMs: LONG_MS })).toBe(true)
    // Waits for commands that are on their way.
    await redis.ping()
    expect(await make('p/a:other')).toBe('project_full')
  })

  it('let every key of a room expire: its content immediately, its epoch two hours later', async () => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const { rooms } = await openStore({ url, keyPrefix })
    const redis = admin(url)
    const room = 'p/a:k'
    const expectEnds = async (content: string[], ttlMs: number) => {
      const parts = ['record', 'epoch', ...content]
      const reading = redis.multi()
      for (const part of parts) reading.pttl(`${keyPrefix}{room:${room}}:${part}`)
      const left = (await reading.exec())!.map(([, ms]) => Number(ms))
      for (const [n, part] of parts.entries()) {
        const late = ttlMs + (part === 'epoch' ? EPOCH_OUTLIVES_MS : 0) - left[n]!
        expect(late, part).toBeGreaterThanOrEqual(0)
        expect(late, part).toBeLessThan(60_000)
      }
    }
    const { epoch } = (await rooms.claim(room, 'node_a', 0, 60_000))!.fence
    await expectEnds([], 60_000)
    await rooms.snapshot(room, { epoch, version: 0 }, bytes('s'), 120_000)
    await expectEnds(['snapshot'], 120_000)
    await rooms.commit(room, { epoch, version: 1 }, bytes('e'), 180_000)
    await expectEnds(['snapshot', 'journal'], 180_000)
    await rooms.refresh(room, { epoch, version: 2 }, 240_000)
    await expectEnds(['snapshot', 'journal'], 240_000)
    await rooms.release(room, { epoch, version: 2 }, { forget: false, ttlMs: 300_000 })
    await expectEnds(['snapshot', 'journal'], 300_000)
    await rooms.claim(room, 'node_b', epoch, 360_000)
    await expectEnds(['snapshot', 'journal'], 360_000)
  })

  it('keep the quarantine unchanged, the last of each room, for the given time', async () => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const { rooms } = await openStore({ url, keyPrefix })
    const redis = admin(url)
    const stem = `${keyPrefix}{room:p/a:k}:quarantine`
    let epoch = 0
    for (const [reason, entries] of [
      ['damaged: first', ['one', 'two']],
      ['looping: second', []],
    ] as const) {
      const { fence } = (await rooms.claim('p/a:k', 'node_a', epoch, LONG_MS))!
      epoch = fence.epoch
      let { version } = fence
      await rooms.snapshot('p/a:k', { epoch, version: version++ }, everyByte(), LONG_MS)
      for (const entry of entries)
        await rooms.commit('p/a:k', { epoch, version: version++ }, bytes(entry), LONG_MS)
      const asked = { reason, ttlMs: 600_000 }
      expect(await rooms.quarantine('p/a:k', { epoch, version }, asked)).toBe(true)
      const { at, ...why } = await redis.hgetall(stem)
      expect(why).toEqual({ epoch: `${epoch}`, owner: 'node_a', reason })
      expect(Math.abs(Date.now() - Number(at))).toBeLessThan(60_000)
      expect(new Uint8Array((await redis.getBuffer(`${stem}:snapshot`))!)).toEqual(everyByte())
      expect(await redis.lrange(`${stem}:journal`, 0, -1)).toEqual(entries)
      for (const key of [stem, `${stem}:snapshot`]) {
        const leftMs = await redis.pttl(key)
        expect([leftMs > 540_000, leftMs <= 600_000]).toEqual([true, true])
      }
    }
    expect(await redis.exists(`${keyPrefix}{room:p/a:k}:record`)).toBe(0)
  })

  it.each<[string, (redis: Redis, stem: string) => Promise<unknown>]>([
    ['an epoch that is no number', (redis, stem) => redis.hset(`${stem}:record`, 'epoch', '17953x')],
    ['a version that is no number', (redis, stem) => redis.hset(`${stem}:record`, 'version', '1x')],
    ['a version above 15 digits', (redis, stem) => redis.hset(`${stem}:record`, 'version', '9'.repeat(20))],
    ['no hash for a record', (redis, stem) => redis.set(`${stem}:record`, 'a')],
    [
      'no string for the epoch that outlives it, and another in its record',
      (redis, stem) =>
        redis
          .multi()
          .del(`${stem}:epoch`)
          .rpush(`${stem}:epoch`, 'a')
          .hset(`${stem}:record`, 'epoch', 'x')
          .exec(),
    ],
    [
      'no string for a snapshot',
      (redis, stem) => redis.multi().del(`${stem}:snapshot`).rpush(`${stem}:snapshot`, 'a').exec(),
    ],
    [
      'no list for a journal',
      (redis, stem) => redis.multi().del(`${stem}:journal`).set(`${stem}:journal`, 'a').exec(),
    ],
  ])('let a room be claimed and put in quarantine that has %s', async (_, damage) => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const { rooms } = await openStore({ url, keyPrefix })
    const { fence } = (await rooms.claim('p/a:k', 'node_a', 0, LONG_MS))!
    await rooms.snapshot('p/a:k', fence, everyByte(), LONG_MS)
    await rooms.commit('p/a:k', { ...fence, version: 1 }, bytes('one'), LONG_MS)
    await damage(admin(url), `${keyPrefix}{room:p/a:k}`)
    const { epoch } = (await rooms.inspect('p/a:k'))!
    const taken = (await rooms.claim('p/a:k', 'node_b', epoch, LONG_MS))!
    expect(taken.fence.epoch).toBeGreaterThan(fence.epoch)
    const asked = { reason: 'damaged', ttlMs: 60_000 }
    expect(await rooms.quarantine('p/a:k', taken.fence, asked)).toBe(true)
    const again = (await rooms.claim('p/a:k', 'node_b', taken.fence.epoch, LONG_MS))!
    expect([again.snapshot, again.journal]).toEqual([undefined, []])
  })
})

describe('a Redis store that loses its server', () => {
  it('notifies subscribers of the gap after the subscription is active again', async () => {
    const { url } = await ownServer()
    const store = await openStore({ url })
    const redis = admin(url)
    const heard: string[] = []
    let gaps = 0
    await store.bus.subscribe(
      'c',
      (message) => heard.push(`${text(message)}`),
      () => {
        gaps++
        void store.bus.publish('c', bytes('after the gap'))
      },
    )
    expect(gaps).toBe(0)
    expect(await redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub')).toBe(1)
    await vi.waitFor(() => expect(heard).toEqual(['after the gap']), 60_000)
    expect(gaps).toBe(1)
  })

  it('reports each return, and that a server that came back is young', async () => {
    const server = await ownServer()
    const store = await openStore({ url: server.url, commandTimeoutMs: 1000 })
    let returns = 0
    const end = store.onReturn(() => returns++)
    for (const round of [1, 2]) {
      const began = performance.now()
      await server.restart()
      await vi.waitFor(() => expect(returns).toBe(round), { timeout: 60_000 })
      // Redis counts whole seconds.
      const uptime = await store.uptime()
      expect(uptime).toBeLessThan(performance.now() - began + 1000)
    }
    end()
    await server.restart()
    await vi.waitFor(() => store.ping(), { timeout: 60_000 })
    expect(returns).toBe(2)
  })

  it('decides whether a room may be claimed when it sends the command, after it has reported the return', async () => {
    const server = await ownServer()
    const store = await openStore({ url: server.url, commandTimeoutMs: 10_000 })
    let returned = false
    store.onReturn(() => {
      returned = true
    })
    const opening = { owner: 'node_a', ttlMs: LONG_MS, stateVersion: 1, creator: 'ada' }
    await server.stop()
    await vi.waitFor(() => expect(store.vitals.reachable).toBe(false), { timeout: 60_000 })
    const careful = store.rooms.open('p/a:one', opening, () => !returned)
    const early = store.rooms.open('p/a:two', opening, () => true)
    await server.start()
    expect(await careful).toBeUndefined()
    expect(await early).toMatchObject({ fence: { version: 0 } })
    expect(await store.rooms.inspect('p/a:one')).toBeUndefined()
  })

  it('asks a server once for its uptime while the connection lasts', async () => {
    const server = await ownServer()
    const store = await openStore({ url: server.url })
    const redis = admin(server.url)
    const questions = async () =>
      Number(/cmdstat_info:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1])
    await store.uptime()
    const before = await questions()
    for (let i = 0; i < 20; i++) await store.uptime()
    // The command that counts is counted too, and a late connection asks for itself.
    expect((await questions()) - before).toBeLessThan(5)
  })

  it('rebuilds a bus that looks connected and receives nothing', async () => {
    const link = await ownLink()
    const store = await openStore({ url: link.url })
    let gaps = 0
    await store.bus.subscribe(
      'c',
      () => undefined,
      () => gaps++,
    )
    link.mute('subscribe')
    await vi.waitFor(() => expect(gaps).toBe(1), { timeout: 60_000 })
    expect(await store.bus.publish('c', bytes('x'))).toBe(1)
  })

  it('opens if its bus does not answer at first, and rebuilds the bus', async () => {
    const link = await ownLink()
    link.delay(20)
    const muting = setInterval(() => link.mute('probe:'), 2)
    const opening = openStore({ url: link.url, commandTimeoutMs: 500 })
    const store = await opening.finally(() => clearInterval(muting))
    link.delay(0)
    const heard: string[] = []
    await vi.waitFor(() => store.bus.subscribe('c', (message) => heard.push(`${text(message)}`)), {
      timeout: 60_000,
    })
    await store.bus.publish('c', bytes('x'))
    await vi.waitFor(() => expect(heard).toEqual(['x']), { timeout: 60_000 })
  })

  it('rebuilds a bus that receives everything and sends nothing', async () => {
    const link = await ownLink()
    const keyPrefix = freshPrefix()
    const store = await openStore({ url: link.url, keyPrefix })
    const other = await openStore({ url: inject('redisUrl'), keyPrefix })
    const heard: string[] = []
    let gaps = 0
    await store.bus.subscribe(
      'c',
      (message) => heard.push(`${text(message)}`),
      () => gaps++,
    )
    link.swallow('subscribe')
    await other.bus.publish('c', bytes('still heard'))
    await vi.waitFor(() => expect(gaps).toBe(1), { timeout: 60_000 })
    store.bus.send!('c', bytes('arrives again'))
    await vi.waitFor(() => expect(heard).toEqual(['still heard', 'arrives again']), { timeout: 60_000 })
  })

  it('sends messages without an answer in order, also while subscriptions change', async () => {
    const url = inject('redisUrl')
    const keyPrefix = freshPrefix()
    const [one, two] = [await openStore({ url, keyPrefix }), await openStore({ url, keyPrefix })]
    const heard: number[] = []
    await two.bus.subscribe('c', (message) => heard.push(Number(text(message))))
    let taken = 0
    for (let i = 0; i < 200; i++) {
      expect(one.bus.send!('c', bytes(`${i}`), (error) => !error && taken++)).toBe(true)
      if (i % 20 === 0) await (await one.bus.subscribe(`d${i}`, () => undefined))()
    }
    await vi.waitFor(() => expect(heard).toEqual(Array.from({ length: 200 }, (_, i) => i)), {
      timeout: 60_000,
    })
    expect(taken).toBe(200)
  })

  it('sends nothing without a connection, and reports messages that are lost with one', async () => {
    const link = await ownLink()
    const store = await openStore({ url: link.url })
    let gaps = 0
    await store.bus.subscribe(
      'c',
      () => undefined,
      () => gaps++,
    )
    link.hold(true)
    const lost = new Promise((resolve) => store.bus.send!('c', Buffer.alloc(8 << 20), resolve))
    // This process queues what the kernel does not take, and refuses more above a bound.
    expect(() => {
      for (let i = 0; i < 100; i++) store.bus.send!('c', Buffer.alloc(1 << 20))
    }).toThrow(StoreUnavailable)
    link.refuse(true)
    link.hold(false)
    expect(await lost).toBeInstanceOf(Error)
    await vi.waitFor(() => expect(store.bus.send!('c', bytes('x'))).toBe(false), { timeout: 60_000 })
    link.refuse(false)
    await vi.waitFor(() => expect(gaps).toBeGreaterThan(0), { timeout: 60_000 })
    expect(store.bus.send!('c', bytes('x'))).toBe(true)
  })

  it('rejects with StoreUnavailable while the server is down, and works when it is back', async () => {
    const server = await ownServer()
    const store = await openStore({ url: server.url, commandTimeoutMs: 1000 })
    let gaps = 0
    await store.bus.subscribe(
      'c',
      () => undefined,
      () => gaps++,
    )
    await server.stop()
    const calls = [
      store.ping(),
      store.records.write([{ put: 'k', value: bytes('x') }]),
      store.rooms.inspect('p/a:k'),
      store.bus.publish('c', bytes('x')),
      store.bus.subscribe('d', () => undefined),
    ]
    await Promise.all(calls.map(expectUnavailable))
    await server.start()
    await vi.waitFor(() => store.ping(), { timeout: 60_000 })
    await vi.waitFor(() => expect(gaps).toBe(1), { timeout: 60_000 })
    expect(await store.records.read(['k'])).toEqual([undefined])
    expect(await store.bus.publish('c', bytes('x'))).toBe(1)
    expect(await store.bus.publish('d', bytes('x'))).toBe(0)
  })

  it('rejects a write to a server that hangs, and never sends it twice', async () => {
    const server = await ownServer()
    const store = await openStore({ url: server.url, commandTimeoutMs: 1000 })
    const claim = await store.rooms.claim('p/a:k', 'node_a', 0, LONG_MS)
    await server.pause()
    const commit = store.rooms.commit('p/a:k', claim!.fence, bytes('unanswered'), LONG_MS)
    await expectUnavailable(commit)
    await expect(commit).rejects.toThrow('the store gave no answer to commit: it took too long')
    await server.resume()
    await vi.waitFor(() => store.ping(), { timeout: 60_000 })
    const { epoch, version } = (await store.rooms.inspect('p/a:k'))!
    const next = await store.rooms.claim('p/a:k', 'node_b', epoch, LONG_MS)
    expect(next?.journal.map(text)).toEqual(version === 1 ? ['unanswered'] : [])
    expect(version).toBeLessThanOrEqual(1)
  })

  it('does not repeat a write whose answer was lost', async () => {
    const link = await ownLink()
    const keyPrefix = freshPrefix()
    const store = await openStore({ url: link.url, keyPrefix })
    const witness = await openStore({ url: inject('redisUrl'), keyPrefix })
    const version = async () => (await witness.records.read(['k']))[0]?.version
    link.mute('roomful-commands')
    const write = store.records.write([{ put: 'k', value: bytes('x') }])
    const lost = new StoreUnavailable('the store gave no answer to write: the connection was lost')
    const outcome = expect(write).rejects.toEqual(lost)
    await vi.waitFor(async () => expect(await version()).toBe(1), 60_000)
    link.cut()
    await outcome
    await store.ping()
    expect(await version()).toBe(1)
  })

  it('continues after the server has lost the scripts', async () => {
    const { url } = await ownServer()
    const store = await openStore({ url })
    await store.records.write([{ put: 'k', value: bytes('x') }])
    await admin(url).script('FLUSH')
    expect(await store.records.write([{ put: 'k', value: bytes('x'), ifVersion: 1 }])).toBe(true)
  })

  it('logs the loss and the recovery once each, without the password', async () => {
    const server = await ownServer()
    await admin(server.url).call(
      'ACL',
      'SETUSER',
      'player',
      'on',
      '>s3cret-word',
      'allkeys',
      'allchannels',
      '+@all',
    )
    const url = server.url.replace('redis://', 'redis://player:s3cret-word@')
    const { log, logged } = recordingLog()
    const store = await openStore({ url, log, commandTimeoutMs: 1000 })
    const redis = admin(server.url)
    for (const round of [1, 2]) {
      await redis.call('CLIENT', 'KILL', 'SKIPME', 'yes')
      await vi.waitFor(() => expect(logged().match(/is back/g)).toHaveLength(round * 2), { timeout: 60_000 })
    }
    await store.ping()
    await redis.call('ACL', 'SETUSER', 'player', 'resetpass', '>another')
    await redis.call('CLIENT', 'KILL', 'SKIPME', 'yes')
    await vi.waitFor(() => expect(store.ping()).rejects.toThrow('WRONGPASS'), { timeout: 60_000 })
    await vi.waitFor(() => expect(logged().match(/"reason":"WRONGPASS/g)).toHaveLength(2), {
      timeout: 60_000,
    })
    const said = logged()
    expect(said.match(/is lost/g)).toHaveLength(6)
    expect(said.match(/is back/g)).toHaveLength(4)
    expect(said).not.toContain('s3cret-word')
    expect(said).toContain(new URL(server.url).host)
    expect(said.trim().split('\n')).toHaveLength(12)
  })
})

describe('opening a Redis store', () => {
  it('fails in bounded time if no server answers, with the reason', async () => {
    const server = await ownServer()
    await server.stop()
    const opening = redisStore({ url: server.url, log: silent, connectTimeoutMs: 1000 })
    await expect(opening).rejects.toThrow(/no connection to the store: .*ECONNREFUSED/)
  })

  it('refuses a server that evicts data, and warns about one that would', async () => {
    const { url } = await ownServer()
    const { log, logged } = recordingLog()
    await openStore({ url, log })
    expect(logged()).toBe('')
    await admin(url).config('SET', 'maxmemory-policy', 'allkeys-lru')
    await openStore({ url, log })
    expect(logged()).toContain('"maxmemory_policy":"allkeys-lru"')
    for (const policy of ['allkeys-lru', 'volatile-ttl', 'volatile-lfu']) {
      await admin(url).config('SET', 'maxmemory-policy', policy, 'maxmemory', '100mb')
      await expect(openStore({ url })).rejects.toThrow(
        `throws data away when its 104857600 bytes are full (maxmemory-policy ${policy}): set maxmemory-policy to noeviction`,
      )
    }
    await admin(url).config('SET', 'maxmemory-policy', 'noeviction')
    await openStore({ url })
  })

  it('leaves no key of its checks', async () => {
    const { url } = await ownServer()
    const store = await openStore({ url })
    await store.close()
    expect(await admin(url).keys('*')).toEqual([])
  })

  it('refuses an invalid URL or prefix, without printing the URL', async () => {
    const open = (options: Partial<RedisStoreOptions>) =>
      redisStore({ url: inject('redisUrl'), log: silent, ...options })
    await expect(open({ url: 'http://:hush@host' })).rejects.toThrow(
      /must look like one of: redis:\/\/host:6379/,
    )
    await expect(open({ url: 'hush' })).rejects.not.toThrow(/hush/)
    await expect(open({ keyPrefix: '{x}:' })).rejects.toThrow('must not contain { or }')
  })

  it('waits until a master that has lost its replicas accepts writes', async () => {
    const { url } = await ownServer()
    const redis = admin(url)
    await redis.config('SET', 'min-replicas-to-write', '1')
    let isOpen = false
    const opening = openStore({ url }).then((store) => {
      isOpen = true
      return store
    })
    const refusals = async () =>
      Number(/errorstat_NOREPLICAS:count=(\d+)/.exec(await redis.info('errorstats'))?.[1] ?? 0)
    const before = await vi.waitUntil(refusals, LONG_MS)
    await vi.waitUntil(async () => (await refusals()) > before, LONG_MS)
    expect(isOpen).toBe(false)
    await redis.config('SET', 'min-replicas-to-write', '0')
    await (await opening).ping()
  })

  it('reports a full store as unavailable', async () => {
    const { url } = await ownServer()
    const store = await openStore({ url })
    await admin(url).config('SET', 'maxmemory', '1')
    await expectUnavailable(store.records.write([{ put: 'k', value: bytes('x') }]))
    await admin(url).config('SET', 'maxmemory', '0')
    expect(await store.records.write([{ put: 'k', value: bytes('x'), ifVersion: 0 }])).toBe(true)
  })
})
