import { type ChildProcess, fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis as IoRedis } from 'ioredis'
import { PortBlock } from '../../deploy/local/ports.ts'
import { findProgram } from '../../deploy/local/programs.ts'
import { systemRandom } from '../../shared/random.ts'
import type { ServerName } from './dialects.ts'
import { cpuSeconds } from './machine.ts'
import type { Listening, Question, Sample, Settings } from './servers/served.ts'

/** The processes that are measured, each tied to its core. */

const FOLDER = fileURLToPath(new URL('.', import.meta.url))
/** The one that the `node` package brings, for all servers alike: Colyseus needs it. */
const NODE_22 = `${FOLDER}node_modules/node/bin/node`
const FILES: Readonly<Record<ServerName, string>> = {
  roomful: 'roomful.ts',
  bare: 'bare.js',
  colyseus: 'colyseus.js',
  socketio: 'socketio.js',
}

/** Ties a process with all its threads to a core, where that is possible (Linux with util-linux). */
export function pin(pid: number, core: number): void {
  spawnSync('taskset', ['-a', '-c', '-p', String(core), String(pid)])
}

/** Installs what this project is measured beside, unless it is there; nothing else needs it. */
export function installPeers(): void {
  if (existsSync(NODE_22)) return
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: FOLDER, stdio: 'inherit' })
  if (status !== 0) throw new Error(`npm ci in ${FOLDER} ended with ${status}`)
}

/** A process of a server, on core 0. */
class ServerProcess {
  readonly pid: number
  readonly listening: Listening
  readonly #child: ChildProcess

  private constructor(child: ChildProcess, listening: Listening) {
    this.pid = child.pid!
    this.#child = child
    this.listening = listening
  }

  static async start(name: ServerName, settings: Settings): Promise<ServerProcess> {
    const child = fork(`${FOLDER}servers/${FILES[name]}`, [JSON.stringify(settings)], {
      ...(settings.built
        ? { execPath: NODE_22, execArgv: ['--disable-warning=ExperimentalWarning'] }
        : { execArgv: ['--import', 'tsx'] }),
      env: { ...process.env, NODE_ENV: 'production' },
    })
    pin(child.pid!, 0)
    const ended = once(child, 'exit').then(([code]) =>
      Promise.reject(new Error(`the server ${name} ended with ${code}`)),
    )
    ended.catch(() => undefined)
    const [listening] = (await Promise.race([once(child, 'message'), ended])) as [Listening]
    return new ServerProcess(child, listening)
  }

  async sample(question: Question = {}): Promise<Sample> {
    const answer = once(this.#child, 'message')
    this.#child.send(question)
    return ((await answer) as [Sample])[0]
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}

/** What all processes of a server have used and done together. */
export interface Total extends Omit<Sample, 'rooms'> {
  /** The rooms of each process. */
  readonly rooms: readonly Sample['rooms'][]
}

/** A server: one process, or several nodes. */
export class Servers {
  readonly #all: readonly ServerProcess[]

  private constructor(all: readonly ServerProcess[]) {
    this.#all = all
  }

  /** `direct`: each is told its port, so that it can tell clients. */
  static async start(
    name: ServerName,
    { count, direct }: { count: number; direct: boolean },
    settings: Settings,
  ): Promise<Servers> {
    const block = await PortBlock.claim(systemRandom)
    try {
      const ports = await Promise.all(Array.from({ length: direct ? count : 0 }, () => block.take()))
      const all = Array.from({ length: count }, (_, index) =>
        ServerProcess.start(name, {
          ...settings,
          ...(direct && { port: ports[index]! }),
          ...(count > 1 && { nodes: { index, count } }),
        }),
      )
      return new Servers(await Promise.all(all))
    } finally {
      await block.release()
    }
  }

  get pids(): number[] {
    return this.#all.map(({ pid }) => pid)
  }

  get listening(): Listening[] {
    return this.#all.map(({ listening }) => listening)
  }

  async sample(question?: Question): Promise<Total> {
    const samples = await Promise.all(this.#all.map((each) => each.sample(question)))
    const sum = (name: 'cpuUs' | 'rssBytes' | 'inputs') => samples.reduce((all, each) => all + each[name], 0)
    return {
      cpuUs: sum('cpuUs'),
      rssBytes: sum('rssBytes'),
      inputs: sum('inputs'),
      rooms: samples.map(({ rooms }) => rooms),
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#all.map((each) => each.stop()))
  }
}

/** A Redis for journals, and for several nodes. */
export interface Redis {
  readonly url: string
  readonly pid: number
}

/** What a Redis has used and done since its start. */
export async function sampleRedis({ url, pid }: Redis): Promise<{ cpuSeconds: number; commands: number }> {
  const client = new IoRedis(url)
  try {
    const [, commands] = /total_commands_processed:(\d+)/.exec(await client.info('stats')) ?? []
    return { cpuSeconds: cpuSeconds(pid), commands: Number(commands) }
  } finally {
    client.disconnect()
  }
}

/**
 * Starts one on the generator's core, which ends with this process, with its files in a folder of its own, as docs/operations.md wants
 * it; undefined where none is installed.
 */
export async function startRedis(): Promise<Redis | undefined> {
  const program = findProgram(['redis-server', 'valkey-server'], process.env.PATH)
  if (program === undefined) return undefined
  const folder = await mkdtemp(join(tmpdir(), 'roomful-compare-'))
  const block = await PortBlock.claim(systemRandom)
  const port = await block.take()
  const words = `--port ${port} --bind 127.0.0.1 --appendonly yes --maxmemory-policy noeviction`.split(' ')
  const child = spawn(program, [...words, '--save', '', '--dir', folder], { stdio: 'ignore' })
  pin(child.pid!, 1)
  while (!(await listens(port))) await sleep(50)
  // Also when the comparison is ended before its time.
  const stop = (): void => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', stop)
  return { url: `redis://127.0.0.1:${port}`, pid: child.pid! }
}

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
