/** Faults of a connection or a node. */
export const TIMED = [
  'delay',
  'cut',
  'cut at hello',
  'close',
  'token',
  'silence',
  'move',
  'move to nowhere',
  'move home',
  'drain',
  'kill',
] as const
export type TimedFault = (typeof TIMED)[number]

/** Faults of the proxy. The README explains why a correct client survives each. */
export const FAULTS = ['lose', 'spoil', 'double', ...TIMED, 'new session', 'stop'] as const
export type Fault = (typeof FAULTS)[number]

/** Faults after which a client waits before it connects again. The pause grows until a connection has lasted 5 s (R5). */
export const BREAKS: ReadonlySet<Fault> = new Set([
  'cut',
  'cut at hello',
  'close',
  'token',
  'silence',
  'drain',
  'kill',
])

/** Faults of single frames: one frame out of this number. */
export const ONE_OF = { lose: 40, spoil: 150, double: 15 } as const satisfies Partial<Record<Fault, number>>
export type FrameFault = keyof typeof ONE_OF

/** Codes after which a client resumes. Some are not on the page. */
export const RESUME_CODES = [1000, 1001, 1012, 1013, 3000, 4101, 4102, 4103, 4199, 4999]
export const TOKEN_CODE = 4200
export const NEW_SESSION_CODE = 4300
/** A code that is not on the page. 40xx means stop. */
export const STOP_CODE = 4042

/** Random choices. The same seed repeats them. */
export class Dice {
  private state: number

  constructor(seed: number) {
    this.state = seed >>> 0
  }

  /** Returns a number from 0 to below 1. The generator is mulberry32. */
  float(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0
    let mixed = this.state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  oneOf(count: number): boolean {
    return this.float() * count < 1
  }

  between(least: number, most: number): number {
    return least + this.float() * (most - least)
  }

  choose<T>(from: readonly T[]): T | undefined {
    return from[Math.floor(this.float() * from.length)]
  }

  shuffled<T>(from: readonly T[]): T[] {
    return from
      .map((value) => ({ value, at: this.float() }))
      .sort((a, b) => a.at - b.at)
      .map(({ value }) => value)
  }
}
