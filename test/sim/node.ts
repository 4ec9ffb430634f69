import type { RoomDescription } from '../../dataplane/descriptions.ts'
import type { PostNotice } from '../../dataplane/features/notices/notice.ts'
import type { NodeOptions } from '../../dataplane/node.ts'
import { createAdminApp } from '../../dataplane/ops/admin.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Store } from '../../shared/store/port.ts'
import { LEASE_MS } from '../chaos/harness/run.ts'
import type { SystemNode } from '../chaos/harness/system.ts'
import {
  readStoreLines,
  type StoreHistory,
  type StoreLine,
  StoreRecorder,
} from '../chaos/node/recording-store.ts'
import { roomsOfRun } from '../chaos/rooms.ts'
import { type NodeInProcess, startInProcess } from '../kit/process.ts'
import {
  type Conditions,
  Gate,
  Lane,
  type Replacement,
  rewriteMessages,
  SimSocket,
  UNCHANGED,
} from './network.ts'
import { type SimStoreServer, StoreConnection } from './store.ts'

type Answer = (request: Request) => Promise<Response>

/** A mistake of all nodes of a run. Each field changes one part of the product. */
export interface Mutation {
  /** Store between the node and the recorder. The node is wrong about what the store did. */
  readonly node?: (store: Store, clock: Clock) => Store
  /** Store behind the recorder. The store does something else than the node requested. */
  readonly store?: (store: Store, clock: Clock) => Store
  /** Code of the rooms. */
  readonly room?: (definition: RoomDefinition) => RoomDefinition
  /** Messages to a client, by number of its connection, from 1. */
  readonly connection?: (number: number) => ((message: ServerMessage) => Replacement) | undefined
  /** Changes the code of the product. The returned function undoes it. */
  readonly code?: () => () => void
  /** Requests of control. */
  readonly operations?: (answer: Answer) => Answer
  /** Notices to the webhook. */
  readonly notices?: (post: PostNotice) => PostNotice
  /** Descriptions for operators. */
  readonly describe?: (rooms: Iterable<RoomDescription>) => RoomDescription[]
}

/** Nodes accept the calls of control with this token. */
export const INTERNAL_TOKEN = 'internal-token-of-the-simulated-world'

interface SimNodeOptions {
  /** Node id. Each start has a new id. */
  readonly node: string
  readonly clock: Clock
  readonly random: Random
  readonly server: SimStoreServer
  /** Numbers the connections of all nodes. */
  readonly connections: { next(): number }
  /** Conditions of the network between the node and the store. */
  readonly conditions: Conditions
  readonly askKeyStatus: NonNullable<NodeOptions['askKeyStatus']>
  readonly postNotice: NonNullable<NodeOptions['postNotice']>
  readonly mutation: Mutation
  /** Clients may connect to this node by its address. */
  readonly direct: boolean
  readonly log?: NodeOptions['log']
}

/** A real node in a simulated process. It can be killed and paused, and its clock can jump. */
export class SimNode implements SystemNode {
  readonly node: string
  readonly connection: StoreConnection
  readonly #options: SimNodeOptions
  readonly #gate = new Gate()
  readonly #sockets = new Set<SimSocket>()
  readonly #lines: StoreLine[] = []
  /** Rejects requests without an answer. */
  readonly #unanswered = new Set<() => void>()
  #running: NodeInProcess | undefined
  #answer: Answer | undefined
  #aheadMs = 0
  #endedAt: number | undefined

