import type { Redis } from 'ioredis'
import { Connection, type ConnectionOptions } from './connection.ts'

/**
 * One Redis server that takes writes, and this process' two connections to it: one for commands, one to hear what is published. `name`
 * tells it from others.
 */
export class Server {
  readonly name: string
  readonly commands: Connection
  readonly listener: Connection
  readonly #listening: Redis

  constructor(
    clients: { readonly commands: Redis; readonly bus: Redis },
    parts: ConnectionOptions & { readonly name: string },
  ) {
    const connection = (redis: Redis, connection: string) =>
      new Connection(redis, { ...parts, log: parts.log.child({ connection }) })
    this.name = parts.name
    this.#listening = clients.bus
    this.commands = connection(clients.commands, 'commands')
    this.listener = connection(clients.bus, 'bus')
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
