import type { Redis } from 'ioredis'
import type { Clock } from '../../clock.ts'
import type { StoreObserver, StoreServer, StoreVitals } from '../port.ts'
import { MessageReader } from './bus-stream.ts'
import { Connection, type ConnectionOptions, type Observers } from './connection.ts'
import { runScript, type ScriptName } from './scripts.ts'

/**
 * One Redis server that takes writes, and this process' two connections to it: one for commands, one for what processes tell each other,
 * which hears what is published. `name` tells it from others.
 */
export class Server {
  readonly name: string
  readonly commands: Connection
  readonly listener: Connection
  readonly #listening: Redis
  readonly #clock: Clock
  /** When the server started, on the monotonic clock, as far as that is known of the one at the other end of `commands`. */
  #startedAt: number | undefined
  #onMessage: (channel: string, message: Buffer) => void = () => undefined

  constructor(
    clients: { readonly commands: Redis; readonly bus: Redis },
    parts: ConnectionOptions & { readonly name: string },
  ) {
    const connection = (redis: Redis, connection: string) =>
      new Connection(redis, { ...parts, log: parts.log.child({ connection }) })
    this.name = parts.name
    this.#listening = clients.bus
    this.#clock = parts.clock
    this.commands = connection(clients.commands, 'commands')
    this.listener = connection(clients.bus, 'bus')
    // The library reads from the connection by now, and nothing has come yet.
    clients.bus.on('connect', () =>
      MessageReader.before(clients.bus.stream, (channel, message) => this.#onMessage(channel, message)),
    )
    this.commands.onLost(() => {
      this.#startedAt = undefined
    })
  }

  /**
   * For how long the server has been running, in milliseconds. Asked once for each connection: a server that starts again ends those to
   * the one before.
   */
  async uptime(): Promise<number> {
    if (this.#startedAt === undefined || !this.commands.ready) {
      const uptime = uptimeOf(await this.commands.run('uptime', (redis) => redis.info('server')))
      this.#startedAt = this.#clock.monotonic() - uptime
    }
    return this.#clock.monotonic() - this.#startedAt
  }

  /** Calls back for every message of the channels that are subscribed at this server, in place of who was called before. */
  onMessage(callback: (channel: string, message: Buffer) => void): void {
    this.#onMessage = callback
  }

  /** Bytes of `write` that the kernel has not taken. */
  get unsentBytes(): number {
    return this.#listening.stream.writableLength
  }

  /**
   * Sends ready commands that have no reply by the listening connection, which must be ready: all of one moment in one write. `taken` is
   * called when the kernel has them, or with why they are lost.
   */
  write(commands: Buffer, taken?: (error?: Error | null) => void): void {
    this.listener.gather()
    this.#listening.stream.write(commands, taken)
  }

  /** Calls back when this server ended subscriptions because it no longer holds their slots. */
  onSlotsGone(callback: () => void): void {
    this.#listening.on('moved', callback)
  }

  async opened(timeoutMs: number): Promise<void> {
    await this.commands.opened(timeoutMs)
    await this.listener.opened(timeoutMs)
  }

  /** Drops both connections, which are then made again. */
  rebuild(reason: string): void {
    this.commands.rebuild(reason)
    this.listener.rebuild(reason)
  }

  async close(): Promise<void> {
    await Promise.all([this.commands.close(), this.listener.close()])
  }
}

/** Runs a script, as the operation of its name, where its first key is. */
export const callScript = (
  servers: Pick<Servers, 'run'>,
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | Buffer)[],
): Promise<unknown> => servers.run(name, keys[0]!, (redis) => runScript(redis, name, keys, args))

/** One field of what the INFO command answers. */
export const field = (info: string, name: string): string | undefined =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]

/** For how long the server runs, in milliseconds, by `info`, its answer to INFO; it counts whole seconds. */
function uptimeOf(info: string): number {
  return Number(field(info, 'uptime_in_seconds')) * 1000
}

/** Sends a command by one of a server's connections; called again for each attempt. */
export type Send<T> = (redis: Redis, server: Server) => Promise<T>

