import type { Json } from '../../shared/json.ts'
import { ProtocolError } from '../../shared/protocol/error-codes.ts'
import {
  type Data,
  isMap,
  KnownStrings,
  MsgpackReader,
  MsgpackWriter,
} from '../../shared/protocol/msgpack.ts'
import { type RoomAddress, roomNamed, type ToEdge, type ToOwner } from '../traffic.ts'

/** A message from one node to another. */
export type PeerMessage =
  /** For a room that the receiver owns, as far as the sender knows. */
  | { readonly to: 'owner'; readonly message: ToOwner }
  /** The receiver should open the room if no living node owns it. */
  | { readonly to: 'opener'; readonly message: ToOwner }
  | { readonly to: 'edge'; readonly message: ToEdge }
  /** The session was resumed at another node, or an operator has ended it there (`ended`): drop it. */
  | { readonly to: 'gateway'; readonly session_id: string; readonly ended: boolean }
  /** Handoff: claim the room, which was released. */
  | { readonly to: 'host'; readonly room: RoomAddress }

/**
 * An envelope, which is one PUBLISH:
 *
 * | bytes | |
 * |---|---|
 * | 1 | version |
 * | 1 | flags: 1, its messages continue in the next envelope; 2, they continue those of the previous envelope |
 * | 8 | number of the envelope on its link (sender to receiver), big-endian; the first is 1 |
 * | 1, n | length of the sender's node id, and the id |
 * | | messages up to the end |
 *
 * The version and the sender have the same position in every version.
 * A message is a sequence of MessagePack values: the kind of receiver, the room (its name, or its index among the rooms of the envelope), the
 * kind, and the other fields as a map. Encoded frames are `bin`.
 */
const VERSION = 5

/**
 * Size of the pieces of a large envelope. Each piece leaves when the bus has taken the previous one. Neither a node nor the store is thus
 * busy with a state of megabytes for a whole turn of its event loop.
 */
export const PIECE_BYTES = 1 << 17

const FLAGS_AT = 1
const FOLLOWS = 1
const CONTINUES = 2
const NUMBER_AT = 2
/** Position of the length of the sender's id. */
const SENDER_AT = 10
/** In larger envelopes, frames are copied: a view would keep the whole read buffer in memory. */
const LARGEST_VIEWED = 16 * 1024

/** Receivers, encoded as their index. The list may not change without a new version. */
const RECEIVERS: readonly PeerMessage['to'][] = ['owner', 'opener', 'edge', 'gateway', 'host']

/** Kinds that are encoded as their index; others are strings. The list may not change without a new version. */
const KINDS: readonly string[] = [
  'message',
  'update',
  'join',
  'leave',
  'resync',
  'detach',
  'attach',
  'refuse',
  'state',
  'attached',
  'no_seat',
  'refused',
  'error',
  'left',
  'redirect',
  'resend',
  'request',
  'answer',
]

/** Field names that are encoded as their index; others are strings. The list may not change without a new version. */
const NAMES: readonly string[] = [
  'roomful.v1.json',
  'roomful.v1.msgpack',
  'member_id',
  'seq',
  'epoch',
  'patch',
  'rest',
  'personal',
  'joined',
  'events',
  'ack',
  'ref',
  'type',
  'data',
  'settled',
  'ask',
  'owner',
  'edge',
  'codec',
  'session_id',
  'sub',
  'options',
  'reason',
  'state',
  'resumed',
  'frames',
  'members',
  'snapshot',
  'code',
  'message',
  'farewell',
  't',
  'room_id',
  'name',
  'durable',
  'request_id',
  'outcomes',
]

const numbers = (names: readonly string[]): ReadonlyMap<string, number> =>
  new Map(names.map((name, index) => [name, index]))
const KIND_NUMBERS = numbers(KINDS)
const NAME_NUMBERS = numbers(NAMES)

const numberOfName = (name: string): number | undefined => NAME_NUMBERS.get(name)

/** Fields of an object. Undefined values are not written. */
type Fields = { readonly [name: string]: unknown }

/** The envelope has a version that this node does not know. */
export class UnknownVersion extends Error {
  override readonly name = 'UnknownVersion'
  readonly sender: string

  constructor(version: number, sender: string) {
    super(`an envelope of version ${version}; this node reads version ${VERSION}`)
    this.sender = sender
  }
}

/** The header of the envelope is valid, but its messages cannot be read. */
export class DamagedEnvelope extends Error {
  override readonly name = 'DamagedEnvelope'
}

/** Header of an envelope. */
export interface Envelope {
  readonly sender: string
  /** One more than the number of the previous envelope on the same link. */
  readonly number: number
  /** Position of the messages. */
  readonly bodyAt: number
  /** Whether it is a piece of a larger envelope: `follows`, another piece comes next; `continues`, it is not the first piece. */
  readonly pieces: { readonly follows: boolean; readonly continues: boolean }
}

