import { ProtocolError } from '../../shared/protocol/codec.ts'
import { type RoomAddress, roomName, type ToEdge, type ToOwner } from '../traffic.ts'
import { FieldReader, FieldWriter, type Value } from './fields.ts'

/** What one node says to another. */
export type PeerMessage =
  /** For a room that the receiver is believed to run. */
  | { readonly to: 'owner'; readonly message: ToOwner }
  /** The receiver is asked to open the room, if nobody living owns it. */
  | { readonly to: 'opener'; readonly message: ToOwner }
  | { readonly to: 'edge'; readonly message: ToEdge }
  /** The session was resumed elsewhere: let go of it. */
  | { readonly to: 'gateway'; readonly session_id: string }
  /** A hand-over: take the room, which was released, over now. */
  | { readonly to: 'host'; readonly room: RoomAddress }

/**
 * An envelope, which is one PUBLISH:
 *
 * | bytes | |
 * |---|---|
 * | 1 | version |
 * | 1 | flags, 0 |
 * | 8 | number of the envelope on its link (sender to receiver), big-endian float64; the first is 1 |
 * | 1, n | length of the sender's node id, and the id |
 * | | messages up to the end |
 *
 * In every version, the version and the sender stay where they are.
 * A message is its length (4 bytes, big-endian, without these), the length of its tree (4), the tree and the bytes set aside from it
 * (fields.ts). The tree is a sequence of MessagePack values: what the message is to, the room (three strings, or the place in the
 * envelope of one that came before), the kind, and the other fields as a map.
 */
const VERSION = 1

const NUMBER_AT = 2
/** Where the length of the sender's id is. */
const SENDER_AT = 10
/** Views of an envelope keep it in memory whole; of a larger one the frames are copied. */
const LARGEST_VIEWED = 16 * 1024

/** By their place in this list. It may not change without a new version. */
const RECEIVERS: readonly PeerMessage['to'][] = ['owner', 'opener', 'edge', 'gateway', 'host']

/** Kinds that stand as integers, by their place in this list, which may not change without a new version; others are strings. */
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
  'moved',
]
const KIND_NUMBERS: ReadonlyMap<string, number> = new Map(KINDS.map((kind, index) => [kind, index]))

/** Fields of a message that stand before the map of the others. */
const BEFORE: readonly string[] = ['room', 'kind']

const UTF8 = new TextDecoder()

/** The envelope is of a version this node does not know: the sender's is newer, or older. */
export class UnknownVersion extends Error {
  override readonly name = 'UnknownVersion'
  readonly sender: string

  constructor(version: number, sender: string) {
    super(`an envelope of version ${version}; this node reads version ${VERSION}`)
    this.sender = sender
  }
}

/** The messages of an envelope cannot be read; who sent it, and as which, could be. */
export class DamagedEnvelope extends Error {
  override readonly name = 'DamagedEnvelope'
}

/** Who sent an envelope, and which it is. */
export interface Envelope {
  readonly sender: string
  /** One more than that of the envelope before, on the same link. */
  readonly number: number
  /** Where the messages begin. */
  readonly body_at: number
}

/** What stands before the number in the envelopes of one sender never changes: made once. */
export function envelopeHeader(sender: string): Uint8Array {
  const id = new TextEncoder().encode(sender)
  if (id.length > 255) throw new RangeError(`the node id ${sender} has ${id.length} bytes; at most 255 fit`)
  const header = new Uint8Array(SENDER_AT + 1 + id.length)
  header[0] = VERSION
  header[SENDER_AT] = id.length
  header.set(id, SENDER_AT + 1)
  return header
}

/** Gathers messages for one envelope. A message is encoded when it is added: what it is made of may change afterwards. */
export class EnvelopeWriter {
  readonly #header: Uint8Array
  readonly #fields = new FieldWriter()
  readonly #rooms = new Map<string, number>()
  #parts: { readonly tree: Uint8Array; readonly pieces: readonly Uint8Array[]; readonly length: number }[] =
    []
  #bytes = 0

  constructor(header: Uint8Array) {
    this.#header = header
  }

  /** How many messages it has. */
  get messages(): number {
    return this.#parts.length
  }

  /** How many bytes they take. */
  get bytes(): number {
    return this.#bytes
  }

