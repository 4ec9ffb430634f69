import type { Json } from '../json.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../sync/delta.ts'
import type { ClientCodec, DecodedMessage, Payload } from './codec.ts'
import { ProtocolError } from './error-codes.ts'
import { elementsOf, messageReaders, messageWriters, readField } from './fields.ts'
import {
  type AddressedMessage,
  BATCH_OPCODE,
  CLIENT_MESSAGES,
  type ClientMessage,
  LAYER_HEAD,
  type MemberInfo,
  type PlainMessage,
  ROOM_OPCODE,
  SERVER_MESSAGES,
  SHORT_EPOCHS,
  STREAM_HEAD,
  STREAM_MESSAGES,
} from './messages.ts'
import { isArray, isMap, MsgpackReader, MsgpackWriter, NIL, UnknownKey } from './msgpack.ts'

const WRITERS = messageWriters(CLIENT_MESSAGES)
/** Of the state stream only the head: how the rest is read depends on what came before. */
const STREAM_HEADS = Object.fromEntries(
  Object.entries(STREAM_MESSAGES).map(([t, { opcode, fields }]) => [
    t,
    { opcode, fields: 'layer' in fields ? LAYER_HEAD : STREAM_HEAD },
  ]),
)
const READERS = messageReaders({ ...SERVER_MESSAGES, ...STREAM_HEADS })
const MEMBERS = STREAM_MESSAGES['state.resync'].fields.members

type StreamFrame = Extract<DecodedMessage, { t: keyof typeof STREAM_MESSAGES }>

/** The keys that frames of one state stream may refer to, as of one of them. */
interface KeyTable {
  readonly epoch: number
  readonly seq: number
  readonly keys: readonly string[]
}

/** Those of a room: of the base under '', of layers under their names. */
type KeyTables = Map<string, KeyTable>

/** `[from, …keys]`: from the index `from` on a table holds these. */
type Announced = [from: number, ...keys: string[]]

/** What frames of rooms leave out, since frames before them have said it. */
export class StreamContext {
  readonly #epochs = new Map<string, number>()
  #room: string | undefined

  /** `room`: the one that frames are about until one says so. */
  constructor(room?: string) {
    this.#room = room
  }

  /** The frames behind this one are about another room. */
  enter(room: string): void {
    this.#room = room
  }

  /** The room that a frame is about. */
  get room(): string {
    if (this.#room === undefined) throw new ProtocolError('a frame has no room')
    return this.#room
  }

  /** The epoch of a frame that is about the room, as it is written there. */
  epoch(written: number): number {
    const known = this.#epochs.get(this.room) ?? 0
    if (written === known % SHORT_EPOCHS) return known
    if (written > known) this.#epochs.set(this.room, written)
    return written
  }

  /** A seat in a room begins or ends. */
  forget(room: string): void {
    this.#epochs.delete(room)
  }

  /** Goes on from where another one is. */
  follow(other: StreamContext): void {
    this.#room = other.#room
    for (const [room, epoch] of other.#epochs) this.#epochs.set(room, epoch)
  }
}

/** `roomful.v1.msgpack`, the client's half. */
export class MsgpackClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly #writer = new MsgpackWriter()
  readonly #tables = new Map<string, KeyTables>()
  readonly #decodesStates: boolean
  readonly #context: StreamContext

  /** `decodesStates` false: states come as null and patches without their delta. `room`: that of frames before any that names one. */
  constructor(decodesStates = true, room?: string) {
    this.#decodesStates = decodesStates
    this.#context = new StreamContext(room)
  }

  /** Another one that goes on from where this one is: for a connection that is still read when this codec goes on with the next. */
  fork(): MsgpackClientCodec {
    const fork = new MsgpackClientCodec(this.#decodesStates)
    fork.#context.follow(this.#context)
    for (const [room, tables] of this.#tables) fork.#tables.set(room, new Map(tables))
    return fork
  }

  encode(message: ClientMessage): Payload {
    WRITERS[message.t](this.#writer.begin(), message)
    return this.#writer.take()
  }

  /** One frame of messages that `encode` made: at most `MAX.batch`. */
  batch(messages: readonly Payload[]): Payload {
    const to = this.#writer.begin()
    to.array(1 + messages.length)
    to.number(BATCH_OPCODE)
    for (const message of messages) to.raw(message)
    return to.take()
  }

  decode(payload: Payload): DecodedMessage {
    try {
      return this.#decode(payload)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      throw new ProtocolError('a frame lacks a field')
    }
  }

  #decode(payload: Payload): DecodedMessage {
    const reader = new MsgpackReader(payload)
    const length = reader.array() - 1
    const opcode = reader.value()
    if (opcode === ROOM_OPCODE) {
      const room = { t: 'room', room_id: reader.value() as string } as const
      this.#context.enter(room.room_id)
      return room
    }
    const known = READERS.get(opcode)
    if (!known && typeof opcode === 'number') return { t: 'unknown' }
    if (!known) throw new ProtocolError('a frame has no known opcode')
    const { t, read } = known
    const head = STREAM_HEADS[t]
    if (head) {
      const elements = elementsOf(head.fields).length
      return this.#streamFrame(read(reader, elements, t) as StreamFrame, length - elements, reader)
    }
    const message = read(reader, length, t) as PlainMessage
    // A snapshot follows, with the table of this seat.
    if (message.t === 'joined' || message.t === 'left') {
      this.#tables.delete(message.room_id)
      this.#context.forget(message.room_id)
    } else if (isAddressed(message)) this.#address(message)
    return message
  }

  /** Completes what was read with what its frame leaves out. */
  #address(message: { room_id: string; epoch?: number }): void {
    message.room_id = this.#context.room
    if (message.epoch !== undefined) message.epoch = this.#context.epoch(message.epoch)
  }

  /** Reads what is behind the head: `length` elements. */
  #streamFrame(frame: StreamFrame, length: number, reader: MsgpackReader): StreamFrame {
    this.#address(frame)
    const announced = reader.value() as Announced | null
    if (frame.t === 'state.patch' || frame.t === 'layer.patch') {
      frame.delta = this.#patch(frame, announced, length > 1, reader)
      return frame
    }
    const { room_id: roomId, epoch, seq } = frame
    const keys = (announced ?? []).slice(1) as string[]
    const tables = this.#tables.get(roomId) ?? new Map<string, KeyTable>()
    this.#tables.set(roomId, tables)
    const stream = streamOf(frame)
    const table = tables.get(stream)
    if (!table || table.epoch <= epoch) tables.set(stream, { epoch, seq, keys })
    const body = reader.withKeys(keys)
    const state = body.value()
    frame.state = this.#decodesStates ? state : null
    if (frame.t === 'state.resync') frame.members = readField(MEMBERS, body) as MemberInfo[]
    return frame
  }

  /** The delta of a patch; undefined when nothing changed, and when patches before this one are missing. */
  #patch(
    frame: Extract<StreamFrame, { delta: unknown }>,
    announced: Announced | null,
    changes: boolean,
    reader: MsgpackReader,
  ): Delta | undefined {
    const { room_id: roomId, epoch, seq } = frame
    const tables = this.#decodesStates ? this.#tables.get(roomId) : undefined
    const stream = streamOf(frame)
    const table = tables?.get(stream)
    if (!tables || !table || epoch < table.epoch) return undefined
    const [from, ...fresh] = announced ?? [table.keys.length]
    if (from > table.keys.length) return undefined
    const keys = fresh.length > 0 ? [...table.keys.slice(0, from), ...fresh] : table.keys
    try {
      const delta = changes ? readDelta(reader.withKeys(keys)) : undefined
      // A patch that comes late, or again after a resume, announces what is known already.
      if (epoch > table.epoch || seq > table.seq) tables.set(stream, { epoch, seq, keys })
      return delta
    } catch (error) {
      if (error instanceof UnknownKey) return undefined
      throw error
    }
  }
}

