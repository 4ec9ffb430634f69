/** Lets `burst` messages pass at once and `per_second` in the long run. */
export class Pace {
  private readonly per_second: number
  private readonly burst: number
  private tokens: number
  private filled_at = performance.now()

  constructor(per_second: number, burst: number) {
    this.per_second = per_second
    this.burst = burst
    this.tokens = burst
  }

  /** Waits until one more message is surely within the limits. */
  async take(): Promise<void> {
    this.fill()
    while (this.tokens < 1) {
      const missing_ms = ((1 - this.tokens) / this.per_second) * 1000
      await new Promise((resolve) => setTimeout(resolve, missing_ms))
      this.fill()
    }
    this.tokens -= 1
  }

  private fill(): void {
    const now = performance.now()
    this.tokens = Math.min(this.burst, this.tokens + ((now - this.filled_at) / 1000) * this.per_second)
    this.filled_at = now
  }
}
