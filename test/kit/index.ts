/**
 * `roomful/test`: runs your rooms in a test, with real clients and a simulated clock. Works with any test runner.
 * @module roomful/test
 */
import { EventEmitter } from 'node:events'
import { PublicProtocol } from 'paseto'
import { ExportPublicKeyFactory, GenerateKeyPairFactory } from 'paseto/v4/public'
import { WebSocket } from 'ws'
import {
  type Client,
  connect,
  type JoinArguments,
  type ListedRoom,
  type RoomQuery,
} from '../../client/index.ts'
import {
  type MatchRoom,
  type QueueOptions,
  type Queues,
  type QueueTicket,
  type TicketData,
  withQueues,
} from '../../client/queue.ts'
import { Room, type RoomJoinOptions } from '../../client/room.ts'
import type { JoinTarget } from '../../client/seat.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import type { RequestAnswer, RoomRequest } from '../../dataplane/traffic.ts'
import type { CallArguments } from '../../server/backend.ts'
import { RoomfulError } from '../../server/control.ts'
import { type Notice, type NoticeOf, readNotice } from '../../server/notices.ts'
import { timestamp } from '../../shared/clock.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { Logger } from '../../shared/log.ts'
import type { JoinOptions } from '../../shared/protocol/messages.ts'
import type { RoomCalls, RoomIn, RoomOfType, RoomState, TypedRoom } from '../../shared/room-types.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Store } from '../../shared/store/port.ts'
import { issueToken, type SigningKey } from '../../shared/tokens.ts'
import { TestTime } from './fake-clock.ts'
import { TestProcess } from './process.ts'
import { RoomDate } from './room-date.ts'
import { SeededRandom } from './seeded-random.ts'

/** Options of `testRooms`. */
export interface TestOptions {
  /** Seed of all random numbers, those of `ctx.random()` included. The same seed gives the same run. Default 1. */
  readonly seed?: number
  /** Logger of the servers. Default: no logs. */
  readonly log?: Logger
}

/** A player of the test. */
export interface Player {
  /** Player's id, for `member.sub` in room code. Default: `player-1`, `player-2` and so on. */
  readonly sub?: string
  /** Data for `member.data` in room code. Default: none. */
  readonly data?: JsonObject
}

/** Number of players, or a list of players. */
export type Players = number | readonly Player[]

/** A list with one `Seat` for each player, in order. */
export type Seats<P extends Players, Seat> = P extends number
  ? Times<P, Seat>
  : { -readonly [I in keyof P]: Seat }
type Times<N extends number, Seat, Seats extends Seat[] = []> = number extends N
  ? Seat[]
  : Seats['length'] extends N
    ? Seats
    : Times<N, Seat, [...Seats, Seat]>

type Definitions = readonly (RoomDefinition & TypedRoom)[]

const PROJECT = 'prj_test'
const NODES = 2
/** Longer than any test, in simulated time. */
const TOKEN_MS = 365 * 24 * 3_600_000
/** Time limit for a promise of the SDK, in simulated time. */
const PATIENT_MS = 60_000
/** Time from the answer to one player until players on all nodes have the same update. */
const LINK_MS = 10
/** Time until other members see a lost connection: two updates at the default rate. */
const TOLD_MS = 100
/** Time from a committed change until each node has the room's new row: a second between two rows, and half a second between two polls. */
const LISTED_MS = 1500
/** Interval of the checks whether all players are back. */
const LOOK_MS = 50

const protocol = new PublicProtocol(GenerateKeyPairFactory, ExportPublicKeyFactory)

/**
 * Runs rooms in this process, on two nodes (servers) with a simulated clock. Room code, nodes and clients are the real ones. Rooms are
 * stored in memory. There is no network, no port and no waiting.
 */
export const testRooms = <const Rooms extends Definitions>(
  rooms: Rooms,
  options: TestOptions = {},
): Promise<TestRooms<Rooms>> => TestRooms.start(rooms, options)

/** A client and its network. */
interface Connected {
  readonly client: Client
  /** All received frames, oldest first. */
  readonly frames: readonly Uint8Array[]
  readonly network: Network
  readonly random: SeededRandom
}

/** The network between one client and the nodes. */
interface Network {
  up: boolean
  /** Place of the next node that the client connects to. */
  next: number
  socket: WebSocket | undefined
}

