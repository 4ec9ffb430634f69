import { fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { Redis as IoRedis } from 'ioredis'
import { findRedisProgram, freePort, startRedisWith } from '../support/redis-server.ts'
import type { ServerName } from './dialects.ts'
import type { Listening, Question, Sample, Settings } from './servers/served.ts'

/** The measured processes, each pinned to its core. */

const FOLDER = fileURLToPath(new URL('.', import.meta.url))
/** Node 22 of the package `node`, which all servers use because Colyseus needs it. */
const NODE_22 = `${FOLDER}node_modules/node/bin/node`
/** Pins a process with all its threads to a core. Does nothing without `taskset` (Linux with util-linux). */
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
  /** Rooms of each process. */
  readonly rooms: readonly Sample['rooms'][]
}

/** Starts `count` processes on core 0. `direct`: each has a separate port for the address that it sends to clients. */
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

/** Returns a figure of Redis' INFO. */
async function infoOf(url: string, name: string): Promise<number> {
  const client = new IoRedis(url)
  try {
    const [, value] = new RegExp(`^${name}:(\\d+)`, 'm').exec(await client.info()) ?? []
    return Number(value)
  } finally {
    client.disconnect()
  }
}

/** CPU time and commands of a Redis since its start. */
export const sampleRedis = async ({ url, pid }: Redis) => ({
  commands: await infoOf(url, 'total_commands_processed'),
  cpuSeconds: cpuSeconds(pid),
})

/** Starts a Redis on the generator's core, with the settings of docs/operations.md. It ends with this process. Undefined: none is installed. */
export async function startRedis(): Promise<Redis | undefined> {
  if (!findRedisProgram()) return undefined
  const { url } = await startRedisWith({ settings: { appendonly: 'yes' } })
  const pid = await infoOf(url, 'process_id')
  pin(pid, 1)
  return { url, pid }
}

/** /proc of Linux counts CPU time in hundredths of a second. Without /proc all figures are 0. */
const TICK_SECONDS = 0.01

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** Returns the CPU time of a process with all its threads, in seconds. */
export function cpuSeconds(pid: number): number {
  // utime and stime are fields 14 and 15. The name in field 2 may contain spaces, but it ends with the last bracket.
  const fields = read(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ')
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * TICK_SECONDS
}

/** Returns the CPU time of all processes without interrupts, because this load causes most network interrupts. */
function allCpuSeconds(): number {
  const [, user = 0, nice = 0, system = 0] = read('/proc/stat').split(/\s+/, 4).map(Number)
  return (user + nice + system) * TICK_SECONDS
}

/** Starts to measure. The returned function returns the share of all cores that processes other than `pids` have used since. */
export function watchOthers(pids: readonly number[]): () => number {
  const used = (): number => allCpuSeconds() - pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0)
  const [start, before] = [performance.now(), used()]
  return () => Math.max(0, used() - before) / (((performance.now() - start) / 1_000) * availableParallelism())
}
