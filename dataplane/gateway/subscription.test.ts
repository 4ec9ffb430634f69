import type { Socket } from 'node:net'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import type { LayerPart } from '../../shared/protocol/codec.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import { MsgpackReader } from '../../shared/protocol/msgpack.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { expectClose, type TestClient, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { type Frame, payloadsOf } from '../frame.ts'
import { roomAddress } from '../traffic.ts'
import { gatewayOptions } from './context.ts'
import type { ByteSink } from './fast-socket.ts'
import { GATEWAY_METRICS, type GatewayMetrics } from './metrics.ts'
import { Flusher, Outbox } from './outbox.ts'
import { FlushFrames, type Reliable, Subscription, Unacked } from './subscription.ts'

describe('A slow consumer', () => {
  let test: TestGateway
  afterEach(() => test.close())

  const HIGH_WATER = 256 * 1024
  const LIMIT = 1024 * 1024

  /** Lets the sockets read and write. */
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

  /** The client’s process hangs, so that data for it is queued. */
  function stopReading(client: TestClient): () => void {
    const socket = Reflect.get(client.ws, '_socket') as Socket
    socket.pause()
    return () => socket.resume()
  }

  const queued = (): number => [...test.gateway.describeSessions().items][0]!.queued_bytes

  /** Applies the state as the protocol requires. Throws at a gap. */
  function follow(messages: readonly ServerMessage[]) {
    let seq = 0
    let count: unknown
    const events: unknown[] = []
    for (const message of messages) {
      if (message.t === 'state.snapshot' || message.t === 'state.resync') {
        seq = message.seq
        count = (message.state as { count: number }).count
      }
      if (message.t === 'state.patch') {
        if (message.seq !== seq + 1) throw new Error(`patch ${message.seq} after ${seq}`)
        seq = message.seq
        for (const op of message.ops) if (op.path === '/count' && 'value' in op) count = op.value
      }
      if (message.t === 'event') events.push(message.data)
    }
    return { seq, count, events }
  }

  describe('a client that stops reading', () => {
    it('gets no patches until it reads again, and then the missed events in order, the state, and the ack', async () => {
      test = await TestGateway.start()
      const { client, joined } = await test.join()
      const room = test.owner.room('one')
      const { member_id: memberId } = joined
      const readOn = stopReading(client)
      let most = 0
      for (let i = 1; i <= 1000; i++) {
        room.flush({
          state: { count: i, pad: `${i}`.padEnd(16_000, '.') },
          events: i % 10 === 0 ? [['hit', i]] : [],
          personal: [{ member_id: memberId, events: [], ack: i }],
        })
        await turn()
        most = Math.max(most, queued())
      }
      expect(most).toBeGreaterThan(HIGH_WATER)
      expect(most).toBeLessThan(HIGH_WATER + 32 * 1024)

      const resynced = client.next('state.resync')
      readOn()
      await resynced
      await client.next('ack', ({ ref }) => ref === 1000)
      room.flush({ state: { count: 1001 } })
      await client.next('state.patch', ({ seq }) => seq === 1002)

      const { seq, count, events } = follow(client.received)
      expect({ seq, count }).toEqual({ seq: 1002, count: 1001 })
      expect(events).toEqual(Array.from({ length: 100 }, (_, i) => (i + 1) * 10))
      expect(client.received.filter(({ t }) => t === 'state.resync')).toHaveLength(1)
      expect(test.owner.of('resync')).toMatchObject([{ reason: 'stalled', member_id: memberId }])
      const acks = client.received.flatMap((message) => (message.t === 'ack' ? [message.ref] : []))
      expect(acks).toEqual([...acks].sort((a, b) => a - b))
      expect(new Set(acks).size).toBe(acks.length)
      expect(acks.length).toBeLessThan(1000)
    })

    it('gets the outcomes of its messages when it reads again, from whichever owner has the room then', async () => {
      let stalled = 0
      const metrics: GatewayMetrics = {
        ...registerMetrics(new Registry(), GATEWAY_METRICS),
        slowConsumers: { inc: () => void stalled++ },
      }
      test = await TestGateway.start({}, { metrics })
      const { client, joined } = await test.join()
      const { member_id: memberId, room_id: roomId } = joined
      const room = test.owner.room('one')
      const readOn = stopReading(client)
      for (let count = 1; stalled === 0; count++) {
        room.flush({ state: { count, pad: `${count}`.padEnd(4000, '.') } })
        await turn()
      }
      const acked = test.owner.next('message')
      for (const ref of [1, 2])
        client.send({ t: 'message', room_id: roomId, type: 'move', data: null, ref, settled: 0 })
      await acked
      await turn()
      // The next owner has lost the last second. The edge no longer has the messages.
      test.owner.silent.add('attach')
      room.epoch = 2
      room.send({ kind: 'redirect', owner: 'node_b' })
      const [attach] = test.owner.of('attach')
      expect(attach).toMatchObject({ settled: 0, through: 2 })
      const { ask } = attach!
      const frames = [room.resync()]
      room.send({
        kind: 'attached',
        member_id: memberId,
        ask,
        seq: room.seq,
        resumed: false,
        frames,
        ack: 0,
        forgotten: 2,
      })
      readOn()
      await client.next('error', ({ code, ref }) => code === 'outcome_unknown' && ref === 2)
    })

    it('does not disturb the other members of the room', async () => {
      test = await TestGateway.start()
      const slow = await test.join()
      const quick = await test.join()
      stopReading(slow.client)
      const room = test.owner.room('one')
      for (let i = 1; i <= 1000; i++) {
        room.flush({ state: { count: i, pad: `${i}`.padEnd(12_000, '.') } })
        await turn()
      }
      await quick.client.next('state.patch', ({ seq }) => seq === room.seq)
      expect(follow(quick.client.received)).toMatchObject({ count: 1000 })
      expect(quick.client.received.some(({ t }) => t === 'state.resync')).toBe(false)
      slow.client.ws.terminate()
    })

    it('is closed if too much is queued for it, and can resume', async () => {
      const counted = { stalled: 0, closed: [] as string[] }
      const metrics: GatewayMetrics = {
        ...registerMetrics(new Registry(), GATEWAY_METRICS),
        slowConsumers: { inc: ({ action }) => void (action === 'stalled' && counted.stalled++) },
        closes: { inc: ({ name }) => void counted.closed.push(name) },
      }
      test = await TestGateway.start({}, { metrics })
      const { client, welcome, snapshot } = await test.join()
      const room = test.owner.room('one')
      const readOn = stopReading(client)
      let most = 0
      for (let i = 1; test.gateway.connections > 0; i++) {
        room.flush({ state: { count: i }, events: [['chat', 'x'.repeat(8000)]] })
        await turn()
        most = Math.max(most, queued())
      }
      expect(most).toBeGreaterThan(LIMIT - 16 * 1024)
      expect(most).toBeLessThan(LIMIT + 16 * 1024)
      expect(counted).toEqual({ stalled: 1, closed: ['slow_consumer'] })
      expect(test.owner.of('detach')).toHaveLength(1)
      readOn()
      await expectClose(client, 'slow_consumer', /too slowly/)
      const { seq } = follow(client.received)
      const again = await test.resume(welcome, [{ ...snapshot, seq }])
      await again.next('welcome')
      await again.next('state.patch', ({ seq: reached }) => reached === room.seq)
      expect(follow([{ ...snapshot, seq }, ...again.received])).toMatchObject({ seq: room.seq })
    })

    it('cannot make the gateway queue one state after the other', async () => {
      test = await TestGateway.start()
      const { client, joined } = await test.join()
      const room = test.owner.room('one')
      room.state = { count: 0, pad: 'x'.repeat(400_000) }
      stopReading(client)
      let most = 0
      while (test.gateway.connections > 0) {
        // The longest time until the next one.
        test.clock.advance(8000)
        client.send({ t: 'state.resync', room_id: joined.room_id, reason: 'checksum' })
        await test.owner.next('resync')
        await turn()
        most = Math.max(most, queued())
      }
      expect(most).toBeLessThan(LIMIT + 2 * 401_000)
      client.ws.terminate()
    })
  })

  describe('a large state', () => {
    it('reaches a client that reads, although it exceeds every limit', async () => {
      test = await TestGateway.start()
      test.owner.room('one').state = { count: 0, pad: 'x'.repeat(5_000_000) }
      const { client, snapshot } = await test.join()
      expect((snapshot.state as { pad: string }).pad).toHaveLength(5_000_000)
      await client.roundTrip()
    })
  })

  describe('one turn', () => {
    it('is one write for each client, with patches, events, acks and answers of all its rooms', async () => {
      const turns: number[] = []
      const metrics: GatewayMetrics = {
        ...registerMetrics(new Registry(), GATEWAY_METRICS),
        socketWrites: { inc: (writes = 1) => void turns.push(writes) },
      }
      test = await TestGateway.start({}, { metrics })
      const ada = await test.join('one')
      ada.client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
      await ada.client.next('state.snapshot')
      const bob = await test.join('one')
      await ada.client.roundTrip()
      turns.length = 0

      const { member_id: memberId } = ada.joined
      const [one, two] = [test.owner.room('one'), test.owner.room('two')]
      const whisper = {
        t: 'event',
        room_id: one.roomId,
        name: 'psst',
        data: 1,
      } as const
      one.flush({
        state: { count: 1 },
        events: [['hit', 1]],
        personal: [{ member_id: memberId, events: [whisper], ack: 1 }],
      })
      await Promise.resolve()
      two.flush({ state: { count: 2 } })
      one.send({ kind: 'error', member_id: memberId, code: 'invalid_payload', message: 'no' })
      await turn()

      expect(turns).toEqual([2])
      await ada.client.roundTrip()
      await bob.client.roundTrip()
      const kinds = (client: TestClient, n: number) => client.received.slice(-1 - n, -1).map(({ t }) => t)
      expect(kinds(ada.client, 6)).toEqual(['state.patch', 'event', 'event', 'ack', 'state.patch', 'error'])
      expect(kinds(bob.client, 2)).toEqual(['state.patch', 'event'])

      // The second update goes through the lane of both clients.
      for (const count of [3, 4]) {
        turns.length = 0
        one.flush({ state: { count } })
        await turn()
        expect(turns.reduce((sum, writes) => sum + writes)).toBe(2)
      }
    })
  })
})

describe('The layers of a member', () => {
  const AT = { room_id: 'arena:one', epoch: 1, checksum: 0 }
  const codec = new MsgpackCodec()
  const room = codec.roomEncoder(true)
  const part = (layer: string): LayerPart => ({
    layer,
    change: { [codec.subprotocol]: codec.layerEncoder().state({ state: {}, checksum: 1 }) },
  })
  const gone = (layer: string): LayerPart => ({ layer, change: null })

  /** Returns a subscription, and for each frame the number and the name of each layer. */
  function subscribed() {
    const frames: Frame[] = []
    const push = (frame: Frame) => frames.push(frame)
    const outbox = {
      congested: false,
      write: push,
      push,
      pushState: push,
      pushMissed: push,
      release: () => {},
    }
    const connection = { codec, outbox, address: () => {}, send: () => {} } as never
    const session = { connection, subscriptions: new Map(), right: { turn: 0 } } as never
    const address = roomAddress('prj_1', 'arena', 'one')
    const subscription = new Subscription(
      session,
      address,
      'mem_a',
      { messages: 1, bytes: 1 },
      0,
      {} as never,
    )
    const taken = () =>
      frames.splice(0).map((bytes) => {
        const layers = (new MsgpackReader(payloadsOf(bytes)[0]!).value() as Json[]).at(-1) as Json[][] | null
        return layers?.map(([number, name]) => (typeof name === 'string' ? [number, name] : [number])) ?? null
      })
    const whole = (seq: number, ...layers: LayerPart[]) => ({
      patch: { [codec.subprotocol]: room.whole('state.resync', { ...AT, seq, state: {} }, []) },
      layers,
    })
    const patch = (seq: number) => ({ [codec.subprotocol]: room.patch({ ...AT, seq }, undefined) })
    const flush = (seq: number, ...parts: LayerPart[]) => {
      const members = parts.length > 0 ? [{ member_id: 'mem_a', own: parts.map((_, i) => i) }] : []
      subscription.flush(new FlushFrames(seq, patch(seq), undefined, true, { parts, members }), 1)
    }
    return { subscription, connection, taken, whole, patch, flush }
  }

  it('are named once: again after a whole state, on another connection, and if they have gone', () => {
    const { subscription, connection, taken, whole, patch, flush } = subscribed()
    subscription.joined({ member_id: 'mem_a', request_id: 1, snapshot: whole(1, part('deck')) }, 1, 1)
    flush(2, part('deck'))
    flush(3, part('hand'), part('deck'))
    flush(4, gone('deck'))
    flush(5)
    flush(6, part('plan'), part('hand'))
    flush(7, part('deck'))
    expect(taken()).toEqual([
      [[0, 'deck']],
      [[0]],
      [[1, 'hand'], [0]],
      [[0]],
      null,
      [[0, 'plan'], [1]],
      [[2, 'deck']],
    ])
    subscription.state({ seq: 7, state: whole(7, part('hand'), part('deck')) })
    flush(8, part('deck'))
    expect(taken()).toEqual([
      [
        [0, 'hand'],
        [1, 'deck'],
      ],
      [[1]],
    ])
    subscription.detach()
    const position = { room_id: AT.room_id, member_id: 'mem_a', epoch: 1, seq: 8, settled: 0 }
    subscription.attach(connection, position, 1, () => {})
    subscription.attached({
      ...{ kind: 'attached', room: subscription.room, member_id: 'mem_a', ask: 1, epoch: 1, seq: 9 },
      ...{ resumed: true, frames: [{ patch: patch(9), layers: [part('deck'), gone('hand')] }], ack: 0 },
    } as never)
    flush(10, part('deck'))
    expect(taken()).toEqual([
      [
        [0, 'deck'],
        [1, 'hand'],
      ],
      [[0]],
    ])
  })

  it('takes no answer to a resume from an owner before the one that the client has seen', () => {
    const { subscription, connection, taken, patch } = subscribed()
    const answer = (epoch: number) =>
      subscription.attached({
        ...{ kind: 'attached', room: subscription.room, member_id: 'mem_a', ask: 1, epoch, seq: 9 },
        ...{ resumed: false, frames: [{ patch: patch(9), layers: [] }], ack: 0 },
      } as never)
    subscription.detach()
    subscription.attach(
      connection,
      { room_id: AT.room_id, member_id: 'mem_a', epoch: 2, seq: 8, settled: 0 },
      1,
      () => {},
    )
    expect([answer(1), subscription.phase, taken()]).toEqual([false, 'attaching', []])
    expect([answer(2), subscription.phase, taken().length]).toEqual([true, 'live', 1])
  })
})

describe('Outbox', () => {
  /** A socket whose kernel takes `room` bytes. */
  class SlowSocket implements ByteSink {
    readonly written: Uint8Array[] = []
    writes = 0
    room = Number.POSITIVE_INFINITY
    writableLength = 0
    #drained: (() => void)[] = []

    onceDrained(drained: () => void): void {
      this.#drained.push(drained)
    }

    /** The kernel has taken everything. */
    drain(): void {
      this.writableLength = 0
      for (const drained of this.#drained.splice(0)) drained()
    }

    write(bytes: Uint8Array): boolean {
      this.writes += 1
      this.#take(bytes)
      return this.writableLength === 0
    }

    writev(frames: readonly Uint8Array[]): boolean {
      this.writes += 1
      for (const bytes of frames) this.#take(bytes)
      return this.writableLength === 0
    }

    #take(bytes: Uint8Array): void {
      this.written.push(bytes)
      const taken = Math.min(this.room, bytes.length)
      this.room -= taken
      this.writableLength += bytes.length - taken
    }

    get bytes(): string {
      return Buffer.concat(this.written).toString('latin1')
    }
  }

  let socket: SlowSocket
  let outbox: Outbox
  let told: string[]
  let turn: (() => void)[]

  const frame = (letter: string, length = 1): Buffer => Buffer.alloc(length, letter)
  const endTurn = (): void => {
    for (const callback of turn.splice(0)) callback()
  }

  beforeEach(() => {
    socket = new SlowSocket()
    told = []
    turn = []
    const flusher = new Flusher(
      (callback) => turn.push(callback),
      registerMetrics(new Registry(), GATEWAY_METRICS),
    )
    const bounds = { outboxHighWaterBytes: 1000, outboxLimitBytes: 4000 }
    outbox = new Outbox(socket, flusher, bounds, {
      overflowed: () => told.push('overflowed'),
      hasRoom: () => told.push('hasRoom'),
    })
  })

  describe('a frame without others', () => {
    it('is written immediately, but never before queued frames, and counts for the same limits', () => {
      outbox.open(frame('o'))
      endTurn()
      outbox.write(frame('a'))
      expect([socket.bytes, socket.writes]).toEqual(['oa', 2])
      outbox.push(frame('b'))
      outbox.write(frame('c'))
      expect(socket.bytes).toBe('oa')
      endTurn()
      expect([socket.bytes, socket.writes]).toEqual(['oabc', 3])
      socket.room = 0
      outbox.write(frame('d', 2000))
      expect([outbox.congested, outbox.queued]).toEqual([true, 2000])
      for (let i = 0; i < 3; i++) {
        outbox.write(frame('e', 2000))
        endTurn()
      }
      expect(told).toEqual(['overflowed'])
    })
  })

  describe('an open outbox', () => {
    beforeEach(() => {
      outbox.open(frame('.'))
      endTurn()
      socket.written.length = 0
      socket.writes = 0
    })

    it('does not count the updates that a client missed before its resume, in all its rooms together', () => {
      socket.room = 0
      for (let i = 0; i < 5; i++) {
        outbox.pushMissed(frame('m', 3000))
        endTurn()
      }
      expect([told, outbox.congested]).toEqual([[], false])
      for (let i = 0; i < 6; i++) outbox.push(frame('p', 1000))
      expect(told).toEqual(['overflowed'])
    })

    it('writes a single frame without a copy', () => {
      const shared = frame('p', 300)
      outbox.push(shared)
      endTurn()
      expect(socket.written).toHaveLength(1)
      expect(socket.written[0]).toBe(shared)
    })

    it('writes several large frames together without a copy', () => {
      const large = frame('P', 900)
      for (let i = 0; i < 5; i++) outbox.push(large)
      outbox.push(frame('a'))
      endTurn()
      expect(socket.writes).toBe(1)
      expect(socket.written.filter((written) => written === large)).toHaveLength(5)
    })

    it('is congested above the high-water mark, and reports once when the client has read most of it', () => {
      socket.room = 0
      outbox.push(frame('p', 1000))
      endTurn()
      expect(outbox.congested).toBe(false)
      outbox.push(frame('p'))
      endTurn()
      expect(outbox.congested).toBe(true)
      outbox.awaitRoom()
      const said = [600, 100, 100].map((unread) => {
        socket.writableLength = unread
        outbox.push(frame('p'))
        endTurn()
        return told.length
      })
      expect([said, told]).toEqual([[0, 1, 1], ['hasRoom']])
    })

    it('does not count a full state, however large', () => {
      socket.room = 0
      outbox.pushState(frame('s', 50_000))
      endTurn()
      expect(outbox.congested).toBe(false)
      outbox.push(frame('p', 1001))
      expect(outbox.congested).toBe(true)
      expect(told).toEqual([])
      // After it has been read, the next bytes count from 0.
      endTurn()
      socket.drain()
      outbox.push(frame('p', 1001))
      expect(outbox.congested).toBe(true)
    })

    it('accepts no frame beyond the limit, queued and held ones together', () => {
      socket.room = 0
      outbox.push(frame('p', 2000))
      endTurn()
      expect(outbox.hold(2001)).toBe(true)
      expect(outbox.queued).toBe(4001)
      expect(outbox.hold(1)).toBe(false)
      outbox.push(frame('p'))
      expect(told).toEqual(['overflowed', 'overflowed'])
      expect(outbox.queued).toBe(4001)
      outbox.release(2001)
      outbox.push(frame('p'))
      expect(told).toHaveLength(2)
    })

    it('drops its frames when it is closed', () => {
      outbox.push(frame('p'))
      outbox.hold(10)
      outbox.close()
      endTurn()
      outbox.push(frame('p'))
      endTurn()
      expect(socket.writes).toBe(0)
      expect(outbox.queued).toBe(0)
    })
  })
})

describe('Unacked', () => {
  const BYTES = 100
  const { maxUnackedMessages, maxUnackedBytes } = gatewayOptions()

  const seat = { room: roomAddress('prj_1', 'arena', 'a'), member_id: 'mem_1' }
  const message = (ref: number): Reliable => ({ kind: 'message', ...seat, type: 'move', data: null, ref })
  const refusal = (ref: number, text = 'no room'): Reliable => ({
    kind: 'refuse',
    ...seat,
    from: ref,
    through: ref,
    code: 'room_unavailable',
    message: text,
  })

  /**
   * An owner that hangs keeps its connections and its lease. Its rooms are taken over after the lease has expired, the other nodes have read that
   * (at most a quarter of a lease later), and the room is restored. Until then, no message of a playing member may be refused.
   */
  it('has space for all messages at a client’s rate until the rooms of a hanging owner are taken over', () => {
    const { sessionMessagesPerSecond, nodeLeaseMs } = gatewayOptions()
    const seconds = (1.25 * nodeLeaseMs) / 1000 + 1
    const unacked = new Unacked({ messages: maxUnackedMessages, bytes: maxUnackedBytes })
    for (let ref = 1; ref <= sessionMessagesPerSecond * seconds; ref++) {
      expect(unacked.isFull(BYTES)).toBe(false)
      unacked.add(message(ref), BYTES, 0)
    }
  })

  it('has space for one message, however large', () => {
    const unacked = new Unacked({ messages: 10, bytes: 50 })
    expect(unacked.isFull(BYTES)).toBe(false)
    unacked.add(message(1), BYTES, 0)
    expect(unacked.isFull(1)).toBe(true)
  })

  it('keeps consecutive equal refusals as one range, and a refusal with another text as another range', () => {
    const unacked = new Unacked({ messages: 1, bytes: BYTES })
    unacked.add(message(1), BYTES, 0)
    for (const ref of [2, 3, 4]) unacked.add(refusal(ref), 10, 0)
    unacked.add(refusal(5, 'other'), 10, 0)
    expect(unacked.messages).toMatchObject([{ ref: 1 }, { from: 2, through: 4 }, { from: 5, through: 5 }])
    unacked.acknowledge(3)
    expect(unacked.messages).toMatchObject([{ from: 2, through: 4 }, { from: 5 }])
    unacked.acknowledge(4)
    expect(unacked.messages).toMatchObject([{ from: 5 }])
    expect([unacked.acked, unacked.last]).toEqual([4, 5])
  })

  it('has the time of its oldest message, also of one that was sent before the ack of an earlier one', () => {
    const unacked = new Unacked({ messages: 10, bytes: 1000 })
    unacked.add(message(1), BYTES, 1000)
    unacked.add(message(2), BYTES, 2000)
    expect(unacked.since).toBe(1000)
    expect([unacked.acknowledge(1), unacked.since]).toEqual([1000, 2000])
    expect([unacked.acknowledge(2), unacked.since]).toEqual([2000, undefined])
  })

  it('keeps no message that is already acknowledged', () => {
    const unacked = new Unacked({ messages: 10, bytes: 1000 })
    unacked.restart(3)
    unacked.acknowledge(5)
    for (const ref of [4, 5, 6]) unacked.add(message(ref), BYTES, 0)
    expect(unacked.messages).toMatchObject([{ ref: 6 }])
  })

  it('returns all messages, also if the owner acknowledges some during the iteration', () => {
    const unacked = new Unacked({ messages: 10, bytes: 1000 })
    for (const ref of [1, 2, 3]) unacked.add(message(ref), BYTES, 0)
    const given = unacked.messages.map((kept) => {
      unacked.acknowledge(2)
      return kept.kind === 'message' && kept.ref
    })
    expect(given).toEqual([1, 2, 3])
  })
})
