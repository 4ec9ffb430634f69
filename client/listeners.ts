/** Ends a subscription; calling it again does nothing. */
export type Unsubscribe = () => void

/** Takes what a callback has thrown. */
export type Report = (error: unknown) => void

/** Callbacks for one kind of happening. One that throws does not keep the others from being called. */
export class Listeners<A extends unknown[]> {
  readonly #report: Report
  #callbacks: readonly { readonly call: (...args: A) => void }[] = []

  constructor(report: Report) {
    this.#report = report
  }

  /** Calls `callback` from now on; the same function may be added more than once. */
  add(callback: (...args: A) => void): Unsubscribe {
    const entry = { call: callback }
    this.#callbacks = [...this.#callbacks, entry]
    return () => {
      this.#callbacks = this.#callbacks.filter((other) => other !== entry)
    }
  }

  /** Whether no callback would be called. */
  get none(): boolean {
    return this.#callbacks.length === 0
  }

  /** Calls everyone who was there when it began. */
  call(...args: A): void {
    for (const entry of this.#callbacks) {
      try {
        entry.call(...args)
      } catch (error) {
        this.#report(error)
      }
    }
  }
}
