import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import type { Clock } from '../../clock.ts'
import { StoreMisconfigured, type StoreObserver, type StoreServer, type StoreVitals } from '../port.ts'
import type { RedisAddress } from './address.ts'
import { MessageReader } from './bus-stream.ts'
import { runScript, type ScriptName } from './clients.ts'
import { Connection, type ConnectionOptions, type Observers } from './connection.ts'

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
    for (const callback of this.#callbacks)
      try {
        callback()
      } catch (error) {
        // The other callbacks must run, and the client library must send the waiting commands.
        queueMicrotask(() => {
          throw error
        })
      }
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

/** The oldest server whose commands the scripts use (`SET … PXAT` came with it). */
const OLDEST: readonly [major: number, minor: number] = [6, 2]
/** The oldest server that publishes within a shard (SPUBLISH). */
const SHARDS: readonly [major: number, minor: number] = [7, 0]

const isSince = (info: string, [sinceMajor, sinceMinor]: readonly [number, number]): boolean => {
  const [major = 0, minor = 0] = (field(info, 'redis_version') ?? '').split('.').map(Number)
  return major > sinceMajor || (major === sinceMajor && minor >= sinceMinor)
}

/** Throws when `info`, the answer to INFO, is of a server that is too old. */
export function requireRecent(info: string): void {
  if (isSince(info, OLDEST)) return
  const version = field(info, 'redis_version') ?? 'of an unknown version'
  throw new StoreMisconfigured(`the store is Redis ${version}: it must be ${OLDEST.join('.')} or newer`)
}

/** Whether the server whose INFO this is publishes within a shard. */
export const hasShards = (info: string): boolean => isSince(info, SHARDS)

/** Throws when the server throws data away once its memory is full; warns when it would, had its memory a limit. */
function requireNoEviction(info: string, log: Logger): void {
  const policy = field(info, 'maxmemory_policy') ?? 'unknown'
  if (policy === 'noeviction') return
  const limit = Number(field(info, 'maxmemory') ?? 0)
  const remedy = 'set maxmemory-policy to noeviction'
  if (limit > 0)
    throw new StoreMisconfigured(
      `the store throws data away when its ${limit} bytes are full (maxmemory-policy ${policy}): ${remedy}`,
    )
  log.warn(
    { maxmemory_policy: policy },
    `the store would throw data away if its memory had a limit: ${remedy}`,
  )
}

/**
 * Rejects when the server will not do: too old, of another kind than the URL says, evicting, without that database, or the user may not
 * do what roomful does; the error says what would be right. Resolves with its answer to INFO. `scratch` is a key and a channel (prefix
 * included) of this server that no one else uses.
 */
export async function checkServer(
  server: Server,
  { scratch, kind, db, log }: { scratch: string; kind: RedisAddress['kind']; db: number; log: Logger },
): Promise<string> {
  const info = await server.commands
    .run('info', (redis) => redis.info())
    .catch((error: Error) => Promise.reject(isForbidden(error) ? lacking(['the command info']) : error))
  requireRecent(info)
  requireKind(info, kind)
  requireNoEviction(info, log)
  await requirePermissions(server, scratch, { shards: hasShards(info) && isCluster(info) })
  if (db > 0) await requireDatabase(server, db)
  return info
}

/** Throws when a URL of one server names a part of something larger. */
function requireKind(info: string, kind: RedisAddress['kind']): void {
  if (kind === 'cluster') return
  if (isCluster(info))
    throw new StoreMisconfigured(
      'the store is a server of a Redis Cluster: the URL must start with redis+cluster://',
    )
  if (field(info, 'role') === 'slave')
    throw new StoreMisconfigured(
      'the store is a replica, which takes no writes: the URL must name its master',
    )
}

/** The client library selects the database at each connect, and goes on in database 0 when that fails. */
async function requireDatabase({ commands }: Server, db: number): Promise<void> {
  try {
    await commands.run('select', (redis) => redis.select(db))
  } catch (error) {
    throw isForbidden(error) ? lacking(['the command select']) : error
  }
}

const isCluster = (info: string): boolean => field(info, 'redis_mode') === 'cluster'

const isForbidden = (error: unknown): boolean => error instanceof Error && error.message.includes('NOPERM')

const lacking = (what: readonly string[]): Error =>
  new StoreMisconfigured(
    `the store's user may not use ${what.join(', ')}: docs/redis.md has the ACL rule that it needs`,
  )

/** Rejects with everything that the user of the store is not allowed and roomful does. */
async function requirePermissions(
  { commands, listener }: Server,
  scratch: string,
  { shards }: { shards: boolean },
): Promise<void> {
  const bytes = Buffer.alloc(0)
  const trials: Record<string, Trial> = {
    ping: (redis) => redis.ping(),
    time: (redis) => redis.time(),
    hmget: (redis) => redis.hmget(scratch, 'v'),
    zrevrangebylex: (redis) => redis.zrevrangebylex(scratch, '+', '-', 'LIMIT', 0, 1),
    eval: (redis) => redis.eval('return 1', 1, scratch),
    evalsha: (redis) => redis.evalsha('0'.repeat(40), 1, scratch),
    ...(shards
      ? {
          spublish: (redis) => redis.spublish(scratch, bytes),
          'pubsub|shardnumsub': (redis) => redis.pubsub('SHARDNUMSUB', scratch),
          exists: (redis) => redis.exists(scratch),
          'cluster|slots': (redis) => redis.cluster('SLOTS'),
        }
      : {
          publish: (redis) => redis.publish(scratch, bytes),
          'pubsub|numsub': (redis) => redis.pubsub('NUMSUB', scratch),
        }),
  }
  const listening: Record<string, Trial> = {
    'client|reply': (redis) => redis.client('REPLY', 'ON'),
    ...(shards
      ? {
          ssubscribe: (redis) => redis.ssubscribe(scratch),
          sunsubscribe: (redis) => redis.sunsubscribe(scratch),
        }
      : {
          subscribe: (redis) => redis.subscribe(scratch),
          unsubscribe: (redis) => redis.unsubscribe(scratch),
        }),
  }
  const refused = await Promise.all([
    ...Object.entries(trials).map(([name, trial]) => refusedBy(commands, name, trial)),
    ...Object.entries(listening).map(([name, trial]) => refusedBy(listener, name, trial)),
    ...(await refusedInScripts(commands, scratch)),
  ])
  const missing = new Set(refused.filter((name) => name !== undefined))
  if (missing.size > 0) throw lacking([...missing])
}

type Trial = (redis: Redis) => Promise<unknown>

/** What the user may not use, in words; undefined when it may, or when something else went wrong. */
async function refusedBy(connection: Connection, name: string, trial: Trial): Promise<string | undefined> {
  try {
    await connection.run(name, trial)
    return undefined
  } catch (error) {
    if (!isForbidden(error)) return undefined
    const what = /access one of the (keys|channels)/.exec((error as Error).message)?.[1]
    return what === undefined ? `the command ${name}` : `the ${what} under the key prefix`
  }
}

async function refusedInScripts(commands: Connection, scratch: string): Promise<string[]> {
  try {
    const names = await commands.run('eval', (redis) => runScript(redis, 'permitted', [scratch], []))
    return (names as Buffer[]).map((name) => `the command ${name}`)
  } catch (error) {
    if (isForbidden(error)) return [] // The trial of `eval` tells.
    throw error
  }
}
