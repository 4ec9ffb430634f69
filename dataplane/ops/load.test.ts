import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { NODE_METRICS } from '../metrics.ts'
import { LoadMeter } from './load.ts'

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
