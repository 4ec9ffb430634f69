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
  #startedAt: number | undefined

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

  async opened(timeoutMs: number): Promise<void> {
    await this.commands.opened(timeoutMs)
    await this.listener.opened(timeoutMs)
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
