import { join } from 'node:path'
import type { NodeOptions } from '../../dataplane/node.ts'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import type { Store } from '../../shared/store/port.ts'
import { loginAt } from './calls.ts'
import { TestCluster } from './cluster.ts'

/** What a test may choose. */
interface ServiceOptions {
  readonly store?: 'memory' | 'redis'
  /** Default: the examples. */
  readonly rooms?: NodeOptions['rooms']
  /** Other options of the node. */
  readonly node?: Partial<NodeOptions>
}

/** Both planes in this process, at free ports of this machine. */
export interface TestService extends Pick<TestCluster, 'call' | 'internalToken'> {
  readonly wsUrl: string
  readonly controlUrl: string
  readonly adminUrl: string
  readonly store: Store
  /** A new project, with a token for a player. */
  login(claims?: {
    sub?: string
    rooms?: string[]
    ttl_seconds?: number
  }): Promise<{ projectId: string; token: string }>
  /** As `TestCluster.metric`, of the node. */
  metric(series: string): Promise<number>
  close(): Promise<void>
}

const EXAMPLES = join(import.meta.dirname, '../../examples')

/** Starts a cluster of one node; `close` ends it. */
export async function startService({
  store = 'memory',
  rooms,
  node: options,
}: ServiceOptions = {}): Promise<TestService> {
  const cluster = await TestCluster.start({
    redis: store === 'redis' ? 'shared' : 'none',
    leaseMs: 2000,
  })
  const all = { drainSeconds: 0, ...options, rooms: rooms ?? (await loadRooms(EXAMPLES)) }
  const [node] = await cluster.local(1, all)
  const { wsUrl, adminUrl } = node!
  return {
    wsUrl,
    adminUrl,
    controlUrl: cluster.control.url,
    internalToken: cluster.internalToken,
    store: cluster.store,
    call: (...call) => cluster.call(...call),
    login: (claims) => loginAt(cluster.control.url, claims),
    metric: (series) => cluster.metric(node!, series),
    close: () => cluster.close(),
  }
}
