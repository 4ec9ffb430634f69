import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { timestamp } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import type { TestClient } from '../../test/support/gateway/test-gateway.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { PlayerBudgets, type SessionBudget } from './budget.ts'
import { gatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'

let test: TestGateway
let ref = 0

const options = gatewayOptions()
const { messages_per_second: perSecond, message_burst: burst } = options.limits

describe('SessionBudget', () => {
  const budgets = (limits = options.limits) => {
    const clock = new FakeClock()
    const all = new PlayerBudgets(clock, { ...options, limits })
    let sessions = 0
    const session = (sub: string) => {
      const times = { issued_at: timestamp(0), expires_at: timestamp(60_000) }
      return all.ofSession({ project_id: 'p', sub, ...times }, `ses_${++sessions}`)
    }
    return { clock, session }
  }
  /** Sends `count` messages that do not wait. Returns how many were handled, because they passed or were refused. */
  const flood = (session: SessionBudget, count: number): number => {
    let handled = 0
    for (let sent = 0; sent < count; sent++) {
      const payment = session.spend()
      if (payment === 'empty' || (payment === 'over_rate' && !session.refuse())) break
      handled++
    }
    return handled
  }

  it('uses up the tolerance of a session after ten seconds of refused messages', () => {
    const { clock, session } = budgets()
    const one = session('mallory')
    let [passed, refused] = [0, 0]
    for (;;) {
      const payment = one.spend()
      if (payment === 'paid') passed++
      else if (payment === 'empty') clock.advance(one.waitMs)
      else if (one.refuse()) refused++
      else break
    }
    expect(refused).toBe(10 * perSecond)
    expect(passed).toBeGreaterThanOrEqual(burst)
    expect(passed).toBeLessThan(burst + 10)
  })

  it('waits longer than 0 ms if a message cannot be paid, and can pay it after the wait', () => {
    for (const messages of [1, 10, 120]) {
      const { clock, session } = budgets({ ...options.limits, messages_per_second: messages })
      const sessions = Array.from({ length: 30 }, () => session('mallory'))
      for (let times = 0; times < 60; times++)
        for (const one of sessions)
          if (one.spend() === 'empty') {
            expect(one.waitMs).toBeGreaterThan(0)
            clock.advance(one.waitMs)
            expect(one.spend()).not.toBe('empty')
          }
    }
  })

  it('limits a player who floods in one new session after another', () => {
    const { clock, session } = budgets()
    const handled = (): number =>
      Array.from({ length: 10 }, () => flood(session('mallory'), 2000)).reduce((sum, one) => sum + one)
    const [first, ann] = [handled(), flood(session('ann'), 200)]
    // The budget holds three seconds of the messages of four sessions, and the last message may become a debt.
    expect(first).toBeLessThanOrEqual(12 * perSecond + 1)
    expect(ann).toBe(200)
    clock.advance(1000)
    expect(handled()).toBeLessThanOrEqual(4 * perSecond + 1)
  })

  it('is shared by sessions of a player that were silent for long and by new ones', () => {
    const { clock, session } = budgets()
    const before = Array.from({ length: 4 }, () => session('mallory'))
    for (const one of before) one.spend()
    clock.advance(60_000)
    // Enough other players that the silent one is dropped from the map.
    for (let other = 0; other < 1000; other++) session(`${other}`).spend()
    const all = [...Array.from({ length: 4 }, () => session('mallory')), ...before]
    const passed = all.flatMap((one) => Array.from({ length: burst }, () => one.spend()))
    expect(passed.filter((payment) => payment === 'paid')).toHaveLength(12 * perSecond)
  })

  it('has a debt of at most three seconds for states, however large they are, and messages still pass', () => {
    const { clock, session } = budgets()
    const [one, other] = [session('ada'), session('ada')]
    expect(one.payState(2000)).toBe(2000)
    one.oweState(100_000)
    clock.advance(2990)
    expect([other.payState(1), other.spend()]).toEqual([0, 'paid'])
    clock.advance(20)
    expect(other.payState(1)).toBe(1)
  })
})

describe('joins in quick succession', () => {
  // One join a second, with a burst of three.
  beforeEach(async () => {
    test = await TestGateway.start({ playerPointsPerSecond: 100 })
    for (const key of ['1', '2', '3', '4', '5']) test.owner.room(key)
  })
  afterEach(() => test.close())

  const join = (client: TestClient, key: string): void =>
    client.send({ t: 'join', request_id: ++ref, room_type: 'arena', options: { key } })

  const joined = (...clients: TestClient[]): number =>
    clients.flatMap(({ received }) => received).filter(({ t }) => t === 'joined').length

  it('wait until their player can pay, whatever their session, and joins of other players do not wait', async () => {
    const token = await test.token()
    const { client: first } = await test.hello(token)
    const { client: second } = await test.hello(token)
    join(first, '1')
    await first.next('joined')
    join(second, '1')
    join(first, '2')
    const { client: other } = await test.hello(await test.token({ sub: 'bob' }))
    join(other, '1')
    join(other, '2')
    await expect.poll(() => joined(other)).toBe(2)
    const before = joined(first, second)
    for (let seconds = 0; joined(first, second) < 3; seconds++) {
      expect(seconds).toBeLessThan(5)
      test.clock.advance(1000)
      await other.roundTrip()
    }
    expect(before).toBeLessThan(3)
    expect([first, second].flatMap(({ received }) => received).filter(({ t }) => t === 'error')).toEqual([])
  })

  it('are counted for each session if the token names no player', async () => {
    const token = await test.token({ sub: undefined })
    const { client: first } = await test.hello(token)
    const { client: second } = await test.hello(token)
    for (const key of ['1', '2', '3', '4', '5']) join(first, key)
    for (const key of ['1', '2']) join(second, key)
    await expect.poll(() => joined(second)).toBe(2)
    expect(joined(first)).toBeLessThan(4)
    while (joined(first) < 5) {
      test.clock.advance(1000)
      await second.roundTrip()
    }
  })
})

describe('full states', () => {
  const POINTS = 200
  /** Bytes of states that a player can get in a second. */
  const STATE_BYTES = POINTS * 4096

  let delayed: number
  beforeEach(async () => {
    delayed = 0
    test = await TestGateway.start(
      { playerPointsPerSecond: POINTS },
      {
        metrics: {
          ...registerMetrics(new Registry(), GATEWAY_METRICS),
          statesDelayed: { inc: () => void delayed++ },
        },
      },
    )
    fill('one', 1)
    // Another member is in the rooms throughout.
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

  /** Lets time pass until the work is done. Returns the seconds that passed. */
  async function secondsOf(work: Promise<unknown>): Promise<number> {
    const beganAt = test.clock.monotonic()
    let isDone = false
    const done = work.finally(() => {
      isDone = true
    })
    while (!isDone) {
      test.clock.advance(50)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await done
    return (test.clock.monotonic() - beganAt) / 1000
  }

  async function join(client: TestClient, key: string): Promise<void> {
    client.send({ t: 'join', request_id: ++ref, room_type: 'arena', options: { key } })
    await client.next('state.snapshot', ({ room_id: roomId }) => roomId === `arena:${key}`)
  }

  async function leave(client: TestClient, key: string): Promise<void> {
    client.send({ t: 'leave', request_id: ++ref, room_id: `arena:${key}` })
    await client.next('left')
  }

  /** Loses the connection and resumes. */
  async function comeBack(
    client: TestClient,
    welcome: { session_id: string; resume_token: string },
    positions: readonly { room_id: string; epoch: number; seq: number }[],
  ) {
    client.ws.terminate()
    await client.closed
    const again = await test.resume(welcome, positions)
    return { client: again, welcome: await again.next('welcome') }
  }

  it('reach a player no faster if it leaves and joins again, in whichever session', async () => {
    const clients = await Promise.all([1, 2, 3].map(async () => (await test.hello()).client))
    const hoard = async (client: TestClient): Promise<void> => {
      for (let times = 0; times < 4; times++) {
        await join(client, 'one')
        await leave(client, 'one')
      }
    }
    const seconds = await secondsOf(Promise.all(clients.map(hoard)))
    expect(states(...clients)).toBe(12)
    // Eight states are a whole budget, and one more may become a debt.
    expect(seconds).toBeGreaterThan(12 - 8 - 1)
  })

  it('reach another player immediately', async () => {
    const { client } = await test.hello()
    fill('large', 12)
    await join(client, 'large')
    client.send({ t: 'join', request_id: ++ref, room_type: 'arena', options: { key: 'one' } })
    const other = await test.join('one', await test.token({ sub: 'other' }))
    await client.roundTrip()
    expect([states(client), states(other.client)]).toEqual([1, 1])
    const seconds = await secondsOf(client.next('joined', ({ room_id: id }) => id === 'arena:one'))
    expect([seconds > 2, seconds < 5]).toEqual([true, true])
    expect(client.received.filter(({ t }) => t === 'error')).toEqual([])
  })

  it('do not delay the messages, the pings or the next hello of their player', async () => {
    const { client } = await test.hello()
    fill('large', 12)
    await join(client, 'large')
    await client.roundTrip()
    const pong = new Promise((resolve) => client.ws.once('pong', resolve))
    client.ws.ping()
    await pong
    await test.hello()
  })

  it('reach a player no faster if it resumes again and again, and each due one arrives', async () => {
    let { client, welcome } = await test.join('one')
    const came: number[] = []
    const seconds = await secondsOf(
      (async () => {
        for (let times = 0; times < 14; times++) {
          const back = await comeBack(client, welcome, [{ room_id: 'arena:one', epoch: 0, seq: 0 }])
          client = back.client
          welcome = back.welcome
          await client.next('state.resync')
          came.push(states(client))
        }
      })(),
    )
    expect(came).toEqual(Array(14).fill(1))
    expect(delayed).toBeGreaterThan(0)
    expect(seconds).toBeGreaterThan(5)
  })

  it('are no longer requested after the client has disconnected', async () => {
    let { client, welcome } = await test.join('one')
    const far = [{ room_id: 'arena:one', epoch: 0, seq: 0 }]
    for (let times = 0; delayed === 0; times++) {
      expect(times).toBeLessThan(12)
      const back = await comeBack(client, welcome, far)
      client = back.client
      welcome = back.welcome
    }
    const asked = test.owner.of('attach').length
    const detached = test.owner.of('detach').length
    client.ws.terminate()
    await expect.poll(() => test.owner.of('detach').length).toBe(detached + 1)
    test.clock.advance(60_000)
    expect(test.owner.of('attach')).toHaveLength(asked)
  })

  it('that are not missed cost nothing: a player in many rooms who missed little waits for none', async () => {
    const { client, welcome } = await test.hello()
    const keys = ['0', '1', '2', '3', '4', '5', '6']
    for (const key of keys) fill(key, 1)
    await secondsOf(
      (async () => {
        for (const key of keys) await join(client, key)
      })(),
    )
    const rooms = client.received.flatMap((message) => {
      if (message.t !== 'state.snapshot') return []
      const { room_id: roomId, epoch, seq } = message
      return [{ room_id: roomId, epoch, seq }]
    })
    test.clock.advance(60_000)
    let back = { client, welcome }
    for (let times = 0; times < 5; times++) {
      back = await comeBack(back.client, back.welcome, rooms)
      await back.client.roundTrip()
      expect([states(back.client), test.owner.of('attach')]).toEqual([
        0,
        expect.objectContaining({ length: 7 * (times + 1) }),
      ])
    }
  })

  it('and missed updates are paid from the same budget', async () => {
    let { client, welcome, snapshot } = await test.join('one')
    const room = test.owner.room('one')
    room.flush({ state: { ...room.state, missed: 'y'.repeat(2 * STATE_BYTES) } })
    const seconds = await secondsOf(
      (async () => {
        for (let times = 0; times < 8; times++) {
          const asked = test.owner.of('attach').length
          const back = await comeBack(client, welcome, [snapshot])
          client = back.client
          welcome = back.welcome
          while (test.owner.of('attach').length === asked) await client.roundTrip()
        }
      })(),
    )
    expect(states(client)).toBe(0)
    expect(seconds).toBeGreaterThan(4)
  })
})
