import type { WebSocket } from 'ws'
import type { Frame } from '../../../dataplane/frame.ts'
import { RoomFrames } from '../../../dataplane/room/room-frames.ts'
import type {
  Frames,
  JoinedMember,
  PersonalPart,
  RoomAddress,
  StateFrames,
  ToEdge,
  ToOwner,
} from '../../../dataplane/traffic.ts'
import { roomAddress, roomIdOf } from '../../../dataplane/traffic.ts'
import type { Json, JsonObject } from '../../../shared/json.ts'
import type { Codec, WholeName } from '../../../shared/protocol/codec.ts'
import { JsonCodec } from '../../../shared/protocol/json-codec.ts'
import { SUBPROTOCOLS, type Subprotocol } from '../../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { diff } from '../../../shared/sync/testing/diff.ts'
import { NO_CHANGES } from '../rooms/counter-room.ts'

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>
/** `Omit` that distributes over a union. */
type Bare<M> = M extends unknown ? Omit<M, 'room' | 'epoch'> : never

/** Parts of one flush of a test room. */
interface TestFlush {
  readonly state?: JsonObject
  /** Name and data of events for all members. */
  readonly events?: readonly (readonly [string, Json])[]
  readonly personal?: readonly PersonalPart[]
  readonly joined?: readonly { readonly member_id: string; readonly request_id: number }[]
}

/** A minimal room. Its state counts messages. A message `whisper` becomes an event for its sender, a message `shout` one for all members. */
export class TestRoom {
  readonly address: RoomAddress
  readonly members = new Map<string, { sub: string | null; ref: number; spectator?: true }>()
  epoch = 1
  seq = 0
  /** Room code in `joined`. */
  code: string | undefined
  state: JsonObject = { count: 0 }
  readonly #frames: RoomFrames
  readonly #past: { readonly seq: number; readonly frames: StateFrames }[] = []
  readonly #deliver: (message: ToEdge) => void

  constructor(address: RoomAddress, codecs: readonly Codec[], deliver: (message: ToEdge) => void) {
    this.address = address
    this.#frames = new RoomFrames(this.roomId, new Map(codecs.map((codec) => [codec.subprotocol, codec])))
    this.#deliver = deliver
  }

  get roomId(): string {
    return roomIdOf(this.address)
  }

  send(message: Bare<ToEdge>): void {
    this.#deliver({ ...message, room: this.address, epoch: this.epoch } as ToEdge)
  }

