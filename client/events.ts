import type { Json } from '../shared/json.ts'
import { Listeners, type Report, type Unsubscribe } from './listeners.ts'

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
