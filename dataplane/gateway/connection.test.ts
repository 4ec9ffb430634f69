import type { Socket } from 'node:net'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { expectClose, type TestClient, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { ServerSocket } from './connection.ts'
import { gatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'

let test: TestGateway
beforeEach(async () => {
  test = await TestGateway.start()
})
afterEach(() => test.close())

/** The TCP socket of a client. */
const tcpOf = (client: TestClient): Socket => Reflect.get(client.ws, '_socket') as Socket

describe('a frame that violates the protocol closes the connection with 4000', () => {
  // A socket that is destroyed with unread bytes is reset: a client that still writes then gets the reset instead of the close frame, and reconnects.
  it('even if the client continues to send', async () => {
    for (let n = 0; n < 20; n++) {
      const { client } = await test.hello()
      client.ws.send('move left')
      while (client.ws.readyState === client.ws.OPEN) {
        for (let i = 0; i < 20; i++) tcpOf(client)?.write(Buffer.alloc(1000))
        await new Promise((resolve) => setImmediate(resolve))
      }
      await expectClose(client, 'protocol_error', /not JSON/)
    }
  })

  it('if it is not a websocket frame', async () => {
    const { client } = await test.hello()
    tcpOf(client).write(Buffer.from([0xf1, 0x80, 0, 0, 0, 0]))
    await expectClose(client, 'protocol_error', /not a valid websocket frame/)
  })
})

describe('a message', () => {
  it('that exceeds the maximum size in fragments closes it too', async () => {
    const { client } = await test.hello()
    for (let i = 0; i < 3; i++) client.ws.send(' '.repeat(8 * 1024), { fin: i === 2 })
    await expectClose(client, 'payload_too_large', /limits\.max_message_bytes/)
  })

  it('may arrive in fragments', async () => {
    const { client } = await test.hello()
    client.ws.send('{"t":"ping",', { fin: false })
    client.ws.send('"at":42}', { fin: true })
    expect(await client.next('pong')).toEqual({ t: 'pong', at: 42, server_time: '2026-01-01T00:00:00.000Z' })
  })
})

describe('a silent connection', () => {
  it('is pinged before it is closed, also by a node that was suspended for minutes', async () => {
    const { client } = await test.hello()
    test.clock.advance(2000)
    test.clock.pause(120_000)
    test.clock.advance(1000)
    expect(test.gateway.connections).toBe(1)
    await client.roundTrip()
  })
})

const flood = (client: TestClient, count: number): void => {
  for (let at = 0; at < count; at++) client.send({ t: 'ping', at })
}

/** Lets time pass, by one message of a session's rate at a step, until the server has closed the connection. */
async function untilClosed(client: TestClient): Promise<void> {
  while (client.ws.readyState === client.ws.OPEN) {
    test.clock.advance(9)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

describe('connections that break at one moment', () => {
  it('end in several turns, each with at most 5 ms of ends', async () => {
    const clients = await Promise.all(Array.from({ length: 9 }, () => test.join()))
    let turn = 0
    const endsOfTurns: number[] = []
    vi.spyOn(test.owner.received, 'push').mockImplementation(() => {
      endsOfTurns[turn] = (endsOfTurns[turn] ?? 0) + 1
      test.clock.advance(2)
      return 0
    })
    for (const { client } of clients) client.ws.terminate()
    const isOver = () => endsOfTurns.reduce((sum, ends) => sum + ends, 0) === clients.length
    for (; !isOver(); turn++) await new Promise((resolve) => setImmediate(resolve))
    expect(Math.max(...Object.values(endsOfTurns))).toBe(3)
  })
})

describe('too many messages', () => {
  it('wait unread, except a few, until their session may send again', async () => {
    const { client } = await test.hello()
    flood(client, 240 + 500)
    await client.next('error')
    // Another client connects and is answered in the meantime.
    await (await test.hello()).client.roundTrip()
    const refused = (): number => client.received.filter(({ t }) => t === 'error').length
    expect(refused()).toBeLessThanOrEqual(16)
    test.clock.advance(100)
    await client.next('pong')
    // The flood may still be on its way when the clock is advanced for the first time.
    const refusedLater = (): number => {
      test.clock.advance(100)
      return refused()
    }
    await expect.poll(refusedLater).toBeGreaterThan(16)
  })

  it('are all applied, in order, if they have a ref: the server reads them no faster than the rate', async () => {
    const { client, joined } = await test.join()
    const refs = Array.from({ length: 1000 }, (_, i) => i + 1)
    for (const ref of refs)
      client.send({ t: 'message', room_id: joined.room_id, type: 'count', data: null, ref, settled: 0 })
    client.send({ t: 'ping', at: 7 })
    const began = test.clock.monotonic()
    while (!client.received.some(({ t }) => t === 'pong')) {
      test.clock.advance(9)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(test.owner.of('message').map(({ ref }) => ref)).toEqual(refs)
    expect(client.received.filter(({ t }) => t === 'error')).toEqual([])
    // A burst of 240, then 120 a second.
    expect(test.clock.monotonic() - began).toBeGreaterThan(6000)
  })

  it('do not prevent the handling of a fresh token, a join, or a request for a full state', async () => {
    const { client, joined } = await test.join('two')
    flood(client, 239)
    client.send(
      { t: 'state.resync', room_id: joined.room_id, reason: 'checksum' },
      { t: 'token', token: 'v4.public.forged' },
      { t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } },
    )
    await client.next('pong', ({ at }) => at === 238)
    const next = Promise.all([client.next('state.resync'), client.next('error'), client.next('joined')])
    let done = false
    void next.finally(() => {
      done = true
    })
    while (!done) {
      test.clock.advance(9)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(await next).toMatchObject([{}, { code: 'invalid_token' }, { request_id: 2 }])
  })

  it('delay a fresh token, which is still valid', async () => {
    const { client } = await test.hello()
    const other = (await test.hello()).client
    // The budget of the player holds 3000 points. The last message becomes a debt.
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 28)
    client.send({ t: 'token', token: await test.token({ key_id: 'key_b' }) })
    const isDone = () =>
      [...test.gateway.describeSessions().items].some(({ key_id: keyId }) => keyId === 'key_b')
    while (!isDone()) {
      test.clock.advance(1)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(client.received.filter(({ t }) => t === 'error')).toEqual([])
  })
})

describe('a client that sends a large burst', () => {
  const LIMITS = { ...gatewayOptions().limits, messages_per_second: 10_000, message_burst: 20_000 }

  it('does not delay other clients', async () => {
    const handled: number[] = []
    const metrics = {
      ...registerMetrics(new Registry(), GATEWAY_METRICS),
      receivedBytes: { inc: (bytes = 1) => void handled.push(bytes) },
    }
    await test.close()
    test = await TestGateway.start({ limits: LIMITS }, { metrics })
    const [busy, other] = [(await test.hello()).client, (await test.hello()).client]
    handled.length = 0
    tcpOf(busy).cork()
    for (let i = 0; i < 1500; i++) busy.ws.send(JSON.stringify({ t: 'ping', at: 1 }))
    tcpOf(busy).uncork()
    const quick = JSON.stringify({ t: 'ping', at: 1234567 })
    other.ws.send(quick)
    await expect.poll(() => handled.length).toBe(1501)
    expect(handled.indexOf(quick.length)).toBeLessThan(100)
  })

  it('is read to the end if it says goodbye behind the burst', async () => {
    await test.close()
    test = await TestGateway.start({ limits: LIMITS })
    const { client, joined } = await test.join()
    for (let n = 0; n < 200; n++)
      client.send({ t: 'message', room_id: joined.room_id, type: 'move', data: n })
    client.send({ t: 'goodbye' })
    await client.closed
    expect(test.owner.of('message')).toHaveLength(200)
  })

  it('is read again after the messages that it sent together with its hello', async () => {
    const client = await test.open()
    const token = await test.token()
    tcpOf(client).cork()
    client.send({ t: 'hello', project_id: 'prj_one', token })
    for (let at = 1; at <= 40; at++) client.send({ t: 'ping', at })
    tcpOf(client).uncork()
    await client.next('pong', ({ at }) => at === 40)
    await client.roundTrip()
  })
})

describe('a node that is overloaded', () => {
  let dropped = 0
  const load = { overloaded: false, inputIntervalMs: 0 }
  const move = (client: TestClient, roomId: string, data: Json, ref?: number): void =>
    client.send({
      t: 'message',
      room_id: roomId,
      type: 'move',
      data,
      ...(ref !== undefined && { ref, settled: 0 }),
    })
  const moves = (): Json[] => test.owner.of('message').map(({ data }) => data)
  /** Sends all frames that `work` sends in one write. */
  const together = (client: TestClient, work: () => void): void => {
    tcpOf(client).cork()
    work()
    tcpOf(client).uncork()
  }

  beforeEach(async () => {
    await test.close()
    dropped = 0
    load.inputIntervalMs = 0
    const inputsDropped = { inc: () => void dropped++ }
    const metrics = { ...registerMetrics(new Registry(), GATEWAY_METRICS), inputsDropped }
    test = await TestGateway.start({}, { metrics, load })
  })

  it('handles the newest of a read’s messages without ref, and all messages with a ref, in order', async () => {
    const { client, joined } = await test.join()
    load.inputIntervalMs = 200
    together(client, () => {
      for (const n of [1, 2, 3]) move(client, joined.room_id, n)
      move(client, joined.room_id, 'reliable', 1)
      for (const n of [4, 5, 6]) move(client, joined.room_id, n)
    })
    await expect.poll(moves).toEqual([3, 'reliable', 6])
    expect(dropped).toBe(4)
  })

  it('reads each client at an interval until it is no longer overloaded, and handles the last message of each', async () => {
    const { client, joined } = await test.join()
    const others = [(await test.hello()).client, (await test.hello()).client] as const
    load.inputIntervalMs = 200
    move(client, joined.room_id, 'first')
    await expect.poll(moves).toEqual(['first'])
    for (let n = 0; n < 5; n++) move(client, joined.room_id, n)
    // They arrive before another one is answered, and wait unread.
    await others[0].roundTrip()
    expect(moves()).toEqual(['first'])
    test.clock.advance(199)
    await others[1].roundTrip()
    expect(moves()).toEqual(['first'])
    test.clock.advance(21)
    await expect.poll(moves).toEqual(['first', 4])
    load.inputIntervalMs = 0
    test.clock.advance(220)
    for (const n of [5, 6]) {
      move(client, joined.room_id, n)
      await expect.poll(() => moves().at(-1)).toBe(n)
      for (const other of others) await other.roundTrip()
    }
  })

  it('reads a client at the interval also if it sends more than the share of one turn', async () => {
    const { client, joined } = await test.join()
    const others = [(await test.hello()).client, (await test.hello()).client] as const
    load.inputIntervalMs = 200
    together(client, () => {
      for (let n = 1; n <= 40; n++) move(client, joined.room_id, n, n)
    })
    await expect.poll(moves).toHaveLength(40)
    move(client, joined.room_id, 'next')
    await others[0].roundTrip()
    test.clock.advance(199)
    await others[1].roundTrip()
    expect(moves()).toHaveLength(40)
    test.clock.advance(21)
    await expect.poll(() => moves().at(-1)).toBe('next')
  })

  it('keeps the newest message while the player cannot pay, and handles it later', async () => {
    const { client, joined } = await test.join()
    const other = (await test.hello()).client
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 27)
    load.inputIntervalMs = 200
    together(client, () => {
      for (const n of [1, 2, 3]) move(client, joined.room_id, n)
    })
    await expect.poll(() => dropped).toBe(2)
    expect(moves()).toEqual([])
    const moved = (): Json[] => {
      test.clock.advance(20)
      return moves()
    }
    await expect.poll(moved).toEqual([3])
    expect(client.received.filter(({ t }) => t === 'error')).toEqual([])
  })

  it('still closes the connection of a client that sends far too much', async () => {
    const { client, joined } = await test.join()
    load.inputIntervalMs = 200
    while (client.ws.readyState === client.ws.OPEN) {
      for (let n = 0; n < 200; n++) move(client, joined.room_id, n)
      test.clock.advance(20)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await expectClose(client, 'rate_limited', /more than 120 messages a second/)
  })
})

describe('the round trip of a client', () => {
  /** Number and sum of the measured round trips, in seconds. */
  async function measured(registry: Registry): Promise<{ count: number; sum: number }> {
    const text = await registry.metrics()
    const of = (what: string) =>
      Number(new RegExp(`^service_round_trip_duration_seconds_${what} (.+)$`, 'm').exec(text)![1])
    return { count: of('count'), sum: of('sum') }
  }

  it('is measured after 6 s and then once a minute, also for a client that is never silent', async () => {
    const registry = new Registry()
    test = await TestGateway.start({}, { metrics: registerMetrics(registry, GATEWAY_METRICS) })
    const { client } = await test.hello()
    let pinged = 0
    client.ws.on('ping', () => pinged++)
    let restMs = 1000
    for (let second = 1; second <= 66; second++) {
      await client.roundTrip()
      test.clock.advance(restMs)
      restMs = 1000
      if (second !== 6 && second !== 66) continue
      // The pong takes this long.
      test.clock.advance(80)
      restMs -= 80
      await expect.poll(async () => (await measured(registry)).count).toBe(second === 6 ? 1 : 2)
    }
    expect((await measured(registry)).sum).toBeCloseTo(0.16, 6)
    expect(pinged).toBe(2)
  })
})

describe('pings and pongs of the websocket itself', () => {
  for (const frame of ['ping', 'pong'] as const)
    it(`count towards the rate of the session, and end the connection when there is no end of them: ${frame}s`, async () => {
      const { client } = await test.hello()
      for (let i = 0; i < 240; i++) client.ws[frame]()
      client.send({ t: 'ping', at: 1 })
      await client.next('error', ({ code }) => code === 'rate_limited')
      for (let i = 0; i < 1300; i++) client.ws[frame]()
      await untilClosed(client)
      await expectClose(client, 'rate_limited', /more than 120 messages a second/)
    })

  it('are answered with their payload, within the rate', async () => {
    const { client } = await test.hello()
    const pongs: string[] = []
    client.ws.on('pong', (data) => pongs.push(String(data)))
    // The server reads all of them before the clock advances.
    tcpOf(client).cork()
    for (let i = 0; i < 300; i++) client.ws.ping(`ping ${i}`)
    tcpOf(client).uncork()
    // The rate has room for one more message a moment later.
    await expect.poll(() => pongs.length).toBe(240)
    test.clock.advance(100)
    await client.roundTrip()
    expect(pongs).toEqual(Array.from({ length: 240 }, (_, i) => `ping ${i}`))
  })

  it('are answered although the player cannot pay, without use of the tolerance', async () => {
    const { client } = await test.hello()
    const other = (await test.hello()).client
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 28)
    let pongs = 0
    client.ws.on('pong', () => pongs++)
    for (let n = 0; n < 200; n++) client.ws.ping()
    await expect.poll(() => pongs).toBe(200)
  })

  it('are limited to a few before welcome, and the remainder of a flood is not even parsed', async () => {
    const client = await test.open()
    const emit = vi.spyOn(ServerSocket.prototype, 'emit')
    onTestFinished(() => emit.mockRestore())
    tcpOf(client).write(Buffer.from('8a8000000000'.repeat(10_000), 'hex'))
    await expectClose(client, 'rate_limited', /pings and pongs before welcome come faster/)
    const parsed = emit.mock.calls.filter(([event]) => String(event) === 'pong').length
    expect([parsed > 16, parsed < 1000]).toEqual([true, true])
  })
})

describe('a client that floods', () => {
  it('is not read any more after its connection was closed', async () => {
    const { client } = await test.hello()
    const socket = tcpOf(client)
    // The client does not read the close frame.
    socket.pause()
    const pongs = Buffer.alloc(6 * 10_000)
    for (let at = 0; at < pongs.length; at += 6) pongs.set([0x8a, 0x80, 0, 0, 0, 0], at)
    let sent = 0
    const flood = (): void => {
      while (!socket.destroyed && socket.writableLength < 1e6) {
        socket.write(pongs)
        sent += pongs.length
      }
    }
    socket.on('drain', flood)
    socket.on('error', () => {})
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
    flood()
    await closed
    // The content of the kernel’s buffers, and not the amount that can be sent in the seconds that a client has to answer a close frame.
    expect(sent).toBeLessThan(30e6)
  })

  it('cannot use empty fragments for it', async () => {
    const { client } = await test.hello()
    for (let i = 0; i < 100; i++) client.ws.send('', { fin: false })
    await expectClose(client, 'protocol_error', /too many fragments/)
  })
})
