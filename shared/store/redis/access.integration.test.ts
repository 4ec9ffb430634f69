import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  addRedisUser,
  asAdmin,
  asRedisUser,
  freePort,
  REDIS_USERS,
  type RedisServer,
  redisFile,
  startRedis,
  startRedisCluster,
  startRedisWith,
} from '../../../test/support/redis-server.ts'
import { openRedisStore, silent, storeUnderTest } from '../../../test/support/redis-store.ts'
import { newFolder } from '../../../test/support/run-folder.ts'
import { randomToken } from '../../ids.ts'
import { encodeNodeInfo, leaseKey, NODES, type NodeInfo, readLiveNodes } from '../../node-registry.ts'
import { playerKey } from '../../players.ts'
import { systemRandom } from '../../random.ts'
import { duePart, StoreRefused, StoreRejected } from '../port.ts'
import { describeStore } from '../testing/conformance.ts'
import { bytes, LONG_MS } from '../testing/harness.ts'
import { redisStore } from './redis.ts'

const page = readFileSync(new URL('../../../docs/redis.md', import.meta.url), 'utf8')

/** Commands of both users of `deploy/redis/users.acl`, for a user of all keys, as the conformance suite needs it. */
const rules = [
  'on',
  '>s3cret',
  '~roomful:*',
  '&roomful:*',
  ...REDIS_USERS.get('roomful-node')!.filter((rule) => /^[-+]/.test(rule)),
]
/** Additional commands for a Cluster, by the documentation. */
const clusterRules = /^ACL SETUSER roomful-node (\+.*)$/m.exec(page)![1]!.split(' ')

const allow = (url: string, ...rule: string[]): Promise<unknown> =>
  asAdmin(url, (redis) => redis.call('ACL', 'SETUSER', 'roomful', ...rule))

const asUser = (url: string): string => url.replace('://', '://roomful:s3cret@')
const freshPrefix = (): string => `roomful:${randomToken(systemRandom, 8)}:`

/** A private authority and its certificate for `localhost`, in a folder that `close` removes. */
function makeCertificates() {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-tls-'))
  const at = (name: string) => join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  openssl(
    'req',
    '-x509',
    ...key,
    '-keyout',
    'ca.key',
    '-out',
    'ca.pem',
    '-days',
    '2',
    '-subj',
    '/CN=test authority',
  )
  const server = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-addext', 'subjectAltName=DNS:localhost']
  openssl(
    'req',
    '-x509',
    ...key,
    '-keyout',
    'server.key',
    '-out',
    'server.pem',
    '-days',
    '2',
    '-subj',
    '/CN=localhost',
    ...server,
  )
  return {
    ca: at('ca.pem'),
    key: at('server.key'),
    cert: at('server.pem'),
    close: () => rmSync(folder, { recursive: true }),
  }
}

describe('over TLS, as a user with every right that roomful needs, in database 2', () => {
  let certificates: ReturnType<typeof makeCertificates>
  let server: RedisServer
  let url: string
  beforeAll(async () => {
    certificates = makeCertificates()
    const port = await freePort()
    server = await startRedisWith({
      settings: {
        'tls-port': String(port),
        'tls-ca-cert-file': certificates.ca,
        'tls-cert-file': certificates.cert,
        'tls-key-file': certificates.key,
        'tls-auth-clients': 'no',
      },
    })
    await allow(server.url, ...rules)
    url = `rediss://roomful:s3cret@localhost:${port}/2`
  })
  afterAll(async () => {
    await server.close()
    certificates.close()
  })

  const trusting = () => `${url}?ca=${encodeURIComponent(certificates.ca)}`

  describeStore('the Redis store', () => storeUnderTest({ url: trusting(), keyPrefix: freshPrefix() }))

  it('stores all data in that database', async () => {
    const store = await openRedisStore({ url: trusting(), keyPrefix: freshPrefix() })
    await store.records.write([{ put: 'k', value: bytes('x') }])
    const keyspace = await asAdmin(server.url, (redis) => redis.info('keyspace'))
    expect([keyspace.includes('db2:'), keyspace.includes('db0:')]).toEqual([true, false])
  })

  it('rejects a server with a certificate of an unknown authority', async () => {
    const open = (url: string) => redisStore({ url, log: silent, connectTimeoutMs: 1000 })
    await expect(open(url)).rejects.toThrow(/certificate/)
    const otherHost = trusting().replace('localhost', '127.0.0.1')
    await expect(open(otherHost)).rejects.toThrow(/does not match certificate/)
  })

  // Regression: the alert of the server arrived as a second error of the socket after the refused certificate, and ended the process.
  it('survives a connection that is closed during the handshake', async () => {
    for (let ms = 1; ms <= 20; ms++) {
      const opening = redisStore({ url, log: silent, connectTimeoutMs: ms })
      await expect(opening).rejects.toThrow(/no connection to the store/)
    }
  })
})

