import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import type { Clock } from '../../clock.ts'
import {
  type StoreFailure,
  type StoreObserver,
  StoreRefused,
  StoreRejected,
  StoreUnavailable,
} from '../port.ts'
import type { Endpoint } from './address.ts'
import { disconnect } from './clients.ts'

/** Error codes of a reachable server that cannot serve at the moment: it is loading, failing over, out of memory, blocked, or a replica. */
const CANNOT_SERVE =
  /\b(LOADING|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|UNKILLABLE)\b/

/** Error codes for a user without the permission, or without the password. */
const NOT_ALLOWED = /\b(NOAUTH|NOPERM|WRONGPASS)\b/

/** Error text of Redis 7.0, without a code, for a forbidden command inside a script. */
const FORBIDDEN_IN_SCRIPT = /user executing the script can't/

/** Returns the code of the error reply in a message. Undefined: it has no known code. */
const replyIn = (message: string): string | undefined =>
  (CANNOT_SERVE.exec(message) ?? NOT_ALLOWED.exec(message))?.[1] ??
  (FORBIDDEN_IN_SCRIPT.test(message) ? 'NOPERM' : undefined)

/**
 * Error codes that do not change when a command is repeated: a key of another type, an invalid number, a script that meets such a value, a
 * value that is too large.
 */
const LASTING =
  /\b(WRONGTYPE|CROSSSLOT)\b|not an integer|would overflow|user_script:\d+: attempt to|exceeds maximum allowed/

/** Error codes of a Cluster for a command that it did not run, and may run a moment later. */
const LATER = /^(CLUSTERDOWN|TRYAGAIN|LOADING)\b/

/** Error texts of the client library for commands that were sent and not answered. They name options of the library. */
const UNANSWERED: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/max retries per request|Connection is closed|Stream isn't writeable/, 'the connection was lost'],
  [/^Command timed out$/, 'it took too long'],
]

/** `MOVED 3999 127.0.0.1:6381`. An empty host means that of the answering server. */
const ELSEWHERE = /^(MOVED|ASK) (\d+) (.*):(\d+)$/

/** Error of a command that certainly did not run, so it may be sent again. */
export class NotRun extends StoreUnavailable {
  /**
   * `unsent`: there was no connection. `later`: the Cluster is reconfiguring. `moved`: its slot is permanently at another server. `asking`:
   * its key may be at another server, for this attempt.
   */
  readonly why: 'unsent' | 'later' | 'moved' | 'asking'
  /** The other server, if the reply names one. */
  readonly at: Endpoint | undefined

  constructor(
    message: string,
    why: NotRun['why'],
    { at, reply }: { at?: Endpoint; reply?: string | undefined } = {},
  ) {
    super(message, reply)
    this.why = why
    this.at = at
  }
}

/**
 * Returns the store's error for an error of the client library. Only its message is kept: the library attaches the whole command to its
 * errors, and passwords and payloads must not get into logs.
 */
function storeFailure(operation: string, error: unknown): Error {
  const reason = error instanceof Error ? error.message : String(error)
  const refused = error instanceof Error && error.name === 'ReplyError'
  if (!refused) {
    const why = UNANSWERED.find(([pattern]) => pattern.test(reason))?.[1] ?? reason
    return new StoreUnavailable(`the store gave no answer to ${operation}: ${why}`)
  }
  const [, how, , host = '', port] = ELSEWHERE.exec(reason) ?? []
  if (how !== undefined) {
    const why = how === 'ASK' ? 'asking' : 'moved'
    const at = { host, port: Number(port) }
    return new NotRun(`the store moved the key of ${operation}: ${reason}`, why, { at, reply: how })
  }
  const cannot = `the store cannot serve ${operation} now: ${reason}`
  const reply = replyIn(reason) ?? 'ERR'
  if (LATER.test(reason)) return new NotRun(cannot, 'later', { reply })
  if (CANNOT_SERVE.test(reason)) return new StoreUnavailable(cannot, reply)
  const text = `the store refused ${operation}: ${reason}`
  return LASTING.test(reason) ? new StoreRejected(text) : new StoreRefused(text, reply)
}

