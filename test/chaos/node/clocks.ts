import { type Clock, systemClock } from '../../../shared/clock.ts'

/** A stretch of time in which this process, or its store, did not get on. */
export interface Stall {
  readonly at: number
  readonly until: number
}

const LOOK_MS = 50
/** Shorter ones cost no one a lease. */
const STALL_MS = 300

/** Tells of every time that the event loop stood still, for whatever reason. The returned function ends it. */
export function watchStalls(tell: (stall: Stall) => void): () => void {
  let last = machineNow()
  const timer = setInterval(() => {
    const now = machineNow()
    if (now - last > STALL_MS) tell({ at: last, until: now })
    last = now
  }, LOOK_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** Does `work`, and tells when it took so long that a lease may have run out meanwhile. */
export async function watchSlow<T>(work: () => Promise<T>, tell: (stall: Stall) => void): Promise<T> {
  const at = machineNow()
  try {
    return await work()
  } finally {
    const until = machineNow()
    if (until - at > STALL_MS) tell({ at, until })
  }
}

/** The machine's clock, whose wall time can be made to jump; its monotonic time goes on. */
export class JumpingClock implements Clock {
  #offsetMs = 0
  #readAt = 0
  /** From the time of this process to that of the machine. */
  readonly #toMachineMs = machineNow() - systemClock.monotonic()

  /** When the monotonic time was last read, on the machine's monotonic clock. */
  get readAt(): number {
    return this.#readAt + this.#toMachineMs
  }

  jump(byMs: number): void {
    this.#offsetMs += byMs
  }

  now(): number {
    return systemClock.now() + this.#offsetMs
  }

  monotonic(): number {
    this.#readAt = systemClock.monotonic()
    return this.#readAt
  }

  schedule(delayMs: number, callback: () => void): () => void {
    return systemClock.schedule(delayMs, callback)
  }
}

/** Milliseconds on the machine's monotonic clock, which all its processes share: the time of every history of real processes. */
export const machineNow = (): number => Number(process.hrtime.bigint()) / 1e6

/** The machine's clock, with a monotonic time that all processes of the machine share. */
export const machineClock: Clock = { ...systemClock, monotonic: machineNow }
