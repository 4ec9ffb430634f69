import type { StoreObserver, StoreServer, StoreVitals } from '../port.ts'
import type { Observers } from './observers.ts'
import { field } from './server-check.ts'
import type { Servers } from './servers.ts'

/** How a Redis is doing: what its connections see, and what INFO says. */
export class RedisVitals implements StoreVitals {
  readonly #servers: Servers
  readonly #observers: Observers

  constructor(servers: Servers, observers: Observers) {
    this.#servers = servers
    this.#observers = observers
  }

  get reachable(): boolean {
    const servers = this.#servers.all()
    return servers.length > 0 && servers.every(({ commands }) => commands.ready)
  }

  observe(observer: StoreObserver): () => void {
    return this.#observers.add(observer)
  }

  servers(): Promise<readonly StoreServer[]> {
    return Promise.all(
      this.#servers.all().map(async (server) => {
        const info = await server.commands.run('info', (redis) => redis.info())
        return { name: server.name, ...figuresOf(info) }
      }),
    )
  }
}

/** The figures in an answer to INFO; 0 for what a server does not say. */
export function figuresOf(info: string): Omit<StoreServer, 'name'> {
  const number = (name: string): number => Number(field(info, name) ?? 0)
  return {
    usedMemoryBytes: number('used_memory'),
    maxMemoryBytes: number('maxmemory'),
    connectedClients: number('connected_clients'),
    commandsProcessed: number('total_commands_processed'),
    evictedKeys: number('evicted_keys'),
  }
}
