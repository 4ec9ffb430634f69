import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import type { Clock } from '../../clock.ts'
import { StoreMisconfigured, type StoreObserver, type StoreServer, type StoreVitals } from '../port.ts'
import type { RedisAddress } from './address.ts'
import { MessageReader } from './bus-stream.ts'
import { disconnect, runScript, type ScriptName } from './clients.ts'
import { Connection, type ConnectionOptions, type Observers } from './connection.ts'

/**
 * One Redis server that accepts writes, with two connections of this process: one for commands, and one that receives publications. `name`
 * identifies it.
 */
export class Server {
  readonly name: string
  readonly commands: Connection
  readonly listener: Connection
  readonly #listening: Redis
  readonly #clock: Clock
  /** Start time of the server at the other end of `commands`, on the monotonic clock, if known. */
  #startedAt: number | undefined
  /** True if the user `default` of the server at the other end of `commands` is limited, if known. */
  #limitsDefault: boolean | undefined
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
    // The library reads from the connection by now, and no data has arrived yet.
    clients.bus.on('connect', () =>
      MessageReader.before(clients.bus.stream, (channel, message) => this.#onMessage(channel, message)),
    )
    this.commands.onLost(() => {
      this.#startedAt = undefined
      this.#limitsDefault = undefined
    })
  }

  /**
   * Returns the uptime of the server in milliseconds. It is read once per connection, because a restart of the server closes its
   * connections.
   */
  async uptime(): Promise<number> {
    if (this.#startedAt === undefined || !this.commands.ready) {
      const uptime = uptimeOf(await this.commands.run('uptime', (redis) => redis.info('server')))
      this.#startedAt = this.#clock.monotonic() - uptime
    }
    return this.#clock.monotonic() - this.#startedAt
  }

  /**
   * Returns true if the server will reject its append-only file when it restarts: it replays the file as the user `default`, and `default` may
   * not run scripts. This is visible only if `default` needs no password. It is checked once per connection. `info`: its answer to INFO,
   * `key`: any key of this deployment, with prefix.
   */
  async restartLosesData(info: string, key: string): Promise<boolean> {
    if (field(info, 'aof_enabled') !== '1') return false
    this.#limitsDefault ??= await this.commands.run('default user', (redis) => limitsDefault(redis, key))
    return this.#limitsDefault
  }

  /** Sets the callback for messages of the channels that are subscribed at this server. */
  onMessage(callback: (channel: string, message: Buffer) => void): void {
    this.#onMessage = callback
  }

  /** Number of bytes of `write` that the kernel has not taken. */
  get unsentBytes(): number {
    return this.#listening.stream.writableLength
  }

  /**
   * Sends encoded commands without a reply on the listening connection, which must be ready. All commands of one moment leave in one write.
   * `taken` is called when the kernel has them, or with the reason why they are lost.
   */
  write(commands: Buffer, taken?: (error?: Error | null) => void): void {
    this.listener.gather()
    this.#listening.stream.write(commands, taken)
  }

  /** Calls `callback` when this server has ended subscriptions because it no longer holds their slots. */
  onSlotsGone(callback: () => void): void {
    this.#listening.on('moved', callback)
  }

  async opened(timeoutMs: number): Promise<void> {
    await this.commands.opened(timeoutMs)
    await this.listener.opened(timeoutMs)
  }

  /** Rebuilds both connections. */
  rebuild(reason: string): void {
    this.commands.rebuild(reason)
    this.listener.rebuild(reason)
  }

  async close(): Promise<void> {
    await Promise.all([this.commands.close(), this.listener.close()])
  }
}

/** Returns true if an unauthenticated client of the server of `redis` is logged in as a user who may not run a script on `key`. */
async function limitsDefault(redis: Redis, key: string): Promise<boolean> {
  const stranger = redis.duplicate({
    username: '',
    password: '',
    connectionName: '',
    db: 0,
    enableReadyCheck: false,
    enableOfflineQueue: true,
    retryStrategy: () => null,
  })
  stranger.on('error', () => undefined)
  try {
    await stranger.eval('return 1', 1, key)
    return false
  } catch (error) {
    return isForbidden(error)
  } finally {
    disconnect(stranger)
  }
}

