import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { NODE_METRICS } from '../metrics.ts'
import { LoadMeter, SlowdownController } from './load.ts'

const metrics = () => registerMetrics(new Registry(), NODE_METRICS)

/** A clock whose timers come late by `lateMs`. */
class LateClock extends FakeClock {
  lateMs = 0
  override schedule(delayMs: number, callback: () => void): () => void {
    return super.schedule(delayMs + this.lateMs, callback)
  }
}

describe('the load', () => {
  it('tells the longest delay of the last second, and every delay to its listener', () => {
    const clock = new LateClock()
    const delays: number[] = []
    const eventLoopDelay = { observe: (seconds: number) => void delays.push(seconds) }
    const meter = new LoadMeter(clock, { ...metrics(), eventLoopDelay })
    clock.lateMs = 30
    meter.start()
    clock.lateMs = 5
    clock.advance(1100)
    expect(meter.read().event_loop_delay_ms).toBe(30)
    expect(delays.slice(0, 2)).toEqual([0.03, 0.005])
    clock.lateMs = 0
    clock.advance(2000)
    expect(meter.read().event_loop_delay_ms).toBe(0)
  })

  it('is between nothing and all of the event loop, and some memory', () => {
    const clock = new FakeClock()
    const meter = new LoadMeter(clock, metrics())
    meter.start()
    clock.advance(1000)
    const load = meter.read()
    expect(load.event_loop_utilisation).toBeGreaterThanOrEqual(0)
    expect(load.event_loop_utilisation).toBeLessThanOrEqual(1)
    expect(load.rss_bytes).toBeGreaterThan(1_000_000)
  })

  it('leaves no timer behind', () => {
    const clock = new FakeClock()
    const meter = new LoadMeter(clock, metrics())
    meter.start()
    meter.start()
    clock.advance(500)
    meter.stop()
    expect(clock.pending).toBe(0)
  })
})

/** A controller whose event loop is so far behind for so long, looked at every 20 ms. */
function controller() {
  const slowdown = new SlowdownController()
  let now = 1000
  return {
    slowdown,
    behind(ms: number, forMs: number): number {
      for (const until = now + forMs; now < until; now += 20) slowdown.observe(ms, now)
      return Number(slowdown.factor.toFixed(2))
    },
  }
}

describe('the slowdown of a node', () => {
  it('grows step by step while its event loop is behind, to where 20 updates a second become 8, and not for a burst', () => {
    const { slowdown, behind } = controller()
    behind(0, 10_000)
    for (let times = 0; times < 10; times++) expect([behind(500, 100), behind(0, 100)]).toEqual([1, 1])
    expect([behind(40, 220), behind(40, 200), behind(40, 200), behind(40, 5000)]).toEqual([
      1.36, 1.84, 2.5, 2.5,
    ])
    expect(slowdown.overloaded).toBe(true)
  })

  it('is gone some seconds after the load is, though the loop is late now and then', () => {
    const { slowdown, behind } = controller()
    behind(40, 5000)
    expect([slowdown.overloaded, behind(0, 1900)]).toEqual([true, 2.5])
    expect([behind(0, 200), slowdown.overloaded]).toEqual([1.84, false])
    for (let times = 0; times < 20; times++) {
      behind(40, 20)
      behind(0, 180)
    }
    expect(behind(0, 20)).toBe(1)
  })

  it('is no overload before slower rooms have had the time to help', () => {
    const { slowdown, behind } = controller()
    expect([behind(40, 1500), slowdown.overloaded]).toEqual([2.5, false])
    behind(40, 300)
    expect(slowdown.overloaded).toBe(true)
  })

  it('follows how late timers are, and how long inputs have waited', () => {
    for (const lateMs of [0, 50]) {
      const clock = new LateClock()
      clock.lateMs = lateMs
      const meter = new LoadMeter(clock, metrics(), () => 50 - lateMs)
      meter.start()
      clock.advance(3000)
      expect([meter.slowdown, meter.overloaded]).toEqual([2.5, true])
    }
  })
})
