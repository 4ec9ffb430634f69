import { Registry } from 'prom-client'
import type { Clock } from '../../shared/clock.ts'
import type { Environment } from '../../shared/config.ts'
import { type Logger, type LogLevel, setLogLevel } from '../../shared/log.ts'
import { counter, gauge, processMetrics, registerMetrics } from '../../shared/metrics.ts'
import { messageOf } from './failure.ts'
import { type Addresses, mergeExpositions, type Peer, WorkerChannel } from './worker-channel.ts'

/**
 * Several processes that serve behind one port, and the one that has started them: it accepts connections and hands each to a worker in
 * turn (`node:cluster`), and serves no one itself. A worker has a number from 1 on, which is free again when it has ended.
 */

/** What a group of workers counts. */
export const WORKER_METRICS = {
  workers: gauge('service_workers', 'Workers of the process that accept clients.'),
  wanted: gauge('service_workers_wanted', 'Workers that the process should have.'),
  exits: counter(
    'service_worker_exits_total',
    'Workers that ended without having been told to, each of which is started again.',
  ),
}

/** The process of a worker. */
interface WorkerProcess extends Peer {
  readonly pid?: number | undefined
  kill(signal: NodeJS.Signals): boolean
  on: Peer['on'] & ((event: 'error', listener: () => void) => unknown)
  once(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): unknown
}

/** What a group is made of. */
interface WorkersParts {
  readonly count: number
  /** Starts a process for the worker of this number. */
  readonly fork: (number: number) => WorkerProcess
  readonly clock: Clock
  readonly log: Logger
}

/** A worker that accepts clients. */
interface ReadyWorker {
  readonly number: number
  readonly addresses: Addresses
}

/** A worker has ended before it could serve, or there is none left that serves. */
export class WorkerFailed extends Error {
  override readonly name = 'WorkerFailed'
  /** What the worker ended with; 1 where a signal ended it. */
  readonly exitCode: number

  constructor(number: number, { code, signal }: Ending) {
    super(`worker ${number} ended with ${signal ?? code} before it could serve; its log says why`)
    this.exitCode = code || 1
  }
}

/** How a process ended: one of them is null. */
interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Who has served for so long has not failed at its start. */
const STABLE_MS = 10_000
/** The pauses before a worker is started again: none after the first failure, then twice as long each time. */
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 30_000

/** One worker, from its start to its end. */
class Worker {
  readonly number: number
  readonly channel: WorkerChannel
  /** Resolves when it serves; rejects with `WorkerFailed` when it ends before. */
  readonly started: Promise<void>
  readonly ended: Promise<Ending>
  addresses: Addresses | undefined
  /** It was told to end. */
  leaving = false
  readonly #process: WorkerProcess

  constructor(
    number: number,
    { fork, clock }: WorkersParts,
    { metrics, onLogLevel }: { metrics: () => Promise<string>; onLogLevel: (level: LogLevel) => void },
  ) {
    this.number = number
    const child = fork(number)
    this.#process = child
    this.ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => resolve({ code, signal }))
    })
    // It is told by its end, too.
    child.on('error', () => undefined)
    let ready = (_where: Addresses): void => {}
    this.channel = new WorkerChannel(child, clock, metrics, {
      onReady: (where) => ready(where),
      onLogLevel,
    })
    this.started = new Promise((resolve, reject) => {
      ready = (where) => {
        this.addresses = where
        resolve()
      }
      void this.ended.then((ending) => reject(new WorkerFailed(number, ending)))
    })
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  get serves(): boolean {
    return this.addresses !== undefined && !this.leaving
  }

  /** Has it drain and end. */
  leave(): void {
    this.leaving = true
    this.#process.kill('SIGTERM')
  }

  kill(): void {
    this.#process.kill('SIGKILL')
  }
}

/** The workers of a process. */
export class Workers {
  /** Resolves when every worker has ended by itself with 0, such as nodes drained over HTTP. Rejects with `WorkerFailed` when none can serve. */
  readonly ended: Promise<void>
  readonly #parts: WorkersParts
  readonly #registry = new Registry()
  readonly #counts: ReturnType<typeof registerMetrics<typeof WORKER_METRICS>>
  /** By number. Undefined: that worker is to be started again. */
  readonly #workers = new Map<number, Worker | undefined>()
  #end: () => void = () => {}
  #fail: (error: unknown) => void = () => {}
  #wanted: number
  #stopping = false
  #replacing = false
  #replaceAgain = false

