import { expect } from 'vitest'
import type { WebSocketConstructor, WebSocketLike } from '../../../client/connection.ts'
import { type Client, type ConnectOptions, connect, type Room } from '../../../client/index.ts'
import { type Clock, timestamp } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import type { Payload, RoomEncoder, WholeName } from '../../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../../shared/protocol/error-codes.ts'
import type {
  ClientMessage,
  DepartureReason,
  Limits,
  MemberInfo,
  PlainMessage,
} from '../../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { diff } from '../../../shared/sync/testing/diff.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'

/** Step of the clock. */
const STEP_MS = 25

/** Resolves after one turn of the event loop. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Options of `connect` for a game with its own tokens. */
export type Options = Extract<ConnectOptions, { readonly dev?: undefined }>

export interface Play {
  readonly clock: FakeClock
  readonly server: ScriptedServer
  readonly options: Options
  /** Arguments of the client's `onError`. */
  readonly errors: unknown[]
  /** Advances the clock in steps, and runs what is due. */
  pass(ms: number): Promise<void>
}

/** A scripted server, and the options of a client for it. No client is connected. */
export function play(options: Partial<Options> = {}, clock = new FakeClock()): Play {
  const server = new ScriptedServer(clock)
  const errors: unknown[] = []
  return {
    clock,
    server,
    errors,
    options: {
      projectId: 'prj_1',
      token: 'v4.public.unreadable',
      WebSocket: server.WebSocket,
      clock,
      random: new SeededRandom(),
      onError: (error) => errors.push(error),
      ...options,
    },
    async pass(ms) {
      // In steps, because a due callback may wait for promises.
      await turn()
      for (let left = ms; left > 0; left -= STEP_MS) {
        clock.advance(Math.min(STEP_MS, left))
        await turn()
      }
    },
  }
}

/** A connected client. */
export async function online(
  options: Partial<Options> = {},
  clock?: FakeClock,
): Promise<Play & { client: Client }> {
  const scene = play(options, clock)
  return { ...scene, client: await connect('ws://roomful.test', scene.options) }
}

/** A connected client in the room `arena:lobby`, whose state is `{ players: {} }`. */
export async function inRoom(
  options: Partial<Options> = {},
): Promise<Play & { client: Client; room: Room; owner: ScriptedRoom }> {
  const scene = await online(options)
  const room = await scene.client.join('arena', { key: 'lobby' })
  await scene.pass(1)
  return { ...scene, room, owner: scene.server.room('arena:lobby') }
}

/** Address of the scripted server. */
export const URL = 'ws://roomful.test'

/** Matches a `RoomfulError` with this code. */
export const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** Records each status of a client, with the code of its error. */
export function statuses(client: {
  onConnectionChange(callback: (...change: unknown[]) => void): unknown
}): unknown[] {
  const seen: unknown[] = []
  client.onConnectionChange((status, error) =>
    seen.push(error === undefined ? status : [status, (error as { code: string }).code]),
  )
  return seen
}

/** Returns a token of the player `sub` with readable claims and an invalid signature. */
export function unsignedToken(sub: string | undefined = 'alice'): string {
  const claims = { project_id: 'prj_1', sub }
  const payload = Buffer.concat([Buffer.from(JSON.stringify(claims)), Buffer.alloc(64, 255)])
  const footer = Buffer.from(JSON.stringify({ kid: 'key_1' })).toString('base64url')
  return `v4.public.${payload.toString('base64url')}.${footer}`
}

type Of<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>

/**
 * The server of a client under test. By default it accepts every hello, resume and join, and answers pings. It does not acknowledge messages.
 * A test replaces that behaviour with `on…`, and sends any message with `send` and `deliver`.
 */
class ScriptedServer {
  readonly WebSocket: WebSocketConstructor
  readonly sockets: FakeSocket[] = []
  /** All messages of clients, on all sockets. */
  readonly heard: ClientMessage[] = []
  readonly rooms = new Map<string, ScriptedRoom>()
  readonly clock: Clock
  limits: Limits = { max_message_bytes: 1024, messages_per_second: 100, message_burst: 1000, max_rooms: 16 }
  heartbeatSeconds = 10
  /** Room code in `joined`. */
  code: string | undefined
  /** Called with each new socket. */
  onDial = (socket: FakeSocket): void => queueMicrotask(() => socket.accept())
  onHello = (_hello: Of<'hello'>): void => this.welcome()
  onJoin = (join: Of<'join'>): void => this.seat(join)
  onLeave = ({ room_id: roomId }: Of<'leave'>): void => this.deliver(this.room(roomId).ownLeft('left'))
  onPing = ({ at }: Of<'ping'>, socket: FakeSocket): void =>
    this.send({ t: 'pong', at, server_time: timestamp(this.clock.now()) }, socket)
  readonly #codec = new MsgpackCodec()
  #welcomes = 0
  #members = 0
  #hello: Of<'hello'> | undefined

