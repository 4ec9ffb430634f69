import type { Redis } from 'ioredis'
import type { Logger } from 'pino'
import { StoreMisconfigured } from '../port.ts'
import type { RedisAddress } from './address.ts'
import type { Connection } from './connection.ts'
import { runScript } from './scripts.ts'
import { field, type Server } from './servers.ts'

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
