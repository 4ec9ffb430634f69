import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { NODE_METRICS } from '../metrics.ts'
import { connectionsWithin, LoadMeter, OverloadController, openFileLimit } from './overload.ts'

const metrics = () => registerMetrics(new Registry(), NODE_METRICS)

const log = pino({ level: 'silent' })

/** A clock whose timers are late by `lateMs`. */
class LateClock extends FakeClock {
  lateMs = 0
  override schedule(delayMs: number, callback: () => void): () => void {
    return super.schedule(delayMs + this.lateMs, callback)
  }
}

describe('the load', () => {
  it('has the longest delay of the last second, and every delay is in the histogram', () => {
    const clock = new LateClock()
    const delays: number[] = []
    const eventLoopDelay = { observe: (seconds: number) => void delays.push(seconds) }
    const meter = new LoadMeter({ clock, metrics: { ...metrics(), eventLoopDelay }, log })
    clock.lateMs = 30
    meter.start()
    clock.lateMs = 5
    clock.advance(1100)
    expect(meter.read().event_loop_delay_ms).toBe(30)
    expect(delays.slice(0, 2)).toEqual([0.03, 0.005])
    clock.lateMs = 0
    clock.advance(2500)
    expect(meter.read().event_loop_delay_ms).toBe(0)
  })

  it('is between 0 and 1 for the event loop, with some memory', () => {
    const clock = new FakeClock()
    const meter = new LoadMeter({ clock, metrics: metrics(), log })
    meter.start()
    clock.advance(1000)
    const load = meter.read()
    expect(load.event_loop_utilisation).toBeGreaterThanOrEqual(0)
    expect(load.event_loop_utilisation).toBeLessThanOrEqual(1)
    expect(load.rss_bytes).toBeGreaterThan(1_000_000)
  })

  it('is measured less often while the node is idle', () => {
    const clock = new LateClock()
    let [looks, share] = [0, 0]
    const cpuMs = () => clock.monotonic() * share
    const eventLoopDelay = { observe: () => void looks++ }
    const meter = new LoadMeter({ clock, metrics: { ...metrics(), eventLoopDelay }, log, cpuMs })
    const looksIn = (ms: number): number => {
      looks = 0
      clock.advance(ms)
      return looks
    }
    meter.start()
    clock.advance(200)
    expect(looksIn(1000)).toBe(5)
    clock.lateMs = 10
    clock.advance(400)
    expect(looksIn(1000)).toBeGreaterThan(30)
    clock.lateMs = 0
    clock.advance(400)
    expect(looksIn(1000)).toBe(5)
    share = 0.5
    clock.advance(400)
    expect(looksIn(1000)).toBe(50)
  })

  it('logs that the process stood still for a second or more, with the CPU time that it had', () => {
    const clock = new LateClock()
    const lines: unknown[][] = []
    const warn = (...line: unknown[]) => void lines.push(line)
    const cpuMs = () => clock.monotonic() * 0.01
    const meter = new LoadMeter({ clock, metrics: metrics(), log: { warn }, cpuMs })
    clock.lateMs = 999
    meter.start()
    clock.lateMs = 40_000
    clock.advance(1100)
    expect(lines).toEqual([])
    clock.lateMs = 0
    clock.advance(40_000)
    expect(lines).toEqual([[{ seconds: 40, cpu_seconds: 0.4 }, 'the process stood still']])
  })

  it('leaves no timer when it stops', () => {
    const clock = new FakeClock()
    const meter = new LoadMeter({ clock, metrics: metrics(), log })
    meter.start()
    meter.start()
    clock.advance(500)
    meter.stop()
    expect(clock.pending).toBe(0)
  })
})

/**
 * A controller with functions that let time pass. `pass`: in probes of 20 ms, with an event loop that is late by `lagMs` and idle for `idleShare` of
 * the time. Default: never while it is late. `share`: CPU time of the process, as a part of its busy time.
 */
function controller() {
  const overload = new OverloadController()
  let [now, idleMs, cpuMs] = [1000, 0, 0]
  return {
    overload,
    pass(lagMs: number, forMs: number, idleShare = lagMs > 0 ? 0 : 0.8, share = 1): number {
      for (const until = now + forMs; now < until; ) {
        now += 20
        idleMs += 20 * idleShare
        cpuMs += 20 * (1 - idleShare) * share
        overload.observe({ lagMs, now, cpuMs, idleMs })
      }
      return overload.relief.slowdown
    },
    /** The event loop does not turn for `forMs`. */
    block(forMs: number): number {
      now += forMs
      cpuMs += forMs
      overload.observe({ lagMs: forMs, now, cpuMs, idleMs })
      return overload.relief.slowdown
    },
  }
}

