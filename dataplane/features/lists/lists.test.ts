import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { registerMetrics } from '../../../shared/metrics.ts'
import { JsonCodec } from '../../../shared/protocol/json-codec.ts'
import type { ListedRoom, ServerMessage } from '../../../shared/protocol/messages.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import {
  listedRow,
  type TestClient,
  TestControl,
  TestGateway,
  TestLists,
} from '../../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../../test/support/gateway/test-owner.ts'
import { LIST_METRICS } from './metrics.ts'

/** Counts the encodings of lists. */
class CountingCodec extends JsonCodec {
  encodings = 0

  override encode(message: ServerMessage) {
    if (message.t === 'rooms') this.encodings++
    return super.encode(message)
  }
}

const KIB = 1024

let test: TestGateway
let lists: TestLists
let registry: Registry
let codec: CountingCodec

beforeEach(async () => {
  lists = new TestLists()
  registry = new Registry()
  codec = new CountingCodec()
  test = await TestGateway.start(
    {},
    { directory: lists, listMetrics: registerMetrics(registry, LIST_METRICS), codecs: [codec] },
    { clock: new FakeClock(), control: await TestControl.start(), owner: new TestOwner(testCodecs()) },
  )
})
afterEach(() => test.close())

/** Returns the row of a room with data of about this many bytes. */
const sized = (bytes: number) => listedRow('one', { data: 'x'.repeat(bytes) })

/** The sizes of the lists that a client has received, oldest first. */
const sizesOf = (client: TestClient): number[] =>
  client.received.flatMap((message) =>
    message.t === 'rooms' ? [String(message.rooms![0]?.data ?? '').length] : [],
  )

const sum = (sizes: readonly number[]): number => sizes.reduce((all, one) => all + one, 0)

async function watch(client: TestClient, id = 1): Promise<void> {
  client.send({ t: 'rooms', request_id: id, room_type: 'arena', watch: true })
  await client.roundTrip()
}

/** Connects a client without a `sub` from a loopback address. */
async function guest(localAddress: string, token: string): Promise<TestClient> {
  const client = await test.open(undefined, { localAddress })
  client.send({ t: 'hello', project_id: 'prj_one', token })
  await client.next('welcome')
  return client
}

/** Changes the list to each of these sizes, and waits until the clients have what was sent. */
async function change(clients: readonly TestClient[], ...sizes: number[]): Promise<void> {
  for (const bytes of sizes) {
    lists.change(sized(bytes))
    for (const client of clients) await client.roundTrip()
  }
}

/** Lets time pass, with a round trip every 50 ms. */
async function pass(ms: number, ...clients: TestClient[]): Promise<void> {
  for (let at = 0; at < ms; at += 50) {
    test.clock.advance(50)
    for (const client of clients) await client.roundTrip()
  }
}

const delayed = async (by: string): Promise<number> => {
  const { values } = await registry.getSingleMetric('service_lists_delayed_total')!.get()
  return values.find(({ labels }) => labels.by === by)?.value ?? 0
}

describe('The list of a watch', () => {
  it('comes whole, and then as the positions of the rows that go, and new rows with theirs', async () => {
    const [one, two, three] = [listedRow('one'), listedRow('two'), listedRow('three')]
    const fuller = { ...two, players: 2 }
    lists.all = [one, two, three]
    const { client } = await test.hello()
    await watch(client)
    for (const rows of [[fuller, one], [fuller, one, three], [one], [], [two, three]]) {
      lists.change(...rows)
      await client.roundTrip()
    }
    const row = (key: string, players = 1) => [`arena:${key}`, players]
    const brief = (list?: readonly ListedRoom[]) => list?.map(({ room_id, players }) => [room_id, players])
    expect(
      client.received.flatMap((message) =>
        message.t === 'rooms' ? [[brief(message.rooms), message.gone, brief(message.set), message.at]] : [],
      ),
    ).toEqual([
      [[row('one'), row('two'), row('three')], undefined, undefined, undefined],
      [undefined, [2, 1], [row('two', 2)], [0]],
      [undefined, [], [row('three')], [2]],
      [undefined, [2, 0], [], []],
      // No row stays.
      [[], undefined, undefined, undefined],
      [[row('two'), row('three')], undefined, undefined, undefined],
    ])
  })

  it('is not sent again if it has not changed for players', async () => {
    lists.all = [sized(10)]
    const { client } = await test.hello()
    await watch(client)
    await change([client], 10)
    // Another node has the room now.
    lists.change({ ...sized(10), node_id: 'node_b~1' })
    await client.roundTrip()
    expect(sizesOf(client)).toEqual([10])
    await change([client], 11, 10)
    expect(sizesOf(client)).toEqual([10, 11, 10])
  })

  it('is not sent again if a fresh token with other rooms leaves it unchanged', async () => {
    lists.all = [sized(10)]
    const { client } = await test.hello()
    await watch(client)
    await test.renew(client, await test.token({ rooms: ['arena'] }))
    await client.roundTrip()
    expect(sizesOf(client)).toEqual([10])
    await change([client], 11)
    expect(sizesOf(client)).toEqual([10, 11])
  })

  it('is sent again to a new watch with the same request id', async () => {
    lists.all = [sized(10)]
    const { client } = await test.hello()
    await watch(client)
    await watch(client)
    expect(sizesOf(client)).toEqual([10, 10])
  })

  it('is encoded once for all watches of equal queries', async () => {
    const clients = await Promise.all(Array.from({ length: 5 }, async () => (await test.hello()).client))
    for (const [id, client] of clients.entries()) await watch(client, id + 1)
    codec.encodings = 0
    await change(clients, 10)
    expect(clients.map((client) => sizesOf(client).at(-1))).toEqual(Array(5).fill(10))
    expect(codec.encodings).toBe(1)
  })
})

