import type { Redis } from 'ioredis'
import type { Clock } from '../../clock.ts'
import { Connection, type ConnectionOptions } from './connection.ts'
import { uptimeOf } from './server-check.ts'

/**
 * One Redis server that takes writes, and this process' two connections to it: one for commands, one to hear what is published. `name`
 * tells it from others.
 */
export class Server {
  readonly name: string
  readonly commands: Connection
  readonly listener: Connection
  readonly #listening: Redis
  readonly #clock: Clock
  /** When the server started, on the monotonic clock, as far as that is known of the one at the other end of `commands`. */
  #started_at: number | undefined

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
    this.commands.onLost(() => {
      this.#started_at = undefined
    })
  }

  /**
   * For how long the server has been running, in milliseconds. Asked once for each connection: a server that starts again ends those to
   * the one before.
   */
  async uptime(): Promise<number> {
    if (this.#started_at === undefined || !this.commands.ready) {
      const uptime = uptimeOf(await this.commands.run('uptime', (redis) => redis.info('server')))
      this.#started_at = this.#clock.monotonic() - uptime
    }
    return this.#clock.monotonic() - this.#started_at
  }

  /** Calls back for every message of the channels that are subscribed at this server. */
  onMessage(callback: (channel: string, message: Buffer) => void): void {
    const hear = (channel: Buffer, message: Buffer) => callback(channel.toString(), message)
    this.#listening.on('messageBuffer', hear)
    this.#listening.on('smessageBuffer', hear)
  }

  /** Calls back when this server ended subscriptions because it no longer holds their slots. */
  onSlotsGone(callback: () => void): void {
    this.#listening.on('moved', callback)
  }

  async opened(timeout_ms: number): Promise<void> {
    await this.commands.opened(timeout_ms)
    await this.listener.opened(timeout_ms)
  }

  /** Drops both connections, which are then made anew. */
  rebuild(reason: string): void {
    this.commands.rebuild(reason)
    this.listener.rebuild(reason)
  }

  async close(): Promise<void> {
    await Promise.all([this.commands.close(), this.listener.close()])
  }
}
