import { beforeEach, describe, expect, it } from 'vitest'
import { AckWitness } from './ack-witness.ts'

let lost: string[]
let witness: AckWitness
let now: number

beforeEach(() => {
  lost = []
  now = 10_000
  witness = new AckWitness((text) => lost.push(text))
})

/** One read of the socket; `what` comes in it. */
function read(what: () => void): void {
  now += 20
  witness.read()
  what()
}
/** An update, after which the state shows own messages up to `n`. */
function update(seq: number, n?: number): void {
  witness.update(seq)
  if (n !== undefined) witness.shown(n, seq, now)
}
/** Everything that is suspected is told. */
function verdict(): string[] {
  witness.review(now + 5000)
  return lost
}

describe('a witness of acks', () => {
  it('has nothing to say of acks behind the updates that show what they ack', () => {
    for (let n = 1; n <= 3; n++) {
      witness.sent(n, n)
      read(() => {
        update(n, n)
        witness.acked(n)
      })
    }
    expect(verdict()).toEqual([])
  })

  it('tells of an ack that never comes, though the next one covers it', () => {
    for (const n of [1, 2]) witness.sent(n, n)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => {
      update(3, 2)
      witness.acked(2)
    })
    expect(verdict()).toEqual([
      'message 1 was in the state at seq 1, but its ack had not come before the next update',
    ])
  })

  it('tells of it also to a member who is alone, whose next update comes with the ack that covers it', () => {
    for (const n of [1, 2]) witness.sent(n, n)
    read(() => update(1, 1))
    read(() => {
      update(2, 2)
      witness.acked(2)
    })
    expect(verdict()).toHaveLength(1)
  })

  it('takes two updates in one read for one moment, and tells at the end of it', () => {
    witness.sent(1, 1)
    read(() => {
      update(1, 1)
      update(2)
    })
    expect(verdict()).toEqual([])
    read(() => undefined)
    expect(verdict()).toHaveLength(1)
  })

  it('accepts one ack for missed updates that come in one piece', () => {
    for (const n of [1, 2, 3]) witness.sent(n, n)
    read(() => {
      for (const n of [1, 2, 3]) update(n, n)
      witness.acked(3)
    })
    read(() => update(4))
    expect(verdict()).toEqual([])
  })

  it('accepts an ack in a later read than its update, as long as no other update comes between', () => {
    witness.sent(1, 1)
    read(() => update(1, 1))
    read(() => witness.acked(1))
    read(() => update(2))
    expect(verdict()).toEqual([])
  })

  it.each([
    ['before', -500],
    ['after', 500],
  ])('accepts what comes near a disturbance: shortly %s it', (_, distance) => {
    witness.sent(1, 1)
    if (distance < 0) witness.disturbed(now + distance)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => update(3))
    if (distance > 0) witness.disturbed(now + distance)
    expect(verdict()).toEqual([])
  })

  it('tells of it long after a disturbance, and long before another', () => {
    witness.sent(1, 1)
    witness.disturbed(now - 5000)
    read(() => update(1, 1))
    read(() => update(2))
    read(() => update(3))
    witness.disturbed(now + 5000)
    expect(verdict()).toHaveLength(1)
  })
})
