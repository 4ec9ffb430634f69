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
  readonly node_id: string
  readonly redis_url: string
  readonly key_prefix: string
  readonly control_url: string
  readonly internal_token: string
  readonly lease_ms: number
}

/** Any node of a test's cluster. */
export interface ClusterNode {
  readonly node_id: string
  readonly ws_url: string
  readonly admin_url: string
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
  const { node_id, redis_url, key_prefix, control_url, internal_token, lease_ms } = place
  const parts = {
    clock: options.clock ?? systemClock,
    random: systemRandom,
    log: pino({ level: process.env.TEST_LOG_LEVEL ?? 'silent' }).child({ node_id }),
  }
  const link = await FaultyLink.open(redis_url)
  const store = await openStore({ redis_url: link.url, key_prefix, ...parts })
  const running = await startNode({
    node_id,
    ws_port: 0,
    admin_port: 0,
    drain_seconds: 0.5,
    node_lease_ms: lease_ms,
    ...parts,
    ...options,
    rooms,
    store,
    control_url,
    internal_token,
  })
  let open = true
  const drain = (): Promise<void> => {
    open = false
    return running.close()
  }
  return {
    node_id,
    ws_url: running.ws_url,
    admin_url: running.admin_url,
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
  const child = children.addRoomful(place.node_id, ['--import', 'tsx', PROGRAM, 'dataplane'], {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    TMPDIR: process.env.TMPDIR,
    REDIS_URL: place.redis_url,
    KEY_PREFIX: place.key_prefix,
    CONTROL_URL: place.control_url,
    INTERNAL_TOKEN: place.internal_token,
    NODE_ID: place.node_id,
    NODE_LEASE_MS: String(place.lease_ms),
    WS_PORT: '0',
    ADMIN_PORT: '0',
    DRAIN_SECONDS: '1',
    ROOMS_DIR: ROOMS,
    LOG_FORMAT: 'json',
    ...env,
  })
  await child.start()
  const { ws_url = '', admin_url = '' } = child.said?.groups ?? {}
  return nodeProcess(child, { ws_url, admin_url })
}

/** A node that runs. */
export function nodeProcess(
  child: Child,
  places: { readonly ws_url: string; readonly admin_url: string },
): NodeProcess {
  return {
    node_id: child.name,
    ...places,
    get open() {
      return child.state === 'ready'
    },
    get ended() {
      return child.ended.then(({ code }) => code)
    },
    output: () => readFileSync(child.log_file, 'utf8'),
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
