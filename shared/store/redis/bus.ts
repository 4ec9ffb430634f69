import type { Redis } from 'ioredis'
import { type Clock, untilNext } from '../../clock.ts'
import { type Bus, StoreUnavailable } from '../port.ts'
import { publication, publicationHead } from './bus-stream.ts'
import { incoming, NotRun, outgoing } from './connection.ts'
import { nameAt, type Server, type Servers } from './servers.ts'

/** Delay before a failed subscription is tried again, in milliseconds. */
const AGAIN_MS = 250

/** Maximum number of queued bytes for a server that reads nothing. More are refused. */
const LARGEST_WAITING = 16 << 20

/** Number of cached heads of publications, for channels that are used all the time. */
const MOST_HEADS = 1000

interface Subscriber {
  readonly onMessage: (message: Uint8Array) => void
  readonly onGap: (() => void) | undefined
}

interface Channel {
  readonly subscribers: Set<Subscriber>
  /** The server at which it is subscribed or being subscribed. */
  server: Server | undefined
}

/**
 * Mode of publish and subscribe. `everywhere`: as on a single server. `shards`: each channel within the shard of its slot (SSUBSCRIBE).
 * `flood`: a Cluster that is too old for shards. Every message goes to every server, and the number of listeners is unknown.
 */
export type BusMode = 'everywhere' | 'shards' | 'flood'

/**
 * `Bus` over Redis publish and subscribe. A channel is published, subscribed and counted at the server that holds the slot of its name.
 * Publishing uses the connection of all other commands. Listening has another connection, which `send` uses too. When that connection was
 * lost, or the slot has moved, the channel is subscribed again, and then every subscriber is notified of the gap. A sender learns about a
 * moved slot by `listeners`, which nodes call all the time.
 */
export class RedisBus implements Bus {
  readonly #servers: Servers
  readonly #prefix: string
  readonly #mode: BusMode
  readonly #clock: Clock
  /** Channels by name with prefix. */
  readonly #channels = new Map<string, Channel>()
  /** Heads of publications, by channel without prefix. */
  readonly #heads = new Map<string, { readonly name: string; readonly head: Buffer }>()

