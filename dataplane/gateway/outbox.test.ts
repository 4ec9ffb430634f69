import { Registry } from 'prom-client'
import { beforeEach, describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { Flusher, Outbox } from './outbox.ts'
import type { ByteSink } from './sockets.ts'

/** A socket whose kernel takes `room` bytes and then no more. */
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

describe('a frame that comes alone', () => {
  it('is written at once, but never before what waits, and is bounded like the others', () => {
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

  it('does not hold against a client what it has missed before its resume, of all its rooms together', () => {
    socket.room = 0
    for (let i = 0; i < 5; i++) {
      outbox.pushMissed(frame('m', 3000))
      endTurn()
    }
    expect([told, outbox.congested]).toEqual([[], false])
    for (let i = 0; i < 6; i++) outbox.push(frame('p', 1000))
    expect(told).toEqual(['overflowed'])
  })

  it('writes a single frame as the very buffer it was given', () => {
    const shared = frame('p', 300)
    outbox.push(shared)
    endTurn()
    expect(socket.written).toHaveLength(1)
    expect(socket.written[0]).toBe(shared)
  })

  it('writes several large frames at once without copying them', () => {
    const large = frame('P', 900)
    for (let i = 0; i < 5; i++) outbox.push(large)
    outbox.push(frame('a'))
    endTurn()
    expect(socket.writes).toBe(1)
    expect(socket.written.filter((written) => written === large)).toHaveLength(5)
  })

  it('is congested above the high water mark, and says once when the client has read most', () => {
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

  it('does not hold a whole state against the client, however large', () => {
    socket.room = 0
    outbox.pushState(frame('s', 50_000))
    endTurn()
    expect(outbox.congested).toBe(false)
    outbox.push(frame('p', 1001))
    expect(outbox.congested).toBe(true)
    expect(told).toEqual([])
    // Once it has been read, the next bytes count from the start again.
    endTurn()
    socket.drain()
    outbox.push(frame('p', 1001))
    expect(outbox.congested).toBe(true)
  })

  it('takes nothing more beyond the limit, queued and held taken together', () => {
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

  it('drops what it has when it is closed', () => {
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
