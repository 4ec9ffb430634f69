import { readFileSync } from 'node:fs'
import { Redis, type RedisOptions } from 'ioredis'
import type { Clock } from '../../clock.ts'
import type { Random } from '../../random.ts'
import type { Endpoint, RedisAddress } from './address.ts'

/** The library's options; how replies are mapped is part of its types, and always its default. */
type Options = Omit<RedisOptions, 'replyMapping'>

/** What a connection is for: commands, or hearing what is published. */
type Purpose = 'commands' | 'bus'

/** How often a Sentinel that is away is tried for, milliseconds. */
const SENTINEL_RETRY_MS = 1000

/** Makes clients of one Redis installation, all with the same settings. */
export class Clients {
  readonly #address: RedisAddress
  readonly #random: Random
  readonly #timeoutMs: number

  constructor(address: RedisAddress, { random, timeoutMs }: { random: Random; timeoutMs: number }) {
    this.#address = address
    this.#random = random
    this.#timeoutMs = timeoutMs
  }

  /** Two clients of the master that the Sentinels name at each connect, or its successor where `watch` has heard of one. */
  bothOfMaster(watch: SentinelWatch): Record<Purpose, Redis> {
    const natMap = (address: string) => watch.successorOf(address) ?? null
    const common = { ...this.#sentinel(), natMap }
    return {
      commands: new Redis({ ...this.#options('commands'), ...common }),
      bus: new Redis({ ...this.#options('bus'), ...common }),
    }
  }

  /** Two clients of the server at `endpoint`. */
  both(endpoint: Endpoint): Record<Purpose, Redis> {
    return {
      commands: new Redis({ ...this.#options('commands'), ...endpoint }),
      bus: new Redis({ ...this.#options('bus'), ...endpoint }),
    }
  }

  /** A client that tries once to reach the server at `endpoint`, for one question. */
  oneShot(endpoint: Endpoint): Redis {
    return new Redis({
      ...this.#options('commands'),
      ...endpoint,
      retryStrategy: () => null,
      enableOfflineQueue: true,
      enableReadyCheck: false,
    })
  }

  /** A client of each Sentinel, for what it publishes. */
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
 * Drops the connection of `redis`, for good or to make it again. The library listens for one error of a socket. One that is dropped in the
 * middle of a TLS handshake has two, the second an alert of the server, which would end the process.
 */
export function disconnect(redis: Redis, { again = false } = {}): void {
  const { stream }: { stream?: Redis['stream'] } = redis
  stream?.on('error', () => undefined)
  redis.disconnect(again)
}

/**
 * Reconnects for ever, quickly at first, and never repeats a command by itself: what a lost connection left unanswered is rejected at
 * once, and nothing waits inside the client library, where it would be sent after its caller was told that it failed.
 */
const reconnecting = (random: Random, slowestMs: number) =>
  ({
    retryStrategy: (attempt: number) =>
      Math.min(25 * 2 ** Math.min(attempt, 6), slowestMs) * (0.5 + random.float() / 2),
    /** A fail-over may have made this server a replica: connect again, to whatever the address means by now. */
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    autoResubscribe: false,
    maxLoadingRetryTime: 500,
    disconnectTimeout: 250,
  }) satisfies Options

/** What a Sentinel publishes once it has another master: `<name> <old host> <old port> <new host> <new port>`. */
const CHANNEL = '+switch-master'

/** How long Sentinels may be behind each other, milliseconds. After that what they say holds: a switch may have gone unheard. */
const BEHIND_MS = 5000

/**
 * Hears when Sentinels appoint another master: sooner than a connection to one that hangs, or was cut off, would show it. Sentinels
 * learn of it one after the other, so that one may still name the old master, which may still believe that it is: `successorOf`
 * puts that right. `sentinels` are clients that reconnect by themselves.
 */
export class SentinelWatch {
  readonly #sentinels: readonly Redis[]
  readonly #masterName: string
  readonly #clock: Clock
  /** Masters that were replaced, by which, and when (monotonic milliseconds). */
  readonly #successors = new Map<string, { readonly master: Endpoint; readonly at: number }>()
  /** The last one that was told of; every Sentinel tells of each. */
  #last = ''
  #onSwitch: () => void = () => undefined

  constructor(sentinels: readonly Redis[], { masterName, clock }: { masterName: string; clock: Clock }) {
    this.#sentinels = sentinels
    this.#masterName = masterName
    this.#clock = clock
    for (const sentinel of sentinels) {
      sentinel.on('error', () => undefined) // Who asks for the master meets the same, and reports it.
      sentinel.on('message', (_channel: string, message: string) => this.#hear(message))
      sentinel.subscribe(CHANNEL).catch(() => undefined)
    }
  }

  /** Calls back once for each new master. */
  onSwitch(callback: () => void): void {
    this.#onSwitch = callback
  }

  /** The master that took the place of the one at `address` (`host:port`) a moment ago; undefined when none did. */
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

/** Every script of `lua/`, by the name of its file. */
const NAMES = [
  'write',
  'renew_lease',
  'inspect',
  'reserve',
  'count',
  'claim',
  'open',
  'recall',
  'note_stuck',
  'commit',
  'snapshot',
  'read_room',
  'release',
  'refresh',
  'quarantine',
  'set_wakeup',
  'take_wakeups',
  'announce_notices',
  'take_notices',
  'settle_notices',
  'write_listing',
  'read_listing',
  'permitted',
] as const

export type ScriptName = (typeof NAMES)[number]

const read = (name: string): string => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')

/** What a connection for commands has to know of the scripts: each with what all share before it. */
export const SCRIPTS: Record<string, { lua: string }> = Object.fromEntries(
  NAMES.map((name) => [`roomful_${name}`, { lua: ['prelude', 'fence', 'owner', name].map(read).join('\n') }]),
)

/**
 * Runs a script at `redis`, which is sent each in full once per connection and by its hash after. KEYS and ARGV are in the head of the
 * script's file. Strings of the reply come as Buffers.
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
