import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Logger } from '../../shared/log.ts'
import { ProtocolError } from '../../shared/protocol/error-codes.ts'
import { type Data, isMap, MsgpackReader, MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import type { Bus } from '../../shared/store/port.ts'
import { type RoomAddress, roomName, type ToEdge, type ToOwner } from '../traffic.ts'
import type { ClusterMetrics } from './metrics.ts'

/** The channel that a node listens on for the others. */
export const nodeChannel = (nodeId: string): string => `node:${nodeId}`

/** What links to other nodes are made of. */
export interface NodeLinksParts {
  readonly nodeId: string
  readonly bus: Bus
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  /** Runs a callback when the present turn of the event loop is over; default: before any other input or output. */
  readonly defer?: (callback: () => void) => void
  readonly onMessage: (message: PeerMessage, from: string) => void
  /** Messages from this node, or from any when undefined, may have been lost. Called before what came after them is handed on. */
  readonly onGap: (from: string | undefined) => void
}

/** An envelope that has grown to this is closed, and the next begun. */
const LARGEST_ENVELOPE = 1 << 20
/**
 * What is larger leaves in pieces of so much, each when the bus has taken the one before: neither node, nor the store, is busy with a
 * state of megabytes for a whole turn of its event loop.
 */
const PIECE_BYTES = 1 << 17
/** A link that said something says that it said no more after this long, so that the loss of the last message is noticed too. */
const BEAT_MS = 500
const BEATS = 2

/** To one other node. */
interface Outgoing {
  readonly writer: EnvelopeWriter
  waiting: boolean
  /** Envelopes behind one that is leaving in pieces, which is the first. */
  readonly leaving: OutgoingEnvelope[]
  /** Number of the last envelope. */
  number: number
  sentAt: number
  /** How many empty envelopes may still follow. */
  beats: number
}

/** From one other node. */
interface Incoming {
  /** Number of the last envelope. */
  number: number
  /** What has come of an envelope in pieces. */
  pieces: Uint8Array[]
}

/**
 * The links to the other nodes over the store's bus, one channel per node. All that one turn of the event loop has for a node leaves in
 * one envelope, a large one in pieces; envelopes are numbered, so that the receiver notices what the bus has lost. What is lost is not sent
 * again.
 */
export class NodeLinks {
  readonly #parts: NodeLinksParts
  readonly #defer: (callback: () => void) => void
  readonly #header: Uint8Array
  readonly #outgoing = new Map<string, Outgoing>()
  readonly #incoming = new Map<string, Incoming>()
  readonly #strangers = new Set<string>()
  #waiting: [string, Outgoing][] = []
  #cancelBeats: (() => void) | undefined
  #unsubscribe: (() => Promise<void>) | undefined
  #busFails = false
  #closed = false

  constructor(parts: NodeLinksParts) {
    this.#parts = parts
    this.#defer = parts.defer ?? endOfTurn
    this.#header = envelopeHeader(parts.nodeId)
  }

  /** Resolves when this node hears the others; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    const { bus, nodeId } = this.#parts
    this.#unsubscribe = await bus.subscribe(
      nodeChannel(nodeId),
      (bytes) => this.#receive(bytes),
      () => this.#gap(undefined),
    )
  }

  /** Sends at the end of this turn. The message is encoded at once: what it is made of may change afterwards. */
  send(to: string, message: PeerMessage): void {
    if (this.#closed) return
    const link = this.#link(to)
    try {
      link.writer.add(message)
    } catch (error) {
      this.#parts.log.error({ err: error, peer: to }, 'a message to another node cannot be encoded')
      return
    }
    if (link.writer.bytes >= LARGEST_ENVELOPE) this.#publish(to, link)
    else if (!link.waiting) {
      link.waiting = true
      if (this.#waiting.push([to, link]) === 1) this.#defer(this.#flush)
    }
  }

  /** Lets go of what is known of a node that is gone. Should it come back, its first envelope tells of a gap. */
  forget(nodeId: string): void {
    this.#outgoing.get(nodeId)?.leaving.splice(0)
    this.#outgoing.delete(nodeId)
    this.#incoming.delete(nodeId)
    this.#strangers.delete(nodeId)
  }

  /** Lets a node that is back, or new, hear of this one. Should it have been here all the time, it finds that it missed something. */
  greet(nodeId: string): void {
    if (this.#closed) return
    const link = this.#link(nodeId)
    link.beats = BEATS + 1
    this.#publish(nodeId, link)
  }

  /** Sends what waits, and listens no more. */
  async close(): Promise<void> {
    this.#flush()
    this.#closed = true
    this.#cancelBeats?.()
    await this.#unsubscribe?.()
  }

  #link(to: string): Outgoing {
    let link = this.#outgoing.get(to)
    if (!link) {
      const writer = new EnvelopeWriter(this.#header)
      link = { writer, waiting: false, leaving: [], number: 0, sentAt: 0, beats: 0 }
      this.#outgoing.set(to, link)
    }
    return link
  }

  readonly #flush = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    for (const [to, link] of waiting) {
      link.waiting = false
      if (link.writer.messages > 0) this.#publish(to, link)
    }
  }

  #publish(to: string, link: Outgoing): void {
    const { messages } = link.writer
    this.#parts.metrics.peerMessages.inc(messages)
    link.sentAt = this.#parts.clock.monotonic()
    link.beats = messages > 0 ? BEATS : link.beats - 1
    link.leaving.push(link.writer.take())
    if (link.leaving.length === 1) this.#send(to, link)
    if (link.beats > 0) this.#armBeats()
  }

  /** Sends what is leaving, up to the first piece of an envelope that is not whole with it. */
  #send(to: string, link: Outgoing): void {
    const { bus, metrics } = this.#parts
    for (let next = link.leaving[0]; next; next = link.leaving[0]) {
      const envelope = next.read(PIECE_BYTES, ++link.number)
      metrics.peerPublishes.inc()
      metrics.peerBytes.inc(envelope.length)
      const published = bus.publish(nodeChannel(to), envelope).then(
        () => {
          this.#busFails = false
        },
        (error: unknown) => this.#lost(link, error),
      )
      if (next.left > 0) {
        void published.then(() => this.#send(to, link))
        return
      }
      link.leaving.shift()
    }
  }

  /** The number is used up, so the receiver will notice; at the latest by the beats after the bus works again. */
  #lost(link: Outgoing, error: unknown): void {
    const { log, metrics } = this.#parts
    metrics.peerFaults.inc({ fault: 'unpublished' })
    if (this.#closed) return
    if (!this.#busFails)
      log.warn({ err: error }, 'messages to other nodes are lost: the bus does not take them')
    this.#busFails = true
    link.beats = BEATS
    this.#armBeats()
  }

  #armBeats(): void {
    if (this.#closed) return
    this.#cancelBeats ??= this.#parts.clock.schedule(BEAT_MS / 2, this.#beat)
  }

  readonly #beat = (): void => {
    this.#cancelBeats = undefined
    const now = this.#parts.clock.monotonic()
    for (const [to, link] of this.#outgoing) {
      if (link.beats === 0) continue
      if (now - link.sentAt >= BEAT_MS) this.#publish(to, link)
      else this.#armBeats()
    }
  }

  #receive(bytes: Uint8Array): void {
    const { log, onMessage } = this.#parts
    let envelope: Envelope
    try {
      envelope = readHeader(bytes)
    } catch (error) {
      if (error instanceof UnknownVersion) this.#unknown(error)
      else this.#damaged(error, undefined)
      return
    }
    const { sender } = envelope
    const link = this.#incoming.get(sender) ?? { number: 0, pieces: [] }
    this.#incoming.set(sender, link)
    const missing = envelope.number !== link.number + 1
    link.number = envelope.number
    if (missing) link.pieces = []
    let messages: PeerMessage[]
    try {
      messages = readMessages(body(bytes, envelope, link))
    } catch (error) {
      this.#damaged(error, sender)
      return
    }
    if (missing) this.#gap(sender)
    for (const message of messages) {
      try {
        onMessage(message, sender)
      } catch (error) {
        log.error({ err: error, peer: sender }, 'a message of another node could not be handled')
      }
    }
  }

  #gap(from: string | undefined): void {
    this.#parts.metrics.peerFaults.inc({ fault: 'gap' })
    this.#parts.onGap(from)
  }

  /** As good as lost. */
  #damaged(error: unknown, from: string | undefined): void {
    this.#parts.metrics.peerFaults.inc({ fault: 'unreadable' })
    this.#parts.log.error({ err: error, peer: from }, 'what another node sent cannot be read')
    this.#gap(from)
  }

  /** Nothing would be won by asking again, so this is no gap. */
  #unknown(error: UnknownVersion): void {
    this.#parts.metrics.peerFaults.inc({ fault: 'unreadable' })
    if (this.#strangers.has(error.sender)) return
    this.#strangers.add(error.sender)
    this.#parts.log.warn({ err: error, peer: error.sender }, 'another node speaks another version')
  }
}

