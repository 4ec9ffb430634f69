import type { Bus } from '../port.ts'
import { incoming, outgoing } from './bytes.ts'
import type { Connection } from './connection.ts'

interface Subscriber {
  readonly on_message: (message: Uint8Array) => void
  readonly on_gap: (() => void) | undefined
}

/**
 * `Bus` over Redis' publish and subscribe. Publishing uses the connection of all other commands, listening has one of its own.
 * After that one was lost every channel is subscribed anew, and only then every subscriber told of the gap.
 */
export class RedisBus implements Bus {
  readonly #commands: Connection
  readonly #listener: Connection
  readonly #prefix: string
  /** By channel, prefix included. */
  readonly #channels = new Map<string, Set<Subscriber>>()

  constructor(commands: Connection, listener: Connection, prefix: string) {
    this.#commands = commands
    this.#listener = listener
    this.#prefix = prefix
    listener.onReady(() => void this.#subscribeAnew())
  }

  async publish(channel: string, message: Uint8Array): Promise<number> {
    const bytes = outgoing(message)
    return this.#commands.run('publish', (redis) => redis.publish(this.#prefix + channel, bytes))
  }

  async subscribe(
    channel: string,
    on_message: (message: Uint8Array) => void,
    on_gap?: () => void,
  ): Promise<() => Promise<void>> {
    const name = this.#prefix + channel
    const subscriber: Subscriber = { on_message, on_gap }
    try {
      await this.#listener.run('subscribe', (redis) => {
        this.#add(name, subscriber)
        return redis.subscribe(name)
      })
    } catch (error) {
      this.#remove(name, subscriber)
      this.#listener.rebuild('a subscription was not answered')
      throw error
    }
    return () => this.#end(name, subscriber)
  }

  async listeners(channels: readonly string[]): Promise<number[]> {
    if (channels.length === 0) return []
    const names = channels.map((channel) => this.#prefix + channel)
    const reply = await this.#commands.run('listeners', (redis) => redis.pubsub('NUMSUB', ...names))
    return names.map((_, n) => Number(reply[2 * n + 1]))
  }

  /** Hands a message that arrived to its channel's subscribers, each on a turn of its own so that none can harm another. */
  deliver(name: string, message: Buffer): void {
    for (const subscriber of this.#channels.get(name) ?? []) {
      const copy = incoming(message)
      queueMicrotask(() => {
        if (this.#channels.get(name)?.has(subscriber)) subscriber.on_message(copy)
      })
    }
  }

  #add(name: string, subscriber: Subscriber): void {
    const subscribers = this.#channels.get(name) ?? new Set()
    this.#channels.set(name, subscribers)
    subscribers.add(subscriber)
  }

  #remove(name: string, subscriber: Subscriber): void {
    const subscribers = this.#channels.get(name)
    subscribers?.delete(subscriber)
    if (subscribers?.size === 0) this.#channels.delete(name)
  }

  /** A lost connection has ended the subscription by itself; so has one that is rebuilt because it gave no answer. */
  async #end(name: string, subscriber: Subscriber): Promise<void> {
    if (!this.#channels.get(name)?.has(subscriber)) return
    this.#remove(name, subscriber)
    if (this.#channels.has(name) || !this.#listener.ready) return
    try {
      await this.#listener.run('unsubscribe', (redis) => redis.unsubscribe(name))
    } catch {
      this.#listener.rebuild('the end of a subscription was not answered')
    }
  }

  async #subscribeAnew(): Promise<void> {
    const missed = [...this.#channels]
    if (missed.length === 0) return
    try {
      const names = missed.map(([name]) => name)
      await this.#listener.run('subscribe', (redis) => redis.subscribe(...names))
    } catch {
      this.#listener.rebuild('subscriptions were not answered')
      return
    }
    for (const [, subscribers] of missed) {
      for (const subscriber of subscribers) queueMicrotask(() => subscriber.on_gap?.())
    }
  }
}
