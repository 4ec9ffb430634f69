import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { pino } from 'pino'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import type { Child, Children } from '../../deploy/local/processes.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { FaultyLink } from './faulty-link.ts'

/** Where a node finds the rest of its cluster. */
export interface NodePlace {
  readonly nodeId: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly controlUrl: string
  readonly internalToken: string
  readonly leaseMs: number
}

/** Any node of a test's cluster. */
export interface ClusterNode {
  readonly nodeId: string
  readonly wsUrl: string
  readonly adminUrl: string
  /** Whether new connections should go there. */
  readonly open: boolean
  /** Ends it, whatever state it is in. */
  close(): Promise<void>
}

/** A node in the process of the test, with a store connection of its own over a link that can be broken. */
export interface LocalNode extends ClusterNode {
  readonly running: RunningNode
  readonly store: Store
  readonly link: FaultyLink
  /** Drains it, as SIGTERM does. */
  drain(): Promise<void>
}

/** A node that is a process of its own: `roomful dataplane`. */
export interface NodeProcess extends ClusterNode {
  /** Its exit code once it has ended; null when a signal ended it. */
  readonly ended: Promise<number | null>
  /** Everything it has printed. */
  output(): string
  /** As a machine that loses power. */
  kill(): void
  /** Hangs (SIGSTOP) until `cont`. */
  stop(): void
  cont(): void
  /** Tells it to drain (SIGTERM); resolves with its exit code. */
  drain(): Promise<number | null>
}

const ROOMS = `${import.meta.dirname}/cluster-rooms`
const PROGRAM = fileURLToPath(new URL('../../deploy/cli/roomful.ts', import.meta.url))

/** Starts a node in this process. */
export async function startLocalNode(
  place: NodePlace,
  rooms: NodeOptions['rooms'],
  options: Partial<NodeOptions> = {},
): Promise<LocalNode> {
  const { nodeId, redisUrl, keyPrefix, controlUrl, internalToken, leaseMs } = place
  const parts = {
    clock: options.clock ?? systemClock,
    random: systemRandom,
    log: pino({ level: process.env.TEST_LOG_LEVEL ?? 'silent' }).child({ node_id: nodeId }),
  }
  const link = await FaultyLink.open(redisUrl)
  const store = await openStore({ redisUrl: link.url, keyPrefix, ...parts })
  const running = await startNode({
    nodeId,
    wsPort: 0,
    adminPort: 0,
    drainSeconds: 0.5,
    nodeLeaseMs: leaseMs,
    ...parts,
    ...options,
    rooms,
    store,
    controlUrl,
    internalToken,
  })
  let open = true
  const drain = (): Promise<void> => {
    open = false
    return running.close()
  }
  return {
    nodeId,
    wsUrl: running.wsUrl,
    adminUrl: running.adminUrl,
    get open() {
      return open
    },
    running,
    store,
    link,
    drain,
    async close() {
      link.hold(false)
      await drain()
      await store.close()
      await link.close()
    },
  }
}

/** Starts a node as a process among `children`; resolves once it serves. */
export async function startNodeProcess(
  place: NodePlace,
  children: Children,
  env: Readonly<Record<string, string>> = {},
): Promise<NodeProcess> {
  const child = children.addRoomful(place.nodeId, ['--import', 'tsx', PROGRAM, 'dataplane'], {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    TMPDIR: process.env.TMPDIR,
    REDIS_URL: place.redisUrl,
    KEY_PREFIX: place.keyPrefix,
    CONTROL_URL: place.controlUrl,
    INTERNAL_TOKEN: place.internalToken,
    NODE_ID: place.nodeId,
    NODE_LEASE_MS: String(place.leaseMs),
    WS_PORT: '0',
    ADMIN_PORT: '0',
    DRAIN_SECONDS: '1',
    ROOMS_DIR: ROOMS,
    LOG_FORMAT: 'json',
    ...env,
  })
  await child.start()
  const { ws_url: wsUrl = '', admin_url: adminUrl = '' } = child.said?.groups ?? {}
  return nodeProcess(child, { wsUrl, adminUrl })
}

/** A node that runs. */
export function nodeProcess(
  child: Child,
  places: { readonly wsUrl: string; readonly adminUrl: string },
): NodeProcess {
  return {
    nodeId: child.name,
    ...places,
    get open() {
      return child.state === 'ready'
    },
    get ended() {
      return child.ended.then(({ code }) => code)
    },
    output: () => readFileSync(child.logFile, 'utf8'),
    kill: () => void child.kill(),
    stop: () => child.pause(),
    cont: () => child.resume(),
    drain: () => {
      child.end()
      return child.ended.then(({ code }) => code)
    },
    close: () => child.kill(),
  }
}
