import { fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis as IoRedis } from 'ioredis'
import { findProgram } from '../../deploy/local/machine.ts'
import { freePort } from '../support/redis-server.ts'
import type { ServerName } from './dialects.ts'
import type { Listening, Question, Sample, Settings } from './servers/served.ts'

/** The measured processes, each pinned to its core. */

const FOLDER = fileURLToPath(new URL('.', import.meta.url))
/** The Node of the `node` package, for all servers: Colyseus needs it. */
const NODE_22 = `${FOLDER}node_modules/node/bin/node`
/** Pins a process with all its threads to a core, where that is possible (Linux with util-linux). */
export function pin(pid: number, core: number): void {
  spawnSync('taskset', ['-a', '-c', '-p', String(core), String(pid)])
}

/** Installs the other servers, which only this command needs, unless they are installed. */
export function installPeers(): void {
  if (existsSync(NODE_22)) return
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: FOLDER, stdio: 'inherit' })
  if (status !== 0) throw new Error(`npm ci in ${FOLDER} ended with ${status}`)
}

/** A server: one process, or several nodes. */
export interface Server {
  readonly pids: readonly number[]
  readonly listening: readonly Listening[]
  sample(question?: Question): Promise<Total>
  stop(): Promise<void>
}

/** Totals of all processes of a server. */
export interface Total extends Omit<Sample, 'rooms'> {
  /** The rooms of each process. */
  readonly rooms: readonly Sample['rooms'][]
}

/** Starts `count` processes on core 0. `direct`: each has a port of its own for the address that it sends to clients. */
export async function startServer(
  name: ServerName,
  { count, direct }: { count: number; direct: boolean },
  settings: Settings,
): Promise<Server> {
  const started = Array.from({ length: count }, async (_, index) => {
    const nodes = count > 1 ? { nodes: { index, count } } : {}
    const port = direct ? { port: await freePort() } : {}
    return startProcess(name, { ...settings, ...nodes, ...port })
  })
  const all = await Promise.all(started)
  return {
    pids: all.map(({ child }) => child.pid!),
    listening: all.map(({ listening }) => listening),
    sample: async (question = 'sample') => {
      const samples = await Promise.all(
        all.map(async ({ child }): Promise<Sample> => {
          const answer = once(child, 'message')
          child.send(question)
          return (await answer)[0]
        }),
      )
      const sum = (name: 'cpuUs' | 'rssBytes' | 'inputs') =>
        samples.reduce((total, each) => total + each[name], 0)
      const rooms = samples.map((each) => each.rooms)
      return { cpuUs: sum('cpuUs'), rssBytes: sum('rssBytes'), inputs: sum('inputs'), rooms }
    },
    stop: async () => {
      const running = all.filter(({ child }) => child.exitCode === null).map(({ child }) => child)
      const gone = Promise.all(running.map((child) => once(child, 'exit')))
      for (const child of running) child.kill('SIGKILL')
      await gone
    },
  }
}

async function startProcess(name: ServerName, settings: Settings) {
  const file = `${FOLDER}servers/${name}.${name === 'roomful' ? 'ts' : 'js'}`
  const child = fork(file, [JSON.stringify(settings)], {
    ...(settings.built
      ? { execPath: NODE_22, execArgv: ['--disable-warning=ExperimentalWarning'] }
      : { execArgv: ['--import', 'tsx'] }),
    env: { ...process.env, NODE_ENV: 'production' },
  })
  pin(child.pid!, 0)
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`the server ${name} ended with ${code}`)
  })
  ended.catch(() => undefined)
  const [listening] = (await Promise.race([once(child, 'message'), ended])) as [Listening]
  return { child, listening }
}

/** A Redis for journals, and for several nodes. */
export interface Redis {
  readonly url: string
  readonly pid: number
}

/** CPU time and commands of a Redis since its start. Waits until it listens. */
export async function sampleRedis({ url, pid }: Redis): Promise<{ cpuSeconds: number; commands: number }> {
  const client = new IoRedis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null })
  client.on('error', () => undefined)
  try {
    const [, commands] = /total_commands_processed:(\d+)/.exec(await client.info('stats')) ?? []
    return { cpuSeconds: cpuSeconds(pid), commands: Number(commands) }
  } finally {
    client.disconnect()
  }
}

/**
 * Starts a Redis on the generator's core, with the settings of docs/operations.md and its files in a temporary folder. It ends
 * with this process. Undefined: none is installed.
 */
export async function startRedis(): Promise<Redis | undefined> {
  const program = findProgram(['redis-server', 'valkey-server'], process.env.PATH)
  if (program === undefined) return undefined
  const folder = await mkdtemp(join(tmpdir(), 'roomful-compare-'))
  const port = await freePort()
  const words = `--port ${port} --bind 127.0.0.1 --appendonly yes --maxmemory-policy noeviction`.split(' ')
  const child = spawn(program, [...words, '--save', '', '--dir', folder], { stdio: 'ignore' })
  // Also runs when the comparison is interrupted.
  process.once('exit', () => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })
  pin(child.pid!, 1)
  const redis = { url: `redis://127.0.0.1:${port}`, pid: child.pid! }
  await sampleRedis(redis)
  return redis
}

/** CPU use from Linux' /proc, which counts in hundredths of a second. Without /proc every figure is 0. */
const TICK_SECONDS = 0.01

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** CPU time of a process with all its threads, in seconds. */
export function cpuSeconds(pid: number): number {
  // utime and stime are fields 14 and 15. The name before them may hold anything, but ends with the last bracket.
  const fields = read(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ')
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * TICK_SECONDS
}

/** CPU time of all processes, without interrupts: those of the network are mostly our own. */
function allCpuSeconds(): number {
  const [, user = 0, nice = 0, system = 0] = read('/proc/stat').split(/\s+/, 4).map(Number)
  return (user + nice + system) * TICK_SECONDS
}

/** Starts watching. The returned function gives the share of all cores that other processes have used since. */
export function watchOthers(pids: readonly number[]): () => number {
  const used = (): number => allCpuSeconds() - pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0)
  const [start, before] = [performance.now(), used()]
  return () => Math.max(0, used() - before) / (((performance.now() - start) / 1_000) * availableParallelism())
}
