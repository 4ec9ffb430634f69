/**
 * A promise whose rejection ends no process. When no caller has waited for it by then, `report` takes the error; a caller that waits later
 * still gets it.
 */
export class Reported<T> extends Promise<T> {
  /** What `then` returns is an ordinary promise. */
  static override readonly [Symbol.species] = Promise
  #awaited = false

  /** The outcome of `work`. */
  static of<T>(work: Promise<T>, report: (error: unknown) => void): Promise<T> {
    const outcome = new Reported<T>((resolve, reject) => work.then(resolve, reject))
    Promise.prototype.then.call(outcome, undefined, (error: unknown) => outcome.#awaited || report(error))
    return outcome
  }

  /** `await`, `catch` and `finally` come here too. */
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