  constructor(servers: Servers, prefix: string, { mode, clock }: { mode: BusMode; clock: Clock }) {
    this.#servers = servers
    this.#prefix = prefix
    this.#mode = mode
    this.#clock = clock
    servers.onServer((server) => this.#listenAt(server))
    servers.onMoved(() => this.#resubscribe((name, { server }) => servers.serverOf(name) !== server))
  }

  /** True if a channel has subscribers, probes excluded. */
  get isListened(): boolean {
    for (const name of this.#channels.keys()) if (!name.startsWith(this.#prefix + PROBES)) return true
    return false
  }

  /** Returns the server that currently holds `channel`. */
  serverOf(channel: string): Server | undefined {
    return this.#servers.serverOf(this.#prefix + channel)
  }

  async publish(channel: string, message: Uint8Array): Promise<number> {
    const bytes = outgoing(message)
    const name = this.#prefix + channel
    const receivers = await this.#servers.run(
      'publish',
      name,
      (redis): Promise<unknown> =>
        this.#mode === 'shards' ? redis.spublish(name, bytes) : redis.publish(name, bytes),
    )
    return Number(receivers)
  }

  send(channel: string, message: Uint8Array, taken?: (error?: Error | null) => void): boolean {
    const { name, head } = this.#heads.get(channel) ?? this.#addHead(channel)
    const server = this.#servers.serverOf(name)
    if (!server?.listener.ready) return false
    if (server.unsentBytes > LARGEST_WAITING)
      throw new StoreUnavailable(`the store accepts nothing: ${server.unsentBytes} bytes wait for it`)
    server.write(publication(head, message), taken)
    return true
  }

  async subscribe(
    channel: string,
    onMessage: (message: Uint8Array) => void,
    onGap?: () => void,
  ): Promise<() => Promise<void>> {
    const name = this.#prefix + channel
    const subscriber: Subscriber = { onMessage, onGap }
    try {
      await this.#join(name, () => this.#add(name, subscriber))
    } catch (error) {
      const server = this.#channels.get(name)?.server
      this.#remove(name, subscriber)
      server?.listener.rebuild('a subscription was not answered')
      throw error
    }
    return () => this.#end(name, subscriber)
  }

  async listeners(channels: readonly string[]): Promise<number[] | undefined> {
    if (this.#mode === 'flood') return undefined
    if (this.#mode === 'shards') return Promise.all(channels.map((name) => this.#count(this.#prefix + name)))
    const [first, ...rest] = channels.map((channel) => this.#prefix + channel)
    if (first === undefined) return []
    const reply = await this.#servers.run('listeners', first, (redis) =>
      redis.pubsub('NUMSUB', first, ...rest),
    )
    return channels.map((_, n) => Number(reply[2 * n + 1]))
  }

  /** A server also answers for channels of others, with 0. A command for a key of that name finds the right server. */
  async #count(name: string): Promise<number> {
    const [, reply] = await this.#servers.run('listeners', name, (redis) =>
      Promise.all([redis.exists(name), redis.pubsub('SHARDNUMSUB', name)]),
    )
    return Number(reply[1])
  }

  #listenAt(server: Server): void {
    const isHere = (_: string, channel: Channel) => channel.server === server
    server.onMessage((name, message) => this.#deliver(name, message))
    server.listener.onReady(() => this.#resubscribe(isHere))
    server.onSlotsGone(() => {
      this.#servers.refresh()
      this.#resubscribe(isHere)
    })
  }

  #addHead(channel: string): { name: string; head: Buffer } {
    if (this.#heads.size >= MOST_HEADS) this.#heads.clear()
    const name = this.#prefix + channel
    const known = { name, head: publicationHead(this.#mode === 'shards' ? 'spublish' : 'publish', name) }
    this.#heads.set(channel, known)
    return known
  }

  /** Passes a received message to the subscribers of its channel. */
  #deliver(name: string, message: Buffer): void {
    const subscribers = this.#channels.get(name)?.subscribers
    if (!subscribers) return
    const { buffer, byteOffset, length } = message
    for (const { onMessage } of subscribers)
      onMessage(subscribers.size > 1 ? incoming(message) : new Uint8Array(buffer, byteOffset, length))
  }

  #add(name: string, subscriber: Subscriber): void {
    const channel = this.#channels.get(name) ?? { subscribers: new Set(), server: undefined }
    this.#channels.set(name, channel)
    channel.subscribers.add(subscriber)
  }

  #remove(name: string, subscriber: Subscriber): void {
    const channel = this.#channels.get(name)
    channel?.subscribers.delete(subscriber)
    if (channel?.subscribers.size === 0) this.#channels.delete(name)
  }

  /** Subscribes a channel at its server. `before` is called right before the command is sent. */
  #join(name: string, before?: () => void): Promise<unknown> {
    const ask = (redis: Redis) => (this.#mode === 'shards' ? redis.ssubscribe(name) : redis.subscribe(name))
    return this.#servers.run(
      'subscribe',
      name,
      (redis, server) => {
        before?.()
        const channel = this.#channels.get(name)
        if (channel) channel.server = server
        return ask(redis)
      },
      'listener',
    )
  }

  /** A lost connection has ended the subscription. So has one that is rebuilt because it did not answer. */
  async #end(name: string, subscriber: Subscriber): Promise<void> {
    const channel = this.#channels.get(name)
    if (!channel?.subscribers.has(subscriber)) return
    this.#remove(name, subscriber)
    const { server } = channel
    if (this.#channels.has(name) || !server?.listener.ready) return
    try {
      await server.listener.run('unsubscribe', (redis) =>
        this.#mode === 'shards' ? redis.sunsubscribe(name) : redis.unsubscribe(name),
      )
    } catch {
      server.listener.rebuild('the end of a subscription was not answered')
    }
  }

  /**
   * Restores lost subscriptions, then reports the gap. Failed ones are tried again: when the server is reachable, when the slot has another
   * server, or after a delay.
   */
  async #resubscribe(lost: (name: string, channel: Channel) => boolean): Promise<void> {
    const missed = [...this.#channels].filter(([name, channel]) => lost(name, channel))
    const back = await Promise.all(missed.map(([name, channel]) => this.#rejoin(name, channel)))
    for (const channel of back) {
      for (const { onGap } of channel?.subscribers ?? []) if (onGap) queueMicrotask(onGap)
    }
  }

  async #rejoin(name: string, channel: Channel): Promise<Channel | undefined> {
    try {
      await this.#join(name)
      return channel
    } catch (error) {
      const listener = channel.server?.listener
      if (!(error instanceof NotRun)) listener?.rebuild('subscriptions were not answered')
      else if (listener?.ready)
        this.#clock.schedule(AGAIN_MS, () => this.#resubscribe((_, c) => c === channel))
      return undefined
    }
  }
}

/** Interval between probes of the bus, in milliseconds. */
const PROBE_EVERY_MS = 500
/** Prefix of the channels of probes. */
const PROBES = 'probe:'

/**
 * Detects a bus that is connected but delivers no messages (after a failover, or behind a dead proxy). A probe is sent like a message, by
 * `send`. If this process has not received two in a row while the server answers commands, which takes about a second, it rebuilds the
 * listening connection. One probe watches one server, with a channel in a slot of that server, while this process has subscribers.
 */
export class Probe {
  readonly #bus: RedisBus
  readonly #servers: Servers
  readonly #server: Server
  readonly #token: string
  readonly #clock: Clock
  #channel: string | undefined
  #end: () => Promise<void> = async () => undefined
  /** Number of missed probes in a row. */
  #unheard = 0
  #stopped = false
  #cancel: () => void = () => undefined

  /** `token` is a name that no other probe uses. */
  constructor(options: { bus: RedisBus; servers: Servers; server: Server; token: string; clock: Clock }) {
    this.#bus = options.bus
    this.#servers = options.servers
    this.#server = options.server
    this.#token = options.token
    this.#clock = options.clock
  }

  /** True if it has ended. It ends automatically when its server is removed. */
  get stopped(): boolean {
    return this.#stopped
  }

  /** Subscribes to the first channel, and probes from then on. A failed subscription is repeated like a probe. */
  async start(): Promise<void> {
    await this.#follow().catch(() => undefined)
    this.#schedule()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  #schedule(): void {
    if (!this.#stopped)
      this.#cancel = this.#clock.schedule(untilNext(this.#clock, PROBE_EVERY_MS), () => void this.#turn())
  }

  async #turn(): Promise<void> {
    if (!this.#servers.all().includes(this.#server)) {
      this.stop()
      return this.#end()
    }
    if (this.#unheard >= 2) {
      this.#unheard = 0
      this.#server.listener.rebuild('the bus does not hear its own probes')
    }
    try {
      await this.#follow()
      if (this.#channel !== undefined && this.#bus.isListened && this.#server.listener.ready)
        await this.#probe(this.#channel)
    } catch {
      this.#unheard = 0 // The server does not answer commands. The connection for commands reports that.
    }
    this.#schedule()
  }

  async #probe(channel: string): Promise<void> {
    await this.#server.commands.run('ping', (redis) => redis.ping())
    this.#unheard++
    try {
      if (!this.#bus.send(channel, new Uint8Array())) this.#unheard--
    } catch {
      // The queue for the server is full although it answers commands: the probe counts as missed.
    }
  }

  /** Subscribes to a channel in a slot of this server, and to another one when that slot has moved. */
  async #follow(): Promise<void> {
    if (this.#channel !== undefined && this.#bus.serverOf(this.#channel) === this.#server) return
    const channel = nameAt(PROBES + this.#token, (name) => this.#bus.serverOf(name) === this.#server)
    await this.#end()
    this.#channel = undefined
    if (channel === undefined) return
    const heard = () => {
      this.#unheard = 0
    }
    this.#end = await this.#bus.subscribe(channel, heard, heard)
    this.#channel = channel
  }
}
