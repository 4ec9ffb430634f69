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

describe('a frame that breaks the protocol ends the connection with 4000', () => {
  // A socket that is destroyed with bytes unread is reset: a client that still writes meets the reset and not the close frame, and comes back.
  it('also when the client goes on sending', async () => {
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

  it('when it is no websocket frame', async () => {
    const { client } = await test.hello()
    tcpOf(client).write(Buffer.from([0xf1, 0x80, 0, 0, 0, 0]))
    await expectClose(client, 'protocol_error', /not a valid websocket frame/)
  })
})

describe('a message', () => {
  it('that is larger in fragments does so, too', async () => {
    const { client } = await test.hello()
    for (let i = 0; i < 3; i++) client.ws.send(' '.repeat(8 * 1024), { fin: i === 2 })
    await expectClose(client, 'payload_too_large', /limits\.max_message_bytes/)
  })

  it('may come in fragments', async () => {
    const { client } = await test.hello()
    client.ws.send('{"t":"ping",', { fin: false })
    client.ws.send('"at":42}', { fin: true })
    expect(await client.next('pong')).toEqual({ t: 'pong', at: 42, server_time: '2026-01-01T00:00:00.000Z' })
  })
})

describe('a silent connection', () => {
  it('is asked before it is ended, also by a node that stood still for minutes', async () => {
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

/** Lets time pass, as much as it takes for one message of a session at a step, until the server has closed the connection. */
async function untilClosed(client: TestClient): Promise<void> {
  while (client.ws.readyState === client.ws.OPEN) {
    test.clock.advance(9)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

describe('too many messages', () => {
  it('wait unread, all but a few, until their session may send again', async () => {
    const { client } = await test.hello()
    flood(client, 240 + 500)
    await client.next('error')
    // Another client comes and is answered meanwhile.
    await (await test.hello()).client.roundTrip()
    const refused = (): number => client.received.filter(({ t }) => t === 'error').length
    expect(refused()).toBeLessThanOrEqual(16)
    test.clock.advance(100)
    await client.next('pong')
    // The flood may still be on its way when the clock is set for the first time.
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
    // 240 at once, then 120 a second.
    expect(test.clock.monotonic() - began).toBeGreaterThan(6000)
  })

  it('do not keep a fresh token, or a join, from being handled', async () => {
    const { client } = await test.hello()
    flood(client, 240)
    client.send(
      { t: 'token', token: 'v4.public.forged' },
      { t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } },
    )
    await client.next('pong', ({ at }) => at === 239)
    const next = Promise.all([client.next('error'), client.next('joined')])
    let done = false
    void next.finally(() => {
      done = true
    })
    while (!done) {
      test.clock.advance(9)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(await next).toMatchObject([{ code: 'invalid_token' }, { request_id: 1 }])
  })

  it('make a fresh token wait, which is good all the same', async () => {
    const { client } = await test.hello()
    const other = (await test.hello()).client
    // The budget of the player holds 3000 points: the last one is owed.
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 28)
    client.send({ t: 'token', token: await test.token() })
    const answered = client.next('token')
    let isDone = false
    void answered.finally(() => {
      isDone = true
    })
    while (!isDone) {
      test.clock.advance(1)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(client.received.filter(({ t }) => t === 'error')).toEqual([])
  })

  it('come from a reconnected client all the same', async () => {
    const { client, welcome, snapshot } = await test.join()
    flood(client, 239)
    await client.next('pong', ({ at }) => at === 238)
    client.ws.terminate()
    const again = await test.resume(welcome, [snapshot])
    await again.next('welcome')
    flood(again, 1)
    expect(await again.next('error')).toMatchObject({ code: 'rate_limited' })
  })
})

describe('a client that sends much at once', () => {
  const LIMITS = { ...gatewayOptions().limits, messages_per_second: 10_000, message_burst: 20_000 }

  it('leaves the others their turn', async () => {
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

  it('is heard to the end when it says goodbye behind it', async () => {
    await test.close()
    test = await TestGateway.start({ limits: LIMITS })
    const { client, joined } = await test.join()
    for (let n = 0; n < 200; n++)
      client.send({ t: 'message', room_id: joined.room_id, type: 'move', data: n })
    client.send({ t: 'goodbye' })
    await client.closed
    expect(test.owner.of('message')).toHaveLength(200)
  })
})

describe('a node that is overloaded', () => {
  let [intervalMs, dropped] = [0, 0]
  const move = (client: TestClient, roomId: string, data: Json, ref?: number): void =>
    client.send({
      t: 'message',
      room_id: roomId,
      type: 'move',
      data,
      ...(ref !== undefined && { ref, settled: 0 }),
    })
  const moves = (): Json[] => test.owner.of('message').map(({ data }) => data)
  /** Sends what is sent in `work` in one write. */
  const together = (client: TestClient, work: () => void): void => {
    tcpOf(client).cork()
    work()
    tcpOf(client).uncork()
  }

  beforeEach(async () => {
    await test.close()
    ;[intervalMs, dropped] = [0, 0]
    const inputsDropped = { inc: () => void dropped++ }
    const metrics = { ...registerMetrics(new Registry(), GATEWAY_METRICS), inputsDropped }
    test = await TestGateway.start({}, { metrics, inputIntervalMs: () => intervalMs })
  })

  it('handles the newest of the messages without ref that came at once, and every one with a ref, in their order', async () => {
    const { client, joined } = await test.join()
    intervalMs = 200
    together(client, () => {
      for (const n of [1, 2, 3]) move(client, joined.room_id, n)
      move(client, joined.room_id, 'reliable', 1)
      for (const n of [4, 5, 6]) move(client, joined.room_id, n)
    })
    await expect.poll(moves).toEqual([3, 'reliable', 6])
    expect(dropped).toBe(4)
  })

  it('reads each client so often, and as before once it is not, and the last word of each is heard', async () => {
    const { client, joined } = await test.join()
    const others = [(await test.hello()).client, (await test.hello()).client] as const
    intervalMs = 200
    move(client, joined.room_id, 'first')
    await expect.poll(moves).toEqual(['first'])
    for (let n = 0; n < 5; n++) move(client, joined.room_id, n)
    // By the time another one is answered they are there, and wait unread.
    await others[0].roundTrip()
    expect(moves()).toEqual(['first'])
    test.clock.advance(199)
    await others[1].roundTrip()
    expect(moves()).toEqual(['first'])
    test.clock.advance(21)
    await expect.poll(moves).toEqual(['first', 4])
    intervalMs = 0
    test.clock.advance(220)
    for (const n of [5, 6]) {
      move(client, joined.room_id, n)
      await expect.poll(() => moves().at(-1)).toBe(n)
      for (const other of others) await other.roundTrip()
    }
  })

  it('keeps the newest one while the player has nothing left, and handles it then', async () => {
    const { client, joined } = await test.join()
    const other = (await test.hello()).client
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 27)
    intervalMs = 200
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

  it('still ends the connection of a client that sends far too much', async () => {
    const { client, joined } = await test.join()
    intervalMs = 200
    while (client.ws.readyState === client.ws.OPEN) {
      for (let n = 0; n < 200; n++) move(client, joined.room_id, n)
      test.clock.advance(20)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await expectClose(client, 'rate_limited', /more than 120 messages a second/)
  })
})

describe('the round trip of a client', () => {
  /** Number and sum of the round trips that were measured, in seconds. */
  async function measured(registry: Registry): Promise<{ count: number; sum: number }> {
    const text = await registry.metrics()
    const of = (what: string) =>
      Number(new RegExp(`^service_round_trip_duration_seconds_${what} (.+)$`, 'm').exec(text)![1])
    return { count: of('count'), sum: of('sum') }
  }

  it('is measured after 6 s and then once a minute, also of one that is never silent', async () => {
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
      // The pong is on its way for so long.
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

  it('are answered with what they carry, within the rate', async () => {
    const { client } = await test.hello()
    const pongs: string[] = []
    client.ws.on('pong', (data) => pongs.push(String(data)))
    // The server reads all of them at once, and so before the clock goes on.
    tcpOf(client).cork()
    for (let i = 0; i < 300; i++) client.ws.ping(`ping ${i}`)
    tcpOf(client).uncork()
    // The rate has room for one more message a moment later.
    await expect.poll(() => pongs.length).toBe(240)
    test.clock.advance(100)
    await client.roundTrip()
    expect(pongs).toEqual(Array.from({ length: 240 }, (_, i) => `ping ${i}`))
  })

  it('are answered although the player has nothing left, and cost no tolerance then', async () => {
    const { client } = await test.hello()
    const other = (await test.hello()).client
    for (let n = 1; n <= 28; n++) other.send({ t: 'rooms', request_id: n, room_type: 'arena' })
    await other.next('rooms', ({ request_id: id }) => id === 28)
    let pongs = 0
    client.ws.on('pong', () => pongs++)
    for (let n = 0; n < 200; n++) client.ws.ping()
    await expect.poll(() => pongs).toBe(200)
  })

  it('are few before welcome, and the rest of a flood is not even parsed', async () => {
    const client = await test.open()
    const emit = vi.spyOn(ServerSocket.prototype, 'emit')
    onTestFinished(() => emit.mockRestore())
    tcpOf(client).write(Buffer.from('8a8000000000'.repeat(10_000), 'hex'))
    await expectClose(client, 'rate_limited', /more than 16 pings and pongs before welcome/)
    const parsed = emit.mock.calls.filter(([event]) => String(event) === 'pong').length
    expect([parsed > 16, parsed < 1000]).toEqual([true, true])
  })
})

describe('a client that floods', () => {
  it('is not read any more once the connection is closed', async () => {
    const { client } = await test.hello()
    const socket = tcpOf(client)
    // It does not read that it is to close.
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
    // What the kernel's buffers hold of it, and not as much as can be sent in the seconds a client has to answer a close frame.
    expect(sent).toBeLessThan(30e6)
  })

  it('may not do it with fragments that hold nothing', async () => {
    const { client } = await test.hello()
    for (let i = 0; i < 100; i++) client.ws.send('', { fin: false })
    await expectClose(client, 'protocol_error', /too many fragments/)
  })
})
