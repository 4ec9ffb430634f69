import { readFileSync } from 'node:fs'
import { type EventLoopUtilization, performance } from 'node:perf_hooks'
import { type Clock, untilNext } from '../../shared/clock.ts'
import { LIMITS } from '../../shared/limits.ts'
import type { Metrics } from '../../shared/metrics.ts'
import type { NODE_METRICS } from '../metrics.ts'

/**
 * Load of a node, and its measures against overload. Other files take the measures: `room/scheduler.ts` flushes and ticks less often,
 * `gateway/fast-socket.ts` reads sockets less often, `gateway/connection.ts` handles only the newest message without ref, `room/backlog.ts`
 * drops old messages, `gateway/client-protocol.ts` refuses new sessions, and `cluster/placement.ts` prefers other nodes.
 */

/** Load of a node's process. */
export interface Load {
  /** Share of the last interval in which the event loop was busy, 0–1. */
  readonly event_loop_utilisation: number
  /** Longest delay of a timer in the last interval, in milliseconds. */
  readonly event_loop_delay_ms: number
  /** Resident memory of the process. */
  readonly rss_bytes: number
}

const PROBE_MS = 20
/** Probe interval of an idle node, because each probe wakes the process. */
const IDLE_PROBE_MS = 200
/** A node counts as idle up to this share of a core, if timers are at most this late. */
const IDLE_SHARE = 0.2
const IDLE_LATE_MS = 5
const INTERVAL_MS = 1000
/** A timer that is this late is logged: rooms pause, and soon the lease expires. */
const STOOD_STILL_MS = 1000

/** The event loop counts as behind if timers are this late, or inputs have waited this long. Multiplied by the slowdown. */
const BEHIND_MS = 40
/** Time behind, less the time not behind, after which the pressure grows, and the factor of that. */
const MORE_AFTER_MS = 200
const MORE = 1.2
/** The same time before inputs are dropped for the first time: the slower rooms get time to take effect. */
const OVERLOADED_AFTER_MS = 1000
/** If the process got less of a core than this while it was late, other processes delayed it. Slower rooms would then deliver less. */
const OWN_SHARE = 0.4
/** Intervals in which the idle time of the event loop is measured. */
const WINDOW_MS = 200
/** A node could do more if its event loop is busy for less than this share of a window. */
const FULL_SHARE = 0.95

/** Pressures from which sockets are read less often, from which rooms slow down again, and at which both are at their limits. */
const SLOW_ROOMS = 2.4
const SLOW_READS = 24
const MOST = 100

/** Measures of a node against overload. */
interface Relief {
  /** Factor by which the intervals of flushes and ticks are longer than configured. */
  readonly slowdown: number
  /** Minimum time between two reads of a socket, in milliseconds; 0: none. One message without `ref` is handled per read. */
  readonly inputIntervalMs: number
}

/** Slower rooms first: of 20 updates a second 8 remain. Then fewer inputs of each session, and finally still slower rooms. */
const reliefAt = (pressure: number): Relief => ({
  slowdown: Math.max(Math.min(pressure, SLOW_ROOMS), (pressure * SLOW_ROOMS) / SLOW_READS),
  inputIntervalMs: pressure > SLOW_ROOMS ? 1000 * Math.min(1, pressure / SLOW_READS) : 0,
})

/** State of the event loop at one probe. */
interface Look {
  /** Delay of the event loop, in milliseconds. */
  readonly lagMs: number
  /** Time of the probe, on the monotonic clock. */
  readonly now: number
  /** CPU time that the process has used since its start, in milliseconds. */
  readonly cpuMs: number
  /** Time for which the event loop has waited for events since its start, in milliseconds. Time in which it had work and no CPU is not part of it. */
  readonly idleMs: number
}

/**
 * Chooses the measures of a node whose event loop is behind. It adds the time in which the loop is behind, and subtracts the time in which it
 * is not. A burst, a garbage collection or one slow turn thus changes nothing, but a lasting delay does. Measures are taken back as far as the
 * idle time allows: the busy time may grow as much as the pressure falls.
 */
