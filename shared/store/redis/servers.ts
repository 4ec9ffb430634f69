import type { Redis } from 'ioredis'
import type { Server } from './server.ts'

/** Sends a command by one of a server's connections; called anew for each attempt. */
export type Send<T> = (redis: Redis, server: Server) => Promise<T>

/** The servers of one Redis installation that take writes: one, or the masters of a Cluster. */
export interface Servers {
  /** Every server, as known at this moment. */
  all(): readonly Server[]
  /** The one that holds `key` (a key or a channel, prefix included); undefined when nobody does at this moment. */
  home(key: string): Server | undefined
  /**
   * Sends a command to the server that holds `key`, and anew where a server said that it has not run it. Whatever may have run is not
   * repeated. `operation` names it in errors, of which every one is the store's own.
   */
  run<T>(operation: string, key: string, send: Send<T>, by?: 'commands' | 'listener'): Promise<T>
  /** Looks again who holds what, after a sign that it has changed. */
  refresh(): void
  /** Calls back for every server there is, and for each that is added. */
  onServer(callback: (server: Server) => void): void
  /** Calls back when keys may have another home than before. */
  onMoved(callback: () => void): void
  /** Calls back each time all servers can be reached again after one could not; the returned function ends that. */
  onReturn(callback: () => void): () => void
  /** Resolves once every server can be reached; rejects with `StoreUnavailable` after `timeoutMs`. */
  opened(timeoutMs: number): Promise<void>
  close(): Promise<void>
}

/** How many names are tried; a server with a hundredth of the slots is met after about 100. */
const NAMES = 100_000

/** A name that starts with `stem` and is at home where `here` says so; undefined when that is (next to) nowhere. */
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
    this.#lasts = false
    for (const callback of this.#callbacks) queueMicrotask(callback)
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

  home(_key: string): Server {
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
