import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type PolledSocket, Polling } from './sockets.ts'

/** A socket whose data comes all the time; `reads`: when it was read. */
class BusySocket implements PolledSocket {
  readIn: number | undefined
  resting = false
  readonly reads: number[] = []

  rest(): void {
    this.resting = true
  }

  goOn(): void {
    this.resting = false
  }
}

function pollingAt(intervalMs: () => number) {
  const clock = new FakeClock()
  const ends: (() => void)[] = []
  const polling = new Polling(clock, intervalMs, (end) => ends.push(end))
  return {
    clock,
    read(socket: BusySocket): void {
      if (socket.resting) return
      socket.reads.push(clock.monotonic())
      polling.read(socket)
    },
    endTurn(): void {
      for (const end of ends.splice(0)) end()
    },
  }
}

describe('a socket', () => {
  it('is read as often as its data comes in short turns of the event loop, and once in the rest of a long one', () => {
    const { clock, read, endTurn } = pollingAt(() => 0)
    const readsIn = (ms: number): number => {
      const socket = new BusySocket()
      for (let at = 0; at < ms; at += 2) {
        read(socket)
        clock.advance(2)
      }
      endTurn()
      expect(socket.resting).toBe(false)
      return socket.reads.length
    }
    for (let times = 0; times < 20; times++) expect(readsIn(8)).toBe(4)
    clock.advance(20)
    // Until the turn has taken 10 ms, once in it, and once more that told of it.
    expect(readsIn(30)).toBe(7)
    clock.advance(20)
    expect(readsIn(8)).toBe(4)
  })

  it('is read every so many milliseconds by a node that is overloaded, give or take 20, and as before once it is not', () => {
    let intervalMs = 250
    const { clock, read, endTurn } = pollingAt(() => intervalMs)
    const sockets = [new BusySocket(), new BusySocket()]
    const play = (ms: number): void => {
      for (let at = 0; at < ms; at++) {
        for (const socket of sockets) read(socket)
        endTurn()
        clock.advance(1)
      }
    }
    play(10_000)
    for (const { reads } of sockets) {
      const gaps = reads.slice(1).map((at, i) => at - reads[i]!)
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(250)
      expect(Math.max(...gaps)).toBeLessThanOrEqual(270)
    }
    intervalMs = 0
    play(300)
    const before = sockets[0]!.reads.length
    play(8)
    expect(sockets[0]!.reads.length - before).toBe(8)
    expect(clock.pending).toBe(0)
  })
})
