import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import {
  expectClose,
  type TestClient,
  TestControl,
  TestGateway,
  TestPair,
} from '../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../test/support/gateway/test-owner.ts'
import { RecordingTracer } from '../../test/support/tracing.ts'
import type { ToOwner } from '../traffic.ts'
import type { GatewayOptions } from './context.ts'
import { drainConnections } from './gateway.ts'
import { arrivedAt } from './session.ts'

describe('Gateway', () => {
  const WITHIN_MS = 10_000

  /** A drain of this many connections. Returns the times of the moves and of the closes, in the order of the connections. */
  function drain(count: number) {
    const clock = new FakeClock()
    const toldMs: number[] = []
    const closedMs: number[] = []
    const began = clock.monotonic()
    const connections = Array.from({ length: count }, (_, index) => ({
      send: (message: ServerMessage) => {
        if (message.t === 'move') toldMs[index] = message.in_ms
      },
      close: () => {
        closedMs[index] = clock.monotonic() - began
      },
    }))
    void drainConnections(connections, { clock, random: new SeededRandom(1), withinMs: WITHIN_MS })
    return { clock, told_ms: toldMs, closed_ms: closedMs }
  }

  /**
   * A load balancer needs some checks to detect that the node is not ready. It once sent clients that moved earlier back to this node (which had the
   * fewest connections), where they were refused and tried again.
   */
  it('moves no client before load balancers have noticed', () => {
    const { told_ms: toldMs } = drain(500)
    expect(toldMs).toHaveLength(500)
    expect(Math.min(...toldMs)).toBeGreaterThanOrEqual(WITHIN_MS / 10)
  })

  it('moves all clients evenly over the remaining time, and closes each 2 s after its move', async () => {
    const { clock, told_ms: toldMs, closed_ms: closedMs } = drain(500)
    const inOrder = toldMs.toSorted((a, b) => a - b)
    expect(inOrder).toEqual(Array.from({ length: 500 }, (_, index) => WITHIN_MS / 10 + index * 18))
    for (let ms = 0; ms < WITHIN_MS + 2000; ms++) {
      clock.advance(1)
      await Promise.resolve()
    }
    expect(closedMs).toEqual(toldMs.map((moment) => moment + 2000))
  })

  it('moves clients in random order, so that clients that connected together do not resume together', () => {
    const { told_ms: toldMs } = drain(500)
    const early = toldMs.slice(0, 250).filter((moment) => moment < (WITHIN_MS * 5.5) / 10)
    expect(early.length).toBeGreaterThan(100)
    expect(early.length).toBeLessThan(150)
  })

  it('moves and closes a client also if it has no time', async () => {
    const moved: unknown[] = []
    const connection = {
      send: (message: ServerMessage) => moved.push(message),
      close: () => moved.push('closed'),
    }
    const clock = new FakeClock()
    const drained = drainConnections([connection], { clock, random: new SeededRandom(1), withinMs: 0 })
    clock.advance(500)
    await drained
    expect(moved).toEqual([{ t: 'move', in_ms: 0 }, 'closed'])
  })

  describe('a drain', () => {
    let test: TestGateway
    beforeEach(async () => {
      test = await TestGateway.start()
    })
    afterEach(() => test.close())

    it('ends when the last client has disconnected', async () => {
      const clients = [(await test.hello()).client, (await test.hello()).client]
      const drained = test.gateway.drain(5000)
      for (const client of clients) {
        const { in_ms: inMs } = await client.next('move')
        expect(inMs).toBeGreaterThanOrEqual(500)
        client.ws.close(1001)
      }
      await drained
    })

    it('answers a new websocket with 503, so that a load balancer tries the next node', async () => {
      await test.hello()
      void test.gateway.drain(5000)
      const late = new WebSocket(test.url)
      const [, { statusCode }] = await once(late, 'unexpected-response')
      expect(statusCode).toBe(503)
    })

    it('welcomes a client whose hello was under way, and asks it to move too', async () => {
      let answer = () => {}
      test.control.held = new Promise((resolve) => {
        answer = resolve
      })
      const client = await test.open()
      client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
      await test.control.firstQuestion
      const silent = await test.open()
      // Ends before the handshake of the silent one would.
      const drained = test.gateway.drain(2000)
      answer()
      await client.next('move')
      expect(client.received.map(({ t }) => t)).toEqual(['welcome', 'move'])
      test.clock.advance(4000)
      await expectClose(silent, 'draining', /resume on another/)
      await drained
    })
  })

  it('lets a join of a young session wait, in order with its later requests, while the watchdog says so', async () => {
    const clock = new FakeClock()
    const verdict = ({ since }: { since: number }) => (clock.now() - since < 60_000 ? 'wait' : 'pass')
    const world = { clock, control: await TestControl.start(), owner: new TestOwner(testCodecs()) }
    const gateway = await TestGateway.start({ maxSessionsPerSub: 10 }, { suspects: { verdict } }, world)
    const { client } = await gateway.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    client.send({ t: 'ping', at: 1 })
    await expect.poll(() => clock.pending).toBeGreaterThan(0)
    const count = () => client.received.filter(({ t }) => t === 'joined' || t === 'pong').length
    const pass = async (seconds: number) => {
      for (let second = 0; second < seconds; second++, await nextTurn()) clock.advance(1000)
    }
    await pass(59)
    expect(count()).toBe(0)
    await pass(2)
    await client.next('joined')
    await expect.poll(count).toBe(2)
    await gateway.close()
  })

  /** One sweep per second handles everything with a deadline in seconds. */
  it('an idle connection has no timer, and its socket has none', async () => {
    const gateway = await TestGateway.start()
    const timers = (): number => {
      const running = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length
      return gateway.clock.pending + running
    }
    const clients = [await gateway.join('one')]
    const before = timers()
    for (let i = 0; i < 20; i++) clients.push(await gateway.join('one', await gateway.token({ sub: `${i}` })))
    expect(timers()).toBeLessThanOrEqual(before + 2)
    for (const { client } of clients) client.ws.terminate()
    await gateway.close()
  })
})

