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
import { type ClientCodec, type DecodedMessage, type Payload, ProtocolError } from './codec.ts'
import {
  CLIENT_MESSAGES,
  type ClientMessage,
  type MemberInfo,
  type PatchAt,
  type PlainMessage,
  SERVER_MESSAGES,
  SERVER_OPCODES,
  STREAM_HEAD,
  STREAM_MESSAGES,
} from './messages.ts'
import { messageReaders, messageWriters, readerOf, valuesReader } from './msgpack-fields.ts'
import { isArray, isMap, MsgpackReader, NIL, UnknownKey } from './msgpack-reader.ts'
import { MsgpackWriter } from './msgpack-writer.ts'

const WRITERS = messageWriters(CLIENT_MESSAGES)
const READERS = messageReaders(SERVER_MESSAGES)
const readHead = valuesReader(STREAM_HEAD)
const readMembers = readerOf(STREAM_MESSAGES['state.resync'].fields.members)

/** The keys a room's frames may refer to, as of one frame of its state stream. */
interface KeyTable {
  readonly epoch: number
  readonly seq: number
  readonly keys: readonly string[]
}

/** `[from, …keys]`: from the index `from` on a room's table holds these. */
type Announced = [from: number, ...keys: string[]]

/** `roomful.v1.msgpack`, the client's half. */
export class MsgpackClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly #writer = new MsgpackWriter()
  readonly #tables = new Map<string, KeyTable>()
  readonly #decodes_states: boolean

  /** `decodes_states` false: states come as null and patches without their delta. */
  constructor(decodes_states = true) {
    this.#decodes_states = decodes_states
  }

  encode(message: ClientMessage): Payload {
    WRITERS[message.t](this.#writer.begin(), message)
    return this.#writer.take()
  }

  decode(payload: Payload): DecodedMessage {
    try {
      return this.#decode(payload)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      throw new ProtocolError(`a frame of ${payload.length} bytes lacks what its opcode calls for`)
    }
  }

  #decode(payload: Payload): DecodedMessage {
    const reader = new MsgpackReader(payload)
    const length = reader.array()
    const opcode = reader.value()
    if (
      opcode === SERVER_OPCODES['state.patch'] ||
      opcode === SERVER_OPCODES['state.snapshot'] ||
      opcode === SERVER_OPCODES['state.resync']
    )
      return this.#stateFrame(opcode, length, reader)
    const known = READERS.get(opcode)
    if (!known) throw new ProtocolError(`the server sent a message with the unknown opcode ${String(opcode)}`)
    const message = known.read(reader, length - 1, known.t) as PlainMessage
    // A snapshot follows, with the table of this seat.
    if (message.t === 'joined' || message.t === 'left') this.#tables.delete(message.room_id)
    return message
  }

  #stateFrame(opcode: number, length: number, reader: MsgpackReader): DecodedMessage {
    if (opcode === SERVER_OPCODES['state.patch']) {
      const patch = readHead(reader, 'state.patch') as Extract<DecodedMessage, { t: 'state.patch' }>
      patch.delta = this.#patch(patch, reader.value() as Announced | null, length, reader)
      return patch
    }
    const whole = readHead(
      reader,
      opcode === SERVER_OPCODES['state.snapshot'] ? 'state.snapshot' : 'state.resync',
    ) as Extract<DecodedMessage, { t: 'state.snapshot' | 'state.resync' }>
    const { room_id, epoch, seq } = whole
    const keys = ((reader.value() as Announced | null) ?? []).slice(1) as string[]
    const table = this.#tables.get(room_id)
    if (!table || table.epoch <= epoch) this.#tables.set(room_id, { epoch, seq, keys })
    const body = reader.withKeys(keys)
    const state = body.value()
    whole.state = this.#decodes_states ? state : null
    if (whole.t === 'state.resync') whole.members = readMembers(body) as MemberInfo[]
    return whole
  }

  /** The delta of a patch; undefined when nothing changed, and when patches before this one are missing. */
  #patch(
    { room_id, epoch, seq }: PatchAt,
    announced: Announced | null,
    length: number,
    reader: MsgpackReader,
  ): Delta | undefined {
    const table = this.#decodes_states && this.#tables.get(room_id)
    if (!table || epoch < table.epoch) return undefined
    const [from, ...fresh] = announced ?? [table.keys.length]
    if (from > table.keys.length) return undefined
    const keys = fresh.length > 0 ? [...table.keys.slice(0, from), ...fresh] : table.keys
    try {
      const delta = length > 6 ? readDelta(reader.withKeys(keys)) : undefined
      // A patch that comes late, or again after a resume, announces what is known already.
      if (epoch > table.epoch || seq > table.seq) this.#tables.set(room_id, { epoch, seq, keys })
      return delta
    } catch (error) {
      if (error instanceof UnknownKey) return undefined
      throw error
    }
  }
}

function readDelta(reader: MsgpackReader): Delta {
  const change = readChange(reader)
  if (change === REMOVE) throw new ProtocolError('a patch removes the state itself')
  return change
}

function readChange(reader: MsgpackReader): Change {
  const code = reader.peek()
  if (isMap(code)) return reader.nested(() => readObjectDelta(reader))
  if (isArray(code)) return reader.nested(() => readArrayOrValue(reader))
  const value = reader.value()
  return code === NIL ? REMOVE : new Replace(value)
}

function readObjectDelta(reader: MsgpackReader): ObjectDelta {
  const changes = new Map<string, Change>()
  for (let size = reader.map(); size > 0; size--) changes.set(reader.key(), readChange(reader))
  return new ObjectDelta(changes)
}

/** `[value]` replaces; `[changes, splices]` changes an array. */
function readArrayOrValue(reader: MsgpackReader): Replace | ArrayDelta {
  if (reader.array() === 1) return new Replace(reader.value())
  const changes = new Map<number, Delta>()
  for (let size = reader.map(); size > 0; size--) changes.set(reader.value() as number, readDelta(reader))
  const splices: Splice[] = []
  for (let rest = reader.array(); rest >= 3; rest -= 3)
    splices.push({
      at: reader.value() as number,
      remove: reader.value() as number,
      insert: reader.value() as Json[],
    })
  return new ArrayDelta(changes, splices)
}
