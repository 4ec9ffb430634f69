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

/** Replies of a server that is there but cannot serve now: loading, failing over, out of memory, blocked, or a replica. */
const CANNOT_SERVE =
  /\b(LOADING|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|UNKILLABLE)\b/

/** Replies to a user without the right, or without the password. */
const NOT_ALLOWED = /\b(NOAUTH|NOPERM|WRONGPASS)\b/

/** What Redis 7.0 says, without a code, about a command inside a script. */
const FORBIDDEN_IN_SCRIPT = /user executing the script can't/

/** Returns the code of the error reply in a message; undefined: it has none that is known here. */
const replyIn = (message: string): string | undefined =>
  (CANNOT_SERVE.exec(message) ?? NOT_ALLOWED.exec(message))?.[1] ??
  (FORBIDDEN_IN_SCRIPT.test(message) ? 'NOPERM' : undefined)

/**
 * Replies that are the same however often a command is sent: a key of another kind, a number that is none, a script that meets such a value, a
 * value that is too large.
 */
const LASTING =
  /\b(WRONGTYPE|CROSSSLOT)\b|not an integer|would overflow|user_script:\d+: attempt to|exceeds maximum allowed/

/** Replies of a Cluster that did not run a command which it may well run a moment later. */
const LATER = /^(CLUSTERDOWN|TRYAGAIN|LOADING)\b/

/** What the client library says of a command that was sent and not answered, which names its own options. */
const UNANSWERED: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/max retries per request|Connection is closed|Stream isn't writeable/, 'the connection was lost'],
  [/^Command timed out$/, 'it took too long'],
]

/** `MOVED 3999 127.0.0.1:6381`; the host is empty when it is the one that was asked. */
const ELSEWHERE = /^(MOVED|ASK) (\d+) (.*):(\d+)$/

/** A command that certainly did not run, and why: so it may be sent again. */
export class NotRun extends StoreUnavailable {
  /**
   * `unsent`: there was no connection to send it by. `later`: the Cluster is busy with itself. `moved`: its slot is at another server
   * for good. `asking`: its key may be at another server, for this once.
   */
  readonly why: 'unsent' | 'later' | 'moved' | 'asking'
  /** The other server, where the reply names one. */
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
 * What callers of the store get for an error of the client library. Only its message is kept: the library hangs the whole
 * command on its errors, and so passwords and payloads, which must reach no log.
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

/** Passes what the connections of a store tell to all who listen. */
export class Observers implements StoreObserver {
  readonly #observers = new Set<StoreObserver>()

  /** Tells `observer` from now on; the returned function ends that. */
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

/** The bytes as Redis is to get them: a copy, because a command leaves only later in the turn and the caller may reuse its buffer. */
export const outgoing = (bytes: Uint8Array): Buffer => Buffer.from(bytes)

/** The bytes as Redis sent them: a copy, because a reply is a view of the chunk that the socket read. */
export const incoming = (bytes: Buffer): Uint8Array => new Uint8Array(bytes)

/** What a connection works with. */
export interface ConnectionOptions {
  readonly clock: Clock
  readonly log: Logger
  /** How long a call waits for the connection. */
  readonly timeoutMs: number
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
 * what a lost connection left unanswered is rejected and never sent again: only the caller can know whether a write may be repeated.
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
  /** When the connection was lost, monotonic milliseconds; undefined while it stands. */
  #lostAt: number | undefined
  /** Why it was lost, or is not there yet, in the words of the last error. */
  #reason = 'the server closed it'
  #inFlight = 0
  #onIdle: (() => void) | undefined
  #gathering = false

  constructor(redis: Redis, options: ConnectionOptions) {
    this.#redis = redis
    this.#clock = options.clock
    this.#log = options.log
    this.#timeoutMs = options.timeoutMs
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

  /** Resolves once the connection stands; rejects with `NotRun` after `timeoutMs`. */
  opened(timeoutMs: number): Promise<void> {
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
      const cancel = this.#clock.schedule(timeoutMs, () => waiter.reject(this.#noConnection()))
      this.#waiters.add(waiter)
    })
  }

  /** Runs `send` once the connection stands; `operation` names it in errors. Every failure comes out as the store's own error. */
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

  /** What is written from now on, in this turn of the event loop, leaves in one write. The connection must be ready. */
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

  /** Drops the connection, which is then made again; for one that looks alive and is not. */
  rebuild(reason: string): void {
    if (!this.ready) return
    this.#reason = reason
    disconnect(this.#redis, { again: true })
  }

  /** Lets calls under way end, which takes no longer than their time limits, then drops the connection for good. */
  async close(): Promise<void> {
    this.#closed = true
    for (const waiter of this.#waiters) waiter.reject(closed())
    if (this.#inFlight > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve))
    disconnect(this.#redis)
  }

  #noConnection(): NotRun {
    return new NotRun(`no connection to the store: ${this.#reason}`, 'unsent', {
      reply: replyIn(this.#reason),
    })
  }

  #found(): void {
    if (this.#lostAt !== undefined) {
      const outageMs = Math.round(this.#clock.monotonic() - this.#lostAt)
      const { remoteAddress, remotePort } = this.#redis.stream
      // Another server than before: a fail-over.
      const server = `${remoteAddress}:${remotePort}`
      this.#log.info({ outage_ms: outageMs, server }, 'the store connection is back')
    }
    this.#lostAt = undefined
    this.#wasReady = true
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
    if (this.#closed || this.#lostAt !== undefined) return
    this.#lostAt = this.#clock.monotonic()
    const what = this.#wasReady ? 'the store connection is lost' : 'no connection to the store yet'
    this.#log.warn({ failure: this.#noConnection().failure, reason: this.#reason }, what)
  }
}

const closed = () => new NotRun('the store is closed', 'unsent')