  constructor(parts: WorkersParts) {
    this.#parts = parts
    this.ended = new Promise((resolve, reject) => {
      this.#end = resolve
      this.#fail = reject
    })
    this.ended.catch(() => undefined)
    this.#registry.setDefaultLabels({ worker: 'none' })
    processMetrics(this.#registry, parts.log)
    this.#counts = registerMetrics(this.#registry, WORKER_METRICS)
    this.#wanted = parts.count
    this.#counts.wanted.read(() => this.#wanted)
    this.#counts.workers.read(() => this.ready.length)
  }

  /** The workers that accept clients, by their numbers. */
  get ready(): ReadyWorker[] {
    return this.#running()
      .flatMap(({ number, serves, addresses }) => (serves && addresses ? [{ number, addresses }] : []))
      .sort((a, b) => a.number - b.number)
  }

  /** Resolves when all serve. Rejects with `WorkerFailed` when one cannot; then no worker is left. */
  async start(): Promise<void> {
    const { count } = this.#parts
    try {
      // The first alone: what keeps it from its work keeps the others from it, and is said once.
      for (const numbers of [[1], Array.from({ length: count - 1 }, (_, i) => i + 2)])
        await Promise.all(numbers.map((number) => this.#launch(number)))
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** The metrics of all workers and of this process, in Prometheus' text format. A worker that does not answer is missing. */
  readonly metrics = async (): Promise<string> => {
    const all = this.#running().map(({ channel }) => channel.metrics())
    return mergeExpositions(await Promise.all([this.#registry.metrics(), ...all]))
  }

  /**
   * Puts a new process in the place of each worker, one after the other: it serves before the old one drains, so that there are never fewer
   * than there should be. What they are started with is read again. One that cannot serve ends it, and those not yet replaced stay.
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

  /** Has all workers drain at once; resolves when they have ended. */
  async stop(): Promise<void> {
    this.#stopping = true
    await Promise.all(
      this.#running().map((worker) => {
        worker.leave()
        return worker.ended
      }),
    )
  }

  /** Ends what is left of them at once. */
  kill(): void {
    for (const worker of this.#running()) worker.kill()
  }

  #running(): Worker[] {
    return [...this.#workers.values()].filter((worker) => worker !== undefined)
  }

  /** Starts a worker; resolves when it serves. */
  async #launch(number: number): Promise<void> {
    const { metrics, setLogLevel: onLogLevel } = this
    const worker = new Worker(number, this.#parts, { metrics, onLogLevel })
    this.#workers.set(number, worker)
    void worker.ended.then(() => this.#workers.delete(number))
    await worker.started
    const { clock, log } = this.#parts
    log.info({ worker: number, pid: worker.pid, addresses: worker.addresses }, `worker ${number} serves`)
    const since = clock.monotonic()
    void worker.ended.then((ending) => {
      if (worker.leaving || this.#stopping) return
      this.#over(number, ending, clock.monotonic() - since < STABLE_MS ? 1 : 0)
    })
  }

  /** A worker that has served has ended, and no one had told it to. */
  #over(number: number, { code, signal }: Ending, failures: number): void {
    const { log } = this.#parts
    if (code === 0) {
      log.warn({ worker: number }, 'a worker has drained and is not started again, since it was told so')
      this.#wanted -= 1
      if (this.#workers.size === 0) this.#end()
      return
    }
    this.#counts.exits.inc()
    log.error({ worker: number, code, signal }, 'a worker has ended, and is started again')
    this.#startAgain(number, failures)
  }

  #startAgain(number: number, failures: number): void {
    const { clock, log } = this.#parts
    this.#workers.set(number, undefined)
    const pause = failures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS)
    clock.schedule(pause, () => {
      if (this.#stopping) return
      this.#launch(number).catch((error: unknown) => {
        if (this.#stopping) return
        if (this.ready.length === 0) return this.#fail(error)
        log.error({ worker: number }, `${messageOf(error)}; it is tried again`)
        this.#startAgain(number, failures + 1)
      })
    })
  }

  async #replaceAll(): Promise<void> {
    const { log } = this.#parts
    log.info('the workers are replaced, one after the other')
    for (const { number } of this.ready) {
      const old = this.#workers.get(number)
      if (this.#stopping || !old?.serves) continue
      try {
        await this.#launch(this.#freeNumber())
      } catch (error) {
        log.error(`${messageOf(error)}: the workers that are not replaced yet stay`)
        return
      }
      old.leave()
      await old.ended
    }
    log.info('the workers are replaced')
  }

  /** Sets the level of the logs of this process and of all workers. */
  readonly setLogLevel = (level: LogLevel): void => {
    setLogLevel(this.#parts.log, level)
    for (const { channel } of this.#running()) channel.setLogLevel(level)
  }

  #freeNumber(): number {
    let number = 1
    while (this.#workers.has(number)) number += 1
    return number
  }
}

/** The environment of a worker: that of the process, with what each has of its own, and without the files of those variables. */
export function workerEnvironment(own: Environment): Environment {
  const files = Object.keys(own).map((name) => [`${name}_FILE`, undefined])
  return { ...own, ...Object.fromEntries(files), WORKERS: undefined, WORKERS_FILE: undefined }
}