describe('on a Cluster, as a user with every right that roomful needs', () => {
  let cluster: Awaited<ReturnType<typeof startRedisCluster>>
  beforeAll(async () => {
    cluster = await startRedisCluster()
    for (const node of cluster.nodes) await allow(node.url, ...rules, ...clusterRules)
  })
  afterAll(() => cluster.close())

  describeStore('the Redis store', () =>
    storeUnderTest({ url: asUser(cluster.url), keyPrefix: freshPrefix() }),
  )

  it.each(clusterRules.filter((rule) => rule !== '+asking'))(
    'rejects at opening without %s, and names it',
    async (rule) => {
      const node = cluster.nodes[0]!
      await allow(node.url, rule.replace('+', '-'))
      try {
        const opening = redisStore({ url: asUser(cluster.url), log: silent, connectTimeoutMs: 1500 })
        await expect(opening).rejects.toThrow(rule.slice(1).split('|')[0])
      } finally {
        await allow(node.url, rule)
      }
    },
  )
})

/** Starts a Redis with the files of `deploy/redis`, at two addresses. Redis counts a client of 127.0.0.2 as one of another machine. */
async function startDocumented() {
  const aclfile = join(await newFolder(), 'users.acl')
  await writeFile(aclfile, redisFile('users.acl'))
  const conf = redisFile('redis.conf', { aclfile })
  const server = await startRedisWith({ conf, settings: { bind: '127.0.0.1 127.0.0.2' } })
  onTestFinished(() => server.close())
  return server
}

/** Sends commands to `server` at an address of this machine, from the same address. Returns the lines of the answers. */
async function answersTo({ url }: RedisServer, host: string, sent: readonly string[]): Promise<string[]> {
  const socket = connect({ host, port: Number(new URL(url).port), localAddress: host })
  onTestFinished(() => void socket.destroy())
  socket.write(sent.map((command) => `${command}\r\n`).join(''))
  let text = ''
  for await (const chunk of socket) {
    text += chunk
    if (text.split('\r\n').length > sent.length) break
  }
  return text.split('\r\n').slice(0, sent.length)
}

describe('a Redis with the files of deploy/redis', () => {
  it('has all records again after a restart', async () => {
    const server = await startDocumented()
    const keyPrefix = 'roomful:'
    const control = await openRedisStore({ url: asRedisUser(server.url, 'roomful-control'), keyPrefix })
    const node = await openRedisStore({ url: asRedisUser(server.url, 'roomful-node'), keyPrefix })
    await control.records.write([
      { put: '{control}:project:p', value: bytes('project') },
      { index: '{control}:projects', add: 'p' },
    ])
    const { fence } = (await node.rooms.claim('p/a:k', 'node_a~1', 0, LONG_MS))!
    expect(await node.rooms.snapshot('p/a:k', fence, bytes('whole'), LONG_MS)).toBe(true)
    await asAdmin(asRedisUser(server.url, 'operator'), (redis) => redis.call('SHUTDOWN', 'NOSAVE')).catch(
      () => undefined,
    )
    await server.restart()
    const again = await openRedisStore({ url: asRedisUser(server.url, 'roomful-control'), keyPrefix })
    expect(await again.records.read(['{control}:project:p'])).toMatchObject([{ value: bytes('project') }])
    expect(await again.records.page('{control}:projects', { limit: 9 })).toEqual(['p'])
    const nodeAgain = await openRedisStore({ url: asRedisUser(server.url, 'roomful-node'), keyPrefix })
    expect(await nodeAgain.rooms.inspect('p/a:k')).toMatchObject({ epoch: fence.epoch, version: 1 })
  })

  it.each(['127.0.0.1', '127.0.0.2'])(
    'rejects unauthenticated clients of %s, and lets nobody log in as default',
    async (host) => {
      const server = await startDocumented()
      const strange = ['PING', 'GET k', 'EVAL return 0', 'INFO', 'AUTH default ""', 'AUTH default default']
      const asHealth = ['AUTH health password-of-health', 'PING', 'GET k']
      const lines = await answersTo(server, host, [...strange, ...asHealth])
      expect(lines.map((line) => line.split(' ')[0])).toEqual([
        ...['-NOAUTH', '-NOAUTH', '-NOAUTH', '-NOAUTH', '-WRONGPASS', '-WRONGPASS'],
        ...['+OK', '+PONG', '-NOPERM'],
      ])
    },
  )
})