/** What there is to read once an envelope has come: all of it, or nothing while some of its pieces are missing. */
function body(bytes: Uint8Array, { bodyAt, pieces }: Envelope, link: Incoming): Uint8Array {
  const piece = bytes.subarray(bodyAt)
  if (!pieces.continues) link.pieces = []
  // Its beginning was lost, and that was told.
  else if (link.pieces.length === 0) return NOTHING
  if (!pieces.continues && !pieces.follows) return piece
  link.pieces.push(piece)
  return pieces.follows ? NOTHING : Buffer.concat(link.pieces.splice(0))
}

const NOTHING = new Uint8Array()

/** Behind every promise continuation of the present turn, and before any other input or output. */
const endOfTurn = (callback: () => void): void => queueMicrotask(() => process.nextTick(callback))

/** What one node says to another. */
export type PeerMessage =
  /** For a room that the receiver is believed to run. */
  | { readonly to: 'owner'; readonly message: ToOwner }
  /** The receiver is asked to open the room, if no living node owns it. */
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
 * | 1 | flags: 1, its messages go on in the next envelope; 2, they go on from the one before |
 * | 8 | number of the envelope on its link (sender to receiver), big-endian float64; the first is 1 |
 * | 1, n | length of the sender's node id, and the id |
 * | | messages up to the end |
 *
 * In every version, the version and the sender stay where they are.
 * A message is a sequence of MessagePack values: what it is to, the room (three strings, or the place in the envelope of one that came
 * before), the kind, and the other fields as a map. Ready frames are `bin`.
 */
