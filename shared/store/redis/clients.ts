import { readFileSync } from 'node:fs'
import { Redis, type RedisOptions } from 'ioredis'
import type { Clock } from '../../clock.ts'
import type { Random } from '../../random.ts'
import type { Endpoint, RedisAddress } from './address.ts'

/** Options of the library. Its types include the mapping of replies, for which only the default is used. */
type Options = Omit<RedisOptions, 'replyMapping'>

/** Purpose of a connection: commands, or receiving publications. */
type Purpose = 'commands' | 'bus'

/** Interval between attempts to reach an unreachable Sentinel, in milliseconds. */
const SENTINEL_RETRY_MS = 1000

/** Creates clients of one Redis installation, all with the same settings. */
export class Clients {
  readonly #address: RedisAddress
  readonly #random: Random
  readonly #timeoutMs: number

  constructor(address: RedisAddress, { random, timeoutMs }: { random: Random; timeoutMs: number }) {
    this.#address = address
    this.#random = random
    this.#timeoutMs = timeoutMs
  }

  /** Returns two clients of the master that the Sentinels name at each connect, or of its successor if `watch` has reported one. */
  bothOfMaster(watch: SentinelWatch, report: SentinelReport): Record<Purpose, Redis> {
    const natMap = (address: string) => {
      const successor = watch.successorOf(address)
      report.named(successor ? `${successor.host}:${successor.port}` : address)
      return successor ?? null
    }
    const common = { ...this.#sentinel(), natMap }
    const both = {
      commands: new Redis({ ...this.#options('commands'), ...common }),
      bus: new Redis({ ...this.#options('bus'), ...common }),
    }
    for (const redis of Object.values(both))
      redis.on('sentinelError', (error: Error) => report.failed(error.message))
    return both
  }

  /** Returns two clients of the server at `endpoint`. */
  both(endpoint: Endpoint): Record<Purpose, Redis> {
    return {
      commands: new Redis({ ...this.#options('commands'), ...endpoint }),
      bus: new Redis({ ...this.#options('bus'), ...endpoint }),
    }
  }

  /** Returns a client for one command, which tries once to reach the server at `endpoint`. */
  oneShot(endpoint: Endpoint): Redis {
    return new Redis({
      ...this.#options('commands'),
      ...endpoint,
      retryStrategy: () => null,
      enableOfflineQueue: true,
      enableReadyCheck: false,
    })
  }

  /** Returns a client of each Sentinel, for its publications. */
  sentinels(): Redis[] {
    const { endpoints, sentinelCredentials, tls } = this.#address
    return endpoints.map(
      (endpoint) =>
        new Redis({
          ...endpoint,
          ...sentinelCredentials,
          ...(tls && { tls }),
          connectionName: 'roomful-sentinel',
          disableClientInfo: true,
          enableReadyCheck: false,
          connectTimeout: this.#timeoutMs,
          retryStrategy: () => SENTINEL_RETRY_MS,
          maxRetriesPerRequest: null,
        }),
    )
  }

  #options(purpose: Purpose): Options {
    const { credentials, db, tls } = this.#address
    const timeoutMs = this.#timeoutMs
    return {
      ...credentials,
      db,
      ...(tls && { tls }),
      ...reconnecting(this.#random, this.#address.kind === 'single' ? 1000 : 250),
      connectionName: `roomful-${purpose}`,
      disableClientInfo: true,
      commandTimeout: timeoutMs,
      connectTimeout: timeoutMs,
      ...(purpose === 'commands' && {
        socketTimeout: 2 * timeoutMs,
        scripts: SCRIPTS,
      }),
    }
  }

  #sentinel(): Options {
    const { endpoints, masterName, sentinelCredentials, tls } = this.#address
    const { username, password } = sentinelCredentials
    return {
      sentinels: endpoints.map(({ host, port }) => ({ host, port })),
      name: masterName,
      ...(username !== undefined && { sentinelUsername: username }),
      ...(password !== undefined && { sentinelPassword: password }),
      sentinelCommandTimeout: this.#timeoutMs / 2,
      sentinelRetryStrategy: (attempt) => Math.min(25 * attempt, 250),
      ...(tls && { enableTLSForSentinelMode: true, sentinelTLS: tls }),
    }
  }
}

/**
 * Closes the connection of `redis`, finally or to rebuild it. The library listens for one error of a socket. A connection that is closed
 * during a TLS handshake has two, and the second, an alert of the server, would end the process.
 */
export function disconnect(redis: Redis, { again = false } = {}): void {
  const { stream }: { stream?: Redis['stream'] } = redis
  stream?.on('error', () => undefined)
  redis.disconnect(again)
}

/**
 * Reconnects without end, quickly at first, and never repeats a command: commands that a lost connection left unanswered are rejected
 * immediately. Nothing is queued inside the client library, where a command would be sent after its caller got an error.
 */
const reconnecting = (random: Random, slowestMs: number) =>
  ({
    retryStrategy: (attempt: number) =>
      Math.min(25 * 2 ** Math.min(attempt, 6), slowestMs) * (0.5 + random.float() / 2),
    /** A failover may have made this server a replica. Reconnect to the server that the address means by then. */
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    autoResubscribe: false,
    maxLoadingRetryTime: 500,
    disconnectTimeout: 250,
  }) satisfies Options

/** Publication of a Sentinel about a new master: `<name> <old host> <old port> <new host> <new port>`. */
const CHANNEL = '+switch-master'

/** Maximum delay between Sentinels in milliseconds. After that their answers are used, because a switch may have been missed. */
const BEHIND_MS = 5000

/**
 * Listens for a new master that Sentinels appoint, which is faster than a connection to a master that hangs or is cut off would show.
 * Sentinels learn of the switch one after the other. One may still name the old master, which may still believe that it is the master.
 * `successorOf` corrects that. `sentinels` are clients that reconnect automatically.
 */
export class SentinelWatch {
  readonly #sentinels: readonly Redis[]
  readonly #masterName: string
  readonly #clock: Clock
  /** Replaced masters, with their successors and the time (monotonic milliseconds). */
  readonly #successors = new Map<string, { readonly master: Endpoint; readonly at: number }>()
  /** The last reported master. Every Sentinel reports each switch. */
  #last = ''
  #onSwitch: () => void = () => undefined

  constructor(sentinels: readonly Redis[], { masterName, clock }: { masterName: string; clock: Clock }) {
    this.#sentinels = sentinels
    this.#masterName = masterName
    this.#clock = clock
    for (const sentinel of sentinels) {
      sentinel.on('error', () => undefined) // A caller that connects to the master gets the same error, and reports it.
      sentinel.on('message', (_channel: string, message: string) => this.#hear(message))
      sentinel.subscribe(CHANNEL).catch(() => undefined)
    }
  }

  /** Calls `switched` once for each new master. */
  onSwitch(callback: () => void): void {
    this.#onSwitch = callback
  }

  /** Returns the master that has recently replaced the one at `address` (`host:port`). Undefined: it was not replaced. */
  successorOf(address: string): Endpoint | undefined {
    const found = this.#successors.get(address)
    return found && this.#clock.monotonic() - found.at < BEHIND_MS ? found.master : undefined
  }

  close(): void {
    for (const sentinel of this.#sentinels) disconnect(sentinel)
  }

  #hear(message: string): void {
    const [name, oldHost, oldPort, host = '', port] = message.split(' ')
    const there = `${host}:${port}`
    if (name !== this.#masterName || there === this.#last) return
    this.#last = there
    const master = { host, port: Number(port) }
    this.#successors.delete(there)
    this.#successors.set(`${oldHost}:${oldPort}`, { master, at: this.#clock.monotonic() })
    this.#onSwitch()
  }
}

/** Text of the library when no Sentinel has named a master, for whatever reason. */
const ALL_FAILED = /^All sentinels are unreachable/
/** Texts of the library about one Sentinel. */
const NO_ANSWER = /^failed to connect to sentinel (\S+) because (.*)$/s
const NO_MASTER = /^connected to sentinel (\S+) successfully, but got an invalid reply/

/** Latest answers of the Sentinels. They explain why there is no connection to the master. */
export class SentinelReport {
  readonly #masterName: string
  readonly #sentinels: number
  /** Fault of each Sentinel since one has named a master, by address. */
  readonly #faults = new Map<string, string>()
  /** Last error of the separate connection to each Sentinel, by address. */
  readonly #errors = new Map<string, string>()
  #named: string | undefined

  /** `sentinels`: clients of all Sentinels. */
  constructor(masterName: string, sentinels: readonly Redis[]) {
    this.#masterName = masterName
    this.#sentinels = sentinels.length
    for (const sentinel of sentinels) {
      const { host, port } = sentinel.options
      sentinel.on('error', (error: Error) => this.#errors.set(`${host}:${port}`, error.message))
      sentinel.on('ready', () => this.#errors.delete(`${host}:${port}`))
    }
  }

  /** A Sentinel has named the master at `address` (`host:port`). */
  named(address: string): void {
    this.#named = address
    this.#faults.clear()
  }

  /** A Sentinel has named no master. `text`: that of the library. */
  failed(text: string): void {
    const [, address = '', reason = ''] = NO_ANSWER.exec(text) ?? NO_MASTER.exec(text) ?? []
    if (address !== '') this.#faults.set(address, this.#faultOf(address, reason))
  }

  #faultOf(address: string, reason: string): string {
    // The library keeps the error of its connection to itself.
    const error = reason === 'Connection is closed.' ? (this.#errors.get(address) ?? reason) : reason
    if (error === '' || /No such master/.test(error)) return `knows no master "${this.#masterName}"`
    if (/\b(NOAUTH|WRONGPASS|NOPERM)\b/.test(error))
      return `refuses sentinel_username or sentinel_password (${error})`
    return `does not answer (${error})`
  }

  /**
   * Returns the reason for which there is no connection. `reason`: that of the library; undefined: the server has closed the connection. Undefined
   * if the library only begins again with its list of Sentinels, although not all have failed.
   */
  explain(reason: string | undefined): string | undefined {
    if (reason !== undefined && ALL_FAILED.test(reason)) {
      if (this.#faults.size < this.#sentinels) return undefined
      const faults = [...this.#faults].map(([address, fault]) => `${address} ${fault}`)
      return `no Sentinel names a master: ${faults.join('; ')}`
    }
    if (this.#named === undefined) return reason ?? 'no Sentinel has named a master yet'
    const master = `the Sentinels name ${this.#named} as the master`
    return reason === undefined
      ? `${master}, and it has closed the connection, or is a replica that was not promoted`
      : `${master}: ${reason}`
  }
}

/** All scripts of `lua/`, by the names of their files. */
const NAMES = [
  'write',
  'renew_lease',
  'inspect',
  'reserve',
  'count',
  'claim',
  'open',
  'recall',
  'commit',
  'snapshot',
  'read_room',
  'release',
  'refresh',
  'quarantine',
  'set_due',
  'take_due',
  'write_listing',
  'read_listing',
  'permitted',
] as const

export type ScriptName = (typeof NAMES)[number]

const read = (name: string): string => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')

/** Scripts for a command connection, each with the common prelude. */
export const SCRIPTS: Record<string, { lua: string }> = Object.fromEntries(
  NAMES.map((name) => [`roomful_${name}`, { lua: ['prelude', 'fence', 'owner', name].map(read).join('\n') }]),
)

/**
 * Runs a script at `redis`. The full script is sent once per connection, and later its hash. KEYS and ARGV are described at the top of the
 * script's file. Strings of the reply are Buffers.
 */
export function runScript(
  redis: Redis,
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | Buffer)[],
): Promise<unknown> {
  const run: (...args: (string | Buffer | number)[]) => Promise<unknown> = Reflect.get(
    redis,
    `roomful_${name}Buffer`,
  )
  return run.call(redis, keys.length, ...keys, ...args)
}
