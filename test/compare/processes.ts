import { type ChildProcess, fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { redisCpuSeconds, redisInfo } from '../../loadtest/metrics.ts'
import { asAdmin, startRedisWith } from '../support/redis-server.ts'
import type { ServerName } from './dialects.ts'
import { needsRedis, type Scenario } from './scenarios.ts'
import type { Listening, Question, Sample, Settings } from './servers/served.ts'

/** The measured processes, each pinned to its core. */

const FOLDER = fileURLToPath(new URL('.', import.meta.url))
/** The Node of all servers: of the package `node`, with the version of our image. */
const SERVER_NODE = `${FOLDER}node_modules/node/bin/node`
/** Pins a process with all its threads to a core. Does nothing without `taskset` (Linux with util-linux). */
export function pin(pid: number, core: number): void {
  spawnSync('taskset', ['-a', '-c', '-p', String(core), String(pid)])
}

/** Starts `count` processes that use as much of the server's core as they get. Returns a function that ends them. */
export function spin(count: number): () => void {
  const all = Array.from({ length: count }, () => spawn(process.execPath, ['-e', 'for (;;);']))
  for (const { pid } of all) pin(pid!, 0)
  const end = () => {
    for (const child of all) child.kill('SIGKILL')
  }
  // They would outlive an interrupted measurement.
  process.once('exit', end)
  return end
}

/** Installs the other servers and the Node of all, which only this command needs, unless that Node is installed. */
export function installPeers(): void {
  const { dependencies } = JSON.parse(readFileSync(`${FOLDER}package.json`, 'utf8'))
  const { stdout } = spawnSync(SERVER_NODE, ['--version'], { encoding: 'utf8' })
  if (stdout?.trim() === `v${dependencies.node}`) return
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: FOLDER, stdio: 'inherit' })
  if (status !== 0) throw new Error(`npm ci in ${FOLDER} ended with ${status}`)
}

/** A server with a kind of load. */
export interface Contender {
  readonly server: ServerName
  readonly scenario: Scenario
  /** Another checkout whose roomful is measured. Absent: this one. */
  readonly checkout?: string
}

/** A server: one process, or several nodes. */
export type Server = Awaited<ReturnType<typeof startServer>>

/** Totals of all processes of a server since their start. */
export interface Total extends Omit<Sample, 'rooms'> {
  /** Rooms of each process. */
  readonly rooms: readonly Sample['rooms'][]
  /** CPU time and commands of the server's Redis. 0: it has none. */
  readonly redisCpuUs: number
  readonly commands: number
}

/**
 * Starts the server of a scenario: its processes on core 0, and the Redis of journals and of several nodes on the core of this process,
 * with the settings of docs/operations.md.
 */
export async function startServer({ server: name, scenario, checkout }: Contender, built: boolean) {
  const folder = checkout === undefined ? FOLDER : resolve(checkout, 'test/compare')
  const redis = needsRedis(scenario) ? await startRedisWith({ settings: { appendonly: 'yes' } }) : undefined
  /** `ended` rejects when the process has ended. */
  const processes: { readonly child: ChildProcess; readonly ended: Promise<never> }[] = []
  const start = async (_: unknown, index: number): Promise<Listening> => {
    const settings: Settings = { ...scenario, index, built, ...(redis && { redisUrl: redis.url }) }
    const file = join(folder, 'servers', `${name}.${name === 'roomful' ? 'ts' : 'js'}`)
    const child = fork(file, [JSON.stringify(settings)], {
      ...(built
        ? { execPath: SERVER_NODE, execArgv: ['--disable-warning=ExperimentalWarning'] }
        : { execArgv: ['--import', 'tsx'] }),
      env: { ...process.env, NODE_ENV: 'production' },
    })
    pin(child.pid!, 0)
    const ended = once(child, 'exit').then(([code, signal]) => {
      throw new Error(`the server ${name} ended with ${code ?? signal}`)
    })
    ended.catch(() => undefined)
    processes.push({ child, ended })
    return (await Promise.race([once(child, 'message'), ended]))[0]
  }
  const stop = async (): Promise<void> => {
    for (const { child } of processes) child.kill('SIGKILL')
    await Promise.allSettled(processes.map(({ ended }) => ended))
    await redis?.close()
  }
  const sample = async (question: Question = 'sample'): Promise<Total> => {
    const all = await Promise.all(
      processes.map(async ({ child, ended }): Promise<Sample> => {
        const answer = once(child, 'message')
        // If it cannot be sent, the process has ended.
        child.send(question, () => undefined)
        return (await Promise.race([answer, ended]))[0]
      }),
    )
    const sum = (of: Exclude<keyof Sample, 'rooms'>) => all.reduce((total, each) => total + each[of], 0)
    const cpuUs = sum('cpuUs')
    const info = redis && (await asAdmin(redis.url, redisInfo))
    const redisCpuUs = info ? 1e6 * redisCpuSeconds(info) : 0
    return {
      cpuUs,
      rssBytes: sum('rssBytes'),
      liveBytes: sum('liveBytes'),
      stallMs: Math.max(...all.map(({ stallMs }) => stallMs)),
      inputs: sum('inputs'),
      rooms: all.map(({ rooms }) => rooms),
      redisCpuUs,
      commands: Number(info?.get('total_commands_processed') ?? 0),
    }
  }
  try {
    if (redis) pin(Number((await asAdmin(redis.url, redisInfo)).get('process_id')), 1)
    const listening = await Promise.all(Array.from({ length: scenario.nodes ?? 1 }, start))
    return { listening, sample, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Returns the CPU time of all other processes, without interrupts, because this load causes most network interrupts. */
export function othersCpuUs(): number {
  const all = cpus().reduce((sum, { times: { user, nice, sys } }) => sum + 1_000 * (user + nice + sys), 0)
  const { user, system } = process.cpuUsage()
  return all - user - system
}