describe('deploy/redis/users.acl', () => {
  it('allows control and nodes the same commands', () => {
    const [control, node] = ['roomful-control', 'roomful-node'].map((name) =>
      REDIS_USERS.get(name)!.filter((rule) => /^[-+]/.test(rule)),
    )
    expect(control).toEqual(node)
  })
})

describe('roomful-control', () => {
  it('reads the registry of nodes and no other key of nodes, and writes none of them', async () => {
    const server = await startRedis()
    onTestFinished(() => server.close())
    const node = await openRedisStore({ url: await addRedisUser(server.url, 'roomful-node') })
    const info: NodeInfo = {
      node_id: 'node_a~1',
      started_at: '2026-01-01T00:00:00.000Z',
      version: '1.0.0',
      draining: false,
      rooms: 0,
      sessions: 0,
      load: 0,
      max_rooms: 0,
      max_sessions: 0,
      admin_url: 'http://node-1:9100',
    }
    const listed = { index: NODES, member: 'node_a' }
    const lease = { key: leaseKey('node_a'), listed, holder: 'node_a~1' }
    await node.records.renewLease({ ...lease, value: encodeNodeInfo(info), ttlMs: LONG_MS })
    expect(await node.listings.changes('p/duel', '', 1)).toMatchObject({ rooms: [] })
    const placer = {
      key: '{list:p/duel}:placer',
      holder: 'node_a~1',
      value: new Uint8Array(1),
      ttlMs: LONG_MS,
    }
    expect((await node.records.renewLease(placer)).holder).toBe('node_a~1')
    for (const channel of ['node', 'search', 'place'])
      await (await node.bus.subscribe(`${channel}:node_a~1`, () => {}))()
    const control = await openRedisStore({ url: await addRedisUser(server.url, 'roomful-control') })
    expect(await readLiveNodes(control.records)).toEqual([info])
    const refused = [
      control.records.write([{ remove: leaseKey('node_a') }]),
      control.records.write([{ index: NODES, drop: 'node_a' }]),
      control.records.read(['session:{x}y']),
      control.records.read(['{list:p/duel}:placer']),
      control.rooms.inspect('p/a:k'),
      control.rooms.counted('p', { limit: 1 }),
      control.listings.changes('p/duel', '', 1),
    ]
    for (const call of refused) await expect(call).rejects.toThrow(/NOPERM/)
  })
})

describe('roomful-node', () => {
  it('reads the records of players and no other key of control, and writes none of them', async () => {
    const server = await startRedis()
    onTestFinished(() => server.close())
    const control = await openRedisStore({ url: await addRedisUser(server.url, 'roomful-control') })
    const node = await openRedisStore({ url: await addRedisUser(server.url, 'roomful-node') })
    const key = playerKey('prj_one', 'ada')
    const put = { put: key, value: bytes('{}') }
    await control.records.write([put, { index: '{control}:bans:prj_one', add: 'ada' }])
    expect(await node.records.read([key])).toMatchObject([{ value: bytes('{}') }])
    const refused = [
      node.records.write([put]),
      node.records.write([{ remove: key }]),
      node.records.page('{control}:bans:prj_one', { limit: 1 }),
      node.records.write([{ index: '{control}:bans:prj_one', drop: 'ada' }]),
      node.records.read(['{control}:project:prj_one']),
    ]
    for (const call of refused) await expect(call).rejects.toThrow(/NOPERM/)
  })

  it('stores notices of rooms, takes them for delivery, and moves them to the dead letters', async () => {
    const server = await startRedis()
    onTestFinished(() => server.close())
    const { rooms, notices, records } = await openRedisStore({
      url: await addRedisUser(server.url, 'roomful-node'),
    })
    const room = 'p/a:k'
    const { fence } = (await rooms.claim(room, 'node_a~1', 0, LONG_MS))!
    await notices.set(room, fence, 1)
    expect(await rooms.snapshot(room, fence, bytes('whole'), LONG_MS, 1, [bytes('one')])).toBe(true)
    const [taken] = await notices.take(duePart(room), { limit: 1, againMs: LONG_MS })
    expect(taken).toEqual({ room, fence })
    const [oldest] = (await notices.oldest(room, 1)) as [Uint8Array]
    const index = '{room_dead_notices:p}'
    const letter = { put: `${index}:at id`, value: oldest, ttlMs: LONG_MS }
    expect(await records.write([letter, { index, add: 'at id', ifFewerThan: 1 }])).toBe(true)
    await notices.remove(room, oldest)
    await notices.set(room, fence, undefined)
    expect(await notices.count(room)).toBe(0)
  })
})

