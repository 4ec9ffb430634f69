import { readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { pino } from 'pino'
import { WebSocket } from 'ws'
import { Players } from '../control/players.ts'
import { LocalCluster } from '../deploy/local/local-cluster.ts'
import { roomfulProgram } from '../deploy/local/machine.ts'
import { type Child, describeExit } from '../deploy/local/processes.ts'
import { ownersOf } from '../examples/backend/nodes.ts'
import { systemClock } from '../shared/clock.ts'
import { redisStore } from '../shared/store/redis/redis.ts'
import { type MetricsSource, parseMetrics, redisCpuSeconds, redisInfo } from './metrics.ts'
import { ProxyChain, type ProxyKind } from './proxy.ts'
import { plural } from './text.ts'

/** Changes of a scenario to the service of `--local`. */
export interface LocalSettings {
  /** True: clients connect to the nodes directly, client i first to node i mod n. There is no load balancer, and one control process. */
  readonly direct?: true
  /** Variables of its processes, unless the environment sets them. */
  readonly env?: Readonly<Record<string, string>>
}

interface LocalOptions {
  /** 1–9. */
  readonly nodes: number
  readonly settings?: LocalSettings | undefined
  /** Environment of the processes, except for the variables that the load test sets. */
  readonly env: NodeJS.ProcessEnv
  /** Receives a line for each process that a scenario ends. */
  readonly tell: (line: string) => void
  /** Aborts the start. */
  readonly signal?: AbortSignal
}

const HOST = '127.0.0.1'
const CONTROLS = 2
const BANS_AT_ONCE = 500
/** Attempts to find the owner of a room. */
const LOOKS = 5
const DEFAULTS = {
  // Default of the service. The cluster command has a shorter one.
  HEARTBEAT_SECONDS: '10',
  // The scenario decides how fast players send.
  SESSION_MESSAGES_PER_SECOND: '100000',
  // All players have one token.
  MAX_SESSIONS_PER_SUB: '0',
  NEW_ROOMS_PER_MINUTE: '0',
  MAX_ROOMS_PER_PROJECT: '0',
}
const FIXED = { NODE_ENV: 'production', ROOMS_DIR: fileURLToPath(new URL('./rooms', import.meta.url)) }

/** A service that a load test has started: Redis, control processes, nodes and a load balancer. */
export class LocalService {
  /** Names of the nodes: `node-1` and so on. */
  readonly nodes: readonly string[]
  /** Names of the control processes: `control-1` and so on. */
  readonly controls: readonly string[]
  /** Address of the load balancer, or of each node. */
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
  /** Such as `3 nodes, 2 control, haproxy`. */
  readonly describe: string
  readonly cluster: LocalCluster
  /** Faults since the last call of `faults`. */
  #faults: string[]
  /** True if the store contains the mark that shows a loss of its data. */
  #marked = false

  private constructor(cluster: LocalCluster, faults: string[], compiled: boolean) {
    const { ports, balancer } = cluster
    this.cluster = cluster
    this.#faults = faults
    this.nodes = ports.nodes.map((_, index) => `node-${index + 1}`)
    this.controls = ports.controls.map((_, index) => `control-${index + 1}`)
    this.wsUrls = balancer === 'none' ? cluster.nodes.map(({ wsUrl }) => wsUrl) : [cluster.wsUrl]
    const source = (name: string, port: number) => ({ name, url: `http://${HOST}:${port}` })
    this.metrics = [
      ...ports.nodes.map(({ admin }, index) => source(this.nodes[index]!, admin)),
      ...ports.controls.map((port, index) => source(this.controls[index]!, port)),
    ]
    this.describe = [
      plural(this.nodes.length, 'node'),
      `${ports.controls.length} control`,
      ...(balancer === 'none' ? [] : [balancer]),
      ...(compiled ? [] : ['from source']),
    ].join(', ')
  }

  /**
   * Starts everything on free ports. Resolves when all processes serve. They end with this process in any case. Rejects with a ClusterError
   * that names what this machine lacks, or with the reason of `signal`.
   */
  static async start(options: LocalOptions): Promise<LocalService> {
    const { nodes, settings, env, tell, signal } = options
    const { words, compiled } = roomfulProgram()
    const direct = settings?.direct === true
    const faults: string[] = []
    const cluster = await LocalCluster.prepare({
      nodes,
      controls: direct ? 1 : CONTROLS,
      balancer: direct ? 'none' : 'auto',
      env: { ...DEFAULTS, ...settings?.env, ...env, ...FIXED },
      // SIGUSR1 opens the inspector, on any port.
      programOf: (_, command) => ['--inspect-port=127.0.0.1:0', ...words, command],
      tell: (line, asked) => void (asked ? tell(line) : faults.push(line)),
    })
    const abandon = (): void => cluster.abandon()
    signal?.addEventListener('abort', abandon)
    try {
      signal?.throwIfAborted()
      await cluster.start()
      signal?.throwIfAborted()
      return new LocalService(cluster, faults, compiled)
    } catch (error) {
      await cluster.close()
      if (!signal?.aborted) throw error
      await rm(cluster.folder, { recursive: true, force: true })
      throw signal.reason
    } finally {
      signal?.removeEventListener('abort', abandon)
    }
  }

  /** Ends a process in order (SIGTERM), and starts it again. Resolves when it serves. */
  async restart(node: string): Promise<void> {
    await this.end(node)
    await this.process(node).start()
  }

  /** Ends a process in order (SIGTERM). */
  async end(name: string): Promise<void> {
    const child = this.process(name)
    child.end()
    const exit = await child.ended
    if (exit.code === 0) return
    const how = describeExit(exit)
    this.#faults.push(`${name} did not end in order (${how}); ${child.logFile} may have the reason`)
  }

  /** Returns the node that owns a room (`type:key`). Rejects if no node does. A busy node may not answer the first time. */
  async ownerOf(roomId: string): Promise<string> {
    for (let left = LOOKS; left > 0; left--) {
      const owners = [...ownersOf(await this.cluster.look()).values()]
      const found = owners.find(({ room }) => room.room_id === roomId)
      if (found) return found.owner
    }
    throw new Error(`no node owns ${roomId}`)
  }

  /** Returns the sum of a metric of a node over its labels. */
  async metric(node: string, name: string): Promise<number> {
    return parseMetrics(await this.#metricsOf(node)).get(name) ?? 0
  }

  /** Returns a histogram of a node: the number of values up to each upper bound. */
  async buckets(node: string, name: string): Promise<ReadonlyMap<number, number>> {
    const series = new RegExp(`^${name}_bucket\\{.*le="([^"]+)".*\\} (\\d+)`, 'gm')
    return new Map(
      [...(await this.#metricsOf(node)).matchAll(series)].map(([, bound, count]) => [
        bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound),
        Number(count),
      ]),
    )
  }

  async #metricsOf(node: string): Promise<string> {
    const { url = '' } = this.metrics.find((source) => source.name === node) ?? {}
    return (await fetch(`${url}/metrics`)).text()
  }

  /** Returns the memory of a node after a garbage collection, in bytes: heap and buffers in use, and resident. */
  memory(node: string): Promise<{ readonly used: number; readonly rss: number }> {
    return memoryOf(this.process(node))
  }

  /** Returns the CPU time of the processes, and the commands of Redis, during `work`. */
  async usageDuring<T>(work: () => Promise<T>) {
    const names = [...this.nodes, ...this.controls]
    const read = async () => {
      const at = performance.now() / 1000
      const all = names.map((name) => this.metric(name, 'service_process_cpu_seconds_total'))
      const redis = await redisInfo(this.cluster.redis, 'all')
      const stats = [...redis].filter(([name]) => name.startsWith('cmdstat_') && name !== 'cmdstat_info')
      const calls = (text: string): number => Number(/calls=(\d+)/.exec(text)?.[1] ?? 0)
      const { user, system } = process.cpuUsage()
      return {
        at,
        cpu: new Map((await Promise.all(all)).map((seconds, i) => [names[i]!, seconds])),
        redis: redisCpuSeconds(redis),
        clients: (user + system) / 1e6,
        commands: stats.reduce((sum, [, text]) => sum + calls(text), 0),
        evals: calls(redis.get('cmdstat_evalsha') ?? ''),
      }
    }
    const before = await read()
    const result = await work()
    const after = await read()
    const seconds = Math.max(after.at - before.at, 0.001)
    const rate = (of: 'redis' | 'clients' | 'commands' | 'evals'): number =>
      (after[of] - before[of]) / seconds
    return {
      result,
      seconds,
      /** Returns the CPU seconds per second of these processes together. */
      cpu: (of: readonly string[]): number =>
        of.reduce((sum, name) => sum + after.cpu.get(name)! - before.cpu.get(name)!, 0) / seconds,
      redis: rate('redis'),
      clients: rate('clients'),
      commands: rate('commands'),
      evals: rate('evals'),
    }
  }

  /** Returns the faults since the last call: ended processes, and loss of the data in the store. It is called once a second. */
  async faults(): Promise<readonly string[]> {
    const { redis, keyPrefix } = this.cluster
    const mark = `${keyPrefix}mark`
    // A Redis that does not answer has not lost data.
    const found = this.#marked ? await redis.exists(mark).catch(() => undefined) : undefined
    if (found === 0) this.#faults.push('the store has lost what was in it')
    if (found === 0 || !this.#marked)
      this.#marked = await redis.set(mark, '1').then(
        () => true,
        () => false,
      )
    return this.#faults.splice(0)
  }

  /** Bans players of a project, or ends their bans, with the same records as control, which would take much longer for many players. */
  async setBans(projectId: string, subs: readonly string[], banned: boolean): Promise<void> {
    const { redisUrl: url, keyPrefix } = this.cluster
    const store = await redisStore({ url, keyPrefix, log: pino({ level: 'silent' }) })
    const { records, bus } = store
    const players = new Players({ records, bus, clock: systemClock })
    const ban = { until: null, room_types: null, reason: null }
    try {
      for (let at = 0; at < subs.length; at += BANS_AT_ONCE) {
        const plans = subs
          .slice(at, at + BANS_AT_ONCE)
          .map((sub) => players.draft(projectId, sub, () => (banned ? { ban } : {})))
        const written = (await Promise.all(plans)).map(({ writes }) => records.write(writes))
        if ((await Promise.all(written)).includes(false)) throw new Error('another process has written bans')
      }
    } finally {
      await store.close()
    }
  }

  /** Starts two bare proxies and a server behind them. */
  proxies(kind: ProxyKind): Promise<ProxyChain> {
    return ProxyChain.start(kind)
  }

  /** Returns a process of the service by its name. */
  process(name: string): Child {
    return this.cluster.child(name)
  }
}

const INSPECTOR_MS = 10_000
/** Number of collections. One collection leaves garbage that only the next finds. */
const COLLECTIONS = 3

/** Collects the garbage of a process and reads its memory, through its inspector. */
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

/** Opens the inspector of a process, unless it is open. */
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
