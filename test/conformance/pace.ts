/** Lets `burst` messages pass at once and `perSecond` in the long run. */
export class Pace {
  private readonly perSecond: number
  private readonly burst: number
  private tokens: number
  private filledAt = performance.now()

  constructor(perSecond: number, burst: number) {
    this.perSecond = perSecond
    this.burst = burst
    this.tokens = burst
  }

  /** Waits until one more message is surely within the limits. */
  async take(): Promise<void> {
    this.fill()
    while (this.tokens < 1) {
      const missingMs = ((1 - this.tokens) / this.perSecond) * 1000
      await new Promise((resolve) => setTimeout(resolve, missingMs))
      this.fill()
    }
    this.tokens -= 1
  }

  private fill(): void {
    const now = performance.now()
    this.tokens = Math.min(this.burst, this.tokens + ((now - this.filledAt) / 1000) * this.perSecond)
    this.filledAt = now
  }
}
