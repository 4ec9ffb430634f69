import { type ChildProcess, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { DIALECTS, openDoor, type ServerName } from './dialects.ts'
import { Clients, type Received, type Sending } from './generator.ts'
import { watchOthers } from './machine.ts'
import type { Scenario } from './scenarios.ts'
import { FLUSHES_PER_SECOND, type Listening, type Sample, type Settings } from './servers/served.ts'

const FOLDER = fileURLToPath(new URL('.', import.meta.url))
/** The one that the `node` package brings, for all servers alike: Colyseus needs it. */
const NODE_22 = `${FOLDER}node_modules/node/bin/node`
const FILES: Readonly<Record<ServerName, string>> = { roomful: 'roomful.ts', bare: 'bare.js' }
const WARM_SECONDS = 1
/** What others may use of the machine. */
const QUIET = 0.05
/** How busy the generator may be before it is what was measured. */
const BUSY = 0.85

/** What one window gave, by the names of columns; what a scenario does not have is absent. */
export type Figures = Partial<Record<FigureName, number>>
export type FigureName =
  | 'cost'
  | 'delivered'
  | 'bytes'
  | 'p50'
  | 'p99'
  | 'slowest'
  | 'rss'
  | 'others'
  | 'busy'

export interface Options {
  readonly seconds: number
  /** How often a window is repeated while others use the machine. */
  readonly repeats: number
  /** Compiled code, on the Node that `npm run compare` installs; otherwise the sources on this one. */
  readonly built: boolean
  readonly redisUrl?: string
  readonly tell: (line: string) => void
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

/** A server in a process of its own, on core 0. */
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

  async sample(collect = false): Promise<Sample> {
    const answer = once(this.#child, 'message')
    this.#child.send({ collect })
    return ((await answer) as [Sample])[0]
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}

/** Starts a server, has clients come, and measures a scenario once. */
export async function measure(name: ServerName, scenario: Scenario, options: Options): Promise<Figures> {
  const server = await ServerProcess.start(name, {
    tick: scenario.tick,
    entities: scenario.entities,
    nudges: scenario.nudges,
    built: options.built,
    ...(scenario.journal && options.redisUrl !== undefined && { redisUrl: options.redisUrl }),
  })
  const door = await openDoor(server.listening, scenario.clients)
  const clients = new Clients(DIALECTS[name], door)
  try {
    const empty = await server.sample(true)
    await clients.join(scenario.clients, scenario.perRoom)
    const figures = await quietWindow(server, clients, scenario, options)
    const { rssBytes } = await server.sample(true)
    return { ...figures, rss: (rssBytes - empty.rssBytes) / 1024 / scenario.clients }
  } finally {
    clients.end()
    await server.stop()
  }
}

/** A window, repeated while others use the machine. */
async function quietWindow(
  server: ServerProcess,
  clients: Clients,
  scenario: Scenario,
  { seconds, repeats, tell }: Options,
): Promise<Figures> {
  const sending: Sending = {
    perSecond: scenario.inputs,
    nudges: scenario.nudges,
    reliable: scenario.reliable,
  }
  for (let left = repeats; ; left--) {
    await clients.play(WARM_SECONDS, sending)
    const others = watchOthers([process.pid, server.pid])
    const before = await server.sample()
    const received = await clients.play(seconds, sending)
    const after = await server.sample()
    const figures = figuresOf(scenario, clients, received, before, after, others())
    if (!isBusy(figures) || left <= 0) return figures
    tell(`others used ${Math.round(100 * figures.others!)}% of the machine: again`)
  }
}

/** Whether the figures are as much about something else on the machine. */
export const isBusy = ({ others = 0 }: Figures): boolean => others > QUIET
/** Whether the figures are as much about the generator. */
export const isGenerator = ({ busy = 0 }: Figures): boolean => busy > BUSY

function figuresOf(
  { per, perRoom, inputs, tick }: Scenario,
  clients: Clients,
  received: Received,
  before: Sample,
  after: Sample,
  others: number,
): Figures {
  const { updates, seconds, bytes, fewest, roundTrips, busy } = received
  if (clients.lost.length > 0)
    throw new Error(`${clients.lost.length} clients lost their connection: ${clients.lost[0]}`)
  const flushes = (clients.count / perRoom) * FLUSHES_PER_SECOND * seconds
  const seen = after.inputs - before.inputs
  const cpuUs = after.cpuUs - before.cpuUs
  const expected = clients.count * FLUSHES_PER_SECOND * seconds
  return {
    cost: cpuUs / { update: updates, input: seen, flush: flushes }[per],
    delivered: per === 'input' ? seen / received.inputs : updates / expected,
    others,
    busy,
    ...(per !== 'input' && { bytes: bytes / updates, slowest: fewest / seconds }),
    ...(inputs > 0 &&
      tick === 'none' &&
      per === 'update' && { p50: quantile(roundTrips, 0.5), p99: quantile(roundTrips, 0.99) }),
  }
}

/** A sample: the smallest value that this share of all does not exceed; NaN of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}
