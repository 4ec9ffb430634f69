import { readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { WebSocket } from 'ws'
import { LocalCluster } from '../deploy/local/local-cluster.ts'
import { type Child, describeExit } from '../deploy/local/processes.ts'
import { roomfulProgram } from '../deploy/local/programs.ts'
import type { RedisView } from '../deploy/local/redis.ts'
import { ownersOf } from '../examples/backend/nodes.ts'
import type { Clock } from '../shared/clock.ts'
import type { Random } from '../shared/random.ts'
import { type MetricsSource, parseMetrics } from './metrics.ts'
import { plural } from './view/text.ts'

/** How the service of `--local` is to be otherwise. */
export interface LocalSettings {
  /** Clients connect to the nodes themselves, client i first to node i mod n: no load balancer, and one control process. */
  readonly direct: boolean
  /** Variables of its processes, where the command line says nothing else. */
  readonly env?: Readonly<Record<string, string>>
}

interface LocalOptions {
  /** 1–9. */
  readonly nodes: number
  readonly settings?: LocalSettings | undefined
  /** Passed on to the processes where the load test does not say otherwise. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: Random
  /** Where the ends of processes are reported that a scenario wanted, a line each. */
  readonly tell: (line: string) => void
  /** Fires when the service is not wanted any more before it serves. */
  readonly signal?: AbortSignal
}

const ROOMS = fileURLToPath(new URL('./rooms', import.meta.url))
const HOST = '127.0.0.1'
const CONTROLS = 2
const ENVIRONMENT = {
  NODE_ENV: 'production',
  ROOMS_DIR: ROOMS,
  // The default of the service, not that of a cluster at whose prompt someone waits.
  HEARTBEAT_SECONDS: '10',
  // Players of a load test send as fast as it is told to, which is not what the limit of a session is for.
  SESSION_MESSAGES_PER_SECOND: '100000',
  // All of them come with one token, and make as many rooms as they are told to.
  MAX_SESSIONS_PER_TOKEN: '0',
  NEW_ROOMS_PER_MINUTE: '0',
  MAX_ROOMS_PER_PROJECT: '0',
}
/** These are the load test's to say, whatever the environment has. */
const OURS = ['NODE_ENV', 'ROOMS_DIR']

/** A service that a load test has started for itself: Redis, control processes, nodes and a load balancer. */
export class LocalService {
  /** The names of its nodes: `node-1` and so on. */
  readonly nodes: readonly string[]
  /** Of the load balancer, or of each node. */
  readonly wsUrls: readonly string[]
  /** Every process that has metrics. */
  readonly metrics: readonly MetricsSource[]
  /** Such as `3 nodes, 2 control, haproxy`. */
  readonly describe: string
  readonly cluster: LocalCluster
  readonly #watch: ServiceWatch

  private constructor(cluster: LocalCluster, watch: ServiceWatch, compiled: boolean) {
    const { ports, balancer } = cluster
    this.cluster = cluster
    this.#watch = watch
    this.nodes = ports.nodes.map((_, index) => `node-${index + 1}`)
    const websockets = balancer === 'none' ? ports.nodes.map(({ websocket }) => websocket) : [ports.websocket]
    this.wsUrls = websockets.map((port) => `ws://${HOST}:${port}`)
    this.metrics = [
      ...ports.nodes.map(({ admin }, index) => ({ name: `node-${index + 1}`, port: admin })),
      ...ports.controls.map((port, index) => ({ name: `control-${index + 1}`, port })),
    ].map(({ name, port }) => ({ name, url: `http://${HOST}:${port}` }))
    const before = balancer === 'none' ? [] : [balancer]
    const parts = [plural(this.nodes.length, 'node'), `${ports.controls.length} control`, ...before]
    this.describe = [...parts, ...(compiled ? [] : ['from source'])].join(', ')
  }

  /**
   * Starts everything on free ports of this machine; resolves when all serve. The processes end with this one, however that ends. Rejects
   * with a ClusterError that says what this machine lacks, or with the reason of `signal`; nothing runs on then.
   */
  static async start({
    nodes,
    settings,
    env,
    clock,
    random,
    tell,
    signal,
  }: LocalOptions): Promise<LocalService> {
    const { words, compiled } = roomfulProgram()
    const direct = settings?.direct === true
    const given = Object.entries(env).filter(([name]) => !OURS.includes(name))
    let watch: ServiceWatch | undefined
    const cluster = await LocalCluster.prepare({
      options: {
        nodes,
        controls: direct ? 1 : CONTROLS,
        balancer: direct ? 'none' : 'auto',
        freePorts: true,
        advertise: false,
      },
      env: { ...env, ...ENVIRONMENT, ...settings?.env, ...Object.fromEntries(given) },
      // The inspector listens where it likes once it is asked for, and not before.
      roomful: ['--inspect-port=127.0.0.1:0', ...words],
      clock,
      random,
      tell: (line, asked) => (asked ? tell(line) : watch?.ended(line)),
    })
    watch = new ServiceWatch(cluster.redis, clock)
    const abandon = (): void => cluster.abandon()
    signal?.addEventListener('abort', abandon)
    try {
      signal?.throwIfAborted()
      await cluster.start()
      signal?.throwIfAborted()
      return new LocalService(cluster, watch, compiled)
    } catch (error) {
      await cluster.close()
      if (!signal?.aborted) throw error
      await rm(cluster.folder, { recursive: true, force: true })
      throw signal.reason
    } finally {
      signal?.removeEventListener('abort', abandon)
    }
  }

  /** Tells a node to end (SIGTERM) and starts it again when it has ended; resolves when it serves again. */
  async restart(node: string): Promise<void> {
    await this.end(node)
    await this.process(node).start()
  }

  /** Tells a node or `redis` to end (SIGTERM); resolves when it has. */
  async end(name: string): Promise<void> {
    const child = this.process(name)
    child.end()
    const exit = await child.ended
    if (exit.code === 0) return
    const how = describeExit(exit)
    this.#watch.ended(`${name} was told to end in order, and did not (${how}); ${child.logFile} may say why`)
  }

  /** The node that owns a room (`type:key`). Rejects when there is none. */
  async ownerOf(roomId: string): Promise<string> {
    const owners = [...ownersOf(await this.cluster.nodes.look()).values()]
    const found = owners.find(({ room }) => room.room_id === roomId)
    if (!found) throw new Error(`no node owns ${roomId}`)
    return found.owner
  }

  /** The sum of a metric of a node over its labels, now. */
  async metric(node: string, name: string): Promise<number> {
    const { url = '' } = this.metrics.find((source) => source.name === node) ?? {}
    return parseMetrics(await (await fetch(`${url}/metrics`)).text()).get(name) ?? 0
  }

  /** Heap and buffers of a node that are in use after a garbage collection, and its resident memory; bytes. */
  memory(node: string): Promise<{ readonly used: number; readonly rss: number }> {
    return memoryOf(this.process(node))
  }

  /** A section of what Redis reports about itself, name by name. */
  async redisInfo(section: string): Promise<ReadonlyMap<string, string>> {
    const redis = new Redis(this.cluster.redisUrl, { lazyConnect: true })
    try {
      await redis.connect()
      const lines = (await redis.info(section)).split('\r\n').filter((line) => line.includes(':'))
      return new Map(lines.map((line) => [line.split(':')[0]!, line.slice(line.indexOf(':') + 1)]))
    } finally {
      redis.disconnect()
    }
  }

  /** What has happened to it since the last call. To be called about once a second. */
  faults(): Promise<readonly ServiceFault[]> {
    return this.#watch.look()
  }

  /** The process of a node, or `redis`. */
  process(name: string): Child {
    const child = [...this.nodes, 'redis'].includes(name) ? this.cluster.child(name) : undefined
    if (!child) throw new Error(`there is no ${name}; there are ${this.nodes.join(', ')} and redis`)
    return child
  }
}

/** Something unwanted that has happened to a service. */
interface ServiceFault {
  readonly text: string
  /** Whether no service could keep its promises after it. */
  readonly grave: boolean
}

/** For so long a store may be silent on a busy machine before that is reported. */
const SILENCE_MS = 5000

/** Watches a service that a load test has started: whether its processes go on, and whether its store answers and keeps what it is given. */
export class ServiceWatch {
  readonly #store: Pick<RedisView, 'mark' | 'marked'>
  readonly #clock: Clock
  #news: ServiceFault[] = []
  #marked = false
  #silentSince: number | undefined
  #silenceTold = false

  constructor(store: Pick<RedisView, 'mark' | 'marked'>, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** A process has ended by itself, or not as it was told to. */
  ended(text: string): void {
    this.#news.push({ text, grave: true })
  }

  /** What has happened since the last look. To be called about once a second. */
  async look(): Promise<readonly ServiceFault[]> {
    // By the mark a loss is seen; undefined: the store does not answer.
    const kept = this.#marked ? await this.#store.marked() : await this.#mark()
    if (kept === undefined) this.#silent()
    else this.#answered(kept)
    return this.#news.splice(0)
  }

  async #mark(): Promise<true | undefined> {
    this.#marked = await this.#store.mark()
    return this.#marked || undefined
  }

  #silent(): void {
    const now = this.#clock.monotonic()
    this.#silentSince ??= now
    if (this.#silenceTold || now - this.#silentSince < SILENCE_MS) return
    this.#silenceTold = true
    this.#news.push({ text: `the store has not answered for ${SILENCE_MS / 1000} s`, grave: false })
  }

  #answered(kept: boolean): void {
    if (this.#silenceTold) {
      const seconds = ((this.#clock.monotonic() - this.#silentSince!) / 1000).toFixed(1)
      this.#news.push({ text: `the store answers again, after ${seconds} s`, grave: false })
    }
    this.#silentSince = undefined
    this.#silenceTold = false
    if (kept) return
    this.#news.push({ text: 'the store has lost what was in it', grave: true })
    this.#marked = false
  }
}

const INSPECTOR_MS = 10_000
/** What one collection leaves behind that only the next finds. */
const COLLECTIONS = 3

/** Asks a process, through its inspector, to collect its garbage and to say what it occupies. Opens the inspector the first time. */
async function memoryOf(child: Child): Promise<{ used: number; rss: number }> {
  const inspector = new WebSocket(await inspectorUrl(child))
  let id = 0
  const ask = <T>(method: string, params: object = {}): Promise<T> =>
    new Promise((resolve, reject) => {
      id += 1
      inspector.once('close', () => reject(new Error(`${method} was not answered`)))
      inspector.once('message', (data: Buffer) => resolve(JSON.parse(data.toString()).result as T))
      inspector.send(JSON.stringify({ id, method, params }))
    })
  try {
    await new Promise<void>((resolve, reject) => {
      inspector.once('open', resolve)
      inspector.once('error', reject)
    })
    for (let i = 0; i < COLLECTIONS; i++) await ask('HeapProfiler.collectGarbage')
    const expression = 'JSON.stringify(process.memoryUsage())'
    const { result } = await ask<{ result: { value: string } }>('Runtime.evaluate', { expression })
    const { heapUsed, external, rss } = JSON.parse(result.value) as NodeJS.MemoryUsage
    return { used: heapUsed + external, rss }
  } finally {
    inspector.close()
  }
}

async function inspectorUrl({ name, pid, logFile }: Child): Promise<string> {
  const deadline = performance.now() + INSPECTOR_MS
  for (let asked = false; performance.now() < deadline; asked = true) {
    const found = /Debugger listening on (ws:\S+)/.exec(await readFile(logFile, 'utf8'))
    if (found?.[1]) return found[1]
    if (!asked && pid !== undefined) process.kill(pid, 'SIGUSR1')
    await sleep(20)
  }
  throw new Error(`${name} has no inspector`)
}
