import type { Logger } from 'pino'
import type { Connection } from './connection.ts'

/** The oldest server whose commands the scripts use (`SET … PXAT` came with it). */
const OLDEST: readonly [major: number, minor: number] = [6, 2]

/** One field of what the INFO command answers. */
const field = (info: string, name: string): string | undefined =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]

/** Throws when `info`, the answer to INFO, is of a server that is too old. */
export function requireRecent(info: string): void {
  const version = field(info, 'redis_version') ?? ''
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return
  throw new Error(
    `the store is Redis ${version || 'of an unknown version'}: it must be ${OLDEST.join('.')} or newer`,
  )
}

/** For how long the server runs, in milliseconds, by `info`, its answer to INFO; it counts whole seconds. */
export function uptimeOf(info: string): number {
  return Number(field(info, 'uptime_in_seconds')) * 1000
}

/** Rejects when the server is too old; warns when it may throw data away. */
export async function checkServer(connection: Connection, log: Logger): Promise<void> {
  const info = await connection.run('info', (redis) => redis.info())
  requireRecent(info)
  const policy = field(info, 'maxmemory_policy')
  if (policy === 'noeviction') return
  log.warn(
    { maxmemory_policy: policy ?? 'unknown' },
    'the store may throw data away when its memory is full: set maxmemory-policy to noeviction',
  )
}