describe('Rerouter', () => {
  const NEARER = { nodeId: 'node_b', url: 'wss://play.example/node-b' }

  let pair: TestPair
  beforeEach(async () => {
    pair = await TestPair.start()
  })
  afterEach(() => pair.close())

  /** Returns how often a client is asked to move, `ms` from now. */
  async function toldAfter(ms: number, client: TestClient): Promise<number> {
    await pair.pass(ms, 1000)
    // Pending writes to the store are answered first, and then the message is sent.
    await pair.meanwhile(client.roundTrip())
    return client.received.filter(({ t }) => t === 'move').length
  }

  describe('a session whose rooms are at another node', () => {
    it('is asked to move when they have been there for some seconds', async () => {
      const { client } = await pair.a.join('one')
      pair.nearer = NEARER
      expect(await toldAfter(2000, client)).toBe(0)
      expect(await toldAfter(4000, client)).toBe(1)
      expect(client.received.at(-2)).toEqual({ t: 'move', in_ms: 0, url: NEARER.url })
    })

    it('is not asked to move while they move', async () => {
      const { client } = await pair.a.join('one')
      for (const nodeId of ['node_b', 'node_c', 'node_b', 'node_c']) {
        pair.nearer = { ...NEARER, nodeId }
        expect(await toldAfter(2000, client)).toBe(0)
      }
    })

    it('is asked again if it has not moved, after at least a minute, and less and less often', async () => {
      const { client } = await pair.a.join('one', await pair.a.token({}, 3_600_000))
      pair.nearer = NEARER
      expect(await toldAfter(6000, client)).toBe(1)
      expect(await toldAfter(100_000, client)).toBe(1)
      expect(await toldAfter(20_000, client)).toBe(2)
      expect(await toldAfter(200_000, client)).toBe(2)
      expect(await toldAfter(40_000, client)).toBe(3)
    })

    it('waits for its turn: at most 50 sessions are asked in a second', async () => {
      const clients: TestClient[] = []
      for (let i = 0; i < 60; i++)
        clients.push((await pair.a.join('one', await pair.a.token({ sub: `${i}` }))).client)
      pair.nearer = NEARER
      const asked = async (ms: number): Promise<number> => {
        await pair.pass(ms, 1000)
        await pair.meanwhile(Promise.all(clients.map((client) => client.roundTrip())))
        return clients.filter(({ received }) => received.some(({ t }) => t === 'move')).length
      }
      expect(await asked(4000)).toBe(50)
      expect(await asked(1000)).toBe(60)
    })

    it('is not asked to move while it joins a room or is in none', async () => {
      const { client: idle } = await pair.a.hello(undefined)
      const { client: joining } = await pair.a.join('one')
      pair.owner.silent.add('join')
      const asked = pair.owner.next('join')
      joining.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
      await asked
      pair.nearer = NEARER
      expect(await toldAfter(6000, joining)).toBe(0)
      expect(await toldAfter(3000, idle)).toBe(0)
    })

    it('is only asked to leave by a node that drains', async () => {
      const { client } = await pair.a.join('one')
      pair.nearer = NEARER
      const drained = pair.a.gateway.drain(60_000)
      expect(await toldAfter(5000, client)).toBe(1)
      expect(client.received.find(({ t }) => t === 'move')).not.toHaveProperty('url')
      client.ws.terminate()
      await pair.meanwhile(drained)
    })
  })

  describe('a session that moves as it was asked', () => {
    /** A client that was asked to move to node_b, and has sent `move`. `drain`: because node_a drains. */
    async function leaving({ drain = false } = {}) {
      const { client, welcome, snapshot, joined } = await pair.a.join('one')
      let drained: Promise<void> | undefined
      // The node would close the old connection 62 s from now.
      if (drain) drained = pair.a.gateway.drain(600_000)
      else pair.nearer = NEARER
      expect(await toldAfter(6000, client)).toBe(1)
      client.send({ t: 'move' })
      await client.next('moved')
      const resume = () => pair.b.resume(welcome, [{ ...snapshot, member_id: joined.member_id }])
      return { client, resume, memberId: joined.member_id, drained }
    }

    /** The same after it has resumed there. */
    async function gone(how?: { drain: boolean }) {
      const scene = await leaving(how)
      const next = await scene.resume()
      await next.next('welcome')
      next.send({ t: 'ping', at: 1 })
      return { ...scene, next }
    }

    it.each([false, true])(
      'gets nothing after `moved` on its old connection, which is closed when it has resumed (drain: %s)',
      async (drain) => {
        const { client, resume, memberId } = await leaving({ drain })
        pair.owner.room('one').flush({ state: { count: 9 } })
        await pair.pass(4000, 1000)
        expect(client.ws.readyState).toBe(client.ws.OPEN)
        const next = await resume()
        expect(await next.next('state.patch')).toMatchObject({ seq: 2 })
        await pair.meanwhile(expectClose(client, 'session_taken_over', /newer connection/))
        expect(client.received.at(-1)).toEqual({ t: 'moved' })
        // The owner ignores it, because it knows that the member is at node_b.
        expect(pair.owner.of('detach')).toMatchObject([{ member_id: memberId, moves: true }])
        expect(pair.owner.of('leave')).toEqual([])
      },
    )

    it('loses its old connection if it sends anything there after `move`, and can resume', async () => {
      const { client, resume } = await leaving()
      const message = { t: 'message', room_id: 'arena:one', type: 'move', data: null } as const
      for (let ref = 1; ref <= 1000; ref++) client.send({ ...message, ref, settled: 0 })
      await expectClose(client, 'protocol_error', /after move/)
      expect(client.received.at(-1)).toEqual({ t: 'moved' })
      expect(pair.owner.of('message')).toEqual([])
      await (await resume()).next('welcome')
    })

    it('has lost its connection 15 s after `moved`, if it has not resumed', async () => {
      const { client, memberId } = await leaving()
      await pair.pass(14_000, 1000)
      expect(pair.owner.of('detach')).toEqual([])
      await pair.pass(2000, 1000)
      await client.closed
      expect(pair.owner.of('detach')).toMatchObject([{ member_id: memberId }])
      expect(pair.a.gateway.sessions).toBe(1)
    })

    it('ends the drain of its old node when it closes the old connection', async () => {
      const { client, next, drained } = await gone({ drain: true })
      client.ws.close()
      await drained
      await next.roundTrip()
      expect(pair.b.gateway.sessions).toBe(1)
    })

    it('is not asked again for a minute, wherever its rooms move', async () => {
      const { next } = await gone()
      pair.nearer = { ...NEARER, nodeId: 'node_c' }
      expect(await toldAfter(40_000, next)).toBe(0)
    })
  })

  it('a session that resumes at another node than its target counts as failed, and one without a target does not', () => {
    expect(arrivedAt('node_b', { at: 1, failures: 2, to: 'node_b' })).toEqual({ at: 1, failures: 0 })
    expect(arrivedAt('node_c', { at: 1, failures: 2, to: 'node_b' })).toEqual({ at: 1, failures: 3 })
    expect(arrivedAt('node_c', { at: 1, failures: 2 })).toBe(undefined)
  })
})