const VERSION = 2

const FLAGS_AT = 1
const FOLLOWS = 1
const CONTINUES = 2
const NUMBER_AT = 2
/** Where the length of the sender's id is. */
const SENDER_AT = 10
/** Views of an envelope keep it in memory whole; of a larger one the frames are copied. */
const LARGEST_VIEWED = 16 * 1024

/** By their places in this list. It may not change without a new version. */
const RECEIVERS: readonly PeerMessage['to'][] = ['owner', 'opener', 'edge', 'gateway', 'host']

/** Kinds that stand as integers, by their places in this list, which may not change without a new version; others are strings. */
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
]

/** Names of fields that stand as integers, by their places in this list, which may not change without a new version; others are strings. */
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
  'after',
  'ask',
  'owner',
  'edge',
  'codec',
  'session_id',
  'sub',
  'options',
  'reason',
  'have_seq',
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
]

const numbers = (names: readonly string[]): ReadonlyMap<string, number> =>
  new Map(names.map((name, index) => [name, index]))
const KIND_NUMBERS = numbers(KINDS)
const NAME_NUMBERS = numbers(NAMES)

const numberOfName = (name: string): number | undefined => NAME_NUMBERS.get(name)

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
  readonly bodyAt: number
  /** Whether it is a piece of a larger one, with others behind it, and before it. */
  readonly pieces: { readonly follows: boolean; readonly continues: boolean }
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

/** Gathers messages for one envelope. A message is encoded when it is added: what it is made of may change afterwards, but for frames. */
export class EnvelopeWriter {
  readonly #header: Uint8Array
  readonly #writer = new MsgpackWriter()
  readonly #rooms = new Map<string, number>()
  /** What stands before what the writer has. Large frames are taken as they are, since nothing changes them. */
  #chunks: Uint8Array[] = []
  #chunkBytes = 0
  #messages = 0

  constructor(header: Uint8Array) {
    this.#header = header
  }

  /** How many messages it has. */
  get messages(): number {
    return this.#messages
  }

  /** How many bytes they take. */
  get bytes(): number {
    return this.#chunkBytes + this.#writer.length
  }

  /** Throws a TypeError for what neither JSON nor bytes can say; then the message is not in it. */
  add(message: PeerMessage): void {
    const { bytes } = this
    const known = this.#rooms.size
    try {
      this.#write(message)
    } catch (error) {
      this.#cut(bytes)
      // The room was named in what is thrown away.
      for (const [room, index] of this.#rooms) if (index >= known) this.#rooms.delete(room)
      throw error
    }
    this.#messages++
  }

  /** What was gathered; the writer is empty again. */
  take(): OutgoingEnvelope {
    this.#endChunk()
    const taken = new OutgoingEnvelope(this.#header, this.#chunks, this.#chunkBytes)
    this.#chunks = []
    this.#chunkBytes = 0
    this.#messages = 0
    this.#rooms.clear()
    return taken
  }

  /** Drops what was written behind the first `bytes`. */
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
      return
    }
    if (message.to === 'host') {
      this.#room(message.room)
      return
    }
    const { room, kind, ...fields } = message.message
    this.#room(room)
    to.value(KIND_NUMBERS.get(kind) ?? kind)
    this.#value(fields as Data)
  }

  /** Writes a value with bytes in it. What is undefined in an object is left out. */
  #value(value: Data): void {
    const to = this.#writer
    if (typeof value !== 'object' || value === null) to.value(value)
    else if (value instanceof Uint8Array) this.#frame(value)
    else if (Array.isArray(value)) {
      to.array(value.length)
      for (const element of value as readonly Data[]) this.#value(element)
    } else {
      const object = value as { readonly [key: string]: Data | undefined }
      const names = Object.keys(object)
      let size = 0
      for (const name of names) if (object[name] !== undefined) size++
      to.map(size)
      for (const name of names) {
        const below = object[name]
        if (below === undefined) continue
        to.key(name, numberOfName)
        this.#value(below)
      }
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
    const name = roomName(room)
    const index = this.#rooms.get(name)
    if (index === undefined) this.#rooms.set(name, this.#rooms.size)
    this.#writer.value(index ?? [room.projectId, room.roomType, room.key])
  }
}