describe('a user of one server', () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())

  const commands = rules.filter((rule) => rule.startsWith('+') && rule !== '+client|setname')
  it.each(commands)('without %s cannot open the store, and the error names the command', async (rule) => {
    await allow(server.url, 'reset', ...rules, rule.replace('+', '-'))
    const opening = redisStore({ url: `${asUser(server.url)}/1`, log: silent })
    await expect(opening).rejects.toThrow(
      `the store's user may not use the command ${rule.slice(1)}: docs/redis.md has the ACL rule`,
    )
  })

  it('without several permissions gets all of them in one error', async () => {
    await allow(server.url, 'reset', ...rules, '-hset', '-time', '-publish')
    const opening = redisStore({ url: asUser(server.url), log: silent })
    await expect(opening).rejects.toThrow(
      "the store's user may not use the command time, the command publish, the command hset:",
    )
  })

  it('needs the keys and the channels under its prefix', async () => {
    await allow(server.url, 'reset', ...rules)
    const open = (keyPrefix: string) => redisStore({ url: asUser(server.url), keyPrefix, log: silent })
    await expect(open('elsewhere:')).rejects.toThrow(
      "the store's user may not use the keys under the key prefix, the channels under the key prefix:",
    )
  })

  it('gets an error for a missing database', async () => {
    await allow(server.url, 'reset', ...rules)
    const opening = redisStore({ url: `${asUser(server.url)}/99`, log: silent })
    await expect(opening).rejects.toThrow('the store refused select: ERR DB index is out of range')
  })

  it('gets an error for a wrong password', async () => {
    const url = asUser(server.url).replace('s3cret', 'guess')
    await expect(redisStore({ url, log: silent, connectTimeoutMs: 1000 })).rejects.toThrow(/WRONGPASS/)
  })

  it('that loses a permission later gets StoreRefused, which can end', async () => {
    await allow(server.url, 'reset', ...rules)
    const store = await openRedisStore({ url: asUser(server.url) })
    onTestFinished(async () => void (await allow(server.url, 'reset', ...rules)))
    await allow(server.url, '-hmget')
    const refused = expect(store.records.read(['k'])).rejects
    await refused.toBeInstanceOf(StoreRefused)
    await refused.toThrow(/the store refused read: NOPERM/)
    await expect(store.rooms.claim('p/a:k', 'node_a', 0, LONG_MS)).rejects.toBeInstanceOf(StoreRefused)
  })

  it('that loses a permission of a commit later may store its entry twice, until the next snapshot', async () => {
    await allow(server.url, 'reset', ...rules)
    const store = await openRedisStore({ url: asUser(server.url) })
    onTestFinished(async () => void (await allow(server.url, 'reset', ...rules)))
    const { fence } = (await store.rooms.claim('p/a:half', 'node_a', 0, LONG_MS))!
    await allow(server.url, '-hset')
    for (let attempt = 0; attempt < 2; attempt++)
      await expect(store.rooms.commit('p/a:half', fence, bytes('entry'), LONG_MS)).rejects.toBeInstanceOf(
        StoreRefused,
      )
    await allow(server.url, '+hset')
    expect(await store.rooms.inspect('p/a:half')).toMatchObject(fence)
    expect(await store.rooms.snapshot('p/a:half', fence, bytes('whole'), LONG_MS)).toBe(true)
    expect(await store.rooms.claim('p/a:half', 'node_b', fence.epoch, LONG_MS)).toMatchObject({
      snapshot: bytes('whole'),
      journal: [],
    })
  })

  it('gets StoreRejected for a record of another type, which does not end', async () => {
    await allow(server.url, 'reset', ...rules)
    const store = await openRedisStore({ url: asUser(server.url) })
    const { fence } = (await store.rooms.claim('p/a:other', 'node_a', 0, LONG_MS))!
    await asAdmin(server.url, (redis) => redis.set('roomful:{room:p/a:other}:journal', 'no list'))
    await expect(store.rooms.commit('p/a:other', fence, bytes('entry'), LONG_MS)).rejects.toBeInstanceOf(
      StoreRejected,
    )
  })
})