/** Rooms under test and their players, created by `testRooms`. */
class TestRooms<Rooms extends Definitions = Definitions> {
  readonly #rooms: Rooms
  readonly #options: TestOptions
  readonly #key: SigningKey
  readonly #publicKey: string
  readonly #time = new TestTime()
  readonly #store: Store
  readonly #seed: number
  readonly #nodes: TestProcess[] = []
  readonly #date = new RoomDate(() => this.#nodes[0]?.turn)
  readonly #ends = new EventEmitter()
  /** By id, the notices that the backend has received. */
  readonly #notices = new Map<string, Notice>()
  /** By a room, a ticket or a client of the test. */
  readonly #players = new Map<object, Connected>()
  #refusals = 0
  #started = 0
  #joined = 0
  #called = 0

  private constructor(rooms: Rooms, options: TestOptions, key: SigningKey, publicKey: string) {
    this.#rooms = rooms
    this.#options = options
    this.#key = key
    this.#publicKey = publicKey
    this.#seed = options.seed ?? 1
    this.#store = memoryStore({ clock: this.#time.clock })
  }

  /** See `testRooms`. */
  static async start<Rooms extends Definitions>(
    rooms: Rooms,
    options: TestOptions,
  ): Promise<TestRooms<Rooms>> {
    const { publicKey, secretKey } = await protocol.GenerateKeyPair()
    const test = new TestRooms(rooms, options, secretKey, await protocol.ExportPublicKey(publicKey))
    while (test.#nodes.length < NODES) await test.#startNode()
    return test
  }

  /** Simulated time in milliseconds since 1970, as in `ctx.now` and `Date` of room code. The time advances only while the test awaits a call. */
  get now(): number {
    return this.#time.clock.now()
  }

  /**
   * Lets players join a room, one after the other. Each player has a separate client. The clients connect to both nodes in turn. Resolves
   * to the room of each player, as from `client.join`. When the test awaits `send`, `request` or `leave` of such a room, the time advances
   * until the answer arrives. Rejects as `client.join` does.
   */
  async join<Type extends RoomIn<Rooms>['type'], const P extends Players = 1>(
    roomType: Type,
    players?: P,
    ...options: JoinArguments<RoomOfType<Rooms, Type>>
  ): Promise<Seats<P, Room<RoomOfType<Rooms, Type>>>>
  async join<Type extends RoomIn<Rooms>['type'], const P extends Players>(
    roomType: Type,
    players: P,
    options: RoomJoinOptions<RoomOfType<Rooms, Type>>,
    target: JoinTarget,
  ): Promise<Seats<P, Room<RoomOfType<Rooms, Type>>>>
  async join(
    roomType: string,
    players: Players = 1,
    options: JoinOptions = {},
    target?: JoinTarget,
  ): Promise<unknown> {
    const list: readonly Player[] =
      typeof players === 'number' ? Array.from({ length: players }, () => ({})) : players
    const rooms: Room[] = []
    for (const player of list) {
      const connected = await this.#connect(player, ++this.#joined)
      const joining = connected.client.join(roomType, options, target ?? {})
      const room = await this.#until(joining, `join("${roomType}")`)
      rooms.push(this.#driven(room, connected))
    }
    return rooms
  }

  /**
   * Connects a player, and returns the client of the SDK with `create`, `joinOrCreate`, `joinByCode`, `rooms`, `watchRooms`, `queue` and
   * `party`. When the test awaits one of its promises, or one of its rooms and tickets, the time advances until the answer arrives. `drop`
   * and `reconnect` accept it.
   */
  async client(player: Player = {}): Promise<Client<Rooms> & Queues<Rooms>> {
    const connected = await this.#connect(player, ++this.#joined)
    const client = this.#drivenClient(withQueues(connected.client, connected.random), connected)
    this.#players.set(client, connected)
    return client as Client<Rooms> & Queues<Rooms>
  }

  /**
   * Puts a player into a queue, and returns the ticket when it has its place. The player has a separate client. When the test awaits
   * `matched` or `cancel`, the time advances until the ticket has its outcome. `drop`, `reconnect`, `killOwner` and `drainOwner` take the
   * ticket as they take a room.
   */
  async queue<Type extends RoomIn<Rooms>['type']>(
    queue: Type,
    data: TicketData<RoomOfType<Rooms, Type>>,
    player: Player = {},
    options: QueueOptions = {},
  ): Promise<QueueTicket<MatchRoom<Rooms, RoomOfType<Rooms, Type>>>> {
    const connected = await this.#connect(player, ++this.#joined)
    const ticket = withQueues(connected.client, connected.random).queue(queue, data as never, options)
    const ended = ticket.matched.then(
      () => {},
      () => {},
    )
    const placed = new Promise<void>((resolve) => ticket.onChange(() => resolve()))
    await this.#until(Promise.race([placed, ended]), `queue("${queue}")`)
    return this.#drivenTicket(ticket as unknown as QueueTicket, connected) as never
  }

  /**
   * Advances the time by `ms` milliseconds, and runs everything that is due. Players receive a change of the room with its next update, by
   * default up to 50 ms later.
   */
  async advance(ms: number): Promise<void> {
    await this.#time.pass(ms)
  }

  /**
   * Disconnects a player until `reconnect` is called. Advances the time by 0.1 s, so that other members see the change. `room`: what `join`
   * returned for the player.
   */
  async drop(room: object): Promise<void> {
    const { network } = this.#player(room)
    network.up = false
    network.socket?.terminate()
    await this.advance(TOLD_MS)
  }

  /**
   * Reconnects a player after `drop`. Advances the time until the client is online or closed. `room`: what `join` returned for the player.
   */
  async reconnect(room: object): Promise<void> {
    const { network, client } = this.#player(room)
    network.up = true
    await this.#until(online(client), 'reconnect')
    await this.advance(TOLD_MS)
  }

  /**
   * Kills the node that runs a room, as `kill -9` does, and starts another node. The node loses all its memory. Advances the time until all
   * connected players are online again and another node runs the room. `room`: by default, the first room that a player has joined.
   */
  killOwner(room?: { readonly id: string }): Promise<void> {
    return this.#replaceOwner('killOwner', room, async (owner) => owner.kill())
  }

  /**
   * Shuts down the node that runs a room, as a deployment does with SIGTERM. The node passes its rooms and clients to the other node. Then
   * a new node starts. Advances the time as `killOwner` does.
   */
  drainOwner(room?: { readonly id: string }): Promise<void> {
    return this.#replaceOwner('drainOwner', room, (owner) => this.#until(owner.drain(), 'drainOwner'))
  }

  /**
   * Calls a room (`calls` of the room type), as a backend does with `roomful/server`, and resolves to the reply. In the handler,
   * `caller.keyId` is `key_test`, and `caller.callId` is the option `id`, by default another one for each call. Advances the time until
   * the answer arrives. Rejects as `call` of `roomful/server` does.
   */
  async call<R extends TypedRoom, K extends keyof RoomCalls<R> & string>(
    room: Room<R>,
    name: K,
    ...[data, options]: CallArguments<RoomCalls<R>[K]['data']>
  ): Promise<RoomCalls<R>[K]['reply']> {
    const callId = options?.id ?? `call-${++this.#called}`
    const caller = { key_id: 'key_test', call_id: callId }
    const json: Json = JSON.parse(JSON.stringify(data ?? null))
    const request = {
      id: `${caller.key_id}/${callId}`,
      hash: JSON.stringify([name, json]),
      do: { op: 'call', name, data: json, caller },
    } as const
    const answer = await this.#until(this.#ask(room.id, request), `call("${name}")`)
    if ('code' in answer) throw new RoomfulError(answer.code as RoomfulError['code'], answer.message)
    return answer.reply
  }

  /** Returns the name of the node that runs a room, such as `node-1`. Undefined: no node runs it. */
  async owner(room: { readonly id: string }): Promise<string | undefined> {
    return (await this.#ownerOf(room.id))?.nodeId
  }

  /**
   * Moves the wall clock of a node by `ms`, also backwards, as a wrong time server does: `ctx.now`, `Date` in room code, and the times at
   * which new timers are due. Ticks and time limits do not move, because they use the monotonic clock. `node`: a name from `owner`.
   */
  jumpClock(node: string, ms: number): void {
    const found = this.#nodes.find(({ nodeId }) => nodeId === node)
    const names = this.#nodes.map(({ nodeId }) => nodeId).join(', ')
    if (!found) throw new TypeError(`jumpClock: no node is called ${node}: use ${names}`)
    found.jumpClock(ms)
  }

  /** The backend that receives the notices. */
  readonly backend = {
    /** Answers the next `count` deliveries of notices with 500. The rooms repeat them after 1 s, and then less often. */
    refuse: (count: number): void => {
      this.#refusals = count
    },
  }

  /** Sends a request to a running node. If the node ends before the answer, sends it to another node, as control does. */
  async #ask(roomId: string, request: RoomRequest): Promise<RequestAnswer> {
    for (;;) {
      const node = this.#nodes.find(({ alive }) => alive)
      if (!node) throw new Error('no node runs')
      const answer = await Promise.race([node.request(PROJECT, roomId, request), node.ended])
      if (answer) return answer
    }
  }

  /** Returns the whole state of a room, hidden parts included. Rejects if no node runs the room. */
  async state<R extends TypedRoom>(room: Room<R>): Promise<RoomState<R>> {
    const described = (await this.#ownerOf(room.id))?.describe(room.id)
    if (!described) throw new Error(`state: no node runs ${room.id}`)
    return described.state as RoomState<R>
  }

  /**
   * Returns the rooms of a type with `listing`, as `client.rooms` does for a player. First advances the time by 1.5 s, so that the list shows
   * all committed changes. Rejects as `client.rooms` does.
   */
  async rooms<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    query?: RoomQuery<RoomOfType<Rooms, Type>>,
  ): Promise<ListedRoom<RoomOfType<Rooms, Type>>[]> {
    await this.advance(LISTED_MS)
    // The last node knows all others: it has read their leases at its start. The others would learn of it after a quarter of a lease.
    const { client } = await this.#connect({ sub: 'visitor' }, NODES)
    try {
      return await this.#until(client.rooms<RoomOfType<Rooms, Type>>(roomType, query), `rooms("${roomType}")`)
    } finally {
      client.close()
    }
  }

  /**
   * Returns the notices that a backend has received from `ctx.notify`, oldest first, each once. `room`: only those of this room.
   */
  notices(room?: { readonly id: string }): NoticeOf<RoomIn<Rooms>>[] {
    const notices = [...this.#notices.values()] as NoticeOf<RoomIn<Rooms>>[]
    return notices.filter(({ roomId }: Notice) => room === undefined || roomId === room.id)
  }

  /** Returns all websocket messages that a player has received, as bytes, oldest first. */
  received(room: object): readonly Uint8Array[] {
    return this.#player(room).frames
  }

  /** Ends all clients and nodes. Calling it is optional, because nothing runs outside the test. */
  async close(): Promise<void> {
    for (const { client } of this.#players.values()) client.close()
    for (const node of this.#nodes) node.kill()
    this.#date.restore()
  }

  async #replaceOwner(
    what: string,
    room: { readonly id: string } | undefined = this.#firstRoom,
    end: (owner: TestProcess) => Promise<void>,
  ): Promise<void> {
    if (!room) throw new Error(`${what}: join a room first`)
    const owner = await this.#ownerOf(room.id)
    if (!owner) throw new Error(`${what}: no node runs ${room.id}`)
    this.#nodes.splice(this.#nodes.indexOf(owner), 1)
    await end(owner)
    await this.#startNode()
    for (let left = PATIENT_MS; !(await this.#recovered(room.id)); left -= LOOK_MS) {
      if (left <= 0) throw new Error(`${what}: ${room.id} was not taken over within ${PATIENT_MS / 1000} s`)
      await this.advance(LOOK_MS)
    }
  }

  async #startNode(): Promise<void> {
    const number = ++this.#started
    const { log } = this.#options
    const started = TestProcess.start({
      nodeId: `node-${number}`,
      rooms: this.#rooms,
      store: this.#store,
      time: this.#time,
      date: this.#date,
      ends: this.#ends,
      random: new SeededRandom(this.#seed * 1000 + number),
      postNotice: async ({ id, body }) => {
        if (this.#refusals > 0) {
          this.#refusals -= 1
          return { status: 500 }
        }
        this.#notices.set(id, this.#notices.get(id) ?? readNotice(id, body))
        return { status: 204 }
      },
      askKeyStatus: async () => ({
        exists: true,
        status: 'active',
        public_key: this.#publicKey,
      }),
      ...(log && { log }),
    })
    this.#nodes.push(await this.#until(started, 'the start of a node'))
  }

  /** Connects to the nodes in turn, as a load balancer does, from node `number` on. */
  async #connect({ sub, data }: Player, number: number): Promise<Connected> {
    const network: Network = { up: true, next: number - 1, socket: undefined }
    const frames: Uint8Array[] = []
    const token = await issueToken(this.#key, {
      project_id: PROJECT,
      sub: sub ?? `player-${number}`,
      issued_at: timestamp(this.now),
      expires_at: timestamp(this.now + TOKEN_MS),
      ...(data && { data }),
    })
    const random = new SeededRandom(this.#seed * 1000 - number)
    const client = connect('ws://roomful.test', {
      projectId: PROJECT,
      token,
      clock: this.#time.clock,
      random,
      WebSocket: this.#webSocket(network, frames),
    })
    return { client: await this.#until(client, 'connect'), frames, network, random }
  }

  /** WebSocket class for the SDK. */
  #webSocket(network: Network, frames: Uint8Array[]) {
    const time = this.#time
    const dial = () => this.#dial(network)
    return class extends WebSocket {
      constructor(url: string, protocols: string[]) {
        super(url, protocols, { createConnection: dial, perMessageDeflate: false })
        network.socket = this
        this.on('message', (data: ArrayBuffer) => {
          time.happened()
          frames.push(new Uint8Array(data))
        })
      }

      override send(data: Uint8Array): void {
        time.happened()
        super.send(data)
      }
    }
  }

  #dial(network: Network) {
    const node = this.#nodes[network.next++ % this.#nodes.length]!
    const socket = node.connect()
    if (!network.up) setImmediate(() => socket.destroy(new Error('the player was dropped')))
    return socket
  }

  /** Wraps a room so that its requests advance the time. */
  #driven<R extends TypedRoom>(room: Room<R>, connected: Connected): Room<R> {
    const driven = new Proxy(room, {
      get: (_, name) => {
        const value: unknown = Reflect.get(room, name, room)
        if (typeof value !== 'function' || Object.hasOwn(room, name)) return value
        return (...args: unknown[]): unknown => {
          const answer: unknown = Reflect.apply(value, room, args)
          if (!(answer instanceof Promise)) return answer
          return this.#until(answer, `${String(name)}(${JSON.stringify(args[0] ?? '')})`)
        }
      },
    })
    this.#players.set(driven, connected)
    return driven
  }

  /** Wraps a client so that its promises advance the time, and those of its rooms and tickets. */
  #drivenClient(client: object, connected: Connected): object {
    return new Proxy(client, {
      get: (_, name) => {
        const value: unknown = Reflect.get(client, name, client)
        if (typeof value !== 'function') return value
        return (...args: unknown[]): unknown => {
          const answer: unknown = Reflect.apply(value, client, args)
          if (name === 'queue') return this.#drivenTicket(answer as QueueTicket, connected)
          if (!(answer instanceof Promise)) return answer
          const drive = (result: unknown) =>
            result instanceof Room ? this.#driven(result, connected) : result
          return this.#until(answer, `${String(name)}(${JSON.stringify(args[0] ?? '')})`).then(drive)
        }
      },
    })
  }

  /** Wraps a ticket so that waiting for its outcome advances the time. */
  #drivenTicket(ticket: QueueTicket, connected: Connected): QueueTicket {
    const matched = async () =>
      this.#driven(await this.#until(ticket.matched, `matched of ${ticket.id}`), connected)
    const driven = new Proxy(ticket, {
      get: (_, name) => {
        if (name === 'matched') return matched()
        const value: unknown = Reflect.get(ticket, name, ticket)
        if (typeof value !== 'function') return value
        return (...args: unknown[]): unknown => {
          const answer: unknown = Reflect.apply(value, ticket, args)
          return answer instanceof Promise ? this.#until(answer, `${String(name)} of ${ticket.id}`) : answer
        }
      },
    })
    this.#players.set(driven, connected)
    return driven
  }

