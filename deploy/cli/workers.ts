import cluster from 'node:cluster'
import { availableParallelism } from 'node:os'
import { Registry } from 'prom-client'
import type { WorkerOptions } from '../../dataplane/node.ts'
import { type Clock, systemClock } from '../../shared/clock.ts'
import type { Config, Environment } from '../../shared/config.ts'
import { type Logger, type LogLevel, setLogLevel } from '../../shared/log.ts'
import { counter, gauge, processMetrics, registerMetrics } from '../../shared/metrics.ts'
import { systemRandom } from '../../shared/random.ts'
import { type Host, messageOf, type Service } from './service.ts'

/**
 * `WORKERS`: several processes that serve at one port. The parent process accepts connections, passes each to a worker in turn
 * (`node:cluster`), and serves no client. Workers are numbered from 1. A number is free again when its worker has ended.
 */

/** Metrics of the parent process. */
export const WORKER_METRICS = {
  workers: gauge('service_workers', 'Workers of the process that accept clients.'),
  wanted: gauge('service_workers_wanted', 'Workers that the process should have.'),
  exits: counter('service_worker_exits_total', 'Workers that ended unexpectedly. Each is started again.'),
}

/** Addresses of a worker, by kind. */
type Addresses = Readonly<Record<string, string>>

/**
 * Messages between a worker and its parent, over the IPC channel of Node. Each side may request the metrics of the other, in Prometheus'
 * text format: the parent those of this worker, the worker those of all. A worker passes a new log level to the parent, which passes it to
 * all workers.
 */
type Message =
  | { readonly t: 'ready'; readonly addresses: Addresses }
  | { readonly t: 'metrics.get'; readonly id: number }
  | { readonly t: 'metrics'; readonly id: number; readonly text: string }
  | { readonly t: 'log_level'; readonly level: LogLevel }

/** Other end of a channel: `process`, or a child process. */
interface Peer {
  send?(message: Message, callback: (error: Error | null) => void): boolean
  on(event: 'message', listener: (message: Message) => void): unknown
}

/** Time limit for the answer of the other side. */
const ANSWER_MS = 2000

/** One end of a channel. */
class Channel {
  readonly #peer: Peer
  readonly #clock: Clock
  readonly #waiting = new Map<number, (text: string) => void>()
  #lastId = 0

  /** `metrics` returns the metrics of this side. */
  constructor(
    peer: Peer,
    clock: Clock,
    metrics: () => Promise<string>,
    on: { readonly logLevel: (level: LogLevel) => void; readonly ready?: (addresses: Addresses) => void },
  ) {
    this.#peer = peer
    this.#clock = clock
    peer.on('message', (message) => {
      switch (message.t) {
        case 'ready':
          return on.ready?.(message.addresses)
        case 'log_level':
          return on.logLevel(message.level)
        case 'metrics.get':
          return void metrics().then((text) => this.send({ t: 'metrics', id: message.id, text }))
        case 'metrics':
          this.#waiting.get(message.id)?.(message.text)
          this.#waiting.delete(message.id)
      }
    })
  }

  /** A process that is ending receives no more messages. Its end is handled elsewhere. */
  send(message: Message): void {
    this.#peer.send?.(message, () => undefined)
  }

  /** Returns the metrics of the other side. Empty if it does not answer within 2 s. */
  metrics(): Promise<string> {
    this.#lastId += 1
    const id = this.#lastId
    return new Promise((resolve) => {
      const cancel = this.#clock.schedule(ANSWER_MS, () => {
        this.#waiting.delete(id)
        resolve('')
      })
      this.#waiting.set(id, (text) => {
        cancel()
        resolve(text)
      })
      this.send({ t: 'metrics.get', id })
    })
  }
}

/** Merges the metrics of several processes, with all series of a metric together. Each process has a label on its series. */
export function mergeExpositions(texts: readonly string[]): string {
  const families = new Map<string, { readonly head: string[]; readonly samples: string[] }>()
  for (const text of texts) {
    let family: { readonly head: string[]; readonly samples: string[] } | undefined
    let known = false
    for (const line of text.split('\n')) {
      const [, name] = /^# HELP (\S+)/.exec(line) ?? []
      if (name !== undefined) {
        family = families.get(name)
        known = family !== undefined
        if (!family) {
          family = { head: [], samples: [] }
          families.set(name, family)
        }
      }
      if (line === '' || !family) continue
      if (!line.startsWith('#')) family.samples.push(line)
      else if (!known) family.head.push(line)
    }
  }
  return [...families.values()]
    .flatMap(({ head, samples }) => [...head, ...samples])
    .map((line) => `${line}\n`)
    .join('')
}