export class OverloadController {
  #pressure = 1
  #relief = reliefAt(1)
  /** Time behind, less the time not behind, since the pressure changed. */
  #behindMs = 0
  #wasBehind = false
  #last: Look | undefined
  /** Start of the window. */
  #since: Look | undefined

  get relief(): Relief {
    return this.#relief
  }

  /** True if slower rooms are not enough to relieve the node. */
  get overloaded(): boolean {
    return this.#relief.inputIntervalMs > 0
  }

  observe(look: Look): void {
    this.#countBehind(look)
    this.#since ??= look
    const passedMs = look.now - this.#since.now
    if (passedMs < WINDOW_MS) return
    const busy = 1 - (look.idleMs - this.#since.idleMs) / passedMs
    this.#since = look
    const slowRooms = this.#pressure === SLOW_ROOMS
    if (busy < FULL_SHARE) this.#set(Math.max(1, (this.#pressure * busy) / FULL_SHARE))
    else if (this.#behindMs >= (slowRooms ? OVERLOADED_AFTER_MS : MORE_AFTER_MS))
      this.#set(Math.min(this.#pressure * MORE, this.#pressure < SLOW_ROOMS ? SLOW_ROOMS : MOST))
  }

  /** Counts the time since the last probe. The first probe that is late counts nothing: a single block, however long, changes nothing. */
  #countBehind(look: Look): void {
    const last = this.#last ?? look
    const passedMs = look.now - last.now
    const behind = look.lagMs > BEHIND_MS * this.#relief.slowdown
    if (!behind) this.#behindMs = Math.max(0, this.#behindMs - passedMs)
    else if (this.#wasBehind && look.cpuMs - last.cpuMs >= OWN_SHARE * passedMs) this.#behindMs += passedMs
    this.#wasBehind = behind
    this.#last = look
  }

  #set(pressure: number): void {
    this.#pressure = pressure
    this.#relief = reliefAt(pressure)
    this.#behindMs = 0
  }
}

/** Measures the load of this process from `start` to `stop`, in intervals of one second. */
export class LoadMeter {
  readonly #clock: Clock
  readonly #log: { warn(fields: object, text: string): void }
  readonly #metrics: Metrics<typeof NODE_METRICS>
  readonly #waitedMs: () => number
  readonly #cpuMs: () => number
  readonly #idleMs: () => number
  readonly #overload = new OverloadController()
  #intervalStart = 0
  #mark: EventLoopUtilization = performance.eventLoopUtilization()
  #utilisation = 0
  #delayMs = 0
  #longestMs = 0
  #cancel: (() => void) | undefined

  constructor(node: {
    readonly clock: Clock
    readonly metrics: Metrics<typeof NODE_METRICS>
    readonly log: { warn(fields: object, text: string): void }
    /** Returns the time for which the next inputs have waited, in milliseconds. Default: 0. */
    readonly waitedMs?: () => number
    /** Returns the CPU time that the process has used, in milliseconds. */
    readonly cpuMs?: () => number
    /** Returns the time for which the event loop has waited for events, in milliseconds. */
    readonly idleMs?: () => number
  }) {
    this.#clock = node.clock
    this.#log = node.log
    this.#metrics = node.metrics
    this.#waitedMs = node.waitedMs ?? (() => 0)
    this.#cpuMs = node.cpuMs ?? processCpuMs
    this.#idleMs = node.idleMs ?? (() => performance.eventLoopUtilization().idle)
    node.metrics.eventLoopUtilisation.read(() => this.eventLoopUtilisation)
    node.metrics.slowdown.read(() => this.slowdown)
    node.metrics.overloaded.read(() => Number(this.overloaded))
  }