  constructor(options: SimNodeOptions) {
    const { node, server, random, conditions } = options
    this.node = node
    this.#options = options
    this.connection = new StoreConnection({ server, random, conditions, gate: this.#gate })
  }

  /** Resolves when the node accepts clients. Rejects when it cannot reach the store. */
  async start(): Promise<void> {
    const { node, random, askKeyStatus, postNotice, mutation, direct, log } = this.#options
    const clock = this.#clock()
    const recorder = new StoreRecorder(
      node,
      () => clock.monotonic(),
      (line) => this.#lines.push(line),
    )
    this.#running = await startInProcess({
      nodeId: node,
      rooms: roomsOfRun((room, op) => recorder.began(room, op), clock).map(
        (definition) => mutation.room?.(definition) ?? definition,
      ),
      store: this.#recorded(recorder),
      turns: recorder.calls,
      clock,
      random,
      askKeyStatus,
      postNotice: mutation.notices?.(postNotice) ?? postNotice,
      internalToken: INTERNAL_TOKEN,
      ...(log && { log }),
      ...(direct && { advertiseUrl: `ws://${node}.test` }),
      nodeLeaseMs: LEASE_MS,
      heartbeatSeconds: 2,
      drainSeconds: 5,
    })
    const app = createAdminApp(this.#running.admin)
    const { operations = (answer) => answer } = mutation
    this.#answer = operations(async (request) => app.fetch(request))
  }

  get alive(): boolean {
    return this.#endedAt === undefined && this.#running !== undefined
  }

  /** Opens a connection of a client. */
  dial(): SimSocket {
    const { clock, random, mutation } = this.#options
    const change = mutation.connection?.(this.#options.connections.next())
    const rewrite = change ? rewriteMessages(change) : UNCHANGED
    const [client, server] = SimSocket.pair(clock, random, (happening) => this.#gate.pass(happening), rewrite)
    this.#sockets.add(server)
    server.once('close', () => this.#sockets.delete(server))
    this.#gate.pass(() => this.#running?.accept(server))
    return client
  }

  /** Sends a request to the node's admin API. Rejects when the process ends before the answer. */
  request(request: Request): Promise<{ status: number; body: string; retryAfter: string | null }> {
    const { clock, random } = this.#options
    const [there, back] = [new Lane(clock, random), new Lane(clock, random)]
    return new Promise((resolve, reject) => {
      const lost = () => reject(new Error(`${this.node} has ended`))
      if (!this.alive) return lost()
      this.#unanswered.add(lost)
      const answer = async () => {
        const response = await this.#answer!(request)
        const body = await response.text()
        back.send(() => {
          if (!this.#unanswered.delete(lost)) return
          resolve({ status: response.status, body, retryAfter: response.headers.get('retry-after') })
        })
      }
      there.send(() => this.#gate.pass(() => void answer().catch(reject)))
    })
  }

  /** Rooms that the node runs, with their states. */
  describe(): RoomDescription[] {
    const { describe = (rooms) => rooms } = this.#options.mutation
    return [...describe(this.#running?.admin.describeRooms({ include_state: true }).items ?? [])]
  }

  async kill(): Promise<void> {
    this.#endedAt ??= this.#options.clock.monotonic()
    this.#gate.kill()
    this.connection.abandon()
    for (const socket of this.#sockets) socket.abandon()
    for (const reject of this.#unanswered) reject()
    this.#unanswered.clear()
  }

  async endWithin(ms: number): Promise<void> {
    await Promise.race([this.#running?.close().catch(() => undefined), sleep(this.#options.clock, ms)])
    await this.kill()
  }

  pause(): void {
    this.#gate.pause()
  }

  resume(): void {
    this.#gate.resume()
  }

  jump(ms: number): void {
    this.#aheadMs += ms
  }

  /** Returns the store calls of this process. */
  history(): StoreHistory {
    return readStoreLines(this.#lines, this.#endedAt ?? this.#options.clock.monotonic())
  }

  #clock(): Clock {
    const { clock } = this.#options
    return {
      // Whole milliseconds, like Date.now.
      now: () => Math.floor(clock.now()) + this.#aheadMs,
      monotonic: () => clock.monotonic(),
      schedule: (delayMs, callback) => {
        let cancelled = false
        const cancel = clock.schedule(delayMs, () => this.#gate.pass(() => cancelled || callback()))
        return () => {
          cancelled = true
          cancel()
        }
      },
    }
  }

  #recorded(recorder: StoreRecorder): Store {
    const { store: broken = unchanged, node = unchanged } = this.#options.mutation
    const { clock } = this.#options
    return node(recorder.store(broken(this.connection.store, clock)), clock)
  }
}

const unchanged = (store: Store): Store => store
