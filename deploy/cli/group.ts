import cluster from 'node:cluster'
import { availableParallelism } from 'node:os'
import type { Registry } from 'prom-client'
import type { WorkerOptions } from '../../dataplane/node.ts'
import { systemClock } from '../../shared/clock.ts'
import type { Config, Environment } from '../../shared/config.ts'
import { type Logger, type LogLevel, setLogLevel } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import type { Host, Service } from './service.ts'
import { type Peer, WorkerChannel } from './worker-channel.ts'
import { Workers, workerEnvironment } from './workers.ts'

/** `WORKERS`: one process that has several of its own kind serve behind its ports, and these as they see themselves. */

/** Tells a worker its number. */
const NUMBER = 'ROOMFUL_WORKER'

/** What can be served by workers. */
type GroupConfig =
  | { readonly command: 'control'; readonly config: Config<'control'> }
  | { readonly command: 'dataplane'; readonly config: Config<'dataplane'> & { readonly nodeId: string } }

/** Starts the workers of this process; resolves when all serve. Rejects with `WorkerFailed`, and when a port cannot be had. */
export async function startGroup(group: GroupConfig, log: Logger): Promise<Service> {
  const { command, config } = group
  let environmentOf = (_number: number): Environment => ({})
  cluster.setupPrimary({ args: [command] })
  const workers = new Workers({
    count: config.workers === 'auto' ? availableParallelism() : (config.workers ?? 1),
    fork: (number) =>
      cluster.fork(workerEnvironment({ [NUMBER]: String(number), ...environmentOf(number) })).process,
    clock: systemClock,
    log,
  })
  process.once('exit', () => workers.kill())
  // While all are waiting to be started again, nothing else keeps the process from ending.
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

/** Where clients reach one worker: a path gets its number as a suffix, as the name of the node does; where there is none, it is added to the port. */
export function advertisedUrl(ofAll: string, number: number): string {
  const url = new URL(ofAll)
  if (url.pathname !== '/') url.pathname = `${url.pathname.replace(/\/$/, '')}-${number}`
  else url.port = String(Number(url.port || (url.protocol === 'wss:' ? 443 : 80)) + number)
  return url.href.replace(/(?<=:\d+)\/$/, '')
}

/** A worker, as it sees itself. */
export class ThisWorker {
  readonly number: number
  /** SIGINT of a terminal reaches workers as well: it is for the process that has started them, which tells them what to do. */
  readonly host: Host
  readonly #channel: WorkerChannel
  #registry: Pick<Registry, 'metrics'> | undefined
  #log: Logger | undefined

  private constructor(number: number, self: NodeJS.Process) {
    this.number = number
    const on = (event: string, listener: (...args: unknown[]) => void): NodeJS.Process =>
      self.on(event, event === 'SIGINT' || event === 'SIGHUP' ? () => undefined : listener)
    this.host = { on: on as Host['on'], exit: (code) => self.exit(code) }
    this.#channel = new WorkerChannel(
      self as Peer,
      systemClock,
      async () => (await this.#registry?.metrics()) ?? '',
      { onLogLevel: (level) => this.#log && setLogLevel(this.#log, level) },
    )
  }

  /** Undefined: this process is no worker. */
  static of(env: Environment): ThisWorker | undefined {
    const number = Number(env[NUMBER])
    return cluster.isWorker && number > 0 ? new ThisWorker(number, process) : undefined
  }

  /** What it shares as a node. Where clients are told of each, it listens alone on the port that is its number above that of all. */
  sharing({ wsPort, advertiseUrl }: Config<'dataplane'>): WorkerOptions {
    const worker = String(this.number)
    const { setLogLevel } = this
    if (advertiseUrl === undefined) return { worker, setLogLevel }
    return { worker, setLogLevel, ownPort: wsPort === 0 ? 0 : wsPort + this.number }
  }

  /** The metrics of all workers. */
  readonly metricsOfAll = (): Promise<string> => this.#channel.metrics()

  /** Sets the level of the logs of all workers, this one among them, and of the process that has started them. */
  readonly setLogLevel = (level: LogLevel): void => this.#channel.setLogLevel(level)

  /** Says when a service serves, and has its metrics asked for. */
  async announce(service: Service, log: Logger): Promise<Service> {
    this.#log = log
    this.#registry = service.registry
    this.#channel.ready(service.addresses)
    return service
  }
}
