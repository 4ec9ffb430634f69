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