/** Runs a script at the server of its first key. The name of the script is the name of the operation. */
export const callScript = (
  servers: Pick<Servers, 'run'>,
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | Buffer)[],
): Promise<unknown> => servers.run(name, keys[0]!, (redis) => runScript(redis, name, keys, args))

/** Returns one field of the answer to INFO. */
export const field = (info: string, name: string): string | undefined =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]

/** Returns the uptime of the server in milliseconds, from its answer to INFO, which counts whole seconds. */
function uptimeOf(info: string): number {
  return Number(field(info, 'uptime_in_seconds')) * 1000
}

/** Sends a command on one of a server's connections. It is called again for each attempt. */
export type Send<T> = (redis: Redis, server: Server) => Promise<T>

/** The servers of one Redis installation that accept writes: one, or the masters of a Cluster. */
export interface Servers {
  /** All currently known servers. */
  all(): readonly Server[]
  /** Returns the server that holds `key` (a key or a channel, with prefix). Undefined: no server holds it at this moment. */
  serverOf(key: string): Server | undefined
  /**
   * Sends a command to the server that holds `key`, and again if a server reports that it has not run it. A command that may have run is
   * not repeated. `operation` names it in errors, which are all errors of the store.
   */
  run<T>(operation: string, key: string, send: Send<T>, by?: 'commands' | 'listener'): Promise<T>
  /** Reads the slots again, after a sign that they have changed. */
  refresh(): void
  /** Calls `callback` for every server, and for each added one. */
  onServer(callback: (server: Server) => void): void
  /** Calls `callback` when keys may have moved to another server. */
  onMoved(callback: () => void): void
  /** True from the loss of a connection until `onReturn` has called its callbacks. */
  readonly away: boolean
  /** Calls `callback` each time all servers are reachable again after an outage. The returned function ends that. */
  onReturn(callback: () => void): () => void
  /** Resolves when all servers are reachable. Rejects with `StoreUnavailable` after `timeoutMs`. */
  opened(timeoutMs: number): Promise<void>
  close(): Promise<void>
}

/** Maximum number of tried names. A server with a hundredth of the slots is found after about 100. */
const NAMES = 100_000

/** Returns a name that starts with `stem` and that `here` assigns to a server. Undefined: none was found. */
export function nameAt(stem: string, here: (name: string) => boolean): string | undefined {
  for (let n = 0; n < NAMES; n++) if (here(`${stem}:${n}`)) return `${stem}:${n}`
  return undefined
}

/** Tracks outages of the store, and reports their end. */
export class Outage {
  readonly #callbacks = new Set<() => void>()
  #lasts = false

  /** True during an outage. */
  get lasts(): boolean {
    return this.#lasts
  }

  begin(): void {
    this.#lasts = true
  }

