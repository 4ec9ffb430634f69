import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { pino } from 'pino'
import { LocalCluster } from '../../../deploy/local/local-cluster.ts'
import type { Child } from '../../../deploy/local/processes.ts'
import type { Store } from '../../../shared/store/port.ts'
import { redisStore } from '../../../shared/store/redis/redis.ts'
import { NoticeReceiver } from '../../players/backend.ts'
import type { Door } from '../../players/player.ts'
import { callControl, loginAt, runtimeOf } from '../../support/calls.ts'
import { FaultyLink } from '../../support/faulty-link.ts'
import { type RedisServer, startRedis } from '../../support/redis-server.ts'
import { runEnvironment } from '../../support/run-folder.ts'
import { machineClock, machineNow } from '../node/clocks.ts'
import { historyOf, readStoreLines, type StoreHistory, storeLinesIn } from '../node/recording-store.ts'
import {
  type OwnedRoom,
  ownedRoom,
  type StoreSwitch,
  type System,
  type SystemControl,
  type SystemHistory,
  type SystemNode,
} from './system.ts'

const DAY_SECONDS = 86_400
const ASK_WITHIN_MS = 2000
const START_ATTEMPTS = 10
const START_AGAIN_MS = 500

export interface ClusterOptions {
  readonly nodes: number
  readonly leaseMs: number
  readonly unfenced: boolean
  /** Nodes have separate addresses. */
  readonly direct: boolean
  /** Folder of logs and histories. */
  readonly folder: string
}

/** Place for a node. Its processes, one after the other, use the same faulty link. */
interface Slot {
  /** Name of the process in the `LocalCluster`. */
  readonly name: string
  readonly link: FaultyLink
  lives: number
  node: NodeLife | undefined
}

/** Parts of a cluster that are not processes of `LocalCluster`. */
interface Surroundings {
  /** Redis of the nodes. */
  readonly redis: RedisServer
  /** Redis of control, with projects and keys. It has no faults. */
  readonly controlRedis: RedisServer
  readonly notices: NoticeReceiver
  readonly slots: readonly Slot[]
}

/** Redis, control and the nodes of a run, as real processes. */
export class Cluster implements System {
  readonly clock = machineClock
  readonly dial = undefined
  readonly store: StoreSwitch
  readonly control: SystemControl
  readonly #options: ClusterOptions
  readonly #processes: LocalCluster
  readonly #around: Surroundings
  /** All processes of nodes since the start of the run. */
  readonly #lives: NodeLife[] = []
  #closed = false

  private constructor(options: ClusterOptions, processes: LocalCluster, around: Surroundings) {
    this.#options = options
    this.#processes = processes
    this.#around = around
    this.store = storeSwitch(around.redis)
    const control = processes.child('control-1')
    this.control = {
      url: processes.controlUrl,
      notices: around.notices,
      kill: () => control.kill(),
      start: () => control.start(),
    }
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const redis = await startRedis()
    const slots: Slot[] = []
    for (let i = 1; i <= options.nodes; i++)
      slots.push({ name: `node-${i}`, link: await FaultyLink.open(redis.url), lives: 0, node: undefined })
    const around = { redis, controlRedis: await startRedis(), notices: await NoticeReceiver.open(), slots }
    const cluster = new Cluster(options, await prepare(options, around), around)
    try {
      await cluster.control.start()
      await Promise.all(slots.map((_, i) => cluster.startNode(i)))
      return cluster
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  login(): Promise<{ projectId: string; token: string }> {
    return loginAt(this.control.url, { ttl_seconds: DAY_SECONDS })
  }

  async tokenOf(projectId: string, sub: string): Promise<string> {
    const body = { project_id: projectId, sub, ttl_seconds: DAY_SECONDS }
    const { token = '' } = await callControl(this.control.url, 'POST', '/tokens', body)
    return token
  }

  async startNode(slotNumber: number): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#startNode(slotNumber)
        return
      } catch (error) {
        if (this.#closed || attempt === START_ATTEMPTS) throw error
        await pause(START_AGAIN_MS)
      }
    }
  }

