/** Removes the callback. Further calls have no effect. */
export type Unsubscribe = () => void

/** Receives errors thrown by callbacks. */
export type Report = (error: unknown) => void

/** Callbacks of one event. If one throws, the others are still called. */
export class Listeners<A extends unknown[]> {
  readonly #report: Report
  #callbacks: readonly { readonly call: (...args: A) => void }[] = []

  constructor(report: Report) {
    this.#report = report
  }

  /** Adds a callback. The same function may be added more than once. */
  add(callback: (...args: A) => void): Unsubscribe {
    const entry = { call: callback }
    this.#callbacks = [...this.#callbacks, entry]
    return () => {
      this.#callbacks = this.#callbacks.filter((other) => other !== entry)
    }
  }

  /** True if no callback is registered. */
  get none(): boolean {
    return this.#callbacks.length === 0
  }

  /** Calls the callbacks that are registered at the start of the call. */
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