  constructor(clock: Clock) {
    this.clock = clock
    const server = this
    this.WebSocket = class extends FakeSocket {
      constructor(url: string, protocols: string[]) {
        super(
          {
            dialled: (socket) => {
              server.sockets.push(socket)
              server.onDial(socket)
            },
            sent: (socket, payload) => {
              const message = server.#codec.decode(payload)
              socket.said.push(message)
              server.#hear(message, socket)
            },
          },
          url,
          protocols,
        )
      }
    }
  }

  /** The newest socket. */
  get socket(): FakeSocket {
    return this.sockets.at(-1)!
  }

  /** Returns the clients' messages of one type. */
  all<T extends ClientMessage['t']>(t: T): Of<T>[] {
    return this.heard.filter((message): message is Of<T> => message.t === t)
  }

  /** Refs of the received messages, in order. */
  get messageRefs(): (number | undefined)[] {
    return this.all('message').map(({ ref }) => ref)
  }

  send(message: PlainMessage, socket = this.socket): void {
    if ('room_id' in message && message.room_id !== undefined)
      socket.deliver(this.#codec.address(message.room_id))
    socket.deliver(this.#codec.encode(message))
  }

  /** Delivers payloads of rooms, each after the frame with its room. */
  deliver(...payloads: Payload[]): void {
    this.deliverTo(this.socket, ...payloads)
  }

  deliverTo(socket: FakeSocket, ...payloads: Payload[]): void {
    for (const payload of payloads) {
      const roomId = [...this.rooms.values()].find((room) => room.made.has(payload))?.roomId
      if (roomId !== undefined) socket.deliver(this.#codec.address(roomId))
      socket.deliver(payload)
    }
  }

  /** Requests a fresh token. */
  requestToken(within_seconds = 20, socket = this.socket): void {
    this.send({ t: 'token', within_seconds }, socket)
  }

  ack(room: ScriptedRoom, ref: number): void {
    this.send({ t: 'ack', room_id: room.roomId, ref })
  }

  refuse(
    code: ErrorCode,
    {
      retryable = false,
      ...about
    }: { request_id?: number; room_id?: string; ref?: number; retryable?: boolean } = {},
  ) {
    this.send({ t: 'error', ...about, code, message: `refused: ${code}`, retryable })
  }

  /** Answers the last hello. */
  welcome({ resumed }: { resumed?: boolean } = {}): void {
    this.#welcomes += 1
    const hello = this.#hello!
    const resume = 'resume' in hello ? hello.resume : undefined
    this.send({
      t: 'welcome',
      session_id: resume?.session_id ?? `ses_${this.#welcomes}`,
      resume_token: `resume_${this.#welcomes}`,
      resumed: resumed ?? resume !== undefined,
      resume_ttl_seconds: 60,
      heartbeat_seconds: this.heartbeatSeconds,
      node_id: 'node_1',
      server_time: timestamp(this.clock.now()),
      limits: this.limits,
    })
  }

  room(roomId: string): ScriptedRoom {
    const room = this.rooms.get(roomId) ?? new ScriptedRoom(roomId, { players: {} })
    this.rooms.set(roomId, room)
    return room
  }

  /** Accepts a join: sends `joined` and the snapshot. The list of members has no spectators. */
  seat({ request_id, room_type: roomType, options, watch }: Of<'join'>, socket = this.socket): void {
    const room = this.room(`${roomType}:${options.key ?? 'default'}`)
    this.#members += 1
    const memberId = `mem_${this.#members}`
    if (!watch) room.members = [...room.members, { member_id: memberId, sub: 'alice', connected: true }]
    const code = this.code === undefined ? {} : { code: this.code }
    this.send({ t: 'joined', request_id, room_id: room.roomId, member_id: memberId, ...code }, socket)
    this.deliverTo(socket, room.snapshot())
  }

  #hear(message: ClientMessage, socket: FakeSocket): void {
    this.heard.push(message)
    if (message.t === 'hello') {
      this.#hello = message
      this.onHello(message)
    } else if (message.t === 'join') this.onJoin(message)
    else if (message.t === 'leave') this.onLeave(message)
    else if (message.t === 'ping') this.onPing(message, socket)
  }
}

/** A room as its owner encodes it, one frame at a time and in any order a test likes. */
class ScriptedRoom {
  readonly roomId: string
  epoch = 1000
  seq = 7
  state: Json
  members: MemberInfo[] = [{ member_id: 'mem_bob', sub: 'bob', connected: true }]
  /** Payloads of this room. */
  readonly made = new WeakSet<Payload>()
  readonly #codec = new MsgpackCodec()
  readonly #encoder: RoomEncoder = this.#codec.roomEncoder()

  constructor(roomId: string, state: Json) {
    this.roomId = roomId
    this.state = state
  }

  /** The next flush: the state becomes `next`. */
  patch(next: Json): Payload {
    const delta = diff(this.state, next)
    this.state = next
    this.seq += 1
    return this.#made(this.#encoder.patch(this.#at(), delta))
  }

  /** As `patch`, with a wrong checksum. */
  wrongPatch(next: Json): Payload {
    const delta = diff(this.state, next)
    this.state = next
    this.seq += 1
    return this.#made(this.#encoder.patch({ ...this.#at(), checksum: this.#at().checksum ^ 1 }, delta))
  }

  snapshot(): Payload {
    return this.#made(
      this.#encoder.whole('state.snapshot', { ...this.#at(), state: this.state }, this.members),
    )
  }

  resync(): Payload {
    return this.#made(this.#encoder.whole('state.resync', { ...this.#at(), state: this.state }, this.members))
  }

  wrongResync(): Payload {
    return this.#wrongWhole('state.resync')
  }

  wrongSnapshot(): Payload {
    return this.#wrongWhole('state.snapshot')
  }

  #wrongWhole(t: WholeName): Payload {
    return this.#made(this.#encoder.whole(t, { ...this.#at(), checksum: 1, state: this.state }, this.members))
  }

