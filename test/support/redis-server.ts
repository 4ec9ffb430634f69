import { installPackages, mayInstall } from './debian-package.ts'
import { startRedisContainer } from './redis-container.ts'
import { findRedisProgram, type RedisProcessOptions, startRedisProcess } from './redis-process.ts'

/** A real Redis server that belongs to one test (or, from the global setup, to one run). It keeps nothing on disk. */
export interface RedisServer {
  /** `redis://host:port`; stays the same across `stop` and `start`. */
  readonly url: string
  /** Ends the server at once, as a crash would: connections drop and all data is gone. */
  stop(): Promise<void>
  /** Starts it again on the same port, empty; resolves once it answers. */
  start(): Promise<void>
  /** `stop`, then `start`. */
  restart(): Promise<void>
  /** Makes it hang: connections stay open and nothing is answered. */
  pause(): Promise<void>
  /** Goes on after `pause`; what was sent meanwhile is answered. */
  resume(): Promise<void>
  /** Ends it for good and removes what it left. */
  close(): Promise<void>
}

/**
 * Starts a Redis of the caller's own: with the program on PATH, or else in a container, or else, on Debian and Ubuntu as root,
 * with the package that it installs. Throws with what would help when none of these is possible.
 */
export async function startRedis(): Promise<RedisServer> {
  const program = findRedisProgram()
  if (program) return startRedisProcess(program)
  const container = await startRedisContainer()
  if (container) return container
  if (mayInstall()) {
    installPackages(['redis-server'])
    const installed = findRedisProgram()
    if (installed) return startRedisProcess(installed)
  }
  throw new Error(
    'the tests need a real Redis: put redis-server or valkey-server on PATH, or start a Docker engine (or set REDIS_URL, for tests that do not stop the server)',
  )
}

/** Starts a Redis process with settings of its own, for what a container cannot be: several that find each other. */
export async function startRedisWith(options: RedisProcessOptions): Promise<RedisServer> {
  const program = findRedisProgram()
  if (program) return startRedisProcess(program, options)
  if (!mayInstall()) throw new Error('this test needs redis-server or valkey-server on PATH')
  installPackages(['redis-server'])
  return startRedisProcess(findRedisProgram() ?? 'redis-server', options)
}
