const { subtle } = globalThis.crypto
const OPERATIONS = ['verify', 'sign', 'digest', 'importKey', 'exportKey'] as const

/** Counts the cryptographic operations that other threads of this process are working on. */
export class Cryptography {
  #running = 0

  get busy(): boolean {
    return this.#running > 0
  }

  /** Counts from now on; the returned function ends that. */
  watch(): () => void {
    for (const name of OPERATIONS)
      Object.defineProperty(subtle, name, {
        configurable: true,
        value: (...words: never[]): Promise<unknown> => {
          this.#running += 1
          const operation = Reflect.apply(SubtleCrypto.prototype[name], subtle, words) as Promise<unknown>
          return operation.finally(() => {
            this.#running -= 1
          })
        },
      })
    return () => {
      for (const name of OPERATIONS) Reflect.deleteProperty(subtle, name)
    }
  }
}