  /** Awaits `promise` while the time advances, and then 10 ms more, so that other members receive the same update. */
  async #until<T>(promise: Promise<T>, what: string): Promise<T> {
    let done = false
    const end = (): void => {
      done = true
    }
    promise.then(end, end)
    if (!(await this.#time.pass(PATIENT_MS, () => done)))
      throw new Error(`${what} was not answered within ${PATIENT_MS / 1000} s of the test's time`)
    await this.#time.pass(LINK_MS)
    return promise
  }

  #player(room: object): Connected {
    const player = this.#players.get(room)
    if (!player) throw new TypeError('this is no room, ticket or client of this test')
    return player
  }

  get #firstRoom(): Room | undefined {
    // Rooms and tickets have an id, and clients have none.
    return [...this.#players.keys()].find((one): one is Room => 'id' in one)
  }

  async #ownerOf(roomId: string): Promise<TestProcess | undefined> {
    const found = await this.#store.rooms.inspect(`${PROJECT}/${roomId}`)
    return this.#nodes.find(({ nodeId }) => found?.owner?.startsWith(`${nodeId}~`))
  }

  async #recovered(roomId: string): Promise<boolean> {
    const up = [...this.#players.values()].filter(
      ({ network, client }) => network.up && client.status !== 'closed',
    )
    if (up.some(({ client }) => client.status !== 'online')) return false
    return up.length === 0 || (await this.#ownerOf(roomId)) !== undefined
  }
}

export type { TestRooms }

const online = (client: Client): Promise<void> =>
  new Promise((resolve) => {
    const look = (): void => {
      if (client.status !== 'online' && client.status !== 'closed') return
      stop()
      resolve()
    }
    const stop = client.onConnectionChange(look)
    look()
  })
