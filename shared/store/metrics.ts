import { Counter, Gauge, type Registry } from 'prom-client'
import type { Clock } from '../clock.ts'
import { counter, gauge, histogram, OPEN, registerMetrics } from '../metrics.ts'
import { CLOCK_OFFSET, type ClockOffset } from './clock-offset.ts'
import type { StoreDataWatch } from './data-watch.ts'
import type { Store, StoreServer, StoreVitals } from './port.ts'

/** For how long what servers said of themselves is told again, milliseconds. */
const FRESH_MS = 5000

const STORE_METRICS = {
  storeUp: gauge('service_store_up', '1 while the store can be reached.'),
  storeReturns: counter(
    'service_store_returns_total',
    'How often the store could be reached again after it could not.',
  ),
  dataLost: gauge(
    'service_store_data_lost',
    '1 for an hour after this process found the store without the data that it had, unless that data is back.',
  ),
  commandDuration: histogram(
    'service_store_command_duration_seconds',
    'Time from a command to the answer of the store.',
  ),
  commandFailures: counter(
    'service_store_command_failures_total',
    'Commands that the store refused, or gave no answer to in time.',
    { failure: ['store_unreachable', 'store_full', 'store_refused'] },
  ),
  commands: counter('service_store_commands_total', 'Commands that the store has answered, by operation.', {
    operation: OPEN,
  }),
  clockOffset: CLOCK_OFFSET,
}

/** Registers what a process sees of its store. A scrape asks the store nothing. */
export function storeMetrics(
  registry: Registry,
  store: Pick<Store, 'vitals' | 'onReturn'>,
  {
    clockOffset,
    dataWatch,
  }: { readonly clockOffset: Pick<ClockOffset, 'ms'>; readonly dataWatch: Pick<StoreDataWatch, 'lost'> },
): void {
  const metrics = registerMetrics(registry, STORE_METRICS)
  metrics.clockOffset.read(() => clockOffset.ms / 1000)
  metrics.storeUp.read(() => Number(store.vitals.reachable))
  metrics.dataLost.read(() => Number(dataWatch.lost))
  store.onReturn(() => metrics.storeReturns.inc())
  store.vitals.observe({
    answered(operation, seconds) {
      metrics.commandDuration.observe(seconds)
      metrics.commands.inc({ operation })
    },
    failed: (_operation, _seconds, failure) => metrics.commandFailures.inc({ failure }),
  })
}

/**
 * Registers what the servers of the store say of themselves. They are asked at a scrape, at most every 5 s; while they do not answer
 * there are no series.
 */
export function storeServerMetrics(registry: Registry, vitals: StoreVitals, clock: Clock): void {
  const ask = remembered(() => askServers(vitals), clock)
  const register = (
    Kind: typeof Gauge | typeof Counter,
    name: string,
    help: string,
    read: (server: StoreServer) => number,
  ) =>
    new Kind({
      name,
      help,
      labelNames: ['server'],
      registers: [registry],
      async collect() {
        const servers = await ask()
        this.reset()
        for (const server of servers) this.inc({ server: server.name }, read(server))
      },
    })
  register(
    Gauge,
    'service_redis_used_memory_bytes',
    'Memory that a Redis server uses for data.',
    (server) => server.usedMemoryBytes,
  )
  register(
    Gauge,
    'service_redis_max_memory_bytes',
    'Memory that a Redis server may use for data (maxmemory); 0: no limit but the machine’s.',
    (server) => server.maxMemoryBytes,
  )
  register(
    Gauge,
    'service_redis_clients',
    'Connections to a Redis server.',
    (server) => server.connectedClients,
  )
  register(
    Counter,
    'service_redis_commands_total',
    'Commands that a Redis server has run, for all of its clients.',
    (server) => server.commandsProcessed,
  )
  register(
    Counter,
    'service_redis_evicted_keys_total',
    'Keys that a Redis server has thrown away because its memory was full: data that is lost.',
    (server) => server.evictedKeys,
  )
}

/** Never rejects: a scrape has to succeed while the store is away, and soon. */
async function askServers(vitals: StoreVitals): Promise<readonly StoreServer[]> {
  if (!vitals.reachable) return []
  return vitals.servers().catch(() => [])
}

/** `ask`, but what it gave is given again until it is old. */
function remembered<T>(ask: () => Promise<T>, clock: Clock): () => Promise<T> {
  let askedAt = Number.NEGATIVE_INFINITY
  let answer: Promise<T> | undefined
  return () => {
    const now = clock.monotonic()
    if (answer && now - askedAt < FRESH_MS) return answer
    askedAt = now
    answer = ask()
    return answer
  }
}