  /** An event of the flush `seq`, by default the last one. */
  event(name: string, data: Json, seq = this.seq): Payload {
    const at = { room_id: this.roomId, epoch: this.epoch, seq }
    return this.#made(this.#codec.encode({ t: 'event', ...at, name, data }))
  }

  /** A flush with only an event. */
  eventFlush(name: string, data: Json): Payload {
    this.seq += 1
    return this.event(name, data)
  }

  came(memberId: string, sub: string | null, seq = this.seq): Payload {
    this.members = [...this.members, { member_id: memberId, sub, connected: true }]
    return this.#member(seq, { member_id: memberId, sub, connected: true })
  }

  presence(memberId: string, connected: boolean, seq = this.seq): Payload {
    const { sub = null } = this.members.find((member) => member.member_id === memberId) ?? {}
    return this.#member(seq, { member_id: memberId, sub, connected })
  }

  went(memberId: string, seq = this.seq): Payload {
    this.members = this.members.filter((member) => member.member_id !== memberId)
    return this.#member(seq, { member_id: memberId, sub: null })
  }

  /** A member has become a player or a spectator. */
  role(memberId: string, status: 'seated' | 'unseated', seq = this.seq): Payload {
    const others = this.members.filter((member) => member.member_id !== memberId)
    const player = { member_id: memberId, sub: 'alice', connected: true }
    this.members = status === 'seated' ? [...others, player] : others
    return this.#member(seq, status === 'seated' ? player : { member_id: memberId, sub: 'alice' })
  }

  /** Ends the seat of the client. */
  ownLeft(reason: DepartureReason): Payload {
    return this.#made(this.#codec.encode({ t: 'left', room_id: this.roomId, reason }))
  }

  #member(
    seq: number,
    change: Omit<Extract<PlainMessage, { t: 'member' }>, 't' | 'room_id' | 'epoch' | 'seq'>,
  ): Payload {
    const at = { room_id: this.roomId, epoch: this.epoch, seq }
    return this.#made(this.#codec.encode({ t: 'member', ...at, ...change }))
  }

  #made(payload: Payload): Payload {
    this.made.add(payload)
    return payload
  }

  #at() {
    const { roomId, epoch, seq } = this
    return { room_id: roomId, epoch, seq, checksum: new Checksum().of(this.state) }
  }
}

/** Callbacks of a socket to its server. */
interface FarEnd {
  /** The client has made a socket. */
  dialled(socket: FakeSocket): void
  /** The client has sent these bytes. */
  sent(socket: FakeSocket, payload: Uint8Array): void
}

/** A WebSocket without a network. Each side sees the other side's action immediately. */
class FakeSocket implements WebSocketLike {
  binaryType = 'blob'
  onopen: unknown = null
  onmessage: unknown = null
  onclose: unknown = null
  onerror: unknown = null
  readonly url: string
  readonly protocols: readonly string[]
  /** Messages that the client has sent on this socket. */
  readonly said: ClientMessage[] = []
  /** The client has closed it. */
  closed = false
  readonly #farEnd: FarEnd
  #open = false
  #over = false

  constructor(farEnd: FarEnd, url: string, protocols: readonly string[]) {
    this.#farEnd = farEnd
    this.url = url
    this.protocols = protocols
    farEnd.dialled(this)
  }

  /** True between `accept` and the end. */
  get open(): boolean {
    return this.#open
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    if (!this.#open && !this.#over) throw new Error('InvalidStateError: the socket is still connecting')
    if (this.#open) this.#farEnd.sent(this, data.slice())
  }

  close(): void {
    if (this.#over) return
    this.closed = true
    this.end(1005)
  }

  /** The server accepts. */
  accept(): void {
    if (this.#over) return
    this.#open = true
    call(this.onopen, {})
  }

  /** The server sends a frame. */
  deliver(payload: Uint8Array | string): void {
    if (!this.#open) return
    const data = typeof payload === 'string' ? payload : payload.slice().buffer
    call(this.onmessage, { data })
  }

  /** The server closes the connection, or the connection breaks (1006) with this `error` event. */
  end(code: number, reason = '', error: object = {}): void {
    if (this.#over) return
    this.#open = false
    this.#over = true
    if (code === 1006) call(this.onerror, error)
    call(this.onclose, { code, reason })
  }
}

function call(handler: unknown, event: object): void {
  if (typeof handler === 'function') handler(event)
}
