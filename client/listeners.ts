import type { Json } from '../shared/json.ts'

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

/** Maximum number of buffered events per room. The oldest are dropped. */
const MAX_WAITING = 64

interface RoomEvent {
  readonly name: string
  readonly data: Json
}

/** Events and listeners of one room. Events without a listener are buffered for the first listener of their name. */
export class Events {
  readonly #report: Report
  readonly #listeners = new Map<string, Listeners<[data: Json]>>()
  #waiting: RoomEvent[] = []

  constructor(report: Report) {
    this.#report = report
  }

  /** Calls `callback` with the data of each event of this name, and with buffered events at the end of the turn. */
  on(name: string, callback: (data: Json) => void): Unsubscribe {
    let listeners = this.#listeners.get(name)
    if (!listeners) {
      listeners = new Listeners(this.#report)
      this.#listeners.set(name, listeners)
      // Deferred, because the caller must first get the function that ends the subscription.
      queueMicrotask(() => this.#release(name))
    }
    return listeners.add(callback)
  }

  /** Delivers or buffers an event. */
  emit(event: RoomEvent): void {
    // After the buffered events of its name.
    const waits = this.#waiting.some(({ name }) => name === event.name)
    const listeners = waits ? undefined : this.#listeners.get(event.name)
    if (listeners) listeners.call(event.data)
    else if (this.#waiting.push(event) > MAX_WAITING) this.#waiting.shift()
  }

  #release(name: string): void {
    const due = this.#waiting.filter((event) => event.name === name)
    this.#waiting = this.#waiting.filter((event) => event.name !== name)
    for (const { data } of due) this.#listeners.get(name)?.call(data)
  }
}

/**
 * Promise whose rejection does not end the process. If no caller awaits it when it rejects, `report` receives the error. A later caller
 * still gets the rejection.
 */
export class Reported<T> extends Promise<T> {
  /** `then` returns an ordinary promise. */
  static override readonly [Symbol.species] = Promise
  #awaited = false

  /** Returns a promise with the outcome of `work`. */
  static of<T>(work: Promise<T>, report: (error: unknown) => void): Promise<T> {
    const outcome = new Reported<T>((resolve, reject) => work.then(resolve, reject))
    Promise.prototype.then.call(outcome, undefined, (error: unknown) => outcome.#awaited || report(error))
    return outcome
  }

  /** `await`, `catch` and `finally` call this too. */
  // biome-ignore lint/suspicious/noThenProperty: the class is a promise.
  override then<A = T, B = never>(
    ...callbacks: [
      resolved?: ((value: T) => A | PromiseLike<A>) | null,
      rejected?: ((error: unknown) => B | PromiseLike<B>) | null,
    ]
  ): Promise<A | B> {
    this.#awaited = true
    return super.then(...callbacks)
  }
}