  flush({ state = this.state, events = [], personal = [], joined = [] }: TestFlush): void {
    const delta = diff(this.state, state)
    this.state = state
    this.seq += 1
    this.#frames.stateChanged(state)
    const update = { ...NO_CHANGES, ...this.#at, delta }
    const sent = events.map(([name, data]) => ({ name, data, to: undefined }))
    const { patch, rest } = this.#frames.update({ ...update, events: sent }, SUBPROTOCOLS)
    this.#past.push({ seq: this.seq, frames: { patch, rest } })
    const snapshot = this.#whole('state.snapshot')
    this.send({
      kind: 'update',
      seq: this.seq,
      patch,
      rest,
      personal,
      joined: joined.map((member): JoinedMember => ({ ...member, code: this.code, snapshot })),
    })
  }

  /** Makes a member a spectator, and sends it the whole state and the number of spectators. */
  unseat(memberId: string): void {
    this.members.get(memberId)!.spectator = true
    this.send({ kind: 'state', member_id: memberId, seq: this.seq, state: this.resync() })
    this.send({ kind: 'spectators', frames: inEach((codec) => this.#frames.spectators(1, codec)) })
  }

  /** Encodes a `state.resync` with the current state. */
  resync(): StateFrames {
    return this.#whole('state.resync')
  }

  /** Returns the flushes after `seq`. Undefined: the room does not have them. */
  missed(seq: number): StateFrames[] | undefined {
    if (seq > this.seq || (seq < this.seq && this.#past[0]!.seq > seq + 1)) return undefined
    return this.#past.filter((entry) => entry.seq > seq).map(({ frames }) => frames)
  }

  get #at() {
    return { epoch: this.epoch, seq: this.seq, checksum: new Checksum().of(this.state) }
  }

  #whole(t: WholeName): StateFrames {
    const at = { room_id: this.roomId, ...this.#at, state: this.state }
    const members = [...this.members].map(([id, { sub, spectator }]) => ({
      member_id: id,
      sub,
      connected: true,
      ...(spectator && { spectator }),
    }))
    return { patch: inEach((codec) => this.#frames.whole(t, at, members, codec)) }
  }
}

const inEach = (encode: (codec: Subprotocol) => Frame): Frames =>
  Object.fromEntries(SUBPROTOCOLS.map((codec) => [codec, encode(codec)]))

/** Types that the owner knows. The tests play the queue `ranked`. */
const ROOM_TYPES = ['arena', 'ranked']

/** Codecs of a node, in their order. */
export const testCodecs = () => [new JsonCodec(), new MsgpackCodec()] as const

/** Replaces `rooms/`: answers the gateway's messages immediately, except the kinds in `silent`. */
export class TestOwner {
  /** All messages of the gateway, oldest first. */
  readonly received: ToOwner[] = []
  /** Kinds of messages without an answer. */
  readonly silent = new Set<ToOwner['kind']>()
  deliver: (message: ToEdge) => void = () => {}
  readonly #codecs: readonly Codec[]
  readonly #rooms = new Map<string, TestRoom>()
  readonly #waiting: { readonly kind: string; readonly resolve: (message: ToOwner) => void }[] = []

  constructor(codecs: readonly Codec[]) {
    this.#codecs = codecs
  }

  room(key: string, roomType = 'arena', projectId = 'prj_one'): TestRoom {
    const address = roomAddress(projectId, roomType, key)
    let room = this.#rooms.get(address.name)
    if (!room) {
      room = new TestRoom(address, this.#codecs, (message) => this.deliver(message))
      this.#rooms.set(address.name, room)
    }
    return room
  }

  /** Returns the gateway's messages of one kind. */
  of<K extends ToOwner['kind']>(kind: K): Kind<K>[] {
    return this.received.filter((message): message is Kind<K> => message.kind === kind)
  }

  /** Breaks the connection of a client in a room. Resolves when the gateway has sent `detach`. */
  async lose({ ws }: { readonly ws: WebSocket }): Promise<void> {
    const gone = this.next('detach')
    ws.terminate()
    await gone
  }

  /** Resolves with the next message of a kind. */
  next<K extends ToOwner['kind']>(kind: K): Promise<Kind<K>> {
    return new Promise((resolve) => {
      this.#waiting.push({ kind, resolve: (message) => resolve(message as Kind<K>) })
    })
  }

  readonly send = (message: ToOwner): void => {
    this.received.push(message)
    const index = this.#waiting.findIndex(({ kind }) => kind === message.kind)
    if (index >= 0) this.#waiting.splice(index, 1)[0]!.resolve(message)
    if (!this.silent.has(message.kind)) this.answer(message)
  }

  answer(message: ToOwner): void {
    const room = this.room(message.room.key, message.room.roomType, message.room.projectId)
    const member = room.members.get(message.member_id)
    if (message.kind === 'join') this.#join(room, message)
    else if (member) this.#serve(room, member, message)
    else if (message.kind !== 'detach') room.send({ kind: 'no_seat', member_id: message.member_id })
  }

  #join(room: TestRoom, { member_id: memberId, request_id, sub, room: { roomType } }: Kind<'join'>): void {
    if (!ROOM_TYPES.includes(roomType)) {
      const message = `there is no room type "${roomType}"`
      room.send({ kind: 'refused', member_id: memberId, request_id, code: 'unknown_room_type', message })
      return
    }
    room.members.set(memberId, { sub, ref: 0 })
    room.flush({ joined: [{ member_id: memberId, request_id }] })
  }

  #serve(room: TestRoom, member: { ref: number }, message: ToOwner): void {
    const { member_id: memberId } = message
    if (message.kind === 'leave') {
      room.members.delete(memberId)
      room.send({ kind: 'left', member_id: memberId, farewell: { reason: 'left' } })
    }
    if (message.kind === 'resync')
      room.send({ kind: 'state', member_id: memberId, seq: room.seq, state: room.resync() })
    if (message.kind === 'attach') {
      const missed = message.epoch === room.epoch ? room.missed(message.seq) : undefined
      room.send({
        kind: 'attached',
        member_id: memberId,
        ask: message.ask,
        seq: room.seq,
        resumed: missed !== undefined,
        frames: missed ?? [room.resync()],
        ack: member.ref,
      })
    }
    if (message.kind === 'refuse') {
      const { from, through: ack, code, message: text } = message
      member.ref = ack
      const refs = Array.from({ length: ack - from + 1 }, (_, i) => from + i)
      const outcomes = refs.map((ref) => ({ ref, code, message: text }))
      room.flush({ personal: [{ member_id: memberId, events: [], ack, outcomes }] })
    }
    if (message.kind !== 'message') return
    if (message.ref !== undefined) member.ref = message.ref
    const whisper = {
      t: 'event' as const,
      room_id: room.roomId,
      name: 'heard',
      data: message.data,
    }
    room.flush({
      state: { ...room.state, count: (room.state.count as number) + 1 },
      events: message.type === 'shout' ? [['shouted', message.data]] : [],
      personal: [
        {
          member_id: memberId,
          events: message.type === 'whisper' ? [whisper] : [],
          ...(message.ref !== undefined && { ack: message.ref }),
          // The time for which a ticket has waited.
          ...(message.type === 'ticket' && { outcomes: [{ ref: message.ref!, reply: 0 }] }),
        },
      ],
    })
  }
}
