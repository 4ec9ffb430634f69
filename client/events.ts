import type { Json } from '../shared/json.ts'
import { Listeners, type Report, type Unsubscribe } from './listeners.ts'

/** So many events of a room wait for the first listener of their name; the oldest are forgotten. */
const MAX_WAITING = 64

interface RoomEvent {
  readonly name: string
  readonly data: Json
}

/** The events of one room, and who listens. What came before the first listener of its name is kept, and given to it. */
export class Events {
  readonly #report: Report
  readonly #listeners = new Map<string, Listeners<[data: Json]>>()
  #waiting: RoomEvent[] = []

  constructor(report: Report) {
    this.#report = report
  }

  /** Calls back with the data of every event of this name; with those that have waited for it at the end of the turn. */
  on(name: string, callback: (data: Json) => void): Unsubscribe {
    let listeners = this.#listeners.get(name)
    if (!listeners) {
      listeners = new Listeners(this.#report)
      this.#listeners.set(name, listeners)
      // Not at once: the caller has to have what ends the subscription.
      queueMicrotask(() => this.#release(name))
    }
    return listeners.add(callback)
  }

  /** An event has come. */
  emit(event: RoomEvent): void {
    // Behind those of its name that still wait.
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
