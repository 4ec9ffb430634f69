import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import type { Clock } from '../../clock.ts'
import { StoreUnavailable } from '../port.ts'
import { NotRun, storeFailure } from './failure.ts'
import type { Observers } from './observers.ts'

/** What a connection works with. */
export interface ConnectionOptions {
  readonly clock: Clock
  readonly log: Logger
  /** How long a call waits for the connection. */
  readonly timeout_ms: number
  /** Whom it tells of its commands. */
  readonly observers: Observers
}

interface Waiter {
  readonly resolve: () => void
  readonly reject: (error: StoreUnavailable) => void
}

/** How long after the client library gave up another attempt is made, milliseconds. */
const REVIVE_MS = 250

/**
 * One connection to the server, which `redis` re-makes by itself whenever it is lost. Calls wait for it, but not for ever, and
 * what a lost connection left unanswered is rejected and never sent again: nobody but the caller can know whether a write may be repeated.
 */
export class Connection {
  readonly #redis: Redis
  readonly #clock: Clock
  readonly #log: Logger
  readonly #timeout_ms: number
  readonly #observers: Observers
  readonly #waiters = new Set<Waiter>()
  #closed = false
  #was_ready = false
  /** When the connection was lost, monotonic milliseconds; undefined while it stands. */
  #lost_at: number | undefined
  /** Why it was lost, or is not there yet, in the words of the last error. */
  #reason = 'the server closed it'
  #in_flight = 0
  #on_idle: (() => void) | undefined

  constructor(redis: Redis, options: ConnectionOptions) {
    this.#redis = redis
    this.#clock = options.clock
    this.#log = options.log
    this.#timeout_ms = options.timeout_ms
    this.#observers = options.observers
    redis.on('ready', () => this.#found())
    redis.on('close', () => this.#lost())
    redis.on('end', () => this.#ended())
    redis.on('error', (error: NodeJS.ErrnoException) => {
      this.#reason = error.message || error.code || error.name
    })
  }

  /** Whether a call would be sent at once. */
  get ready(): boolean {
    return !this.#closed && this.#redis.status === 'ready'
  }

  /** Calls `callback` each time the connection stands, the first included. */
  onReady(callback: () => void): void {
    this.#redis.on('ready', callback)
  }

  /** Calls `callback` with the reason each time the connection is lost, and each time an attempt to make it fails. */
  onLost(callback: (reason: string) => void): void {
    this.#redis.on('close', () => callback(this.#reason))
  }

  /** Resolves once the connection stands; rejects with `NotRun` after `timeout_ms`. */
  opened(timeout_ms: number): Promise<void> {
    if (this.#closed) return Promise.reject(closed())
    if (this.ready) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const settle = (finish: () => void) => {
        cancel()
        this.#waiters.delete(waiter)
        finish()
      }
      const waiter: Waiter = {
        resolve: () => settle(resolve),
        reject: (error) => settle(() => reject(error)),
      }
      const cancel = this.#clock.schedule(timeout_ms, () =>
        waiter.reject(new NotRun(`no connection to the store: ${this.#reason}`, 'unsent')),
      )
      this.#waiters.add(waiter)
    })
  }

  /** Runs `send` once the connection stands; `operation` names it in errors. Every failure comes out as the store's own error. */
  async run<T>(operation: string, send: (redis: Redis) => Promise<T>): Promise<T> {
    this.#in_flight++
    const began = this.#clock.monotonic()
    const seconds = (): number => (this.#clock.monotonic() - began) / 1000
    try {
      if (!this.ready) await this.opened(this.#timeout_ms)
      const answer = await send(this.#redis)
      this.#observers.answered(operation, seconds())
      return answer
    } catch (error) {
      this.#observers.failed(operation, seconds())
      throw error instanceof StoreUnavailable ? error : storeFailure(operation, error)
    } finally {
      this.#in_flight--
      if (this.#in_flight === 0) this.#on_idle?.()
    }
  }

  /** Drops the connection, which is then made anew; for one that looks alive and is not. */
  rebuild(reason: string): void {
    if (!this.ready) return
    this.#reason = reason
    this.#redis.disconnect(true)
  }

  /** Lets calls under way end, which takes no longer than their time limits, then drops the connection for good. */
  async close(): Promise<void> {
    this.#closed = true
    for (const waiter of this.#waiters) waiter.reject(closed())
    if (this.#in_flight > 0) await new Promise<void>((resolve) => (this.#on_idle = resolve))
    this.#redis.disconnect()
  }

  #found(): void {
    if (this.#lost_at !== undefined) {
      const outage_ms = Math.round(this.#clock.monotonic() - this.#lost_at)
      this.#log.info({ outage_ms }, 'the store connection is back')
    }
    this.#lost_at = undefined
    this.#was_ready = true
    this.#reason = 'the server closed it'
    for (const waiter of this.#waiters) waiter.resolve()
  }

  /** The client library gives up where it could go on, as when it is cut off in the middle of asking a Sentinel. */
  #ended(): void {
    if (this.#closed) return
    this.#clock.schedule(REVIVE_MS, () => {
      if (!this.#closed && this.#redis.status === 'end') this.#redis.connect().catch(() => undefined)
    })
  }

  #lost(): void {
    if (this.#closed || this.#lost_at !== undefined) return
    this.#lost_at = this.#clock.monotonic()
    const what = this.#was_ready ? 'the store connection is lost' : 'the store cannot be reached yet'
    this.#log.warn({ reason: this.#reason }, what)
  }
}

const closed = () => new NotRun('the store is closed', 'unsent')