/** Returns the header of one sender's envelopes. It is built once; only flags and number change. */
export function envelopeHeader(sender: string): Uint8Array {
  const id = new TextEncoder().encode(sender)
  if (id.length > 255) throw new RangeError(`the node id ${sender} has ${id.length} bytes; at most 255 fit`)
  const header = new Uint8Array(SENDER_AT + 1 + id.length)
  header[0] = VERSION
  header[SENDER_AT] = id.length
  header.set(id, SENDER_AT + 1)
  return header
}

/** Collects messages for one envelope. Each is encoded when it is added, because its objects may change later. Large frames are immutable. */
export class EnvelopeWriter {
  readonly #header: Uint8Array
  readonly #writer = new MsgpackWriter()
  readonly #rooms = new Map<string, number>()
  /** Chunks before the content of the writer. Large frames are chunks without a copy. */
  #chunks: Uint8Array[] = []
  #chunkBytes = 0
  #messages = 0

  constructor(header: Uint8Array) {
    this.#header = header
  }

  /** Size of the messages in bytes. */
  get bytes(): number {
    return this.#chunkBytes + this.#writer.length
  }

  /** Adds a message. Throws a TypeError for a value that is neither JSON nor bytes; the message is then not added. */
  add(message: PeerMessage): void {
    const { bytes } = this
    const known = this.#rooms.size
    try {
      this.#write(message)
    } catch (error) {
      this.#cut(bytes)
      // The names of these rooms were in the dropped bytes.
      for (const [room, index] of this.#rooms) if (index >= known) this.#rooms.delete(room)
      throw error
    }
    this.#messages++
  }

  /** Returns the collected messages, and empties the writer. */
  take(): OutgoingEnvelope {
    this.#endChunk()
    const taken = new OutgoingEnvelope(this.#header, this.#messages, this.#chunks, this.#chunkBytes)
    this.#chunks = []
    this.#chunkBytes = 0
    this.#messages = 0
    this.#rooms.clear()
    return taken
  }

  /** Drops everything behind the first `bytes`. */
  #cut(bytes: number): void {
    while (this.#chunkBytes > bytes) {
      const last = this.#chunks.pop()!
      this.#chunkBytes -= last.length
      this.#writer.begin().raw(last)
    }
    this.#writer.cut(bytes - this.#chunkBytes)
  }

  #endChunk(): void {
    const { length } = this.#writer
    if (length === 0) return
    this.#chunks.push(this.#writer.take())
    this.#chunkBytes += length
  }

  #write(message: PeerMessage): void {
    const to = this.#writer
    to.number(RECEIVERS.indexOf(message.to))
    if (message.to === 'gateway') {
      to.string(message.session_id)
      to.value(message.ended)
      return
    }
    if (message.to === 'host') {
      this.#room(message.room)
      return
    }
    this.#room(message.message.room)
    to.value(KIND_NUMBERS.get(message.message.kind) ?? message.message.kind)
    this.#fields(message.message as Fields, true)
  }

  /** Writes a value that may contain bytes. Undefined properties are not written. */
  #value(value: Data): void {
    const to = this.#writer
    if (typeof value !== 'object' || value === null) to.value(value)
    else if (value instanceof Uint8Array) this.#frame(value)
    else if (Array.isArray(value)) {
      to.array(value.length)
      for (const element of value as readonly Data[]) this.#value(element)
    } else {
      this.#fields(value as Fields)
    }
  }

  /** `isMessage`: a message, whose room and kind are written already. */
  #fields(object: Fields, isMessage = false): void {
    const to = this.#writer
    let size = isMessage ? -2 : 0
    for (const name in object) if (object[name] !== undefined) size++
    to.map(size)
    for (const name in object) {
      const below = object[name]
      if (below === undefined || (isMessage && (name === 'room' || name === 'kind'))) continue
      to.key(name, numberOfName)
      this.#value(below as Data)
    }
  }

  #frame(frame: Uint8Array): void {
    if (frame.length < PIECE_BYTES) {
      this.#writer.bin(frame)
      return
    }
    this.#writer.binHeader(frame.length)
    this.#endChunk()
    this.#chunks.push(frame)
    this.#chunkBytes += frame.length
  }

  #room(room: RoomAddress): void {
    const name = room.name
    const index = this.#rooms.get(name)
    if (index === undefined) this.#rooms.set(name, this.#rooms.size)
    this.#writer.value(index ?? name)
  }
}

/** The messages of one outgoing envelope, read as a whole or in pieces. */
export class OutgoingEnvelope {
  /** Number of messages. */
  readonly messages: number
  /** Number of unread bytes. */
  #left: number
  readonly #header: Uint8Array
  readonly #chunks: Uint8Array[]
  #begun = false

  constructor(header: Uint8Array, messages: number, chunks: Uint8Array[], bytes: number) {
    this.#header = header
    this.messages = messages
    this.#chunks = chunks
    this.#left = bytes
  }