  async #startNode(slotNumber: number): Promise<void> {
    const slot = this.#slot(slotNumber)
    slot.lives += 1
    const life = lifeOf(slot)
    const node = new NodeLife(life, this.#processes.child(slot.name), historyFile(this.#options, life))
    await node.start()
    if (this.#closed) void node.kill()
    this.#lives.push(node)
    slot.node = node
  }

  node(slotNumber: number): NodeLife | undefined {
    const { node } = this.#slot(slotNumber)
    return node?.alive ? node : undefined
  }

  link(slotNumber: number): FaultyLink {
    return this.#slot(slotNumber).link
  }

  doors(): Door[] {
    return this.#living.map(({ node, wsUrl }) => ({ node, url: wsUrl }))
  }

  async owners(): Promise<OwnedRoom[]> {
    const { internalToken } = this.#processes.secrets
    const answers = await Promise.all(
      this.#living.map(async ({ node, adminUrl }) => {
        const { rooms } = await runtimeOf(adminUrl, internalToken, ASK_WITHIN_MS)
        return rooms.map((room) => ownedRoom(room, node))
      }),
    )
    return answers.flat()
  }

  async killNodes(): Promise<void> {
    await Promise.all(this.#lives.map((life) => life.kill()))
  }

  history(): SystemHistory {
    return historyOf(this.#lives.map((life) => ({ node: life.node, ...life.history() })))
  }

  openStore(): Promise<Store> {
    const { keyPrefix } = this.#processes
    return redisStore({ url: this.#around.redis.url, keyPrefix, log: pino({ level: 'silent' }) })
  }

  async close(): Promise<void> {
    this.abandon()
    await this.#processes.close()
    const { redis, controlRedis, notices, slots } = this.#around
    for (const { link } of slots) await link.close()
    notices.close()
    await Promise.all([controlRedis.close(), redis.close()])
  }

  /** Ends every process immediately, for a run that is interrupted. */
  abandon(): void {
    this.#closed = true
    this.#processes.abandon()
  }

  get #living(): NodeLife[] {
    return this.#around.slots.flatMap(({ node }) => (node?.alive ? [node] : []))
  }

  #slot(slotNumber: number): Slot {
    const slot = this.#around.slots[slotNumber]
    if (!slot) throw new Error(`slot is ${slotNumber}: use a number below ${this.#around.slots.length}`)
    return slot
  }
}

const MAIN = fileURLToPath(new URL('../node/main.ts', import.meta.url))
const CONTROL = fileURLToPath(new URL('../node/control.ts', import.meta.url))

/** Node id of the slot's present process. */
const lifeOf = ({ name, lives }: Slot): string => `${name.replace('-', '')}.${lives}`

const historyFile = ({ folder }: ClusterOptions, life: string): string => join(folder, `${life}.store`)

/** Prepares the processes. Each process of a node has a separate id and history. All processes of a slot share a log. */
function prepare(
  options: ClusterOptions,
  { redis, controlRedis, notices, slots }: Surroundings,
): Promise<LocalCluster> {
  const { nodes, direct, folder, unfenced } = options
  const slotOf = (name: string): Slot => slots.find((slot) => slot.name === name)!
  return LocalCluster.prepare({
    nodes,
    controls: 1,
    balancer: 'none',
    advertise: direct,
    ipc: true,
    folder,
    env: {
      ...runEnvironment(),
      REDIS_URL: redis.url,
      // The variable is required, but these nodes do not read the folder: `node/main.ts` has their room types.
      ROOMS_DIR: folder,
      NODE_LEASE_MS: String(options.leaseMs),
      DRAIN_SECONDS: '5',
      LOG_LEVEL: process.env.CHAOS_LOG_LEVEL ?? 'info',
    },
    envOf: (name) =>
      name === 'control-1'
        ? { CONTROL_API_TOKENS: 'none' }
        : {
            NODE_ID: lifeOf(slotOf(name)),
            REDIS_URL: slotOf(name).link.url,
            NOTIFY_URL: notices.url,
            NOTIFY_SECRET: notices.secret,
            ADMIN_PORT: '0',
            ...(!direct && { WS_PORT: '0' }),
          },
    programOf: (name, command) => {
      const words =
        command === 'control'
          ? [CONTROL, controlRedis.url]
          : [MAIN, historyFile(options, lifeOf(slotOf(name))), ...(unfenced ? ['--unfenced'] : [])]
      return ['--import', 'tsx', ...words]
    },
  })
}

const storeSwitch = (redis: RedisServer): StoreSwitch => ({
  stop: (keep) => (keep ? stopKeeping(redis) : redis.stop()),
  start: () => startRedisAgain(redis),
  pause: () => redis.pause(),
  resume: () => redis.resume(),
})

/** Longer than a save takes. The pause of the writers ends with the server. */
const WRITERS_WAIT_MS = 60_000

/** Saves all acknowledged writes, then ends a Redis. `startRedisAgain` loads them. (`RedisServer.stop` alone loses everything.) */
async function stopKeeping(redis: RedisServer): Promise<void> {
  await ask(redis, async (client) => {
    await client.client('PAUSE', WRITERS_WAIT_MS, 'WRITE')
    await client.save()
  })
  await redis.stop()
}

async function startRedisAgain(redis: RedisServer): Promise<void> {
  await redis.start()
  // Otherwise a later start would load this old file.
  const [, folder] = (await ask(redis, (client) => client.config('GET', 'dir'))) as [string, string]
  await rm(join(folder, 'dump.rdb'), { force: true })
}

/** Sends commands to a Redis without a timeout, because the machine may be overloaded. */
async function ask<T>({ url }: RedisServer, work: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url, { lazyConnect: true })
  try {
    await client.connect()
    return await work(client)
  } finally {
    client.disconnect()
  }
}