describe('a node whose event loop is behind', () => {
  it('slows its rooms down step by step until 20 updates a second become 8, and not for a burst', () => {
    const { overload, pass } = controller()
    pass(0, 10_000)
    for (let times = 0; times < 10; times++) expect([pass(500, 100), pass(0, 100)]).toEqual([1, 1])
    const steps = new Set(Array.from({ length: 100 }, () => pass(100, 20).toFixed(2)))
    expect([...steps]).toEqual(['1.00', '1.20', '1.44', '1.73', '2.07', '2.40'])
    expect(overload.overloaded).toBe(false)
  })

  it('changes nothing for a single long block, and takes a step with each of several in a row', () => {
    const { pass, block } = controller()
    pass(0, 1000)
    expect([block(3000), pass(0, 200), block(3000), block(3000), block(3000)]).toEqual([1, 1, 1, 1.2, 1.44])
  })

  it('reads its sockets less often after slower rooms had time to help, and then slows them down further if needed', () => {
    const { overload, pass } = controller()
    const until = (done: () => boolean): number => {
      for (let ms = 0; ms < 60_000; ms += 20) {
        if (done()) return ms
        pass(500, 20)
      }
      return Number.POSITIVE_INFINITY
    }
    until(() => overload.relief.slowdown === 2.4)
    expect(until(() => overload.overloaded)).toBeGreaterThanOrEqual(1000)
    expect(overload.relief).toEqual({ slowdown: 2.4, inputIntervalMs: 120 })
    until(() => overload.relief.inputIntervalMs === 1000)
    expect(overload.relief.slowdown).toBeCloseTo(2.4, 0)
    pass(500, 5000)
    expect(overload.relief).toEqual({ slowdown: 10, inputIntervalMs: 1000 })
  })

  it('returns to normal within 2 s after the load has gone, even if the loop is late now and then', () => {
    const { overload, pass } = controller()
    pass(500, 10_000)
    for (let times = 0; times < 10; times++) {
      pass(500, 20)
      pass(0, 180, 0.5)
    }
    expect(overload.relief).toEqual({ slowdown: 1, inputIntervalMs: 0 })
  })

  it('takes its measures back only as far as the idle time allows, and keeps them if it is idle for at most 5% of the time', () => {
    const backTo = (idleShare: number): number => {
      const { overload, pass } = controller()
      while (overload.relief.slowdown < 2.4) pass(500, 20)
      return pass(10, 200, idleShare)
    }
    expect([0.05, 0.24, 0.43, 0.9].map((idle) => backTo(idle).toFixed(2))).toEqual([
      '2.40',
      '1.92',
      '1.44',
      '1.00',
    ])
  })

  it('takes no measure while it is idle for more than 5% of the time, however late its timers are', () => {
    const { overload, pass } = controller()
    expect([pass(500, 60_000, 0.06), overload.overloaded]).toEqual([1, false])
    expect(pass(500, 400, 0.04)).toBe(1.2)
  })

  it('takes no measure if other processes took its core, and keeps those that it has taken', () => {
    const { overload, pass } = controller()
    expect([pass(500, 60_000, 0, 0.2), overload.overloaded]).toEqual([1, false])
    pass(500, 3000)
    const { relief } = overload
    pass(500, 60_000, 0, 0.2)
    expect(overload.relief).toEqual(relief)
  })

  it('is detected by late timers, by the time that inputs have waited, by idle time, and by the CPU share of the process', () => {
    for (const [lateMs, share, idleShare] of [
      [0, 1, 0],
      [250, 1, 0],
      [250, 0.2, 0],
      [250, 0.8, 0.2],
    ] as const) {
      const clock = new LateClock()
      clock.lateMs = lateMs
      const meter = new LoadMeter({
        clock,
        metrics: metrics(),
        log,
        waitedMs: () => 250 - lateMs,
        cpuMs: () => clock.monotonic() * share,
        idleMs: () => clock.monotonic() * idleShare,
      })
      meter.start()
      clock.advance(10_000)
      expect(meter.overloaded).toBe(share === 1)
    }
  })
})

describe('the limit of open files', () => {
  it('is the soft limit of the system, and undefined if the system reports none', () => {
    const folder = mkdtempSync(join(tmpdir(), 'roomful-limits-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const limitIn = (text: string) => {
      writeFileSync(join(folder, 'limits'), text)
      return openFileLimit(join(folder, 'limits'))
    }
    const line =
      'Max processes   1   1   processes\nMax open files            1024                 4096                 files\n'
    expect(limitIn(line)).toBe(1024)
    expect(limitIn('Max open files   unlimited   unlimited   files\n')).toBeUndefined()
    expect(openFileLimit(join(folder, 'none'))).toBeUndefined()
  })

  it('is logged if it is too low for MAX_SESSIONS, and bounds the connections', () => {
    const warned: object[] = []
    const log = { warn: (fields: object, text: string) => void warned.push({ ...fields, text }) }
    expect(connectionsWithin(4300, 2000, log)).toBe(4000)
    expect(connectionsWithin(undefined, 2000, log)).toBeUndefined()
    expect(connectionsWithin(1024, 0, log)).toBe(724)
    expect(warned).toEqual([])
    expect(connectionsWithin(1024, 2000, log)).toBe(724)
    expect(warned).toEqual([
      { open_files: 1024, needed: 4300, max_sessions: 2000, text: 'ulimit -n is too low for MAX_SESSIONS' },
    ])
  })
})