/** The process of a worker. */
interface WorkerProcess extends Peer {
  readonly pid?: number | undefined
  kill(signal: NodeJS.Signals): boolean
  on: Peer['on'] & ((event: 'error', listener: () => void) => unknown)
  once(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): unknown
}

/** End of a process. One of the fields is null. */
interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** A worker, from its start to its end. */
interface Worker {
  readonly number: number
  readonly process: WorkerProcess
  readonly channel: Channel
  readonly ended: Promise<Ending>
  /** Undefined until it serves. */
  addresses: Addresses | undefined
  /** True after the parent has sent SIGTERM. */
  leaving: boolean
}

/** Error of a worker that ended before it could serve, or of the last serving worker. */
export class WorkerFailed extends Error {
  override readonly name = 'WorkerFailed'
  /** Exit code of the worker, or 1 after a signal. */
  readonly exitCode: number

  constructor(number: number, { code, signal }: Ending) {
    super(`worker ${number} ended with ${signal ?? code} before it could serve; its log says why`)
    this.exitCode = code || 1
  }
}

/** Dependencies of Workers. */
interface WorkersOptions {
  readonly count: number
  /** Starts a process for the worker with this number. */
  readonly fork: (number: number) => WorkerProcess
  readonly clock: Clock
  readonly log: Logger
}

/** Minimum time of serving after which a start counts as successful. */
const STABLE_MS = 10_000
/** Pauses before a worker is started again: none after the first failure, then doubled each time. */
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 30_000

/** The workers of a process. */
export class Workers {
  /**
   * Resolves when every worker has ended with 0, for example nodes that were drained over HTTP. Rejects with `WorkerFailed` when no worker
   * can serve.
   */
  readonly ended: Promise<void>
  readonly #options: WorkersOptions
  readonly #registry = new Registry()
  readonly #counts: ReturnType<typeof registerMetrics<typeof WORKER_METRICS>>
  /** Workers by number. Undefined: a restart is pending. */
  readonly #workers = new Map<number, Worker | undefined>()
  #end: () => void = () => {}
  #fail: (error: unknown) => void = () => {}
  #wanted: number
  #stopping = false
  #replacing = false
  #replaceAgain = false

