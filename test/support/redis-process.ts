import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Child } from '../../deploy/local/processes.ts'
import { systemClock } from '../../shared/clock.ts'
import { freePort } from './redis-port.ts'
import type { RedisServer } from './redis-server.ts'

/** The name of a server program on PATH, or undefined. */
export function findRedisProgram(): string | undefined {
  return ['redis-server', 'valkey-server'].find(
    (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0,
  )
}

/** How often another port is tried when somebody took the free one first. */
const PORT_ATTEMPTS = 5

/** How a server process differs from the plain one. */
export interface RedisProcessOptions {
  /** Settings of redis.conf, by name. */
  readonly settings?: Readonly<Record<string, string>>
  /** Runs as a Sentinel with this configuration, line by line. */
  readonly sentinel?: readonly string[]
}

/** Starts `program` on a free port of this machine, with a folder of its own and, unless `settings` say so, no persistence. */
export async function startRedisProcess(
  program: string,
  options: RedisProcessOptions = {},
): Promise<RedisServer> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-redis-'))
  for (let attempt = 1; ; attempt++) {
    const server = new RedisProcess(program, await freePort(), folder, options)
    try {
      await server.start()
      return server
    } catch (error) {
      if (attempt < PORT_ATTEMPTS) continue
      await server.close()
      throw error
    }
  }
}

class RedisProcess implements RedisServer {
  readonly url: string
  readonly #child: Child
  readonly #port: number
  readonly #folder: string
  readonly #options: RedisProcessOptions
  /** For a run that ends without closing its servers. */
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
      args: this.#args,
      env: process.env,
      ready: options.sentinel ? /Sentinel ID is/ : /Ready to accept connections/,
      logFile: join(folder, 'redis.log'),
      reaper: {
        watch: () => void process.once('exit', this.#onExit),
        release: () => void process.off('exit', this.#onExit),
      },
      clock: systemClock,
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

  /** A Sentinel keeps what it learns in its configuration file. */
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