  /** Returns the next envelope on the link, with the given number and at most `most` bytes of messages. `isLast`: no other one follows. */
  read(most: number, number: number): { readonly envelope: Uint8Array; readonly isLast: boolean } {
    const size = Math.min(most, this.#left)
    const envelope = new Uint8Array(this.#header.length + size)
    envelope.set(this.#header)
    this.#left -= size
    const isLast = this.#left === 0
    envelope[FLAGS_AT] = (isLast ? 0 : FOLLOWS) | (this.#begun ? CONTINUES : 0)
    for (let at = SENDER_AT - 1, rest = number; rest > 0; at--, rest = Math.floor(rest / 256))
      envelope[at] = rest
    this.#begun = true
    for (let at = this.#header.length; at < envelope.length; ) {
      const chunk = this.#chunks.shift()!
      const part = chunk.subarray(0, envelope.length - at)
      envelope.set(part, at)
      at += part.length
      if (part.length < chunk.length) this.#chunks.unshift(chunk.subarray(part.length))
    }
    return { envelope, isLast }
  }
}

/** Size of the cache of room names. */
const MOST_ROOMS = 10_000

/** Decodes envelopes. Caches strings and rooms, because the same nodes, rooms, members and types repeat. */
export class EnvelopeReader {
  readonly #known = new KnownStrings()
  readonly #rooms = new Map<string, RoomAddress>()

  /** Decodes the header. Throws `UnknownVersion`, or a ProtocolError if the bytes are not an envelope. */
  header(bytes: Uint8Array): Envelope {
    if (bytes.length <= SENDER_AT)
      throw new ProtocolError(`an envelope of ${bytes.length} bytes has no header`)
    const bodyAt = SENDER_AT + 1 + bytes[SENDER_AT]!
    if (bodyAt > bytes.length) throw damagedHeader(bytes)
    const sender = this.#known.text(bytes, SENDER_AT + 1, bodyAt)
    if (bytes[0] !== VERSION) throw new UnknownVersion(bytes[0]!, sender)
    let number = 0
    for (let at = NUMBER_AT; at < SENDER_AT; at++) number = number * 256 + bytes[at]!
    if (!Number.isSafeInteger(number) || number < 1) throw damagedHeader(bytes)
    const flags = bytes[FLAGS_AT]!
    const pieces = { follows: (flags & FOLLOWS) > 0, continues: (flags & CONTINUES) > 0 }
    return { sender, number, bodyAt, pieces }
  }

  /** Decodes the messages of an envelope, in order. Throws `DamagedEnvelope`. */
  messages(bytes: Uint8Array): PeerMessage[] {
    const bin = bytes.buffer.byteLength > LARGEST_VIEWED ? 'copy' : 'view'
    const reader = new MsgpackReader(bytes, { keys: NAMES, bin, known: this.#known })
    const rooms: RoomAddress[] = []
    const messages: PeerMessage[] = []
    try {
      while (reader.at < bytes.length) messages.push(this.#message(reader, rooms))
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      throw new DamagedEnvelope(`an envelope of ${bytes.length} bytes cannot be read: ${reason}`, {
        cause: error,
      })
    }
    return messages
  }

  #message(reader: MsgpackReader, rooms: RoomAddress[]): PeerMessage {
    const to = RECEIVERS[reader.value() as number]
    if (to === undefined) throw new ProtocolError('a message to a receiver of unknown number')
    if (to === 'gateway')
      return { to, session_id: text(reader.value(), 'a session id'), ended: reader.value() === true }
    const room = this.#room(reader.text() ?? reader.value(), rooms)
    if (to === 'host') return { to, room }
    const number = reader.value()
    const kind = text(typeof number === 'number' ? KINDS[number] : number, 'the kind of a message')
    if (!isMap(reader.peek())) throw new ProtocolError(`a message of kind ${kind} has no fields`)
    const message: Record<string, unknown> = { room, kind }
    for (let fields = reader.map(); fields > 0; fields--)
      message[reader.key()] = reader.text() ?? reader.value()
    return { to, message } as PeerMessage
  }

  #room(value: Json, rooms: RoomAddress[]): RoomAddress {
    const named = typeof value === 'string'
    const room = named
      ? (this.#rooms.get(value) ?? this.#addRoom(value))
      : typeof value === 'number'
        ? rooms[value]
        : undefined
    if (!room) throw new ProtocolError('a message for a room that was not named')
    if (named) rooms.push(room)
    return room
  }

  #addRoom(name: string): RoomAddress {
    if (this.#rooms.size >= MOST_ROOMS) this.#rooms.clear()
    const room = roomNamed(name)
    this.#rooms.set(name, room)
    return room
  }
}

function damagedHeader(bytes: Uint8Array): ProtocolError {
  return new ProtocolError(`an envelope of ${bytes.length} bytes with a damaged header`)
}

function text(value: Json | undefined, what: string): string {
  if (typeof value !== 'string') throw new ProtocolError(`${what} is ${typeof value}; it must be a string`)
  return value
}
