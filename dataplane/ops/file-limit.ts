import { readFileSync } from 'node:fs'
import { LIMITS } from '../../shared/limits.ts'

/** File descriptors that a node keeps for Redis, control, operators, its log, and what room code opens. */
const RESERVED = 300

/** Returns the limit of open files of this process (`ulimit -n`). Undefined: there is none, or the system does not tell. */
export function openFileLimit(file = '/proc/self/limits'): number | undefined {
  try {
    const limit = Number(/^Max open files\s+(\d+)/m.exec(readFileSync(file, 'utf8'))?.[1])
    return Number.isNaN(limit) ? undefined : limit
  } catch {
    return undefined
  }
}

/**
 * Returns the number of clients' connections that `limit` open files allow, at least 1. Warns if that is less than `maxSessions`
 * (0: no limit) needs: without a bound of its own, such a process would drop connections that nothing counts.
 */
export function connectionsWithin(
  limit: number | undefined,
  maxSessions: number,
  log: { readonly warn: (fields: object, text: string) => void },
): number | undefined {
  if (limit === undefined) return undefined
  const needed = maxSessions + LIMITS.maxPendingConnections.value + RESERVED
  if (maxSessions > 0 && limit < needed)
    log.warn(
      { open_files: limit, needed, max_sessions: maxSessions },
      'ulimit -n is too low for MAX_SESSIONS',
    )
  return Math.max(1, limit - RESERVED)
}
