import { describe, expect, it } from 'vitest'
import { MOMENT_MS } from '../../shared/clock.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { Scheduler, TickTimer } from './scheduler.ts'

function parts(startedAt?: number) {
  const clock = new FakeClock(startedAt)
  const deferred: (() => void)[] = []
  const errors: unknown[] = []
  const scheduler = new Scheduler(
    clock,
    (callback) => deferred.push(callback),
    (error) => errors.push(error),
  )
  return { clock, deferred, errors, scheduler }
}

describe('a scheduler', () => {
  it('runs timers in the order of their deadlines, with one callback of the clock outstanding', () => {
    const { clock, scheduler } = parts()
    const random = new SeededRandom(3)
    const ran: number[] = []
    const dues = Array.from({ length: 200 }, () => Math.floor(random.float() * 1000))
    const timers = dues.map((due) => scheduler.timer(() => ran.push(due)))
    timers.forEach((timer, i) => {
      timer.at(dues[i]!)
    })
    expect(clock.pending).toBeLessThanOrEqual(dues.length)
    for (let i = 0; i < 200; i += 3) timers[i]!.cancel()
    const kept = dues.filter((_, i) => i % 3 !== 0).sort((a, b) => a - b)
    clock.advance(500)
    expect(ran).toEqual(kept.filter((due) => due <= 500))
    expect(clock.pending).toBe(1)
    clock.advance(500)
    expect(ran).toEqual(kept)
    expect(clock.pending).toBe(0)
  })

  it('moves a timer that is set again, and does not run one that is cancelled', () => {
    const { clock, deferred, scheduler } = parts()
    let ran = 0
    const timer = scheduler.timer(() => ran++)
    timer.at(10)
    timer.at(50)
    clock.advance(20)
    expect(ran).toBe(0)
    timer.soon()
    clock.advance(100)
    expect(ran).toBe(0)
    for (const callback of deferred.splice(0)) callback()
    expect([ran, timer.waiting]).toEqual([1, false])
    timer.soon()
    timer.cancel()
    for (const callback of deferred) callback()
    expect(ran).toBe(1)
  })

  it('continues when a timer throws', () => {
    const { clock, errors, scheduler } = parts()
    let ran = 0
    scheduler
      .timer(() => {
        throw new Error('no')
      })
      .at(10)
    scheduler.timer(() => ran++).at(10)
    clock.advance(10)
    expect([ran, errors.length]).toEqual([1, 1])
  })

  it('defers once per turn', () => {
    const { deferred, scheduler } = parts()
    let ran = 0
    for (let i = 0; i < 10; i++) scheduler.timer(() => ran++).soon()
    expect(deferred.length).toBe(1)
    deferred[0]!()
    expect(ran).toBe(10)
  })
})

describe('rooms of two nodes', () => {
  it('act at the same moments of the wall clock, whenever their processes started', () => {
    const beganAt = 1_795_000_000_000
    const momentsOf = (startedAt: number) => {
      const { clock, scheduler } = parts(startedAt)
      const moments = new Set<number>()
      for (const phase of [0, 0.2, 0.4, 0.6, 0.9]) {
        const ticks = new TickTimer({ scheduler, load: { slowdown: 1 } }, phase, () =>
          moments.add(Math.floor((clock.now() % 50) / MOMENT_MS)),
        )
        ticks.set(20)
      }
      for (let i = 0; i < 1000; i++) clock.advance(1)
      return [...moments].sort((a, b) => a - b)
    }
    expect(momentsOf(beganAt)).toHaveLength(5)
    expect(momentsOf(beganAt + 12_345)).toEqual(momentsOf(beganAt))
  })
})
