import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import type { Child } from '../../deploy/local/child.ts'
import { choosePorts, type Ports } from '../../deploy/local/ports.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { Processes } from './processes.ts'

const ROOMS = fileURLToPath(new URL('./rooms', import.meta.url))
const HOST = '127.0.0.1'
const DAY_SECONDS = 86_400
const SETTLE_MS = 30_000
const LOOK_MS = 20

/** How a cluster of a measurement differs from the plain one. */
export interface ClusterOptions {
  readonly nodes?: number
  /** Of the nodes, besides what every measurement has. */
  readonly env?: Readonly<Record<string, string>>
}

/** A place for a node: one process after the other at the same address. */
export interface Slot {
  readonly index: number
  readonly ws_url: string
  readonly admin_url: string
  lives: number
  child: Child
}

/** What a client says hello with. */
export interface Credentials {
  readonly projectId: string
  readonly token: string
}

/** Works with a cluster that is started for it, and ended after it whatever happened. */
export async function withCluster<T>(
  options: ClusterOptions,
  work: (cluster: FiguresCluster) => Promise<T>,
): Promise<T> {
  const cluster = await FiguresCluster.start(options)
  try {
    return await work(cluster)
  } finally {
    await cluster.close()
  }
}

/** Redis, a control process and nodes, all with the defaults of the configuration where nothing else is said. */
export class FiguresCluster {
  readonly slots: Slot[] = []
  readonly processes: Processes
  readonly #folder: string
  readonly #ports: Ports
  readonly #env: Readonly<Record<string, string>>
  readonly #secrets = {
    INTERNAL_TOKEN: randomToken(systemRandom, 32),
    KEYRING_SECRET: randomToken(systemRandom, 43),
  }
  #redis: Child | undefined
  #asking: Redis | undefined
  #credentials: Credentials | undefined

  private constructor(folder: string, ports: Ports, env: Readonly<Record<string, string>>) {
    this.#folder = folder
    this.#ports = ports
    this.#env = env
    this.processes = new Processes(folder)
  }

  /** Resolves when everything serves and every node knows the others. What began to run is ended when it rejects. */
  static async start({ nodes = 3, env = {} }: ClusterOptions = {}): Promise<FiguresCluster> {
    const folder = await mkdtemp(join(tmpdir(), 'roomful-figures-'))
    await mkdir(join(folder, 'redis'))
    const ports = await choosePorts({ nodes, controls: 1, free: true })
    const cluster = new FiguresCluster(folder, ports, env)
    try {
      await cluster.#start()
      return cluster
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  get redis(): Child {
    if (!this.#redis) throw new Error('Redis was not started')
    return this.#redis
  }

  get credentials(): Credentials {
    if (!this.#credentials) throw new Error('there is no project yet')
    return this.#credentials
  }

  slot(index: number): Slot {
    const slot = this.slots[index % this.slots.length]
    if (!slot) throw new Error('there are no nodes')
    return slot
  }

  /** Starts a node where one has ended, under a new name, as a supervisor does. */
  async restart(slot: Slot): Promise<void> {
    await slot.child.ended
    slot.lives += 1
    slot.child = await this.#node(slot.index, slot.lives)
  }

  /** Resolves when every node is ready and knows all others. */
  async settle(): Promise<void> {
    const deadline = performance.now() + SETTLE_MS
    for (const slot of this.slots) {
      for (;;) {
        const alive = await this.metric(slot, 'service_nodes_alive').catch(() => 0)
        if (alive === this.slots.length && (await this.isReady(slot))) break
        if (performance.now() > deadline)
          throw new Error(`node ${slot.index + 1} knows ${alive} of ${this.slots.length} nodes`)
        await sleep(LOOK_MS)
      }
    }
  }

  async isReady({ admin_url }: Slot): Promise<boolean> {
    const response = await fetch(`${admin_url}/readyz`)
    await response.body?.cancel()
    return response.ok
  }

  /** Which node runs a room (`type:key`). */
  async ownerOf(room_id: string): Promise<Slot> {
    const found = await Promise.all(
      this.slots.map(async (slot) => {
        const response = await fetch(
          `${slot.admin_url}/admin/runtime?room_id=${encodeURIComponent(room_id)}`,
          {
            headers: { 'x-service-internal-token': this.#secrets.INTERNAL_TOKEN },
          },
        )
        const { rooms } = (await response.json()) as { rooms: RoomDescription[] }
        return rooms.length > 0 ? slot : undefined
      }),
    )
    const owners = found.flatMap((slot) => slot ?? [])
    const [owner] = owners
    if (!owner || owners.length > 1) throw new Error(`${room_id} has ${owners.length} owners`)
    return owner
  }

  /** The sum of a metric of a node over its labels. */
  async metric({ admin_url }: Slot, name: string): Promise<number> {
    const text = await (await fetch(`${admin_url}/metrics`)).text()
    let sum = 0
    for (const line of text.split('\n')) {
      const found = /^([a-z_]+)(?:\{[^}]*\})? (\S+)$/.exec(line)
      if (found?.[1] === name) sum += Number(found[2])
    }
    return sum
  }

  /** A section of what Redis tells of itself, name by name. */
  async redisInfo(section: string): Promise<Map<string, string>> {
    this.#asking ??= new Redis(this.#ports.redis, HOST)
    const text = await this.#asking.info(section)
    return new Map(
      text.split('\r\n').flatMap((line) => {
        const at = line.indexOf(':')
        return at > 0 && !line.startsWith('#') ? [[line.slice(0, at), line.slice(at + 1)]] : []
      }),
    )
  }

  /** Ends everything at once and removes what it left. */
  async close(): Promise<void> {
    this.#asking?.disconnect()
    await this.processes.close()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #start(): Promise<void> {
    this.#redis = await this.processes.redis(this.#ports.redis, join(this.#folder, 'redis'))
    await this.processes.roomful('control', 'control', {
      ...this.#common,
      KEYRING_SECRET: this.#secrets.KEYRING_SECRET,
      CONTROL_PORT: String(this.#ports.controls[0]),
    })
    const children = await Promise.all(this.#ports.nodes.map((_, index) => this.#node(index, 1)))
    for (const [index, { websocket, admin }] of this.#ports.nodes.entries()) {
      const [ws_url, admin_url] = [`ws://${HOST}:${websocket}`, `http://${HOST}:${admin}`]
      this.slots.push({ index, ws_url, admin_url, lives: 1, child: children[index]! })
    }
    await this.settle()
    const { id: project_id } = await this.#post('/projects', { name: 'figures' })
    const { token } = await this.#post('/tokens', { project_id, ttl_seconds: DAY_SECONDS })
    this.#credentials = { projectId: project_id!, token: token! }
  }

  get #common(): Record<string, string> {
    return {
      REDIS_URL: `redis://${HOST}:${this.#ports.redis}`,
      INTERNAL_TOKEN: this.#secrets.INTERNAL_TOKEN,
    }
  }

  #node(index: number, life: number): Promise<Child> {
    const { websocket, admin } = this.#ports.nodes[index]!
    const name = `node-${index + 1}-${life}`
    return this.processes.roomful(name, 'dataplane', {
      ...this.#common,
      CONTROL_URL: this.#control_url,
      NODE_ID: name,
      WS_PORT: String(websocket),
      ADMIN_PORT: String(admin),
      ROOMS_DIR: ROOMS,
      // Closed loops send faster than any player.
      SESSION_MESSAGES_PER_SECOND: '100000',
      // All members come with one token.
      MAX_SESSIONS_PER_TOKEN: '0',
      NEW_ROOMS_PER_MINUTE: '0',
      MAX_ROOMS_PER_PROJECT: '0',
      ...this.#env,
    })
  }

  get #control_url(): string {
    return `http://${HOST}:${this.#ports.controls[0]}`
  }

  async #post(path: string, body: object): Promise<Record<string, string>> {
    const response = await fetch(`${this.#control_url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
    return (await response.json()) as Record<string, string>
  }
}
