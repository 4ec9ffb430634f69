import type { StoreObserver } from '../port.ts'

/** Passes what the connections of a store tell to whoever wants to hear it. */
export class Observers implements StoreObserver {
  readonly #observers = new Set<StoreObserver>()

  /** Tells `observer` from now on; the returned function ends that. */
  add(observer: StoreObserver): () => void {
    this.#observers.add(observer)
    return () => void this.#observers.delete(observer)
  }

  answered(operation: string, seconds: number): void {
    for (const observer of this.#observers) observer.answered(operation, seconds)
  }

  failed(operation: string, seconds: number): void {
    for (const observer of this.#observers) observer.failed(operation, seconds)
  }
}
