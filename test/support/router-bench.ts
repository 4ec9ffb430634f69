import { pino } from 'pino'
import { Registry } from 'prom-client'
import type { Claims } from '../../dataplane/cluster/claims.ts'
import type { PeerMessage } from '../../dataplane/cluster/envelope.ts'
import { CLUSTER_METRICS } from '../../dataplane/cluster/metrics.ts'
import type { LocalGateway } from '../../dataplane/cluster/ownership.ts'
import { Router, type RouterEnvironment, type RoutingOwnership } from '../../dataplane/cluster/router.ts'
import type { Inbox } from '../../dataplane/inbox.ts'
import {
  type ClaimedType,
  type ClaimOptions,
  type Nowhere,
  type Place,
  refuseAll,
} from '../../dataplane/place.ts'
import {
  type Arrival,
  type RoomAddress,
  roomAddress,
  type ToEdge,
  type ToOwner,
} from '../../dataplane/traffic.ts'
import type { Logger } from '../../shared/log.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import type { RoomOwner } from '../../shared/store/port.ts'
import { FakeClock } from '../kit/fake-clock.ts'
import { nodeInfo } from './descriptions.ts'

export const ROOM = roomAddress('prj_a', 'duel', 'one')
export const HERE = 'node_here'
export const THERE = 'node_there'

/** The router of the node `HERE`, with fakes that record its questions and messages. */
export class RouterBench {
  readonly clock = new FakeClock()
  readonly host = new TestRooms(this)
  readonly records = new Questions<RoomOwner | undefined>()
  /** Nodes that count as alive without a read. */
  readonly known = new Set<string>()
  /** Nodes whose lease was read. */
  readonly judged: string[] = []
  /** Nodes that have ended. */
  readonly dead = new Set<string>()
  readonly sent: { to: string; message: PeerMessage }[] = []
  readonly delivered: { edge: string; message: ToEdge }[] = []
  /** Room types whose inbox was full. */
  readonly full: string[] = []
  /** Rooms for which the search for the owner failed. */
  readonly failures: string[] = []
  /** Rooms with members at the edge of this node. */
  readonly subscribed = new Set([ROOM.name])
  /** True: the store has lost its data recently. */
  storeIsBehind = false
  /** Node that is chosen for a new room. */
  chosen: string | undefined = HERE
  /** Room types of each live node, with the versions of their code. */
  readonly types = new Map<string, Readonly<Record<string, number>>>()
  /** Arguments of `place`. */
  readonly reasons: string[] = []
  /** Result of a claim. */
  place: Place = {
    at: 'here',
    claim: { fence: { epoch: 8, version: 0 }, snapshot: undefined, journal: [], over: 7, stuck: [] },
    mayMake: true,
  }
  /** Options of the claims. */
  readonly claimed: ClaimOptions[] = []
  readonly claims: RoutingOwnership['claims'] = {
    inspect: (room) => this.records.ask(room),
    claim: async (_, options) => {
      this.claimed.push(options)
      return this.place as Awaited<ReturnType<Claims['claim']>>
    },
  }
  readonly #ownership: RoutingOwnership = {
    claims: this.claims,
    nodes: {
      judge: async (nodeId) => {
        this.judged.push(nodeId)
        return this.dead.has(nodeId) ? 'dead' : 'alive'
      },
      isAlive: (nodeId) => this.known.has(nodeId),
      isGone: (nodeId) => this.dead.has(nodeId),
      storeIsBehind: async () => this.storeIsBehind,
      nodes: () => [...this.types].map(([nodeId, types]) => ({ ...nodeInfo(nodeId), room_types: types })),
      get: (nodeId) => {
        const types = this.types.get(nodeId)
        return types && { ...nodeInfo(nodeId), room_types: types }
      },
    },
    place: (reason) => {
      this.reasons.push(reason)
      return this.chosen
    },
    requests: { receive: () => false },
    draining: false,
    cordoned: false,
  }
  readonly #gateway: LocalGateway = {
    edge: {
      receive: (message) => this.delivered.push({ edge: HERE, message }),
      reattach: () => {},
      subscribes: (room) => this.subscribed.has(room),
    },
    sessionTaken: async () => {},
    storeReturned: () => {},
  }
  readonly #environment: RouterEnvironment = {
    nodeId: HERE,
    clock: this.clock,
    rooms: () => this.host,
    gateway: () => this.#gateway,
    links: {
      send: (to, message) => {
        if (message.to === 'edge') this.delivered.push({ edge: to, message: message.message })
        else this.sent.push({ to, message })
      },
    },
    maxWaitingMessages: 1000,
    metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
    log: failureLog((room) => this.failures.push(room)),
  }
  readonly router = new Router(this.#environment, this.#ownership)
}

/** Returns a logger that calls `failed` with the room of each warning. */
function failureLog(failed: (room: string) => void): Logger {
  const log = pino({ level: 'silent' })
  log.warn = ({ room }: { room: string }) => failed(room)
  return log
}

/** Promises that a test resolves in the order of the calls. */
export class Questions<T> {
  readonly asked: string[] = []
  readonly #answers: { resolve: (value: T) => void; reject: (error: Error) => void }[] = []

  readonly ask = (what: string): Promise<T> => {
    this.asked.push(what)
    return new Promise((resolve, reject) => this.#answers.push({ resolve, reject }))
  }

  async answer(value: T): Promise<void> {
    this.#answers.shift()!.resolve(value)
    await this.turn()
  }

  async fail(): Promise<void> {
    this.#answers.shift()!.reject(new Error('the store is silent'))
    await this.turn()
  }

  /** Resolves after one turn of the event loop: all resolved promises have run their callbacks. */
  turn(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve))
  }
}

/** The rooms of this node. Records their messages and the opened rooms. */
class TestRooms implements ReturnType<RouterEnvironment['rooms']> {
  readonly running = new Set<string>()
  readonly received: Arrival[] = []
  readonly opened: Arrival[][] = []
  accepts = true
  readonly #bench: Pick<RouterBench, 'full' | 'delivered'>

  constructor(bench: Pick<RouterBench, 'full' | 'delivered'>) {
    this.#bench = bench
  }

  has(name: string): boolean {
    return this.running.has(name)
  }

  receive(message: ToOwner, from: string): boolean {
    if (!this.running.has(message.room.name)) return false
    this.received.push({ message, from })
    return true
  }

  wait(inbox: Inbox, arrival: Arrival): void {
    if (!inbox.add(arrival)) this.#bench.full.push(arrival.message.room.roomType)
  }

  refuse(_: RoomAddress, inbox: Inbox, place: Nowhere): void {
    refuseAll(inbox, place, (edge, message) => this.#bench.delivered.push({ edge, message }))
  }

  verify(): void {}

  recheck(): void {}

  edgeMissed(): void {}

  typeOf(): ClaimedType {
    return { version: 1, durability: 'journal' }
  }

  run(room: RoomAddress, inbox: Inbox): void {
    this.running.add(room.name)
    this.opened.push([...inbox.take()])
  }
}
