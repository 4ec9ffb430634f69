import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import type { TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { gatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { MessageRateLimiter, PlayerRateLimiters } from './rate-limits.ts'

let test: TestGateway
let ref = 0

const { limits } = gatewayOptions()

/** How many messages of a session are rejected before its connection is closed. */
function rejectedBeforeClose(limiter: MessageRateLimiter): number {
  let rejected = 0
  for (;;) {
    const verdict = limiter.admit()
    if (verdict === 'too_many') return rejected
    if (verdict === 'reject') rejected += 1
  }
}

it('a player who floods in one new session after another is tolerated no longer than four sessions are, until time has passed', () => {
  const clock = new FakeClock()
  const players = new PlayerRateLimiters(clock, limits)
  const session = (player: string) =>
    new MessageRateLimiter(clock, limits, { shared: { player, of: players } })
  const flood = () => Array.from({ length: 10 }, () => rejectedBeforeClose(session('p/mallory')))
  const tolerance = 10 * limits.messages_per_second
  expect(flood()).toEqual([...Array(4).fill(tolerance), ...Array(6).fill(0)])
  expect(rejectedBeforeClose(session('p/ann'))).toBe(tolerance)
  expect(session('p/mallory').admit()).toBe('too_many')
  clock.advance(10_000)
  expect(session('p/mallory').admit()).toBe('pass')
  expect(flood().reduce((sum, rejected) => sum + rejected)).toBe(4 * limits.messages_per_second)
})

it('what a player may send in all sessions together is the same for those that were silent for long and for new ones', () => {
  const clock = new FakeClock()
  const players = new PlayerRateLimiters(clock, limits)
  const session = (player: string) =>
    new MessageRateLimiter(clock, limits, { shared: { player, of: players } })
  const before = Array.from({ length: 4 }, () => session('p/mallory'))
  for (const one of before) one.admit()
  clock.advance(60_000)
  // So many that the silent one is forgotten.
  for (let other = 0; other < 1000; other++) session(`p/${other}`).admit()
  const all = [...Array.from({ length: 4 }, () => session('p/mallory')), ...before]
  const passed = all.flatMap((one) =>
    Array.from({ length: limits.message_burst }, () => one.admit()).filter((verdict) => verdict === 'pass'),
  )
  expect(passed).toHaveLength(4 * limits.message_burst)
})

describe('joins in quick succession', () => {
  beforeEach(async () => {
    test = await TestGateway.start({ joinsPerSecond: 1 })
  })
  afterEach(() => test.close())

  /** Asks for a subscription; what the answer is: `joined`, or the code of the error. */
  async function join(client: TestClient, key: string): Promise<string> {
    const own = ++ref
    client.send({ t: 'join', request_id: own, room_type: 'arena', options: { key } })
    const find = () =>
      client.received.find((message) => 'request_id' in message && message.request_id === own)
    await expect.poll(find).toBeDefined()
    const answer = find()!
    return answer.t === 'error' ? answer.code : answer.t
  }

  const leave = async (client: TestClient, key: string): Promise<void> => {
    client.send({ t: 'leave', request_id: ++ref, room_id: `arena:${key}` })
    await client.next('member', ({ status }) => status === 'left')
  }

  it('are refused to a player, whichever session they come with, and to no other player', async () => {
    const { client: first } = await test.hello()
    const { client: second } = await test.hello()
    expect(await join(first, 'one')).toBe('joined')
    await leave(first, 'one')
    expect(await join(first, 'one')).toBe('joined')
    expect(await join(second, 'one')).toBe('joined')
    expect(await join(second, 'two')).toBe('rate_limited')
    const { client: third } = await test.hello()
    expect(await join(third, 'one')).toBe('rate_limited')
    const { client: other } = await test.hello(await test.token({ sub: 'bob' }))
    expect(await join(other, 'one')).toBe('joined')
    test.clock.advance(1000)
    expect([await join(third, 'one'), await join(first, 'two')]).toEqual(['joined', 'rate_limited'])
    test.clock.advance(1000)
    expect(await join(first, 'two')).toBe('joined')
  })

  it('are counted for each session where the token names no player', async () => {
    const token = await test.token({ sub: undefined })
    const { client: first } = await test.hello(token)
    const { client: second } = await test.hello(token)
    const answers = []
    for (const key of ['1', '2', '3', '4']) answers.push(await join(first, key))
    expect(answers).toEqual(['joined', 'joined', 'joined', 'rate_limited'])
    expect(await join(second, '1')).toBe('joined')
  })
})

describe('whole states', () => {
  /** The rooms are as large as what one player may have in a second; eight times as much comes at once. */
  const STATE_BYTES = 100_000

  let delayed: number
  beforeEach(async () => {
    delayed = 0
    test = await TestGateway.start(
      { stateBytesPerSecond: STATE_BYTES, joinsPerSecond: 1000, joinWaitMs: 500 },
      {
        metrics: {
          ...registerMetrics(new Registry(), GATEWAY_METRICS),
          statesDelayed: { inc: () => void delayed++ },
        },
      },
    )
    fill('one', 1)
    // Someone else is there throughout.
    await test.join('one', await test.token({ sub: 'witness' }))
  })
  afterEach(() => test.close())

  const fill = (key: string, seconds: number): void => {
    test.owner.room(key).state = { count: 0, treasure: 'x'.repeat(seconds * STATE_BYTES) }
  }

  const states = (...clients: TestClient[]): number =>
    clients
      .flatMap(({ received }) => received)
      .filter(({ t }) => t === 'state.snapshot' || t === 'state.resync').length

  function join(client: TestClient, key: string): Promise<void> {
    client.send({ t: 'join', request_id: ++ref, room_type: 'arena', options: { key } })
    return client.roundTrip()
  }

  function leave(client: TestClient, key: string): Promise<void> {
    client.send({ t: 'leave', request_id: ++ref, room_id: `arena:${key}` })
    return client.roundTrip()
  }

  /** Loses the connection and comes back, as one who has seen nothing; resolves when the new one is welcome, or has to wait for it. */
  async function comeBack(
    client: TestClient,
    welcome: { session_id: string; resume_token: string },
    key: string,
  ) {
    client.ws.terminate()
    await client.closed
    const before = delayed
    const position = { room_id: `arena:${key}`, epoch: 99, seq: 0 }
    const again = await test.resume(welcome, [position])
    const welcomed = again.next('welcome')
    await Promise.race([welcomed, expect.poll(() => delayed).toBe(before + 1)])
    return { again, welcomed }
  }

  it('come to one player no faster by leaving and joining again, in whichever session, and to others at once', async () => {
    const clients = await Promise.all([1, 2, 3].map(async () => (await test.hello()).client))
    for (const client of clients)
      for (let times = 0; times < 10; times++) {
        await join(client, 'one')
        await leave(client, 'one')
      }
    expect(states(...clients)).toBe(8)
    const other = await test.join('one', await test.token({ sub: 'other' }))
    expect(states(other.client)).toBe(1)
  })

  it('come to one player no faster by coming back again and again, and every one that is due comes', async () => {
    let { client, welcome } = await test.join('one')
    const came: number[] = []
    let waits = 0
    for (let times = 0; times < 12; times++) {
      const { again, welcomed } = await comeBack(client, welcome, 'one')
      // The state of a client that has to wait comes after a while.
      if (delayed > waits) test.clock.advance(2000)
      waits = delayed
      welcome = await welcomed
      client = again
      await client.roundTrip()
      came.push(states(client))
    }
    expect([delayed, came]).toEqual([3, Array(12).fill(1)])
  })

  it('that are missed are few: a player in many rooms who comes back with little missed waits for none', async () => {
    const { client, welcome } = await test.hello()
    for (let n = 0; n < 7; n++) {
      fill(`${n}`, 1)
      await join(client, `${n}`)
    }
    const rooms = client.received.flatMap((message) => {
      if (message.t !== 'state.snapshot') return []
      const { room_id: roomId, epoch, seq } = message
      return [{ room_id: roomId, epoch, seq }]
    })
    test.clock.advance(8000)
    let connection = client
    let resumed = welcome
    for (let times = 0; times < 5; times++) {
      connection.ws.terminate()
      await connection.closed
      connection = await test.resume(resumed, rooms)
      resumed = await connection.next('welcome')
      await connection.roundTrip()
      expect(states(connection)).toBe(0)
    }
    expect(delayed).toBe(0)
  })

  it('and missed updates come out of one budget: a replay costs its bytes', async () => {
    let { client, welcome, snapshot } = await test.join('one')
    const room = test.owner.room('one')
    room.flush({ state: { ...room.state, missed: 'y'.repeat(2 * STATE_BYTES) } })
    for (let times = 0; times < 5; times++) {
      client.ws.terminate()
      await client.closed
      client = await test.resume(welcome, [snapshot])
      welcome = await client.next('welcome')
      await client.roundTrip()
    }
    expect([states(client), delayed]).toEqual([0, 1])
  })

  it('that a join would wait too long for are refused with it: another try is worth while', async () => {
    const { client } = await test.hello()
    fill('large', 9)
    await join(client, 'large')
    await join(client, 'one')
    expect(states(client)).toBe(1)
    test.clock.advance(1000)
    expect(await client.next('error')).toMatchObject({
      code: 'rate_limited',
      retryable: true,
      room_id: 'arena:one',
    })
    test.clock.advance(1000)
    await join(client, 'one')
    await client.next('state.snapshot')
  })
})
