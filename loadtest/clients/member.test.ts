import { beforeEach, describe, expect, it } from 'vitest'
import { AckCheck, behind, EventCheck, newestOf } from './member.ts'

let lost: string[]
let check: AckCheck
let now: number

beforeEach(() => {
  lost = []
  now = 10_000
  check = new AckCheck((text) => lost.push(text))
})

/** One read of the socket; `what` comes in it. */
function read(what: () => void): void {
  now += 20
  check.read()
  what()
}
/** An update, after which the state shows own messages up to `n`. */
function update(seq: number, n?: number): void {
  check.update(seq)
  if (n !== undefined) check.shown(n, seq, now)
}
/** Everything that is suspected is told. */
function verdict(): string[] {
  check.review(now + 5000)
  return lost
}

describe('the check of acks', () => {
  it('reports no acks behind the updates that show what they ack', () => {
    for (let n = 1; n <= 3; n++) {
      check.sent(n, n)
      read(() => {
        update(n, n)
        check.acked(n)
      })
    }
    expect(verdict()).toEqual([])
  })

  it('reports an ack that never comes, though the next one covers it', () => {
    for (const n of [1, 2]) check.sent(n, n)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => {
      update(3, 2)
      check.acked(2)
    })
    expect(verdict()).toEqual([
      'message 1 was in the state at seq 1, but its ack had not come before the next update',
    ])
  })

  it('reports it also to a member who is alone, whose next update comes with the ack that covers it', () => {
    for (const n of [1, 2]) check.sent(n, n)
    read(() => update(1, 1))
    read(() => {
      update(2, 2)
      check.acked(2)
    })
    expect(verdict()).toHaveLength(1)
  })

  it('takes two updates in one read for one moment, and reports at the end of it', () => {
    check.sent(1, 1)
    read(() => {
      update(1, 1)
      update(2)
    })
    expect(verdict()).toEqual([])
    read(() => undefined)
    expect(verdict()).toHaveLength(1)
  })

  it('accepts one ack for missed updates that come in one piece', () => {
    for (const n of [1, 2, 3]) check.sent(n, n)
    read(() => {
      for (const n of [1, 2, 3]) update(n, n)
      check.acked(3)
    })
    read(() => update(4))
    expect(verdict()).toEqual([])
  })

  it('accepts an ack in a later read than its update, as long as no other update comes between', () => {
    check.sent(1, 1)
    read(() => update(1, 1))
    read(() => check.acked(1))
    read(() => update(2))
    expect(verdict()).toEqual([])
  })

  it.each([
    ['before', -500],
    ['after', 500],
  ])('accepts what comes near a disturbance: shortly %s it', (_, distance) => {
    check.sent(1, 1)
    if (distance < 0) check.disturbed(now + distance)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => update(3))
    if (distance > 0) check.disturbed(now + distance)
    expect(verdict()).toEqual([])
  })

  it('reports it long after a disturbance, and long before another', () => {
    check.sent(1, 1)
    check.disturbed(now - 5000)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => update(3))
    check.disturbed(now + 5000)
    expect(verdict()).toHaveLength(1)
  })
})

describe('the check of events', () => {
  function watched(): { check: EventCheck; lost: number[] } {
    const lost: number[] = []
    return { check: new EventCheck((_, times) => lost.push(times)), lost }
  }

  it('reports no events that come one after the other, beginning with any', () => {
    const { check, lost } = watched()
    check.shown(6)
    for (const number of [7, 8, 9]) check.came(number)
    check.shown(9)
    expect(lost).toEqual([])
  })

  it('reports how many are missing, between two and at the end', () => {
    const { check, lost } = watched()
    for (const number of [7, 10]) check.came(number)
    check.shown(11)
    check.shown(11)
    expect(lost).toEqual([2, 1])
  })

  it('begins again after a disturbance', () => {
    const { check, lost } = watched()
    check.came(7)
    check.disturbed()
    check.shown(9)
    check.came(12)
    check.came(13)
    expect(lost).toEqual([])
  })
})

const at = (epoch: number, seq: number, roomId = 'load:a') => ({ roomId, epoch, seq })

describe('the newest of a room', () => {
  it('is the furthest that any client has seen of the room as it is now, in each room', () => {
    const newest = newestOf([at(1, 5), at(1, 9), at(1, 7), at(4, 2, 'load:b'), at(3, 80, 'load:b')])
    expect(newest).toEqual({ 'load:a': at(1, 9), 'load:b': at(4, 2, 'load:b') })
  })

  it('is ahead of clients that have seen less, and of no others', () => {
    const newest = newestOf([at(2, 9)])
    expect(behind(at(2, 9), newest)).toBe(0)
    expect(behind(at(2, 6), newest)).toBe(3)
    expect(behind(at(1, 9), newest), 'has missed nothing since the room moved').toBe(0)
    expect(behind(at(1, 8), newest), 'has not heard that the room moved').toBe(1)
    expect(behind(at(3, 1), newest), 'is in a room that has moved since').toBe(0)
    expect(behind(at(2, 1, 'load:c'), newest)).toBe(0)
  })
})
