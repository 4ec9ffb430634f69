/** Bound on the work that is under way at the same time. Further work waits in the order in which it arrived. */
export class Semaphore {
  readonly #maxRunning: number
  readonly #maxWaiting: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  /** `maxWaiting`: maximum number of waiting pieces of work. Default: no limit. */
  constructor(maxRunning: number, maxWaiting = Number.POSITIVE_INFINITY) {
    this.#maxRunning = maxRunning
    this.#maxWaiting = maxWaiting
  }

  /** Number of pieces of work that can start now. */
  get free(): number {
    return this.#maxRunning - this.#running
  }

  /** Starts `work` when a place is free, and resolves or rejects as it does. Undefined: too many wait, and `work` is not called. */
  run<T>(work: () => Promise<T>): Promise<T> | undefined {
    if (this.#running < this.#maxRunning) {
      this.#running += 1
      return this.#finish(work())
    }
    if (this.#waiting.length >= this.#maxWaiting) return undefined
    const turn = new Promise<void>((resolve) => this.#waiting.push(resolve))
    return this.#finish(turn.then(work))
  }

  /** Passes the place of finished work to the work that has waited longest. */
  #finish<T>(work: Promise<T>): Promise<T> {
    return work.finally(() => {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#running -= 1
    })
  }
}