/** Passes the reports of a store's connections to all observers. */
export class Observers implements StoreObserver {
  readonly #observers = new Set<StoreObserver>()

  /** Reports to `observer` until the returned function is called. */
  add(observer: StoreObserver): () => void {
    this.#observers.add(observer)
    return () => void this.#observers.delete(observer)
  }

  answered(operation: string, seconds: number): void {
    for (const observer of this.#observers) observer.answered(operation, seconds)
  }

  failed(operation: string, seconds: number, failure: StoreFailure): void {
    for (const observer of this.#observers) observer.failed(operation, seconds, failure)
  }
}

/**
 * Returns the bytes as a Buffer for Redis. It is a copy, because a command leaves later in the turn, and the caller may reuse its buffer.
 */
export const outgoing = (bytes: Uint8Array): Buffer => Buffer.from(bytes)

/** Returns a copy of the bytes from Redis, because a reply is a view of the socket's chunk. */
export const incoming = (bytes: Buffer): Uint8Array => new Uint8Array(bytes)

/** What a connection works with. */
export interface ConnectionOptions {
  readonly clock: Clock
  readonly log: Logger
  /** Time limit of the wait for the connection. */
  readonly timeoutMs: number
  /** Observers of the commands. */
  readonly observers: Observers
  /**
   * Returns why the connection is down, from the text of the last error, which is undefined if the server has closed it. Returns undefined for an
   * error that says nothing about it. Default: that text.
   */
  readonly explain?: (reason: string | undefined) => string | undefined
}

interface Waiter {
  readonly resolve: () => void
  readonly reject: (error: StoreUnavailable) => void
}

/** Delay before another attempt after the client library has given up, in milliseconds. */
const REVIVE_MS = 250

/**
 * One connection to the server, which `redis` rebuilds automatically after a loss. Calls wait for it for a limited time. Commands that a
 * lost connection left unanswered are rejected and never sent again: only the caller knows whether a write may be repeated.
 */
export class Connection {
  readonly #redis: Redis
  readonly #clock: Clock
  readonly #log: Logger
  readonly #timeoutMs: number
  readonly #observers: Observers
  readonly #waiters = new Set<Waiter>()
  #closed = false
  #wasReady = false
  /** Time of the loss, monotonic milliseconds. Undefined: the connection is up. */
  #lostAt: number | undefined
  readonly #explain: (reason: string | undefined) => string | undefined
  /** Reason why the connection is down. Undefined: the server has closed it. */
  #reason: string | undefined
  /** Logged reasons of this outage. */
  readonly #logged = new Set<string>()
  #inFlight = 0
  #onIdle: (() => void) | undefined
  #gathering = false

  constructor(redis: Redis, options: ConnectionOptions) {
    this.#redis = redis
    this.#clock = options.clock
    this.#log = options.log
    this.#timeoutMs = options.timeoutMs
    this.#observers = options.observers
    this.#explain = options.explain ?? ((reason) => reason)
    redis.on('ready', () => this.#found())
    redis.on('close', () => this.#lost())
    redis.on('end', () => this.#ended())
    redis.on('error', (error: NodeJS.ErrnoException) => {
      const reason = this.#explain(error.message || error.code || error.name)
      if (reason === undefined) return
      this.#reason = reason
      this.#stillLost()
    })
  }

  /** True if a call would be sent immediately. */
  get ready(): boolean {
    return !this.#closed && this.#redis.status === 'ready'
  }

  /** Calls `callback` each time the connection is up, including the first time. */
  onReady(callback: () => void): void {
    this.#redis.on('ready', callback)
  }

  /** Calls `callback` with the reason each time the connection is lost, and after each failed attempt. */
  onLost(callback: (reason: string) => void): void {
    this.#redis.on('close', () => callback(this.#why))
  }

  /** Resolves when the connection is up. Rejects with `NotRun` after `timeoutMs`. */
  opened(timeoutMs: number): Promise<void> {
    if (this.#closed) return Promise.reject(closed())
    if (this.ready) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const stop = (finish: () => void) => {
        cancel()
        this.#waiters.delete(waiter)
        finish()
      }
      const waiter: Waiter = {
        resolve: () => stop(resolve),
        reject: (error) => stop(() => reject(error)),
      }
      const cancel = this.#clock.schedule(timeoutMs, () => waiter.reject(this.#noConnection()))
      this.#waiters.add(waiter)
    })
  }

  /** Runs `send` when the connection is up. `operation` names it in errors. Every failure is converted to an error of the store. */
  async run<T>(operation: string, send: (redis: Redis) => Promise<T>): Promise<T> {
    this.#inFlight++
    const began = this.#clock.monotonic()
    const seconds = (): number => (this.#clock.monotonic() - began) / 1000
    try {
      if (!this.ready) await this.opened(this.#timeoutMs)
      this.gather()
      const answer = await send(this.#redis)
      this.#observers.answered(operation, seconds())
      return answer
    } catch (error) {
      const failure = error instanceof StoreUnavailable ? error : storeFailure(operation, error)
      this.#observers.failed(
        operation,
        seconds(),
        failure instanceof StoreUnavailable ? failure.failure : 'store_refused',
      )
      throw failure
    } finally {
      this.#inFlight--
      if (this.#inFlight === 0) this.#onIdle?.()
    }
  }

  /** All writes from now on, in this turn of the event loop, leave in one write. The connection must be ready. */
  gather(): void {
    if (this.#gathering) return
    const { stream } = this.#redis
    this.#gathering = true
    stream.cork()
    process.nextTick(() => {
      this.#gathering = false
      stream.uncork()
    })
  }

  /** Rebuilds the connection, for one that looks alive and is not. */
  rebuild(reason: string): void {
    if (!this.ready) return
    this.#reason = reason
    disconnect(this.#redis, { again: true })
  }

  /** Waits until the pending calls have ended, which takes at most their time limits, and closes the connection. */
  async close(): Promise<void> {
    this.#closed = true
    for (const waiter of this.#waiters) waiter.reject(closed())
    if (this.#inFlight > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve))
    disconnect(this.#redis)
  }

  get #why(): string {
    return this.#reason ?? this.#explain(undefined) ?? 'the server closed it'
  }

  #noConnection(): NotRun {
    const reason = this.#why
    return new NotRun(`no connection to the store: ${reason}`, 'unsent', { reply: replyIn(reason) })
  }

  #found(): void {
    if (this.#lostAt !== undefined) {
      const outageMs = Math.round(this.#clock.monotonic() - this.#lostAt)
      const { remoteAddress, remotePort } = this.#redis.stream
      // The server is another one than before: a failover.
      const server = `${remoteAddress}:${remotePort}`
      this.#log.info({ outage_ms: outageMs, server }, 'the store connection is back')
    }
    this.#lostAt = undefined
    this.#wasReady = true
    this.#reason = undefined
    this.#logged.clear()
    for (const waiter of this.#waiters) waiter.resolve()
  }

  /** The client library sometimes gives up although it could continue, for example if the connection is cut while it asks a Sentinel. */
  #ended(): void {
    if (this.#closed) return
    this.#clock.schedule(REVIVE_MS, () => {
      if (!this.#closed && this.#redis.status === 'end') this.#redis.connect().catch(() => undefined)
    })
  }

  #lost(): void {
    if (this.#closed || this.#lostAt !== undefined) return
    this.#lostAt = this.#clock.monotonic()
    this.#report(this.#wasReady ? 'the store connection is lost' : 'no connection to the store yet')
  }

  /** The first reason of an outage is often only that the server has closed the connection. Those of later attempts say why it lasts. */
  #stillLost(): void {
    const isDown = this.#lostAt !== undefined || this.#redis.status === 'connecting'
    if (this.#closed || !isDown || this.#logged.has(this.#why) || this.#logged.size >= MAX_REASONS) return
    this.#lostAt ??= this.#clock.monotonic()
    this.#report('no connection to the store yet')
  }

  #report(what: string): void {
    this.#logged.add(this.#why)
    this.#log.warn({ failure: this.#noConnection().failure, reason: this.#why }, what)
  }
}

/** Maximum number of logged reasons of one outage. */
const MAX_REASONS = 5

const closed = () => new NotRun('the store is closed', 'unsent')