const streamOf = (frame: StreamFrame): string => ('layer' in frame ? frame.layer : '')

const isAddressed = (message: PlainMessage): message is AddressedMessage =>
  message.t === 'ack' ||
  message.t === 'reply' ||
  message.t === 'event' ||
  message.t === 'room.joined' ||
  message.t === 'room.presence' ||
  message.t === 'layer.gone' ||
  message.t === 'room.left'

function readDelta(reader: MsgpackReader): Delta {
  const change = readChange(reader)
  if (change === REMOVE) throw new ProtocolError('a patch removes no key')
  return change
}

function readChange(reader: MsgpackReader): Change {
  const code = reader.peek()
  if (isMap(code)) return reader.nested(() => objectDelta(readChanges(reader, readKey, readChange)))
  if (isArray(code)) return reader.nested(() => readArray(reader))
  const value = reader.value()
  return code === NIL ? REMOVE : new Replace(value)
}

/** `[value]` replaces; `[changes, splices]` changes an array; what is longer is a table of changes. */
function readArray(reader: MsgpackReader): Exclude<Delta, typeof REMOVE> {
  const length = reader.array()
  if (length === 1) return new Replace(reader.value())
  if (length > 2) return objectDelta(readTable(reader, length, readKey, readChange))
  const changes = readChanges(reader, readIndex, readDelta)
  const splices: Splice[] = []
  for (let rest = reader.array(); rest >= 3; rest -= 3)
    splices.push({
      at: reader.value() as number,
      remove: reader.value() as number,
      insert: reader.value() as Json[],
    })
  return new ArrayDelta(changes.keys, changes.changes, splices)
}

type Read<T> = (reader: MsgpackReader) => T

/** Of `keys[i]`, `changes[i]`. */
interface Changes<K, C> {
  readonly keys: K[]
  readonly changes: C[]
}

const objectDelta = ({ keys, changes }: Changes<string, Change>): ObjectDelta =>
  new ObjectDelta(keys, changes)

const readKey: Read<string> = (reader) => reader.key()
const readIndex: Read<number> = (reader) => reader.value() as number

/** Changes by key, as a map or as a table. */
function readChanges<K, C extends Change>(
  reader: MsgpackReader,
  key: Read<K>,
  change: Read<C>,
): Changes<K, C | ObjectDelta> {
  if (isArray(reader.peek())) return readTable(reader, reader.array(), key, change)
  const keys: K[] = []
  const changes: C[] = []
  for (let size = reader.map(); size > 0; size--) {
    keys.push(key(reader))
    changes.push(change(reader))
  }
  return { keys, changes }
}

/** `[columns, key, change, …, key, change, …, others]`: for each key a change of each column, then a map where keys are left. */
function readTable<K, C extends Change>(
  reader: MsgpackReader,
  length: number,
  key: Read<K>,
  change: Read<C>,
): Changes<K, C | ObjectDelta> {
  const columns: string[] = []
  for (let left = reader.array(); left > 0; left--) columns.push(reader.key())
  const keys: K[] = []
  const changes: (C | ObjectDelta)[] = []
  let left = length - 1
  for (; left > columns.length; left -= 1 + columns.length) {
    keys.push(key(reader))
    changes.push(
      new ObjectDelta(
        columns,
        columns.map(() => readChange(reader)),
      ),
    )
  }
  if (left === 0) return { keys, changes }
  const others = readChanges(reader, key, change)
  return { keys: keys.concat(others.keys), changes: changes.concat(others.changes) }
}
