import { type Clock, systemClock } from '../../../shared/clock.ts'

/** Time in which this process did not run, or waited for its store. In ms of `machineNow`. */
export interface Stall {
  readonly at: number
  readonly until: number
}

const LOOK_MS = 50
/** Shorter stalls cannot make a lease expire. */
const STALL_MS = 300

/** Calls `onStall` after each stall of the event loop. The returned function stops watching. */
export function watchStalls(onStall: (stall: Stall) => void): () => void {
  let last = machineNow()
  const timer = setInterval(() => {
    const now = machineNow()
    if (now - last > STALL_MS) onStall({ at: last, until: now })
    last = now
  }, LOOK_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** Runs `work`, and calls `onStall` if `work` took so long that a lease may have expired. */
export async function watchSlow<T>(work: () => Promise<T>, onStall: (stall: Stall) => void): Promise<T> {
  const at = machineNow()
  try {
    return await work()
  } finally {
    const until = machineNow()
    if (until - at > STALL_MS) onStall({ at, until })
  }
}

/** System clock whose wall time can jump. Its monotonic time is not affected. */
export class JumpingClock implements Clock {
  #offsetMs = 0
  #readAt = 0
  /** Difference between the machine's and this process's monotonic time. */
  readonly #toMachineMs = machineNow() - systemClock.monotonic()

  /** Time of the last call of `monotonic`, in ms of `machineNow`. */
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

/** Returns the machine's monotonic time in ms, which all its processes share. Histories of real processes use it. */
export const machineNow = (): number => Number(process.hrtime.bigint()) / 1e6

/** System clock whose monotonic time is `machineNow`. */
export const machineClock: Clock = { ...systemClock, monotonic: machineNow }
