import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import type { TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { GATEWAY_METRICS } from './metrics.ts'

/** The rooms are as large as what one player may have in a second; eight times as much comes at once. */
const STATE_BYTES = 100_000

let test: TestGateway
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

let ref = 1
function join(client: TestClient, key: string): Promise<void> {
  client.send({ t: 'join', ref: ++ref, room_type: 'arena', options: { key } })
  return client.roundTrip()
}

function leave(client: TestClient, key: string): Promise<void> {
  client.send({ t: 'leave', ref: ++ref, room_id: `arena:${key}` })
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
  await Promise.race([welcomed, vi.waitFor(() => expect(delayed).toBe(before + 1))])
  return { again, welcomed }
}

describe('whole states', () => {
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
      // Who has to wait is welcome after a while all the same, and the state is here by then.
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
      expect(resumed.rooms?.every(({ resumed }) => resumed)).toBe(true)
    }
    expect(delayed).toBe(0)
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
