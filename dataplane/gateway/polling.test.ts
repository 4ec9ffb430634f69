import { expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type PolledSocket, Polling } from './sockets.ts'

/** A socket whose data comes all the time. */
class BusySocket implements PolledSocket {
  readIn: number | undefined
  resting = false

  rest(): void {
    this.resting = true
  }

  goOn(): void {
    this.resting = false
  }
}

it('a socket is read as often as its data comes in short turns of the event loop, and once in the rest of a long one', () => {
  const clock = new FakeClock()
  const ends: (() => void)[] = []
  const polling = new Polling(
    clock,
    () => 0,
    (end) => ends.push(end),
  )
  const readsIn = (ms: number): number => {
    const socket = new BusySocket()
    let reads = 0
    for (let at = 0; at < ms; at += 2) {
      if (!socket.resting) {
        reads++
        polling.read(socket)
      }
      clock.advance(2)
    }
    for (const end of ends.splice(0)) end()
    expect(socket.resting).toBe(false)
    return reads
  }
  for (let times = 0; times < 20; times++) expect(readsIn(8)).toBe(4)
  clock.advance(20)
  // Until the turn has taken 10 ms, once in it, and once more that told of it.
  expect(readsIn(30)).toBe(7)
  clock.advance(20)
  expect(readsIn(8)).toBe(4)
})
