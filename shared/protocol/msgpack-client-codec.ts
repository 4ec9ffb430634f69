import type { Json } from '../json.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  DeltaMismatch,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../sync/delta.ts'
import type {
  ClientCodec,
  DecodedMessage,
  KeyTable,
  LayerChange,
  PatchBody,
  Payload,
  StreamTables,
  WholeBody,
} from './codec.ts'
import { ProtocolError } from './error-codes.ts'
import { elementsOf, messageReaders, messageWriters, readField } from './fields.ts'
import {
  type AddressedMessage,
  CLIENT_MESSAGES,
  type ClientMessage,
  type MemberInfo,
  PATCH_HEAD,
  type PlainMessage,
  ROOM_OPCODE,
  SERVER_MESSAGES,
  STREAM_MESSAGES,
} from './messages.ts'
import { isArray, isMap, MsgpackReader, MsgpackWriter, NIL } from './msgpack.ts'

const WRITERS = messageWriters(CLIENT_MESSAGES)
/** Of state stream frames, only the head is read now, and the rest when the frame is applied. */
const READERS = messageReaders({
  ...SERVER_MESSAGES,
  ...Object.fromEntries(
    Object.entries(STREAM_MESSAGES).map(([t, { opcode }]) => [t, { opcode, fields: PATCH_HEAD }]),
  ),
})
/** Number of elements of the head. */
const HEAD = elementsOf(PATCH_HEAD).length
const MEMBERS = STREAM_MESSAGES['state.resync'].fields.members

type Announced = [from: number, ...keys: string[]]

/** The client's half of `roomful.v1.msgpack`, for one connection. */
export class MsgpackClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly #writer = new MsgpackWriter()
  /** Room of the next frames that omit theirs. */
  #room: string | undefined

  /** `room`: the room of frames before any room frame. */
  constructor(room?: string) {
    this.#room = room
  }

  encode(message: ClientMessage): Payload {
    WRITERS[message.t](this.#writer.begin(), message)
    return this.#writer.take()
  }

  decode(payload: Payload): DecodedMessage {
    try {
      return this.#decode(payload)
    } catch (error) {
      throw unreadable(error)
    }
  }

  #decode(payload: Payload): DecodedMessage {
    const reader = new MsgpackReader(payload)
    const length = reader.array() - 1
    const opcode = reader.value()
    if (opcode === ROOM_OPCODE) {
      const room = { t: 'room', room_id: reader.value() as string } as const
      this.#room = room.room_id
      return room
    }
    const known = READERS.get(opcode)
    if (!known && typeof opcode === 'number') return { t: 'unknown' }
    if (!known) throw new ProtocolError('a frame has no known opcode')
    const { t, read } = known
    if (t in STREAM_MESSAGES) {
      const frame = read(reader, HEAD, t) as Addressed & { read: (tables: StreamTables) => unknown }
      this.#address(frame)
      const rest = length - HEAD
      frame.read = (tables) => (t === 'state.patch' ? patch : whole)(reader, tables, rest)
      return frame as unknown as DecodedMessage
    }
    const message = read(reader, length, t) as PlainMessage
    if (isAddressed(message)) this.#address(message)
    return message
  }

  /** Adds the room, which the frame omits. */
  #address(message: Addressed): void {
    if (this.#room === undefined) throw new ProtocolError('a frame has no room')
    message.room_id = this.#room
  }
}

interface Addressed {
  room_id: string
}

const ADDRESSED: ReadonlySet<string> = new Set<AddressedMessage['t']>([
  'ack',
  'reply',
  'event',
  'member',
  'spectators',
])

const isAddressed = (message: PlainMessage): message is AddressedMessage => ADDRESSED.has(message.t)

const unreadable = (error: unknown): ProtocolError =>
  error instanceof ProtocolError ? error : new ProtocolError('a frame lacks a field')

/** Reads the `rest` elements of a whole state after its head. */
function whole(reader: MsgpackReader, tables: StreamTables, rest: number): WholeBody {
  try {
    announce(reader, tables.keys)
    reader.keys = tables.keys
    return {
      state: reader.value(),
      members: readField(MEMBERS, reader) as MemberInfo[],
      layers: readLayers(reader, tables, rest > 3),
    }
  } catch (error) {
    throw unreadable(error)
  }
}

function patch(reader: MsgpackReader, tables: StreamTables, rest: number): PatchBody {
  try {
    if (rest > 0) announce(reader, tables.keys)
    reader.keys = tables.keys
    return {
      delta: rest > 1 && !reader.nil() ? readDelta(reader) : undefined,
      layers: readLayers(reader, tables, rest > 2),
    }
  } catch (error) {
    throw new DeltaMismatch('the change cannot be read', { cause: error })
  }
}

/** `[[number, name?, checksum, keys, change], …]`, or nil. Without a checksum, the member no longer has the layer. */
function readLayers(reader: MsgpackReader, { names, layers }: StreamTables, present: boolean): LayerChange[] {
  const changes: LayerChange[] = []
  if (!present || reader.nil()) return changes
  for (let left = reader.array(); left > 0; left--) {
    const length = reader.array()
    const number = reader.value() as number
    if (length === 2 || length === 5) names[number] = reader.value() as string
    const layer = names[number]
    if (layer === undefined) throw new ProtocolError(`layer ${number} has no name`)
    if (length < 3) {
      layers.delete(layer)
      changes.push({ layer, checksum: 0, change: REMOVE })
      continue
    }
    const checksum = reader.value() as number
    const keys = layers.get(layer) ?? []
    layers.set(layer, keys)
    announce(reader, keys)
    reader.keys = keys
    changes.push({ layer, checksum, change: readDelta(reader) })
  }
  return changes
}

/** `[from, …keys]`: the new keys of the table from the index `from` on. */
function announce(reader: MsgpackReader, keys: KeyTable): void {
  const announced = reader.value() as Announced | null
  if (!announced) return
  const [from, ...fresh] = announced
  if (from > keys.length)
    throw new ProtocolError(`keys are announced from ${from} on, and ${keys.length} are known`)
  keys.splice(from, keys.length, ...fresh)
}

function readDelta(reader: MsgpackReader): Delta {
  const change = readChange(reader)
  if (change === REMOVE) throw new ProtocolError('a patch removes no key')
  return change
}

function readChange(reader: MsgpackReader): Change {
  const code = reader.peek()
  const isDeeper = isMap(code)
  if (isDeeper || isArray(code)) {
    reader.down()
    const change = isDeeper ? objectDelta(readChanges(reader, readKey, readChange)) : readArray(reader)
    reader.up()
    return change
  }
  const value = reader.value()
  return code === NIL ? REMOVE : new Replace(value)
}

/** `[value]` replaces, `[changes, splices]` changes an array, and longer arrays are a table of changes. */
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

/** `changes[i]` belongs to `keys[i]`. */
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

/**
 * `[columns, key, change, …, key, change, …, others]`: each key with a change of each column, and then a map of the remaining keys, if any.
 */
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
