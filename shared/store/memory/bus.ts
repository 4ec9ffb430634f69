import type { Bus } from '../port.ts'

type Subscriber = (message: Uint8Array) => void

/** `Bus` within this process. Nothing is ever lost on the way, so `onGap` is never called. */
export class MemoryBus implements Bus {
  readonly #channels = new Map<string, Set<Subscriber>>()
  readonly #requireOpen: () => void

  constructor(requireOpen: () => void) {
    this.#requireOpen = requireOpen
  }

  /** Counts as Redis does: a process that listens is one, however many callbacks it has. */
  async publish(channel: string, message: Uint8Array): Promise<number> {
    this.#requireOpen()
    const subscribers = this.#channels.get(channel)
    if (!subscribers) return 0
    for (const subscriber of subscribers) {
      const copy = new Uint8Array(message)
      queueMicrotask(() => {
        if (this.#channels.get(channel)?.has(subscriber)) subscriber(copy)
      })
    }
    return 1
  }

  async subscribe(channel: string, onMessage: Subscriber): Promise<() => Promise<void>> {
    this.#requireOpen()
    const subscribers = this.#channels.get(channel) ?? new Set()
    this.#channels.set(channel, subscribers)
    const subscriber: Subscriber = (message) => onMessage(message)
    subscribers.add(subscriber)
    return async () => {
      subscribers.delete(subscriber)
      if (subscribers.size === 0 && this.#channels.get(channel) === subscribers)
        this.#channels.delete(channel)
    }
  }

  async listeners(channels: readonly string[]): Promise<number[]> {
    this.#requireOpen()
    return channels.map((channel) => (this.#channels.has(channel) ? 1 : 0))
  }

  /** Ends every subscription. */
  close(): void {
    this.#channels.clear()
  }
}