describe('Spans', () => {
  const BACKEND = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

  let test: TestGateway
  let tracer: RecordingTracer
  let sent: ToOwner[]

  async function start(options: Partial<GatewayOptions> = {}): Promise<void> {
    const clock = new FakeClock()
    const owner = new TestOwner(testCodecs())
    tracer = new RecordingTracer(clock)
    sent = []
    const send = (message: ToOwner): void => {
      sent.push(message)
      owner.send(message)
    }
    const world = { clock, owner, control: await TestControl.start() }
    test = await TestGateway.start(
      options,
      { tracer, cluster: { router: { send, seat: () => undefined, forget: () => {} } } },
      world,
    )
  }

  const named = (name: string) => tracer.spans.filter((span) => span.name === name)
  const token = () => test.token({ traceparent: BACKEND, tracestate: 'vendor=value' })

  beforeEach(() => start())
  afterEach(() => test.close())

  describe('the span of a handshake', () => {
    it('lasts from the open socket to welcome, and starts a trace if the token of control has none', async () => {
      const client = await test.open()
      test.clock.advance(40)
      client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
      await client.next('welcome')
      expect(tracer.spans).toMatchObject([
        {
          parent: undefined,
          links: [],
          took: 40,
          attributes: { 'roomful.project_id': 'prj_one', 'roomful.subprotocol': 'roomful.v1.json' },
        },
      ])
    })

    it('of a rejected client has the reason, and ignores the trace of a token that was not accepted', async () => {
      const client = await test.open()
      client.send({ t: 'hello', project_id: 'prj_one', token: await test.forged({ traceparent: BACKEND }) })
      await client.closed
      expect(tracer.spans).toMatchObject([
        {
          parent: undefined,
          failed: undefined,
          attributes: { 'roomful.result': 'unauthenticated', 'roomful.close_code': 4001 },
        },
      ])
    })

    it('has failed if the service had no capacity', async () => {
      await test.close()
      await start({ maxSessions: 1 })
      await test.hello()
      const client = await test.open()
      client.send({ t: 'hello', project_id: 'prj_one', token: await token() })
      await client.closed
      expect(named('handshake')[1]).toMatchObject({
        failed: 'overloaded',
        attributes: { 'roomful.result': 'overloaded', 'roomful.close_code': 1013 },
      })
    })
  })

  describe('the span of a join', () => {
    it('has the result of a refusal, whatever its cause', async () => {
      const { client } = await test.join('one', await test.token({ rooms: ['arena'] }))
      client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
      await client.next('error')
      client.send({ t: 'join', request_id: 3, room_type: 'chess', options: { key: 'one' } })
      await client.next('error')
      expect(named('join').map(({ attributes }) => attributes['roomful.result'])).toEqual([
        'joined',
        'already_joined',
        'forbidden',
      ])
      expect(tracer.open).toEqual([])
    })

    it('ends if the owner does not answer', async () => {
      await test.close()
      await start({ joinWaitMs: 3000 })
      test.owner.deliver = () => {}
      const { client } = await test.hello()
      client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
      await expect.poll(() => sent.length).toBe(1)
      for (let second = 0; second < 5; second++) test.clock.advance(1000)
      expect(await client.next('error')).toMatchObject({ code: 'room_unavailable' })
      expect(named('join')).toMatchObject([
        { failed: 'room_unavailable', attributes: { 'roomful.result': 'room_unavailable' } },
      ])
    })

    it('ends if the client leaves', async () => {
      test.owner.deliver = () => {}
      const { client } = await test.hello()
      client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
      await expect.poll(() => sent.length).toBe(1)
      client.send({ t: 'goodbye' })
      await expect.poll(() => tracer.open).toEqual([])
      expect(named('join')).toMatchObject([{ attributes: { 'roomful.result': 'abandoned' } }])
    })

    it('does not exist for messages', async () => {
      const { client } = await test.join('one', await token())
      const before = tracer.spans.length
      client.send({ t: 'message', room_id: 'arena:one', type: 'count', data: 1, ref: 1, settled: 0 })
      await client.next('ack')
      expect(tracer.spans).toHaveLength(before)
      expect(sent.at(-1)).not.toHaveProperty('traceparent')
    })
  })
})