/** The messages of one envelope on their way out: as a whole, or in pieces. */
export class OutgoingEnvelope {
  readonly #header: Uint8Array
  readonly #chunks: Uint8Array[]
  #left: number
  #begun = false

  constructor(header: Uint8Array, chunks: Uint8Array[], bytes: number) {
    this.#header = header
    this.#chunks = chunks
    this.#left = bytes
  }

  /** How many bytes are still to be read. */
  get left(): number {
    return this.#left
  }

  /** The next envelope on the link, as its `number`th, with at most so many bytes of messages. */
  read(most: number, number: number): Uint8Array {
    const size = Math.min(most, this.#left)
    const envelope = new Uint8Array(this.#header.length + size)
    envelope.set(this.#header)
    this.#left -= size
    envelope[FLAGS_AT] = (this.#left > 0 ? FOLLOWS : 0) | (this.#begun ? CONTINUES : 0)
    new DataView(envelope.buffer).setFloat64(NUMBER_AT, number)
    this.#begun = true
    for (let at = this.#header.length; at < envelope.length; ) {
      const chunk = this.#chunks.shift()!
      const part = chunk.subarray(0, envelope.length - at)
      envelope.set(part, at)
      at += part.length
      if (part.length < chunk.length) this.#chunks.unshift(chunk.subarray(part.length))
    }
    return envelope
  }
}

/** Who sent the envelope. Throws `UnknownVersion`, or a ProtocolError for bytes that are none. */
export function readHeader(bytes: Uint8Array): Envelope {
  if (bytes.length <= SENDER_AT) throw new ProtocolError(`an envelope of ${bytes.length} bytes has no header`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const version = bytes[0]!
  const number = view.getFloat64(NUMBER_AT)
  const bodyAt = SENDER_AT + 1 + bytes[SENDER_AT]!
  const sender = UTF8.decode(bytes.subarray(SENDER_AT + 1, bodyAt))
  if (version !== VERSION) throw new UnknownVersion(version, sender)
  if (bodyAt > bytes.length || !Number.isSafeInteger(number) || number < 1)
    throw new ProtocolError(`an envelope of ${bytes.length} bytes with a damaged header`)
  const flags = bytes[FLAGS_AT]!
  const pieces = { follows: (flags & FOLLOWS) > 0, continues: (flags & CONTINUES) > 0 }
  return { sender, number, bodyAt, pieces }
}

/** The messages of an envelope, in the order in which they were added. Throws `DamagedEnvelope`. */
export function readMessages(bytes: Uint8Array): PeerMessage[] {
  const bin = bytes.length > LARGEST_VIEWED ? 'copy' : 'view'
  const reader = new MsgpackReader(bytes, { keys: NAMES, bin })
  const rooms: RoomAddress[] = []
  const messages: PeerMessage[] = []
  try {
    while (reader.at < bytes.length) messages.push(readMessage(reader, rooms))
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new DamagedEnvelope(`an envelope of ${bytes.length} bytes cannot be read: ${reason}`, {
      cause: error,
    })
  }
  return messages
}

function readMessage(reader: MsgpackReader, rooms: RoomAddress[]): PeerMessage {
  const to = RECEIVERS[reader.value() as number]
  if (to === undefined) throw new ProtocolError('a message to a receiver of unknown number')
  if (to === 'gateway') return { to, session_id: text(reader.value(), 'a session id') }
  const room = readRoom(reader.value(), rooms)
  if (to === 'host') return { to, room }
  const number = reader.value()
  const kind = text(typeof number === 'number' ? KINDS[number] : number, 'the kind of a message')
  if (!isMap(reader.peek())) throw new ProtocolError(`a message of kind ${kind} has no fields`)
  return { to, message: { room, kind, ...(reader.value() as object) } } as PeerMessage
}

function text(value: Json | undefined, what: string): string {
  if (typeof value !== 'string') throw new ProtocolError(`${what} is ${typeof value}; it must be a string`)
  return value
}

function readRoom(value: Json, rooms: RoomAddress[]): RoomAddress {
  if (typeof value === 'number') {
    const room = rooms[value]
    if (room) return room
  }
  if (Array.isArray(value) && value.length === 3 && value.every((part) => typeof part === 'string')) {
    const [projectId, roomType, key] = value as [string, string, string]
    const room = { projectId, roomType, key }
    rooms.push(room)
    return room
  }
  throw new ProtocolError('a message for a room that was not named')
}
