import { readdir, stat } from 'node:fs/promises'
import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client'

const PREFIX = 'service_'
const OPEN_FILES = '/proc/self/fd'

/** A scrape would look at every socket for these, which takes 50 ms where there are ten thousand; `service_connections` says as much. */
const PER_HANDLE = ['handles', 'requests', 'resources'].flatMap((what) => [
  `${PREFIX}nodejs_active_${what}`,
  `${PREFIX}nodejs_active_${what}_total`,
])

/** Registers Node's own figures of the process. A scrape costs the same however many sockets are open. */
export function processMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry, prefix: PREFIX })
  for (const name of PER_HANDLE) registry.removeSingleMetric(name)
  // The library's own lists the files in the event loop. Where it has none, the system does not tell.
  const name = `${PREFIX}process_open_fds`
  if (!registry.getSingleMetric(name)) return
  registry.removeSingleMetric(name)
  new Gauge({
    name,
    help: 'Number of open file descriptors.',
    registers: [registry],
    async collect() {
      const count = await openFiles().catch(() => undefined)
      // Whatever becomes of this figure, a scrape succeeds.
      if (count !== undefined) this.set(count)
    },
  })
}

async function openFiles(): Promise<number> {
  const { size } = await stat(OPEN_FILES)
  // Linux before 6.2 says 0. The one that lists them is among them.
  return size > 0 ? size : (await readdir(OPEN_FILES)).length - 1
}
