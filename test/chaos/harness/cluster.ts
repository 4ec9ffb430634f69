import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { pino } from 'pino'
import { type Child, Children } from '../../../deploy/local/processes.ts'
import type { Store } from '../../../shared/store/port.ts'
import { redisStore } from '../../../shared/store/redis/redis.ts'
import { callControl, loginAt, runtimeOf } from '../../support/calls.ts'
import { FaultyLink } from '../../support/faulty-link.ts'
import { freePort } from '../../support/redis-port.ts'
import { type RedisServer, startRedis } from '../../support/redis-server.ts'
import { runEnvironment } from '../../support/run-folder.ts'
import { machineClock, machineNow } from '../node/clocks.ts'
import { historyOf, readStoreLines, type StoreHistory, storeLinesIn } from '../node/recording-store.ts'
import { NoticeReceiver } from './notice-receiver.ts'
import type { Door } from './player.ts'
import {
  type OwnedRoom,
  ownedRoom,
  type StoreSwitch,
  type System,
  type SystemControl,
  type SystemHistory,
  type SystemNode,
} from './system.ts'

const INTERNAL_TOKEN = 'internal-token-of-the-chaos-runs'
const KEY_PREFIX = 'chaos:'
const DAY_SECONDS = 86_400
const ASK_WITHIN_MS = 2000
const START_ATTEMPTS = 10
const START_AGAIN_MS = 500

export interface ClusterOptions {
  readonly nodes: number
  readonly lease_ms: number
  readonly unfenced: boolean
  /** Nodes have addresses of their own. */
  readonly direct: boolean
  /** Where logs and histories go. */
  readonly folder: string
}

/** A place for a node: one process after the other, all behind the same faulty link. */
interface Slot {
  readonly link: FaultyLink
  /** 0: any. */
  readonly ws_port: number
  lives: number
  process: NodeProcess | undefined
}

/** Redis, control and the nodes of a run: real processes. */
export class Cluster implements System {
  readonly clock = machineClock
  readonly dial = undefined
  readonly store: StoreSwitch
  readonly #redis: RedisServer
  readonly #options: ClusterOptions
  readonly control: ControlProcess
  readonly #slots: Slot[]
  /** Every process there was. */
  readonly #processes: NodeProcess[] = []
  readonly #children: Children
  #closed = false