  /** Throws a TypeError for what neither JSON nor bytes can say; then the message is not in it. */
  add(message: PeerMessage): void {
    const known = this.#rooms.size
    try {
      this.#write(this.#fields.begin(), message)
    } catch (error) {
      // The room was named in what is thrown away.
      for (const [room, index] of this.#rooms) if (index >= known) this.#rooms.delete(room)
      throw error
    }
    const { tree, pieces } = this.#fields.take()
    let length = 4 + tree.length
    for (const piece of pieces) length += piece.length
    this.#parts.push({ tree, pieces, length })
    this.#bytes += 4 + length
  }

  /** The envelope with this number on its link; the writer is empty again. */
  take(number: number): Uint8Array {
    const bytes = new Uint8Array(this.#header.length + this.#bytes)
    const view = new DataView(bytes.buffer)
    bytes.set(this.#header, 0)
    view.setFloat64(NUMBER_AT, number)
    let at = this.#header.length
    for (const { tree, pieces, length } of this.#parts) {
      view.setUint32(at, length)
      view.setUint32(at + 4, tree.length)
      bytes.set(tree, at + 8)
      at += 8 + tree.length
      for (const piece of pieces) {
        bytes.set(piece, at)
        at += piece.length
      }
    }
    this.#parts = []
    this.#bytes = 0
    this.#rooms.clear()
    return bytes
  }

  #write(fields: FieldWriter, message: PeerMessage): void {
    fields.number(RECEIVERS.indexOf(message.to))
    switch (message.to) {
      case 'gateway':
        fields.string(message.session_id)
        return
      case 'host':
        this.#room(fields, message.room)
        return
      default: {
        const { room, kind } = message.message
        this.#room(fields, room)
        const number = KIND_NUMBERS.get(kind)
        if (number === undefined) fields.string(kind)
        else fields.number(number)
        fields.fields(message.message as unknown as { [key: string]: Value }, BEFORE)
      }
    }
  }

  #room(fields: FieldWriter, room: RoomAddress): void {
    const name = roomName(room)
    const index = this.#rooms.get(name)
    if (index !== undefined) {
      fields.number(index)
      return
    }
    this.#rooms.set(name, this.#rooms.size)
    fields.value([room.project_id, room.room_type, room.key])
  }
}

/** Who sent the envelope. Throws `UnknownVersion`, or a ProtocolError for bytes that are none. */
export function readHeader(bytes: Uint8Array): Envelope {
  if (bytes.length <= SENDER_AT) throw new ProtocolError(`an envelope of ${bytes.length} bytes has no header`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const version = bytes[0]!
  const number = view.getFloat64(NUMBER_AT)
  const body_at = SENDER_AT + 1 + bytes[SENDER_AT]!
  const sender = UTF8.decode(bytes.subarray(SENDER_AT + 1, body_at))
  if (version !== VERSION) throw new UnknownVersion(version, sender)
  if (body_at > bytes.length || !Number.isSafeInteger(number) || number < 1)
    throw new ProtocolError(`an envelope of ${bytes.length} bytes with a damaged header`)
  return { sender, number, body_at }
}

/** The messages of an envelope, in the order in which they were added. Throws `DamagedEnvelope`. */
export function readMessages(bytes: Uint8Array, body_at: number): PeerMessage[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const rooms: RoomAddress[] = []
  const messages: PeerMessage[] = []
  try {
    for (let at = body_at; at < bytes.length; ) {
      const end = at + 4 + view.getUint32(at)
      const pieces_at = at + 8 + view.getUint32(at + 4)
      if (end > bytes.length || pieces_at > end)
        throw new ProtocolError(`the message at byte ${at} is cut short`)
      messages.push(
        readMessage(
          new FieldReader(
            bytes.subarray(at + 8, pieces_at),
            bytes.subarray(0, end),
            pieces_at,
            bytes.length > LARGEST_VIEWED,
          ),
          rooms,
        ),
      )
      at = end
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new DamagedEnvelope(`an envelope of ${bytes.length} bytes cannot be read: ${reason}`, {
      cause: error,
    })
  }
  return messages
}

function readMessage(fields: FieldReader, rooms: RoomAddress[]): PeerMessage {
  const to = RECEIVERS[fields.value() as number]
  if (to === undefined) throw new ProtocolError('a message to nobody known')
  const message = readBody(to, fields, rooms)
  fields.end()
  return message
}

function readBody(to: PeerMessage['to'], fields: FieldReader, rooms: RoomAddress[]): PeerMessage {
  if (to === 'gateway') return { to, session_id: fields.string() }
  const room = readRoom(fields.value(), rooms)
  if (to === 'host') return { to, room }
  const kind = fields.value()
  const message: { [key: string]: unknown } = { room, kind: typeof kind === 'number' ? KINDS[kind] : kind }
  if (typeof message.kind !== 'string') throw new ProtocolError(`a message of unknown kind ${String(kind)}`)
  fields.fields(message as { [key: string]: Value })
  return { to, message } as unknown as PeerMessage
}

function readRoom(value: Value, rooms: RoomAddress[]): RoomAddress {
  if (typeof value === 'number') {
    const room = rooms[value]
    if (room) return room
  }
  if (Array.isArray(value) && value.length === 3 && value.every((part) => typeof part === 'string')) {
    const [project_id, room_type, key] = value as [string, string, string]
    const room = { project_id, room_type, key }
    rooms.push(room)
    return room
  }
  throw new ProtocolError('a message for a room that was not named')
}
