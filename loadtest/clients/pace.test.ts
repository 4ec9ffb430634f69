import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { Pacer, ramp } from './pace.ts'

/** Lets promises go on that are settled. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('a ramp', () => {
  it('begins work when it is due, however long the work takes, and resolves when all of it is done', async () => {
    const clock = new FakeClock()
    const begun: [string, number, number][] = []
    const ends: (() => void)[] = []
    let done = false
    const ramped = ramp(
      clock,
      ['a', 'b', 'c'],
      { perSecond: 10, offset: 0.5, ended: () => false },
      (item, due) => {
        begun.push([item, due, clock.monotonic()])
        return new Promise((resolve) => ends.push(resolve))
      },
    ).then(() => {
      done = true
    })
    for (let ms = 0; ms < 400; ms += 10) {
      clock.advance(10)
      await turn()
    }
    expect(begun).toEqual([
      ['a', 50, 50],
      ['b', 150, 150],
      ['c', 250, 250],
    ])
    expect(done).toBe(false)
    for (const end of ends) end()
    await ramped
  })

  it('tells when work was due, though it begins late', async () => {
    const clock = new FakeClock()
    const late: number[] = []
    const ramped = ramp(
      clock,
      [1, 2, 3],
      { perSecond: 100, offset: 0, ended: () => false },
      async (_, due) => {
        late.push(clock.monotonic() - due)
        clock.pause(50)
      },
    )
    await ramped
    expect(late).toEqual([0, 40, 80])
  })

  it('begins nothing more after its end', async () => {
    const clock = new FakeClock()
    const begun: number[] = []
    await ramp(
      clock,
      [1, 2, 3],
      { perSecond: 1, offset: 0, ended: () => begun.length === 1 },
      async (item) => {
        begun.push(item)
        clock.pause(1000)
      },
    )
    expect(begun).toEqual([1])
  })
})

describe('a pacer', () => {
  it('has all send at the rate, one after the other, evenly spread', () => {
    const clock = new FakeClock()
    const said: [sender: number, due: number][] = []
    new Pacer(clock).start(
      5,
      0,
      () => 4,
      (sender, due) => said.push([sender, due]),
    )
    clock.advance(999)
    expect(said).toHaveLength(4 * 5)
    expect(said.slice(0, 5)).toEqual([
      [0, 0],
      [1, 50],
      [2, 100],
      [3, 150],
      [0, 200],
    ])
  })

  it('makes up for a time in which the process stood still, with what was due then', () => {
    const clock = new FakeClock()
    const late: number[] = []
    new Pacer(clock).start(
      10,
      0,
      () => 1,
      (_, due) => late.push(clock.monotonic() - due),
    )
    clock.advance(1)
    clock.pause(349)
    clock.advance(1)
    expect(late).toEqual([0, 250, 150, 50])
  })

  it('leaves nothing out that was due when it is stopped, however late that is', () => {
    const clock = new FakeClock()
    const late: number[] = []
    const pacer = new Pacer(clock)
    pacer.start(
      10,
      0,
      () => 1,
      (_, due) => late.push(clock.monotonic() - due),
    )
    clock.advance(1)
    clock.pause(349)
    pacer.stop()
    clock.advance(1000)
    expect(late).toEqual([0, 250, 150, 50])
  })

  it('takes in who comes later, and sends nothing more once it is stopped', () => {
    const clock = new FakeClock()
    let senders = 0
    const said: number[] = []
    const pacer = new Pacer(clock)
    pacer.start(
      1,
      0,
      () => senders,
      (sender) => said.push(sender),
    )
    clock.advance(1000)
    expect(said).toEqual([])
    senders = 2
    clock.advance(2000)
    expect(said.length).toBeGreaterThanOrEqual(3)
    expect(new Set(said)).toEqual(new Set([0, 1]))
    pacer.stop()
    const before = said.length
    clock.advance(5000)
    expect(said).toHaveLength(before)
  })
})
