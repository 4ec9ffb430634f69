import { pino } from 'pino'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import type { Store } from '../../shared/store/port.ts'
import { LEASE_MS } from '../chaos/harness/run.ts'
import type { SystemNode } from '../chaos/harness/system.ts'
import {
  overriding,
  readStoreLines,
  type StoreHistory,
  type StoreLine,
  StoreRecorder,
} from '../chaos/node/recording-store.ts'
import { chaosRoom } from '../chaos/room-logic.ts'
import { chaosQueue, matchRoom } from '../chaos/rooms.ts'
import { Gate } from './gate.ts'
import type { Conditions } from './lane.ts'
import { SimSocket } from './socket.ts'
import { type SimStoreServer, StoreConnection } from './store.ts'

interface SimNodeOptions {
  /** Its name, of this one life. */
  readonly node: string
  readonly clock: Clock
  readonly random: Random
  readonly server: SimStoreServer
  /** Of the network between the node and the store. */
  readonly conditions: Conditions
  readonly askKeyStatus: NonNullable<NodeOptions['askKeyStatus']>
  /** Breaks what the node says to the store, on purpose. */
  readonly mutation: (store: Store) => Store
  /** The node has an address of its own. */
  readonly direct: boolean
  readonly log?: NodeOptions['log']
}

/** One life of a real node in a simulated process: it can be killed and paused, and its clock can jump. */
export class SimNode implements SystemNode {
  readonly node: string
  readonly connection: StoreConnection
  readonly #options: SimNodeOptions
  readonly #gate = new Gate()
  readonly #sockets = new Set<SimSocket>()
  readonly #lines: StoreLine[] = []
  #accept: (socket: SimSocket) => void = (socket) => socket.destroy()
  #describe: () => Iterable<RoomDescription> = () => []
  #running: RunningNode | undefined
  #aheadMs = 0
  #endedAt: number | undefined

  constructor(options: SimNodeOptions) {
    const { node, server, random, conditions } = options
    this.node = node
    this.#options = options
    this.connection = new StoreConnection({ server, random, conditions, gate: this.#gate })
  }

  /** Resolves when it accepts clients. Rejects when it cannot reach the store. */
  async start(): Promise<void> {
    const { node, random, askKeyStatus, direct, log = pino({ level: 'silent' }) } = this.#options
    const clock = this.#clock()
    const recorder = new StoreRecorder(
      node,
      () => clock.monotonic(),
      (line) => this.#lines.push(line),
    )
    this.#running = await startNode({
      nodeId: node,
      rooms: [
        chaosQueue,
        matchRoom,
        ...(['journal', 'snapshot', 'none'] as const).map((durability) =>
          chaosRoom(durability, (room, op) => recorder.began(room, op), clock),
        ),
      ],
      store: this.#recorded(recorder),
      turns: recorder.calls,
      clock,
      random,
      log,
      askKeyStatus,
      ...(direct && { advertiseUrl: `ws://${node}.test` }),
      nodeLeaseMs: LEASE_MS,
      heartbeatSeconds: 2,
      drainSeconds: 5,
      // All nodes share one real process, whose load says nothing of them.
      loadClock: { now: () => 0, monotonic: () => 0, schedule: () => () => undefined },
      listen: async (gateway, admin) => {
        this.#accept = gateway.listenInProcess()
        this.#describe = () => admin.describeRooms({ include_state: true }).items
        return { wsUrl: `ws://${node}.test`, adminUrl: `http://${node}.test`, close: async () => undefined }
      },
    })
  }

  get alive(): boolean {
    return this.#endedAt === undefined && this.#running !== undefined
  }

  /** Opens a connection of a client. */
  dial(): SimSocket {
    const { clock, random } = this.#options
    const [client, server] = SimSocket.pair(clock, random, (happening) => this.#gate.pass(happening))
    this.#sockets.add(server)
    server.once('close', () => this.#sockets.delete(server))
    this.#gate.pass(() => this.#accept(server))
    return client
  }

  /** The rooms that it runs, with states. */
  describe(): RoomDescription[] {
    return [...this.#describe()]
  }

  async kill(): Promise<void> {
    this.#endedAt ??= this.#options.clock.monotonic()
    this.#gate.kill()
    this.connection.abandon()
    for (const socket of this.#sockets) socket.abandon()
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

  /** Everything that it asked of the store's room records. */
  history(): StoreHistory {
    return readStoreLines(this.#lines, this.#endedAt ?? this.#options.clock.monotonic())
  }

  #clock(): Clock {
    const { clock } = this.#options
    return {
      // Whole milliseconds, as those of Date.now.
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
    const { store: connected } = this.connection
    const store = this.#options.mutation(
      overriding(connected, { records: recorder.records(connected.records) }),
    )
    return overriding(store, {
      rooms: recorder.rooms(store.rooms),
      records: overriding(store.records, {
        write: async (writes) => {
          const stands = await store.records.write(writes)
          if (stands) recorder.wrote(writes)
          return stands
        },
      }),
    })
  }
}