  end(): void {
    if (!this.#lasts) return
    // Runs before this turn of the event loop ends: commands that waited for the connection are sent right after it.
    for (const callback of this.#callbacks)
      try {
        callback()
      } catch (error) {
        // The other callbacks must run, and the client library must send the queued commands.
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

/** One server, or the current master of Sentinels. */
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

  /** The one server holds all keys. */
  refresh(): void {}

  onServer(callback: (server: Server) => void): void {
    callback(this.#server)
  }

  /** No key moves within one server. */
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

/** State of a Redis: reports of its connections, and its answers to INFO. */
export class RedisVitals implements StoreVitals {
  readonly #servers: Servers
  readonly #observers: Observers
  readonly #prefix: string

  constructor(servers: Servers, { observers, prefix }: { observers: Observers; prefix: string }) {
    this.#servers = servers
    this.#observers = observers
    this.#prefix = prefix
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
        const restartLosesData = await server.restartLosesData(info, this.#prefix)
        return { name: server.name, ...figuresOf(info), restartLosesData }
      }),
    )
  }
}

/** Returns the metrics in an answer to INFO. A value that the server does not report is 0, and undefined for the replicas. */
export function figuresOf(info: string): Omit<StoreServer, 'name' | 'restartLosesData'> {
  const number = (name: string): number => Number(field(info, name) ?? 0)
  const goodReplicas = field(info, 'min_slaves_good_slaves')
  return {
    usedMemoryBytes: number('used_memory'),
    maxMemoryBytes: number('maxmemory'),
    connectedClients: number('connected_clients'),
    commandsProcessed: number('total_commands_processed'),
    evictedKeys: number('evicted_keys'),
    goodReplicas: goodReplicas === undefined ? undefined : Number(goodReplicas),
  }
}

/** Oldest server version with all commands of the scripts (`SET … PXAT` is the newest one). */
const OLDEST: readonly [major: number, minor: number] = [6, 2]
/** Oldest server version with sharded pub/sub (SPUBLISH). */
const SHARDS: readonly [major: number, minor: number] = [7, 0]

const isSince = (info: string, [sinceMajor, sinceMinor]: readonly [number, number]): boolean => {
  const [major = 0, minor = 0] = (field(info, 'redis_version') ?? '').split('.').map(Number)
  return major > sinceMajor || (major === sinceMajor && minor >= sinceMinor)
}

/** Throws if `info`, the answer to INFO, comes from a server that is too old. */
export function requireRecent(info: string): void {
  if (isSince(info, OLDEST)) return
  const version = field(info, 'redis_version') ?? 'of an unknown version'
  throw new StoreMisconfigured(`the store is Redis ${version}: it must be ${OLDEST.join('.')} or newer`)
}

/** Returns true if the server with this INFO supports sharded pub/sub. */
export const hasShards = (info: string): boolean => isSince(info, SHARDS)

/** Throws if the server evicts data when its memory is full. Warns if it would with a memory limit. */
function requireNoEviction(info: string, log: Logger): void {
  const policy = field(info, 'maxmemory_policy') ?? 'unknown'
  if (policy === 'noeviction') return
  const limit = Number(field(info, 'maxmemory') ?? 0)
  if (limit > 0)
    throw new StoreMisconfigured(
      `the store throws data away when its ${limit} bytes are full (maxmemory-policy ${policy}): set maxmemory-policy to noeviction`,
    )
  log.warn(
    { maxmemory_policy: policy },
    'the store would throw data away if its memory had a limit: set maxmemory-policy to noeviction',
  )
}

/**
 * Rejects if the server is unsuitable: it is too old, of another kind than the URL says, evicts data, does not have that database, or
 * refuses commands to the user. The error says what would be right. Resolves with its answer to INFO. `scratch` is a key and a channel
 * (with prefix) of this server that nothing else uses.
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
  if (await server.restartLosesData(info, scratch))
    log.error(
      { server: server.name },
      'a restart of Redis would lose all data: give its user default all rights, as docs/redis.md says',
    )
  return info
}

/** Throws if a URL of a single server names a member of a larger installation. */
function requireKind(info: string, kind: RedisAddress['kind']): void {
  if (kind === 'cluster') return
  if (isCluster(info))
    throw new StoreMisconfigured(
      'the store is a server of a Redis Cluster: the URL must start with redis+cluster://',
    )
  if (field(info, 'role') === 'slave')
    throw new StoreMisconfigured(
      'the store is a replica, which accepts no writes: the URL must name its master',
    )
}

/** The client library selects the database at each connect, and continues in database 0 if that fails. */
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

/** Rejects with all commands and keys that roomful needs and the store's user may not use. */
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

/** Returns the missing permission in words. Undefined: the user has it, or another error occurred. */
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
    if (isForbidden(error)) return [] // The check of `eval` reports it.
    throw error
  }
}