/** One process of a node, and its history. */
class NodeLife implements SystemNode {
  readonly node: string
  /** Addresses. Empty before the process has started. */
  wsUrl = ''
  adminUrl = ''
  readonly #child: Child
  readonly #history: string
  #endedAt: number | undefined

  constructor(node: string, child: Child, history: string) {
    this.node = node
    this.#child = child
    this.#history = history
  }

  /** Resolves when the node serves. Rejects when the process ends before. */
  async start(): Promise<void> {
    const starting = this.#child.start()
    void this.#child.ended.then(() => {
      this.#endedAt = machineNow()
    })
    await starting
    const { ws_url: wsUrl = '', admin_url: adminUrl = '' } = this.#child.said?.groups ?? {}
    this.wsUrl = wsUrl
    this.adminUrl = adminUrl
  }

  /** False after the end of this process, also if the slot's next process runs. */
  get alive(): boolean {
    return this.#endedAt === undefined
  }

  async kill(): Promise<void> {
    if (this.alive) await this.#child.kill()
  }

  async endWithin(ms: number): Promise<void> {
    if (this.alive) await this.#child.endWithin(ms)
  }

  pause(): void {
    if (this.alive) this.#child.pause()
  }

  resume(): void {
    if (this.alive) this.#child.resume()
  }

  jump(ms: number): void {
    if (this.alive) this.#child.send({ jumpMs: ms })
  }

  /** Returns the store calls and stalls of this process. */
  history(): StoreHistory {
    try {
      return readStoreLines(storeLinesIn(readFileSync(this.#history, 'utf8')), this.#endedAt ?? machineNow())
    } catch {
      // The process ended before it opened the file.
      return { calls: [], stalls: [], sessions: [], tasks: [], late: [] }
    }
  }
}