describe('The lists of a player', () => {
  it('have 64 KiB a second together. Above it, the newest list of a watch comes later', async () => {
    const one = (await test.hello()).client
    const two = (await test.hello()).client
    await watch(one)
    await watch(two)
    const total = (): number => sum(sizesOf(one)) + sum(sizesOf(two))
    await change([one, two], ...Array.from({ length: 20 }, (_, n) => 50_001 + n))
    // Two seconds are saved up, and the last list is a debt.
    expect(total()).toBeGreaterThan(128 * KIB)
    expect(total()).toBeLessThan(128 * KIB + 51_000)
    expect(await delayed('player')).toBe(2)
    await pass(3000, one, two)
    expect(sizesOf(one).at(-1)).toBe(50_020)
    expect(sizesOf(two).at(-1)).toBe(50_020)
    // None of the lists between.
    expect(sizesOf(one).filter((bytes) => bytes > 50_003 && bytes < 50_020)).toEqual([])
    const before = total()
    for (let second = 0; second < 10; second++) {
      await change([one, two], 60_000 + second)
      await pass(1000, one, two)
    }
    expect(total() - before).toBeLessThan(12 * 64 * KIB)
    expect(total() - before).toBeGreaterThan(9 * 64 * KIB)
    const { client: other } = await test.hello(await test.token({ sub: 'bob' }))
    await watch(other)
    expect(sizesOf(other)).toEqual([60_009])
  })

  it('never come in the wrong order, and a waiting list is dropped if its client has the newest one', async () => {
    lists.all = [sized(100_000)]
    const { client } = await test.hello()
    await watch(client)
    await change([client], 100_001, 100_002, 100_003, 100_001)
    expect(sizesOf(client)).toEqual([100_000, 100_001])
    await pass(5000, client)
    expect(sizesOf(client)).toEqual([100_000, 100_001])
    await change([client], 100_004, 100_005, 100_006)
    await pass(5000, client)
    const sizes = sizesOf(client)
    expect(sizes).toEqual([...sizes].sort())
    expect(sizes.at(-1)).toBe(100_006)
  })

  it('wait, 32 of them at most, if they are not watched', async () => {
    await test.close()
    test = await TestGateway.start({ playerPointsPerSecond: 1_000_000 }, { directory: lists })
    lists.all = [sized(100_000)]
    const { client } = await test.hello()
    for (let id = 1; id <= 37; id++) client.send({ t: 'rooms', request_id: id, room_type: 'arena' })
    await pass(100, client)
    // One that is below the budget, and one that is a debt. They may be gone before the last request arrives.
    expect(sizesOf(client)).toHaveLength(2)
    const refused = client.received.filter(({ t }) => t === 'error')
    expect([3, 4, 5]).toContain(refused.length)
    for (const error of refused)
      expect(error).toMatchObject({ code: 'rate_limited', message: expect.stringContaining('32 lists') })
    await pass(60_000, client)
    expect(sizesOf(client)).toHaveLength(37 - refused.length)
  })

  it('end with rooms.end, also one that waits', async () => {
    lists.all = [sized(200_000)]
    const { client } = await test.hello()
    await watch(client)
    await change([client], 200_001)
    client.send({ t: 'rooms.end', request_id: 1 })
    await pass(10_000, client)
    expect(sizesOf(client)).toEqual([200_000])
  })
})

describe('The lists of a token without sub', () => {
  it('have 2 MB a second for all clients from one address, and other addresses do not wait', async () => {
    const token = await test.token({ sub: undefined })
    const crowd: TestClient[] = []
    for (let n = 0; n < 50; n++) crowd.push(await guest('127.0.0.1', token))
    for (const client of crowd) await watch(client)
    const total = (): number => sum(crowd.map((client) => sum(sizesOf(client))))
    await change(crowd, 50_000)
    // A tenth of a second is saved up, and the last list is a debt.
    expect(total()).toBeLessThanOrEqual(250_000)
    expect(await delayed('token')).toBeGreaterThan(40)
    // Queries go on, so that the lists that wait are the newest.
    expect(lists.latest!.canPay()).toBe(true)
    const elsewhere = await guest('127.0.0.2', token)
    await watch(elsewhere)
    expect(sizesOf(elsewhere)).toEqual([50_000])
    await pass(1000, ...crowd)
    expect(total()).toBeLessThanOrEqual(2_250_000)
    await pass(500, ...crowd)
    // Each of them has got it.
    expect(total()).toBe(2_500_000)
  })

  it('wait for expensive queries of other clients from that address', async () => {
    const token = await test.token({ sub: undefined })
    const [one, two, elsewhere] = [
      await guest('127.0.0.1', token),
      await guest('127.0.0.1', token),
      await guest('127.0.0.2', token),
    ]
    await watch(two)
    // 2,500 points, which count as 500,000 bytes.
    lists.work = { comparisons: 625_000 }
    one.send({ t: 'rooms', request_id: 1, room_type: 'arena' })
    await expect.poll(() => lists.latest!.canPay()).toBe(false)
    lists.work = {}
    await change([two], 10)
    await watch(elsewhere)
    expect([sizesOf(two), sizesOf(elsewhere)]).toEqual([[0], [10]])
    await pass(350, two)
    expect(sizesOf(two)).toEqual([0, 10])
  })
})
