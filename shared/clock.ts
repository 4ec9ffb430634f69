/** Time as roomful sees it; passed in everywhere so that tests run without waiting. */
export interface Clock {
  /** Wall-clock time in milliseconds since 1970; may jump. For stamps that people and other machines read. */
  now(): number
  /** Milliseconds since an arbitrary start; never jumps back. For leases, deadlines and rates. */
  monotonic(): number
  /** Runs `callback` once after `delayMs` (monotonic), soon if that is negative. The returned function cancels it. Never keeps a process alive. */
  schedule(delayMs: number, callback: () => void): () => void
}

// Taken once: each look-up of the global costs as much as reading the time.
const { performance } = globalThis

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule: (delayMs, callback) => {
    // Node 24 warns about negative delays.
    const timer = setTimeout(callback, Math.max(0, delayMs))
    if (typeof timer === 'object') timer.unref()
    return () => clearTimeout(timer)
  },
}

/**
 * So far apart, in milliseconds of the wall clock, are the moments at which rooms are flushed and nodes send each other what has
 * gathered. Nodes whose clocks agree do so together, and each reads what several have for it with one wake-up. The usual rates of rooms
 * (10, 20, 30, 60) are parts of it.
 */
export const MOMENT_MS = 1000 / 120

/**
 * Milliseconds until the next multiple of `everyMs` on the monotonic clock that is `leastMs` away. What a process does all the time it does at such
 * moments: it wakes up once for all of it together.
 */
export function untilNext(clock: Clock, everyMs: number, leastMs = everyMs / 2): number {
  const left = everyMs - (clock.monotonic() % everyMs)
  return left < leastMs ? left + everyMs : left
}

/** Resolves after so many milliseconds (monotonic). */
export const sleep = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => void clock.schedule(ms, resolve))

/** `2026-11-20T13:30:00.000Z`: the one time format of the API, from milliseconds since 1970. */
export const timestamp = (ms: number): string => new Date(ms).toISOString()
