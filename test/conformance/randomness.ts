/** Random numbers that a seed repeats: mulberry32, https://github.com/cprosche/mulberry32. */
export class Randomness {
  private state: number

  constructor(seed: number) {
    this.state = seed >>> 0
  }

  /** From 0 up to 1. */
  fraction(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0
    let t = this.state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }

  /** From `least` to `most`, both included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.fraction() * (most - least + 1))
  }

  pick<T>(choices: readonly T[]): T {
    const choice = choices[this.integer(0, choices.length - 1)]
    if (choice === undefined) throw new Error('nothing to choose from')
    return choice
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.integer(0, 255))
  }
}