  start(): void {
    if (this.#cancel) return
    this.#intervalStart = this.#clock.monotonic()
    this.#mark = performance.eventLoopUtilization()
    this.#probe()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  /** Utilisation over the last complete interval. Unlike `read`, it does not ask the system for the memory. */
  get eventLoopUtilisation(): number {
    return round(this.#utilisation, 3)
  }

  /** Factor by which the intervals of flushes and ticks of all rooms are longer than configured; 1 while the event loop keeps up. */
  get slowdown(): number {
    return this.#overload.relief.slowdown
  }

  /** Minimum time between two reads of a socket, in milliseconds; 0 while slower rooms are enough. One message without `ref` is handled per read. */
  get inputIntervalMs(): number {
    return this.#overload.relief.inputIntervalMs
  }

  /** True if slower rooms are not enough: inputs are dropped, and new sessions are refused. */
  get overloaded(): boolean {
    return this.#overload.overloaded
  }

  /** The load over the last complete interval. */
  read(): Load {
    return {
      event_loop_utilisation: this.eventLoopUtilisation,
      event_loop_delay_ms: round(this.#delayMs, 1),
      rss_bytes: process.memoryUsage.rss(),
    }
  }

  /** Schedules the next probe after `delayMs`. `before`: CPU time and monotonic time of now. */
  #probe(delayMs = PROBE_MS, before = { now: this.#clock.monotonic(), cpuMs: this.#cpuMs() }): void {
    const due = before.now + delayMs
    this.#cancel = this.#clock.schedule(delayMs, () => {
      const now = this.#clock.monotonic()
      const cpuMs = this.#cpuMs()
      const lateMs = Math.max(0, now - due)
      const lagMs = Math.max(lateMs, this.#waitedMs())
      this.#metrics.eventLoopDelay.observe(lateMs / 1000)
      // The CPU time tells the reason: with little of it, the process was suspended or delayed by others; otherwise its own code ran.
      if (lateMs >= STOOD_STILL_MS)
        this.#log.warn(
          { seconds: round(lateMs / 1000, 1), cpu_seconds: round((cpuMs - before.cpuMs) / 1000, 1) },
          'the process stood still',
        )
      this.#longestMs = Math.max(this.#longestMs, lateMs)
      this.#overload.observe({ lagMs, now, cpuMs, idleMs: this.#idleMs() })
      if (now - this.#intervalStart >= INTERVAL_MS) this.#endInterval(now)
      const idle = lagMs <= IDLE_LATE_MS && cpuMs - before.cpuMs <= IDLE_SHARE * (now - before.now)
      this.#probe(idle && this.slowdown === 1 ? untilNext(this.#clock, IDLE_PROBE_MS) : PROBE_MS, {
        now,
        cpuMs,
      })
    })
  }

  #endInterval(now: number): void {
    const mark = performance.eventLoopUtilization()
    this.#utilisation = performance.eventLoopUtilization(mark, this.#mark).utilization
    this.#mark = mark
    this.#delayMs = this.#longestMs
    this.#longestMs = 0
    this.#intervalStart = now
  }
}

function processCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

const round = (value: number, digits: number): number => Number(value.toFixed(digits))

/** File descriptors that a node reserves for Redis, control, operators, its log, and room code. */
const RESERVED = 300

/** Returns the limit of open files of this process (`ulimit -n`). Undefined: there is none, or the system does not report it. */
export function openFileLimit(file = '/proc/self/limits'): number | undefined {
  try {
    const limit = Number(/^Max open files\s+(\d+)/m.exec(readFileSync(file, 'utf8'))?.[1])
    return Number.isNaN(limit) ? undefined : limit
  } catch {
    return undefined
  }
}

/**
 * Returns the number of client connections that `limit` open files allow, at least 1. Logs a warning if `maxSessions` (0: no limit) needs
 * more. Without this bound, the system would drop connections that no metric counts.
 */
export function connectionsWithin(
  limit: number | undefined,
  maxSessions: number,
  log: { readonly warn: (fields: object, text: string) => void },
): number | undefined {
  if (limit === undefined) return undefined
  const needed = maxSessions + LIMITS.maxPendingConnections.value + RESERVED
  if (maxSessions > 0 && limit < needed)
    log.warn(
      { open_files: limit, needed, max_sessions: maxSessions },
      'ulimit -n is too low for MAX_SESSIONS',
    )
  return Math.max(1, limit - RESERVED)
}