  private constructor(
    options: ClusterOptions,
    redis: RedisServer,
    children: Children,
    control: ControlProcess,
    slots: Slot[],
  ) {
    this.#options = options
    this.#children = children
    this.#redis = redis
    this.store = storeSwitch(redis)
    this.control = control
    this.#slots = slots
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const redis = await startRedis()
    const children = new Children({ folder: options.folder })
    const control = await ControlProcess.prepare(children, redis.url)
    const slots: Slot[] = []
    for (let i = 0; i < options.nodes; i++)
      slots.push({
        link: await FaultyLink.open(redis.url),
        ws_port: options.direct ? await freePort() : 0,
        lives: 0,
        process: undefined,
      })
    const cluster = new Cluster(options, redis, children, control, slots)
    try {
      await control.start()
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
    const node = new NodeProcess(this.#children, {
      node: `node${slotNumber + 1}.${slot.lives}`,
      unfenced: this.#options.unfenced,
      env: {
        REDIS_URL: slot.link.url,
        KEY_PREFIX,
        CONTROL_URL: this.control.url,
        INTERNAL_TOKEN,
        NOTIFY_URL: this.control.notices.url,
        NOTIFY_SECRET: this.control.notices.secret,
        // A node has to be told; these bring their own room types.
        ROOMS_DIR: this.#options.folder,
        WS_PORT: String(slot.ws_port),
        ...(slot.ws_port > 0 && { ADVERTISE_URL: `ws://127.0.0.1:${slot.ws_port}` }),
        ADMIN_PORT: '0',
        NODE_LEASE_MS: String(this.#options.lease_ms),
        DRAIN_SECONDS: '5',
        HEARTBEAT_SECONDS: '2',
        LOG_LEVEL: process.env.CHAOS_LOG_LEVEL ?? 'info',
        LOG_FORMAT: 'json',
      },
    })
    // Its log goes to the folder of the run.
    await node.child.start()
    if (this.#closed) void node.child.kill()
    this.#processes.push(node)
    slot.process = node
  }

  node(slotNumber: number): NodeProcess | undefined {
    const { process } = this.#slot(slotNumber)
    return process?.alive ? process : undefined
  }

  link(slotNumber: number): FaultyLink {
    return this.#slot(slotNumber).link
  }

  doors(): Door[] {
    return this.#slots.flatMap(({ process }) =>
      process?.alive ? [{ node: process.node, url: process.child.said?.groups?.ws_url ?? '' }] : [],
    )
  }

  async owners(): Promise<OwnedRoom[]> {
    const living = this.#slots.flatMap(({ process }) => (process?.alive ? [process] : []))
    const answers = await Promise.all(
      living.map(async ({ node, child }) => {
        const url = child.said?.groups?.admin_url ?? ''
        const { rooms } = await runtimeOf(url, INTERNAL_TOKEN, ASK_WITHIN_MS)
        return rooms.map((room) => ownedRoom(room, node))
      }),
    )
    return answers.flat()
  }

  async killNodes(): Promise<void> {
    await Promise.all(this.#processes.map(({ child }) => child.kill()))
  }

  history(): SystemHistory {
    return historyOf(this.#processes.map((life) => ({ node: life.node, ...life.history() })))
  }

  openStore(): Promise<Store> {
    return redisStore({ url: this.#redis.url, keyPrefix: KEY_PREFIX, log: pino({ level: 'silent' }) })
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#children.close()
    for (const { link } of this.#slots) await link.close()
    await this.control.close()
    await this.#redis.close()
  }

  /** Ends every process at once, for a run that is interrupted. */
  abandon(): void {
    this.#closed = true
    this.#children.abandon()
  }

  #slot(slotNumber: number): Slot {
    const slot = this.#slots[slotNumber]
    if (!slot) throw new Error(`there is no node ${slotNumber}`)
    return slot
  }
}

const storeSwitch = (redis: RedisServer): StoreSwitch => ({
  stop: (keep) => (keep ? stopKeeping(redis) : redis.stop()),
  start: () => startRedisAgain(redis),
  pause: () => redis.pause(),
  resume: () => redis.resume(),
})

/** Longer than any save takes; the pause of the writers ends with the server. */
const WRITERS_WAIT_MS = 60_000

/** Ends a Redis so that everything that was ever answered is there after `startRedisAgain`; its `stop` alone ends it as a crash without any persistence does. */
async function stopKeeping(redis: RedisServer): Promise<void> {
  await ask(redis, async (client) => {
    await client.client('PAUSE', WRITERS_WAIT_MS, 'WRITE')
    await client.save()
  })
  await redis.stop()
}

async function startRedisAgain(redis: RedisServer): Promise<void> {
  await redis.start()
  // A file that stayed would bring back old data at a later start.
  const [, folder] = (await ask(redis, (client) => client.config('GET', 'dir'))) as [string, string]
  await rm(join(folder, 'dump.rdb'), { force: true })
}

/** Waits for the answer for as long as that takes: the machine is busy. */
async function ask<T>({ url }: RedisServer, work: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url, { lazyConnect: true })
  try {
    await client.connect()
    return await work(client)
  } finally {
    client.disconnect()
  }
}

/** Control as a process, with a Redis of its own that is never broken. */
class ControlProcess implements SystemControl {
  readonly url: string
  readonly notices: NoticeReceiver
  readonly #child: Child
  readonly #redis: RedisServer

  private constructor(child: Child, redis: RedisServer, notices: NoticeReceiver, port: number) {
    this.url = `http://127.0.0.1:${port}`
    this.notices = notices
    this.#child = child
    this.#redis = redis
  }

  /** `nodesRedisUrl`: where the nodes are, and the records of players. */
  static async prepare(children: Children, nodesRedisUrl: string): Promise<ControlProcess> {
    const redis = await startRedis()
    const port = await freePort()
    const words = ['--import', 'tsx', CONTROL, redis.url]
    const child = children.addRoomful('control', words, {
      ...runEnvironment(),
      REDIS_URL: nodesRedisUrl,
      KEY_PREFIX,
      INTERNAL_TOKEN,
      CONTROL_PORT: String(port),
      LOG_FORMAT: 'json',
    })
    return new ControlProcess(child, redis, await NoticeReceiver.open(), port)
  }

  kill(): Promise<void> {
    return this.#child.kill()
  }

  start(): Promise<void> {
    return this.#child.start()
  }

  async close(): Promise<void> {
    await this.#child.kill()
    this.notices.close()
    await this.#redis.close()
  }
}

const MAIN = fileURLToPath(new URL('../node/main.ts', import.meta.url))
const CONTROL = fileURLToPath(new URL('../node/control.ts', import.meta.url))

interface NodeProcessOptions {
  /** Its name, of this one life. */
  readonly node: string
  readonly unfenced: boolean
  readonly env: Readonly<Record<string, string>>
}

/** One life of a node: a process of its own, with what it did to the store. */
export class NodeProcess implements SystemNode {
  readonly node: string
  readonly child: Child
  readonly #history: string
  #endedAt: number | undefined

  constructor(children: Children, { node, unfenced, env }: NodeProcessOptions) {
    this.node = node
    this.#history = join(children.folder, `${node}.store`)
    const words = ['--import', 'tsx', MAIN, this.#history, ...(unfenced ? ['--unfenced'] : [])]
    const onExit = () => {
      this.#endedAt = machineNow()
    }
    const own = { ...runEnvironment(), ...env, NODE_ID: node }
    this.child = children.addRoomful(node, words, own, { ipc: true, onExit })
  }

  get alive(): boolean {
    return this.#endedAt === undefined
  }

  async kill(): Promise<void> {
    await this.child.kill()
  }

  async endWithin(ms: number): Promise<void> {
    await this.child.endWithin(ms)
  }

  pause(): void {
    this.child.pause()
  }

  resume(): void {
    this.child.resume()
  }

  jump(ms: number): void {
    this.child.send({ jumpMs: ms })
  }

  /** Everything it asked of the store's room records, and when it could not get on. */
  history(): StoreHistory {
    try {
      return readStoreLines(storeLinesIn(readFileSync(this.#history, 'utf8')), this.#endedAt ?? machineNow())
    } catch {
      // It ended before it opened the file.
      return { calls: [], stalls: [], sessions: [], tasks: [], late: [] }
    }
  }
}
