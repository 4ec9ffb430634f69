/** Lets at most so many pieces of work run at once. Others wait for their turn, first come first served, at most so many again. */
export class Semaphore {
  readonly #maxRunning: number
  readonly #maxWaiting: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(maxRunning: number, maxWaiting: number) {
    this.#maxRunning = maxRunning
    this.#maxWaiting = maxWaiting
  }

  /** Settles as `work` does, which begins when it is its turn. Undefined: too many wait already, and it never begins. */
  run<T>(work: () => Promise<T>): Promise<T> | undefined {
    if (this.#running < this.#maxRunning) {
      this.#running += 1
      return this.#finish(work())
    }
    if (this.#waiting.length >= this.#maxWaiting) return undefined
    const turn = new Promise<void>((resolve) => this.#waiting.push(resolve))
    return this.#finish(turn.then(work))
  }

  /** Hands the place of work that has ended to whatever waits longest. */
  #finish<T>(work: Promise<T>): Promise<T> {
    return work.finally(() => {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#running -= 1
    })
  }
}
