/** Answers that come when the test says so, in the order of the questions. */
export class Questions<T> {
  readonly asked: string[] = []
  readonly #answers: { resolve: (value: T) => void; reject: (error: Error) => void }[] = []

  readonly ask = (what: string): Promise<T> => {
    this.asked.push(what)
    return new Promise((resolve, reject) => this.#answers.push({ resolve, reject }))
  }

  async answer(value: T): Promise<void> {
    this.#answers.shift()!.resolve(value)
    await settled()
  }

  async fail(): Promise<void> {
    this.#answers.shift()!.reject(new Error('the store is silent'))
    await settled()
  }
}

/** Everything that promises lead to by themselves has happened. */
const settled = () => new Promise((resolve) => setImmediate(resolve))
