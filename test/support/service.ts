import { join } from 'node:path'
import { pino } from 'pino'
import { inject } from 'vitest'
import { type RunningControl, startControl } from '../../control/main.ts'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { callControl, loginAt, metricOf } from './calls.ts'

/** What a test may choose. */
interface ServiceOptions {
  readonly store?: 'memory' | 'redis'
  /** Besides or instead of the examples. */
  readonly rooms?: NodeOptions['rooms']
  /** Anything else about the node. */
  readonly node?: Partial<NodeOptions>
}

/** Both planes, really running on free ports of this machine. */
export interface TestService {
  readonly wsUrl: string
  readonly controlUrl: string
  readonly adminUrl: string
  readonly internalToken: string
  readonly node: RunningNode
  readonly control: RunningControl
  readonly store: Store
  /** Calls the control API; throws what it answers when that is not a success. */
  call(method: 'GET' | 'POST', path: string, body?: object): Promise<Record<string, string>>
  /** A project of its own with a token for a player. */
  login(claims?: {
    sub?: string
    rooms?: string[]
    ttl_seconds?: number
  }): Promise<{ projectId: string; token: string }>
  /** The sum of a metric of the node over all series that have the labels of `series`, such as `name{label="x"}`; 0: none yet. */
  metric(series: string): Promise<number>
  close(): Promise<void>
}

const INTERNAL_TOKEN = 'internal-token-of-the-tests'
const EXAMPLES = join(import.meta.dirname, '../../examples')

/** Starts control and a node; `close` ends both. */
export async function startService({
  store: kind = 'memory',
  rooms,
  node: options,
}: ServiceOptions = {}): Promise<TestService> {
  const log = pino({ level: process.env.TEST_LOG_LEVEL ?? 'silent' })
  const parts = { clock: systemClock, random: systemRandom, log }
  const keyPrefix = `test-${crypto.randomUUID()}:`
  const store = await openStore({
    ...(kind === 'redis' && { redisUrl: inject('redisUrl'), keyPrefix }),
    ...parts,
  })
  const control = await startControl({
    config: {
      controlPort: 0,
      internalToken: INTERNAL_TOKEN,
    },
    store,
    ...parts,
  })
  const node = await startNode({
    wsPort: 0,
    adminPort: 0,
    drainSeconds: 0,
    ...parts,
    ...options,
    rooms: rooms ?? (await loadRooms(EXAMPLES)),
    store,
    controlUrl: control.url,
    internalToken: INTERNAL_TOKEN,
  })
  const call: TestService['call'] = (method, path, body) => callControl(control.url, method, path, body)
  return {
    wsUrl: node.wsUrl,
    controlUrl: control.url,
    adminUrl: node.adminUrl,
    internalToken: INTERNAL_TOKEN,
    node,
    control,
    store,
    call,
    login: (claims) => loginAt(control.url, claims),
    metric: (series) => metricOf(node.adminUrl, series),
    async close() {
      await node.close()
      await control.close()
      await store.close()
    },
  }
}