  constructor(options: WorkersOptions) {
    this.#options = options
    this.ended = new Promise((resolve, reject) => {
      this.#end = resolve
      this.#fail = reject
    })
    this.ended.catch(() => undefined)
    this.#registry.setDefaultLabels({ worker: 'none' })
    processMetrics(this.#registry, options.log)
    this.#counts = registerMetrics(this.#registry, WORKER_METRICS)
    this.#wanted = options.count
    this.#counts.wanted.read(() => this.#wanted)
    this.#counts.workers.read(() => this.ready.length)
  }

  /** The workers that accept clients, by number. */
  get ready(): { readonly number: number; readonly addresses: Addresses }[] {
    return this.#running()
      .flatMap(({ number, leaving, addresses }) => (addresses && !leaving ? [{ number, addresses }] : []))
      .sort((a, b) => a.number - b.number)
  }

  /** Resolves when all serve. Rejects with `WorkerFailed` if one cannot. Then no worker is left. */
  async start(): Promise<void> {
    const { count } = this.#options
    try {
      // The first starts alone, so that an error of all workers is logged once.
      await this.#launch(1)
      const others = Array.from({ length: count - 1 }, (_, index) => index + 2)
      await Promise.all(others.map((number) => this.#launch(number)))
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** Returns the metrics of all workers and of this process, in Prometheus' text format. A worker that does not answer is missing. */
  readonly metrics = async (): Promise<string> => {
    const all = this.#running().map(({ channel }) => channel.metrics())
    return mergeExpositions(await Promise.all([this.#registry.metrics(), ...all]))
  }

  /** Sets the log level of this process and of all workers. */
  readonly setLogLevel = (level: LogLevel): void => {
    setLogLevel(this.#options.log, level)
    for (const { channel } of this.#running()) channel.send({ t: 'log_level', level })
  }

  /**
   * Replaces each worker with a new process, one after the other. The new process serves before the old one drains, so there are never too
   * few workers. If a new process cannot serve, the remaining workers are kept.
   */
  replace(): void {
    this.#replaceAgain = this.#replacing
    if (this.#replacing || this.#stopping) return
    this.#replacing = true
    void this.#replaceAll().then(() => {
      this.#replacing = false
      if (this.#replaceAgain) this.replace()
    })
  }

  /** Drains all workers together. Resolves when they have ended. */
  async stop(): Promise<void> {
    this.#stopping = true
    await Promise.all(this.#running().map((worker) => this.#drain(worker)))
  }

  /** Kills the remaining workers. */
  kill(): void {
    for (const worker of this.#running()) worker.process.kill('SIGKILL')
  }

  #running(): Worker[] {
    return [...this.#workers.values()].filter((worker) => worker !== undefined)
  }

  #drain(worker: Worker): Promise<Ending> {
    worker.leaving = true
    worker.process.kill('SIGTERM')
    return worker.ended
  }

  /** Starts a worker. Resolves when it serves. Rejects with `WorkerFailed` if it ends before that. */
  async #launch(number: number): Promise<void> {
    const { fork, clock, log } = this.#options
    const process = fork(number)
    const ended = new Promise<Ending>((resolve) => {
      process.once('exit', (code, signal) => resolve({ code, signal }))
    })
    // The event `exit` follows.
    process.on('error', () => undefined)
    let started = (): void => {}
    const serves = new Promise<void>((resolve) => {
      started = resolve
    })
    const ready = (addresses: Addresses): void => {
      worker.addresses = addresses
      started()
    }
    const channel = new Channel(process, clock, this.metrics, { logLevel: this.setLogLevel, ready })
    const worker: Worker = { number, process, channel, ended, addresses: undefined, leaving: false }
    this.#workers.set(number, worker)
    void ended.then(() => this.#workers.delete(number))
    const failed = ended.then((ending) => {
      throw new WorkerFailed(number, ending)
    })
    await Promise.race([serves, failed])
    log.info({ worker: number, pid: process.pid, addresses: worker.addresses }, 'a worker serves')
    const since = clock.monotonic()
    void ended.then((ending) => {
      if (worker.leaving || this.#stopping) return
      this.#over(number, ending, clock.monotonic() - since < STABLE_MS ? 1 : 0)
    })
  }

  /** A serving worker has ended without a request of this process. */
  #over(number: number, { code, signal }: Ending, failures: number): void {
    const { log } = this.#options
    if (code === 0) {
      log.warn({ worker: number }, 'a worker was drained on request and is not started again')
      this.#wanted -= 1
      if (this.#workers.size === 0) this.#end()
      return
    }
    this.#counts.exits.inc()
    log.error({ worker: number, code, signal }, 'a worker ended unexpectedly and is started again')
    this.#startAgain(number, failures)
  }

  #startAgain(number: number, failures: number): void {
    const { clock, log } = this.#options
    this.#workers.set(number, undefined)
    const pause = failures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS)
    clock.schedule(pause, () => {
      if (this.#stopping) return
      this.#launch(number).catch((error: unknown) => {
        if (this.#stopping) return
        if (this.ready.length === 0) return this.#fail(error)
        log.error({ worker: number, reason: messageOf(error) }, 'a worker cannot start: trying again')
        this.#startAgain(number, failures + 1)
      })
    })
  }

  async #replaceAll(): Promise<void> {
    const { log } = this.#options
    log.info('replacing the workers, one after the other')
    for (const { number } of this.ready) {
      const old = this.#workers.get(number)
      if (this.#stopping || !old?.addresses || old.leaving) continue
      let free = 1
      while (this.#workers.has(free)) free += 1
      try {
        await this.#launch(free)
      } catch (error) {
        log.error(
          { reason: messageOf(error) },
          'a new worker cannot start: the workers that were not replaced yet continue to run',
        )
        return
      }
      await this.#drain(old)
    }
    log.info('the workers are replaced')
  }
}

/** Variable with the number of a worker. */
const NUMBER = 'ROOMFUL_WORKER'

/** Starts the workers of this process. Resolves when all serve. Rejects with `WorkerFailed`, or if a port is not available. */
export async function startGroup(
  group:
    | { readonly command: 'control'; readonly config: Config<'control'> }
    | { readonly command: 'dataplane'; readonly config: Config<'dataplane'> & { readonly nodeId: string } },
  log: Logger,
): Promise<Service> {
  const { command, config } = group
  let environmentOf = (_number: number): Environment => ({})
  cluster.setupPrimary({ args: [command] })
  const workers = new Workers({
    count: config.workers === 'auto' ? availableParallelism() : (config.workers ?? 1),
    fork: (number) => {
      const own = { [NUMBER]: String(number), ...environmentOf(number) }
      // Variables for files in the parent's environment would contradict these.
      const files = Object.keys(own).map((name) => [`${name}_FILE`, undefined])
      const env = { ...own, ...Object.fromEntries(files), WORKERS: undefined, WORKERS_FILE: undefined }
      return cluster.fork(env).process
    },
    clock: systemClock,
    log,
  })
  process.once('exit', () => workers.kill())
  // While all restarts are pending, nothing else keeps the process alive.
  const alive = setInterval(() => undefined, 60_000)
  const service = { ended: workers.ended, reload: () => workers.replace() }
  if (command === 'control') {
    await workers.start()
    const api = workers.ready[0]?.addresses.api ?? ''
    const close = () => workers.stop().finally(() => clearInterval(alive))
    return { ...service, addresses: { api }, close }
  }
  const { serveGroupAdmin } = await import('../../dataplane/ops/group-admin.ts')
  const { nodeId, adminUrl, advertiseUrl, adminHost, adminPort } = group.config
  const parts = {
    name: nodeId,
    workers: () => workers.ready,
    metrics: workers.metrics,
    random: systemRandom,
    log,
  }
  const admin = await serveGroupAdmin(parts, adminHost, adminPort)
  environmentOf = (number) => ({
    NODE_ID: `${nodeId}-${number}`,
    ADMIN_HOST: '127.0.0.1',
    ADMIN_PORT: '0',
    ADMIN_URL: `${(adminUrl ?? admin.url).replace(/\/$/, '')}/worker/${number}`,
    ...(advertiseUrl !== undefined && { ADVERTISE_URL: advertisedUrl(advertiseUrl, number) }),
  })
  const close = () =>
    workers
      .stop()
      .finally(() => admin.close())
      .finally(() => clearInterval(alive))
  try {
    await workers.start()
  } catch (error) {
    await close()
    throw error
  }
  const websocket = workers.ready[0]?.addresses.websocket ?? ''
  return { ...service, addresses: { websocket, admin: admin.url }, close }
}

/**
 * Returns the address of one worker. The path, if any, gets the number as a suffix, as the name of the node does. Otherwise the number is
 * added to the port.
 */
export function advertisedUrl(ofAll: string, number: number): string {
  const url = new URL(ofAll)
  if (url.pathname !== '/') url.pathname = `${url.pathname.replace(/\/$/, '')}-${number}`
  else url.port = String(Number(url.port || (url.protocol === 'wss:' ? 443 : 80)) + number)
  return url.href.replace(/(?<=:\d+)\/$/, '')
}

/** View of a worker from inside its process. */
export class ThisWorker {
  readonly number: number
  /** A terminal sends SIGINT to workers as well. They ignore it, because their parent drains them. */
  readonly host: Host
  readonly #channel: Channel
  #registry: Pick<Registry, 'metrics'> | undefined
  #log: Logger | undefined

  private constructor(number: number, self: NodeJS.Process) {
    this.number = number
    const on = (event: string, listener: (...args: unknown[]) => void): NodeJS.Process =>
      self.on(event, event === 'SIGINT' || event === 'SIGHUP' ? () => undefined : listener)
    this.host = { on: on as Host['on'], exit: (code) => self.exit(code) }
    this.#channel = new Channel(
      self as Peer,
      systemClock,
      async () => (await this.#registry?.metrics()) ?? '',
      { logLevel: (level) => this.#log && setLogLevel(this.#log, level) },
    )
  }

  /** Undefined: this process is not a worker. */
  static of(env: Environment): ThisWorker | undefined {
    const number = Number(env[NUMBER])
    return cluster.isWorker && number > 0 ? new ThisWorker(number, process) : undefined
  }

  /** Options of this worker's node. With ADVERTISE_URL, it also listens on a port of this worker only: WS_PORT plus its number. */
  sharing({ wsPort, advertiseUrl }: Config<'dataplane'>): WorkerOptions {
    const worker = String(this.number)
    const { setLogLevel } = this
    if (advertiseUrl === undefined) return { worker, setLogLevel }
    return { worker, setLogLevel, ownPort: wsPort === 0 ? 0 : wsPort + this.number }
  }

  /** Returns the metrics of all workers. */
  readonly metricsOfAll = (): Promise<string> => this.#channel.metrics()

  /** Sets the log level of all workers and of their parent. */
  readonly setLogLevel = (level: LogLevel): void => this.#channel.send({ t: 'log_level', level })

  /** Reports to the parent that a service serves, and answers requests for its metrics from then on. */
  announce(service: Service, log: Logger): Service {
    this.#log = log
    this.#registry = service.registry
    this.#channel.send({ t: 'ready', addresses: service.addresses })
    return service
  }
}
