import type { WebSocketConstructor } from '../../../client/connection.ts'
import type { Clock } from '../../../shared/clock.ts'
import { timestamp } from '../../../shared/clock.ts'
import type { ErrorCode } from '../../../shared/protocol/error-codes.ts'
import type { ClientMessage, Limits, ServerMessage } from '../../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { FakeSocket } from './fake-socket.ts'
import { ScriptedRoom } from './scripted-room.ts'

type Of<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>
type Direct = Exclude<ServerMessage, { t: 'state.snapshot' | 'state.resync' | 'state.patch' }>

/**
 * The far end of a client under test. By itself it lets everybody in, resumes, seats, and answers pings; it acks nothing. A test
 * switches that off with `on…` and sends what it likes with `send` and `deliver`.
 */
export class ScriptedServer {
  readonly WebSocket: WebSocketConstructor
  readonly sockets: FakeSocket[] = []
  /** Everything clients have said, on any socket. */
  readonly heard: ClientMessage[] = []
  readonly rooms = new Map<string, ScriptedRoom>()
  readonly clock: Clock
  limits: Limits = { max_message_bytes: 1024, messages_per_second: 100, message_burst: 1000, max_rooms: 16 }
  heartbeatSeconds = 10
  /** What happens to a new socket. */
  onDial = (socket: FakeSocket): void => queueMicrotask(() => socket.accept())
  onHello = (_hello: Of<'hello'>): void => this.welcome()
  onJoin = (join: Of<'join'>): void => this.seat(join)
  onLeave = ({ ref, room_id: roomId }: Of<'leave'>): void => this.send({ t: 'left', ref, room_id: roomId })
  onPing = ({ at }: Of<'ping'>): void =>
    this.send({ t: 'pong', at, server_time: timestamp(this.clock.now()) })
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
            sent: (_, payload) => server.#hear(server.#codec.decode(payload)),
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

  /** What clients have said of one kind. */
  all<T extends ClientMessage['t']>(t: T): Of<T>[] {
    return this.heard.filter((message): message is Of<T> => message.t === t)
  }

  /** The refs of the messages heard, in order. */
  get messageRefs(): (number | undefined)[] {
    return this.all('message').map(({ ref }) => ref)
  }

  send(message: Direct): void {
    this.socket.deliver(this.#codec.encode(message))
  }

  deliver(...payloads: Uint8Array[]): void {
    for (const payload of payloads) this.socket.deliver(payload)
  }

  ack(room: ScriptedRoom, ref: number): void {
    this.send({ t: 'ack', room_id: room.roomId, ref })
  }

  refuse(
    code: ErrorCode,
    { ref, room_id: roomId, retryable = false }: { ref?: number; room_id?: string; retryable?: boolean } = {},
  ) {
    const about = {
      ...(ref === undefined ? {} : { ref }),
      ...(roomId === undefined ? {} : { room_id: roomId }),
    }
    this.send({ t: 'error', ...about, code, message: `refused: ${code}`, retryable })
  }

  /** Answers the last hello. `rooms`: those that a resumed session still has; default: all it names. */
  welcome({
    rooms,
    resumed,
  }: {
    rooms?: { room_id: string; resumed: boolean }[]
    resumed?: boolean
  } = {}): void {
    this.#welcomes += 1
    const hello = this.#hello!
    const resume = 'resume' in hello ? hello.resume : undefined
    const named = resume?.rooms.map(({ room_id: roomId }) => ({ room_id: roomId, resumed: true })) ?? []
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
      ...(resume ? { rooms: rooms ?? named } : {}),
    })
  }

  room(roomId: string): ScriptedRoom {
    const room = this.rooms.get(roomId) ?? new ScriptedRoom(roomId, { players: {} })
    this.rooms.set(roomId, room)
    return room
  }

  /** Gives a joiner a seat: `joined`, and the snapshot behind it. */
  seat({ ref, room_type: roomType, options }: Of<'join'>): void {
    const room = this.room(`${roomType}:${options.key ?? 'default'}`)
    this.#members += 1
    const memberId = `mem_${this.#members}`
    room.members = [...room.members, { member_id: memberId, sub: 'alice' }]
    this.send({ t: 'joined', ref, room_id: room.roomId, member_id: memberId, members: room.members })
    this.deliver(room.snapshot())
  }

  #hear(message: ClientMessage): void {
    this.heard.push(message)
    if (message.t === 'hello') {
      this.#hello = message
      this.onHello(message)
    } else if (message.t === 'join') this.onJoin(message)
    else if (message.t === 'leave') this.onLeave(message)
    else if (message.t === 'ping') this.onPing(message)
  }
}
