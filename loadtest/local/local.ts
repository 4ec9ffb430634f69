import { rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { LocalCluster } from '../../deploy/local/local-cluster.ts'
import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { Mishaps, type WatchedService } from './mishaps.ts'
import { nodesOf } from './nodes.ts'
import { roomfulProgram } from './program.ts'

export interface LocalOptions {
  /** 1–9. */
  readonly nodes: number
  /** Passed on to the processes where the load test does not say otherwise. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: Random
  /** Where the ends of processes are told that somebody here wanted, a line each. */
  readonly tell: (line: string) => void
  /** Fires when the service is not wanted any more before it serves. */
  readonly signal?: AbortSignal
}

/** A service that a load test has started for itself. */
export interface Local {
  readonly service: WatchedService
  readonly control_url: string
  readonly control_token: string
  /** One address: the load balancer's. */
  readonly ws_urls: readonly string[]
  /** Every process that has metrics, and the address before `/metrics`. */
  readonly metrics: readonly { readonly name: string; readonly url: string }[]
  /** The ids of the processes as they are now, by their names; a process that has ended is not among them. */
  readonly pids: Readonly<Record<string, number>>
  /** Such as `3 nodes, 2 control, haproxy`. */
  readonly describe: string
  /** Where the logs of the processes are. */
  readonly folder: string
  /** Ends everything in order. */
  close(): Promise<void>
  /** Ends every process at once, without waiting for anything. */
  abandon(): void
}

const ROOMS = fileURLToPath(new URL('../rooms', import.meta.url))
const HOST = '127.0.0.1'
const CONTROLS = 2
/** Players of a load test send as fast as it is told to, which is not what the limit of a session is for. */
const MESSAGES_PER_SECOND = '100000'
/** All players of a load test come with one token, and make as many rooms as they are told to. */
const NO_LIMIT = '0'

/**
 * Starts Redis, two control processes, the nodes and a load balancer on free ports of this machine; resolves when all serve. They end with
 * this process, whatever becomes of it. Rejects with a ClusterError that says what this machine lacks, or with the reason of `signal`;
 * nothing runs on then.
 */
export async function startLocal({ nodes, env, clock, random, tell, signal }: LocalOptions): Promise<Local> {
  const { words, compiled } = roomfulProgram()
  let mishaps: Mishaps | undefined
  const cluster = await LocalCluster.prepare({
    options: { nodes, controls: CONTROLS, balancer: 'auto', free_ports: true },
    env: {
      ...env,
      NODE_ENV: 'production',
      ROOMS_DIR: ROOMS,
      // The default of the service, not that of a cluster somebody watches.
      HEARTBEAT_SECONDS: env.HEARTBEAT_SECONDS ?? '10',
      SESSION_MESSAGES_PER_SECOND: env.SESSION_MESSAGES_PER_SECOND ?? MESSAGES_PER_SECOND,
      MAX_SESSIONS_PER_TOKEN: env.MAX_SESSIONS_PER_TOKEN ?? NO_LIMIT,
      NEW_ROOMS_PER_MINUTE: env.NEW_ROOMS_PER_MINUTE ?? NO_LIMIT,
      MAX_ROOMS_PER_PROJECT: env.MAX_ROOMS_PER_PROJECT ?? NO_LIMIT,
    },
    roomful: words,
    clock,
    random,
    tell: (line, asked) => (asked ? tell(line) : mishaps?.ended(line)),
  })
  mishaps = new Mishaps(cluster.redis, clock)
  const abandon = (): void => cluster.abandon()
  signal?.addEventListener('abort', abandon)
  try {
    signal?.throwIfAborted()
    await cluster.start()
    signal?.throwIfAborted()
  } catch (error) {
    await cluster.close()
    if (!signal?.aborted) throw error
    await rm(cluster.folder, { recursive: true, force: true })
    throw signal.reason
  } finally {
    signal?.removeEventListener('abort', abandon)
  }
  const { ports } = cluster
  return {
    service: {
      ...nodesOf(cluster.children, (line) => mishaps.ended(line)),
      mishaps: () => mishaps.look(),
    },
    control_url: `http://${HOST}:${ports.api}`,
    control_token: cluster.secrets.operator_token,
    ws_urls: [`ws://${HOST}:${ports.websocket}`],
    metrics: [
      ...ports.nodes.map(({ admin }, index) => ({
        name: `node-${index + 1}`,
        url: `http://${HOST}:${admin}`,
      })),
      ...ports.controls.map((port, index) => ({
        name: `control-${index + 1}`,
        url: `http://${HOST}:${port}`,
      })),
    ],
    get pids() {
      return Object.fromEntries(
        [...cluster.children].flatMap(([name, { pid }]) => (pid === undefined ? [] : [[name, pid]])),
      )
    },
    describe: [
      nodes === 1 ? '1 node' : `${nodes} nodes`,
      `${CONTROLS} control`,
      cluster.balancer === 'built in' ? 'built-in balancer' : cluster.balancer,
      ...(compiled ? [] : ['from source']),
    ].join(', '),
    folder: cluster.folder,
    close: () => cluster.close(),
    abandon,
  }
}
