import { spawnSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { ContainerRuntimeClient, StartedTestContainer } from 'testcontainers'
import { freePort as claimPort } from '../../deploy/local/machine.ts'
import { Child } from '../../deploy/local/processes.ts'
import { systemRandom } from '../../shared/random.ts'
import { findOrInstall, mayInstall } from './debian-package.ts'

/** A real Redis server of one test, or of the run. Without settings for persistence, it stores nothing on disk. */
export interface RedisServer {
  /** `redis://host:port`. It does not change with `stop` and `start`. */
  readonly url: string
  /** Kills the server. Connections break, and data that is not on disk is lost. */
  stop(): Promise<void>
  /** Starts the server again at the same port. Resolves when it answers. */
  start(): Promise<void>
  /** `stop`, then `start`. */
  restart(): Promise<void>
  /** Suspends the server. Connections stay open, and it does not answer. */
  pause(): Promise<void>
  /** Ends `pause`. The server answers the commands that arrived in the pause. */
  resume(): Promise<void>
  /** Ends the server and removes its files. */
  close(): Promise<void>
}

/**
 * Starts a Redis for the caller: with a program in PATH, else in a container, else with the package of Debian or Ubuntu, which it installs as
 * root. Otherwise throws an error that names these ways.
 */
export async function startRedis(): Promise<RedisServer> {
  const program = findRedisProgram()
  if (program) return startRedisProcess(program)
  const container = await startRedisContainer()
  if (container) return container
  if (mayInstall()) return startRedisWith({})
  throw new Error(
    'the tests need a real Redis: put redis-server or valkey-server on PATH, or start a Docker engine (or set REDIS_URL, for tests that do not stop the server)',
  )
}

/** Starts a Redis process with settings, for servers that must reach each other. Throws if there is no program. */
export async function startRedisWith(options: RedisProcessOptions): Promise<RedisServer> {
  const program = findOrInstall('redis-server or valkey-server', ['redis-server'], findRedisProgram)
  return startRedisProcess(program, options)
}

/** Returns the name of a server program in PATH. */
export function findRedisProgram(): string | undefined {
  return ['redis-server', 'valkey-server'].find(
    (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0,
  )
}

/** Options of a Redis process. */
interface RedisProcessOptions {
  /** Settings of redis.conf, by name. */
  readonly settings?: Readonly<Record<string, string>>
  /** Lines of the configuration of a Sentinel. The process then runs as a Sentinel. */
  readonly sentinel?: readonly string[]
}

/** Starts `program` at a free port, with a new folder. Without `settings` for it, there is no persistence. */
async function startRedisProcess(program: string, options: RedisProcessOptions = {}): Promise<RedisServer> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-redis-'))
  const server = new RedisProcess(program, await freePort(), folder, options)
  try {
    await server.start()
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

class RedisProcess implements RedisServer {
  readonly url: string
  readonly #child: Child
  readonly #port: number
  readonly #folder: string
  readonly #options: RedisProcessOptions
  /** Called if the run ends without closing the server. */
  readonly #onExit = () => {
    void this.#child.kill()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  constructor(program: string, port: number, folder: string, options: RedisProcessOptions) {
    this.#options = options
    this.#port = port
    this.#folder = folder
    this.url = `redis://127.0.0.1:${port}`
    this.#child = new Child({
      name: 'redis',
      program,
      run: () => ({ words: this.#args, env: process.env }),
      ready: options.sentinel ? /Sentinel ID is/ : /Ready to accept connections/,
      logFile: join(folder, 'redis.log'),
      reaper: {
        watch: () => void process.once('exit', this.#onExit),
        release: () => void process.off('exit', this.#onExit),
      },
      onExit: () => undefined,
    })
  }

  async start(): Promise<void> {
    if (this.#child.pid !== undefined) return
    if (this.#options.sentinel) {
      const lines = Object.entries(this.#place).map(([name, value]) => `${name} ${value}`)
      await writeFile(this.#sentinelFile, [...lines, ...this.#options.sentinel, ''].join('\n'))
    }
    await this.#child.start()
  }

  stop(): Promise<void> {
    return this.#child.kill()
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    this.#child.pause()
  }

  async resume(): Promise<void> {
    this.#child.resume()
  }

  async close(): Promise<void> {
    await this.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }

  get #place(): Readonly<Record<string, string>> {
    return { port: String(this.#port), bind: '127.0.0.1', dir: this.#folder }
  }

  /** A Sentinel writes its state to its configuration file. */
  get #sentinelFile(): string {
    return join(this.#folder, 'sentinel.conf')
  }

  get #args(): string[] {
    if (this.#options.sentinel) return [this.#sentinelFile, '--sentinel']
    const plain = { save: '', appendonly: 'no', 'maxmemory-policy': 'noeviction' }
    const settings = { ...this.#place, ...plain, ...this.#options.settings }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }
}

const IMAGE = 'redis:7-alpine'
const PORT = 6379
const START_TIMEOUT_MS = 30_000

/** Starts a Redis in a container. Undefined: no Docker engine answers. */
async function startRedisContainer(): Promise<RedisServer | undefined> {
  const { GenericContainer, getContainerRuntimeClient } = await import('testcontainers')
  let engine: ContainerRuntimeClient
  try {
    engine = await getContainerRuntimeClient()
  } catch {
    return undefined
  }
  const hostPort = await freePort()
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts({ container: PORT, host: hostPort })
    .withCommand(['redis-server', '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction'])
    .start()
  return new RedisContainer(engine, container)
}

class RedisContainer implements RedisServer {
  readonly url: string
  readonly #container: StartedTestContainer
  readonly #handle: ReturnType<ContainerRuntimeClient['container']['getById']>

  constructor(engine: ContainerRuntimeClient, container: StartedTestContainer) {
    this.#container = container
    this.#handle = engine.container.getById(container.getId())
    this.url = `redis://${container.getHost()}:${container.getMappedPort(PORT)}`
  }

  async start(): Promise<void> {
    await this.#handle.start()
    await redisAnswers(this.url, START_TIMEOUT_MS)
  }

  async stop(): Promise<void> {
    await this.#handle.kill()
    await this.#handle.wait()
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    await this.#handle.pause()
  }

  async resume(): Promise<void> {
    await this.#handle.unpause()
  }

  async close(): Promise<void> {
    await this.#container.stop()
  }
}

/** Rules of the users in `deploy/redis/users.acl`, by name. */
export const REDIS_USERS: ReadonlyMap<string, readonly string[]> = new Map(
  readFileSync(new URL('../../deploy/redis/users.acl', import.meta.url), 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const [, name, ...rules] = line.split(' ')
      return [name!, rules]
    }),
)

/** Returns the text of an `aclfile` with the users of `deploy/redis/users.acl` and the passwords `password-of-<name>`. */
export const redisUsersFile = (): string =>
  [...REDIS_USERS]
    .map(([name, rules]) =>
      ['user', name, ...rules.map((rule) => (rule.startsWith('>') ? `>password-of-${name}` : rule))].join(
        ' ',
      ),
    )
    .join('\n')
    .concat('\n')

/** Returns the URL of the Redis at `url` for one of these users. */
export const asRedisUser = (url: string, name: 'operator' | 'roomful-control' | 'roomful-node'): string =>
  url.replace('://', `://${name}:password-of-${name}@`)

/** Adds one of these users to the Redis at `url`, with `keyPrefix` instead of `roomful:`. Returns the URL for the user. */
export async function addRedisUser(
  url: string,
  name: 'roomful-control' | 'roomful-node',
  keyPrefix = 'roomful:',
): Promise<string> {
  const password = `password-of-${name}`
  const rules = REDIS_USERS.get(name)!.map((rule) =>
    rule.startsWith('>') ? `>${password}` : rule.replace(/^((?:%R)?[~&])roomful:/, `$1${keyPrefix}`),
  )
  await asAdmin(url, (redis) => redis.call('ACL', 'SETUSER', name, 'reset', ...rules))
  return asRedisUser(url, name)
}

/** Runs `work` with a connection to the Redis at `url`, and closes the connection. A command waits at most 2 s. */
export async function asAdmin<T>(url: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { commandTimeout: 2000, retryStrategy: () => 50, maxRetriesPerRequest: 3 })
  redis.on('error', () => undefined)
  try {
    return await work(redis)
  } finally {
    redis.disconnect()
  }
}

/** Calls `holds` every 20 ms until it resolves with true, also if it rejects. Rejects with `what` after `timeoutMs`. */
export async function until(what: string, holds: () => Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  const end = performance.now() + timeoutMs
  let reason = ''
  while (performance.now() < end) {
    try {
      if (await holds()) return
    } catch (error) {
      reason = `: ${(error as Error).message}`
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`${what} did not happen within ${timeoutMs} ms${reason}`)
}

/** Returns a free port, which no other test gets while this process runs. */
export const freePort = (): Promise<number> => claimPort(systemRandom)

/** Resolves when the Redis at `url` answers. Rejects with the last reason after `timeoutMs`. */
export async function redisAnswers(url: string, timeoutMs: number): Promise<void> {
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null })
  let reason = 'no answer'
  redis.on('error', (error: NodeJS.ErrnoException) => {
    reason = error.message || error.code || error.name
  })
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Error(`the Redis at ${new URL(url).host} did not answer within ${timeoutMs} ms: ${reason}`),
        ),
      timeoutMs,
    )
  })
  try {
    await Promise.race([redis.ping(), late])
  } finally {
    clearTimeout(timer)
    redis.disconnect()
  }
}
