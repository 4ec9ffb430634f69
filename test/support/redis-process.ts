import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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
  readonly #program: string
  readonly #port: number
  readonly #folder: string
  readonly #options: RedisProcessOptions
  #child: ChildProcess | undefined
  /** For a run that ends without closing its servers. */
  readonly #onExit = () => {
    this.#child?.kill('SIGKILL')
    rmSync(this.#folder, { recursive: true, force: true })
  }

  constructor(program: string, port: number, folder: string, options: RedisProcessOptions) {
    this.#options = options
    this.#program = program
    this.#port = port
    this.#folder = folder
    this.url = `redis://127.0.0.1:${port}`
  }

  async start(): Promise<void> {
    if (this.#child) return
    const args = await this.#args()
    const child = spawn(this.#program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    this.#child = child
    process.once('exit', this.#onExit)
    try {
      await said(child, this.#options.sentinel ? 'Sentinel ID is' : 'Ready to accept connections')
    } catch (error) {
      this.#child = undefined
      process.off('exit', this.#onExit)
      throw error
    }
  }

  /** A Sentinel keeps what it learns in its configuration file. */
  async #args(): Promise<string[]> {
    const place = { port: String(this.#port), bind: '127.0.0.1', dir: this.#folder }
    if (this.#options.sentinel) {
      const file = join(this.#folder, 'sentinel.conf')
      const lines = Object.entries(place).map(([name, value]) => `${name} ${value}`)
      await writeFile(file, [...lines, ...this.#options.sentinel, ''].join('\n'))
      return [file, '--sentinel']
    }
    const plain = { save: '', appendonly: 'no', 'maxmemory-policy': 'noeviction' }
    const settings = { ...place, ...plain, ...this.#options.settings }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }

  async stop(): Promise<void> {
    const child = this.#child
    if (!child) return
    this.#child = undefined
    process.off('exit', this.#onExit)
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await gone
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    this.#child?.kill('SIGSTOP')
  }

  async resume(): Promise<void> {
    this.#child?.kill('SIGCONT')
  }

  async close(): Promise<void> {
    await this.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** Resolves once `child` has printed `text`; rejects with all it printed when it ends before. Its output is read on, and dropped. */
function said(child: ChildProcess, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = ''
    let ready = false
    const hear = (chunk: Buffer) => {
      if (ready) return
      output += chunk.toString()
      ready = output.includes(text)
      if (ready) resolve()
    }
    child.stdout?.on('data', hear)
    child.stderr?.on('data', hear)
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`the Redis server ended with ${code}: ${output}`)))
  })
}