/** The servers of one Redis installation that take writes: one, or the masters of a Cluster. */
export interface Servers {
  /** Every server, as known at this moment. */
  all(): readonly Server[]
  /** The one that holds `key` (a key or a channel, prefix included); undefined when no one does at this moment. */
  serverOf(key: string): Server | undefined
  /**
   * Sends a command to the server that holds `key`, and again where a server said that it has not run it. Whatever may have run is not
   * repeated. `operation` names it in errors, of which every one is the store's own.
   */
  run<T>(operation: string, key: string, send: Send<T>, by?: 'commands' | 'listener'): Promise<T>
  /** Looks again who holds what, after a sign that it has changed. */
  refresh(): void
  /** Calls back for every server there is, and for each that is added. */
  onServer(callback: (server: Server) => void): void
  /** Calls back when keys may be at another server than before. */
  onMoved(callback: () => void): void
  /** True from the loss of a connection until `onReturn` has called back. */
  readonly away: boolean
  /** Calls back each time all servers can be reached again after one could not; the returned function ends that. */
  onReturn(callback: () => void): () => void
  /** Resolves once every server can be reached; rejects with `StoreUnavailable` after `timeoutMs`. */
  opened(timeoutMs: number): Promise<void>
  close(): Promise<void>
}

/** How many names are tried; a server with a hundredth of the slots is met after about 100. */
const NAMES = 100_000

/** A name that starts with `stem` and belongs to a server by what `here` says; undefined when that is (next to) nowhere. */
export function nameAt(stem: string, here: (name: string) => boolean): string | undefined {
  for (let n = 0; n < NAMES; n++) if (here(`${stem}:${n}`)) return `${stem}:${n}`
  return undefined
}

/** Knows whether the store is out of reach, and tells when that is over. */
export class Outage {
  readonly #callbacks = new Set<() => void>()
  #lasts = false

  /** Whether it goes on. */
  get lasts(): boolean {
    return this.#lasts
  }

  begin(): void {
    this.#lasts = true
  }

  end(): void {
    if (!this.#lasts) return
    // Before this turn of the event loop ends: commands that waited for the connection are sent right after.
    for (const callback of this.#callbacks) callback()
    this.#lasts = false
  }

  onEnd(callback: () => void): () => void {
    const listener = () => callback()
    this.#callbacks.add(listener)
    return () => void this.#callbacks.delete(listener)
  }
}

/** One server; or the master that Sentinels name, whichever it is at the time. */
export class SingleServer implements Servers {
  readonly #server: Server
  readonly #onClose: () => void
  readonly #outage = new Outage()

  constructor(server: Server, onClose: () => void = () => undefined) {
    this.#server = server
    this.#onClose = onClose
    server.commands.onLost(() => this.#outage.begin())
    server.commands.onReady(() => this.#outage.end())
  }

  all(): readonly Server[] {
    return [this.#server]
  }

  serverOf(_key: string): Server {
    return this.#server
  }

  run<T>(
    operation: string,
    _key: string,
    send: Send<T>,
    by: 'commands' | 'listener' = 'commands',
  ): Promise<T> {
    return this.#server[by].run(operation, (redis) => send(redis, this.#server))
  }

  /** The one server holds everything. */
  refresh(): void {}

  onServer(callback: (server: Server) => void): void {
    callback(this.#server)
  }

  /** Nothing moves within one server. */
  onMoved(_callback: () => void): void {}

  get away(): boolean {
    return this.#outage.lasts
  }

  onReturn(callback: () => void): () => void {
    return this.#outage.onEnd(callback)
  }

  opened(timeoutMs: number): Promise<void> {
    return this.#server.opened(timeoutMs)
  }

  close(): Promise<void> {
    this.#onClose()
    return this.#server.close()
  }
}

/** How a Redis is doing: what its connections see, and what INFO says. */
export class RedisVitals implements StoreVitals {
  readonly #servers: Servers
  readonly #observers: Observers

  constructor(servers: Servers, observers: Observers) {
    this.#servers = servers
    this.#observers = observers
  }

  get reachable(): boolean {
    const servers = this.#servers.all()
    return servers.length > 0 && servers.every(({ commands }) => commands.ready)
  }

  observe(observer: StoreObserver): () => void {
    return this.#observers.add(observer)
  }

  servers(): Promise<readonly StoreServer[]> {
    return Promise.all(
      this.#servers.all().map(async (server) => {
        const info = await server.commands.run('info', (redis) => redis.info())
        return { name: server.name, ...figuresOf(info) }
      }),
    )
  }
}

/** The figures in an answer to INFO; 0 for what a server does not say. */
export function figuresOf(info: string): Omit<StoreServer, 'name'> {
  const number = (name: string): number => Number(field(info, name) ?? 0)
  return {
    usedMemoryBytes: number('used_memory'),
    maxMemoryBytes: number('maxmemory'),
    connectedClients: number('connected_clients'),
    commandsProcessed: number('total_commands_processed'),
    evictedKeys: number('evicted_keys'),
  }
}
