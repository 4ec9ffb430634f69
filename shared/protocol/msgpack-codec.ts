import type { Json } from '../json.ts'
import { MAX_DEPTH } from '../sync/check.ts'
import { type ArrayDelta, type Change, type Delta, ObjectDelta, REMOVE, Replace } from '../sync/delta.ts'
import {
  type Codec,
  EncodedState,
  type LayerAt,
  type LayerEncoder,
  type LayerNumbers,
  type LayerPart,
  type Payload,
  type RoomEncoder,
  type WholeName,
} from './codec.ts'
import { ProtocolError, UnsafeInteger } from './error-codes.ts'
import { messageWriters, writeField } from './fields.ts'
import {
  CLIENT_OPCODES,
  type ClientMessage,
  MAX,
  type MemberInfo,
  type PatchHead,
  type PlainMessage,
  ROOM_OPCODE,
  SERVER_MESSAGES,
  SERVER_OPCODES,
  STREAM_MESSAGES,
  type StateAt,
} from './messages.ts'
import {
  endOfValue,
  FRAME_LEVELS,
  isArray,
  type KeyIndex,
  KnownStrings,
  MsgpackReader,
  MsgpackWriter,
  NIL,
  type Reading,
} from './msgpack.ts'
import { isCount, isRef, parsePositional, unsafeInteger } from './schema.ts'

const WRITERS = messageWriters(SERVER_MESSAGES)

const NO_BYTES = new Uint8Array(0)

/** First byte of a short array, without its length. */
const FIXARRAY = 0x90
/** Numbers of elements of a `message`: the opcode, room, type and data, and optionally `ref` and `settled`. */
const LEAST = 4
const MOST = 6

/** Reader of one element of a frame's array. */
const ELEMENT: Reading = { levels: FRAME_LEVELS - 1 }

/** `roomful.v1.msgpack`: each message is one binary frame with an array that starts with an opcode. */
export class MsgpackCodec implements Codec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly binary = true
  readonly #writer = new MsgpackWriter()
  /** Reader of the elements of a `message` or `ping` after the opcode. It is used again, because nearly every input needs one. */
  readonly #elements = new MsgpackReader(NO_BYTES, {
    levels: MAX_DEPTH,
    known: new KnownStrings(),
    noProto: true,
  })

  encode(message: PlainMessage): Payload {
    WRITERS[message.t](this.#writer.begin(), message)
    return this.#writer.take()
  }

  listFor(requestId: number, encoded: Payload): Payload {
    const to = this.#writer.begin()
    to.number(requestId)
    // The array's length, the opcode and the request id 1 have one byte each.
    return concat(encoded.subarray(0, 2), to.take(), encoded.subarray(3))
  }

  isUnreliable(payload: Payload): boolean {
    return payload[0] === FIXARRAY + LEAST && payload[1] === CLIENT_OPCODES.message
  }

  decode(payload: Payload): ClientMessage {
    return this.#message(payload) ?? this.#ping(payload) ?? this.#any(payload)
  }

  /**
   * Reads a `message` directly from its bytes, because nearly all messages of clients are of this type. Undefined: it is another message,
   * or it is invalid. The general path then reads it and reports errors.
   */
  #message(payload: Payload): ClientMessage | undefined {
    const length = payload[0]! - FIXARRAY
    if (payload[1] !== CLIENT_OPCODES.message || !(length >= LEAST && length <= MOST)) return undefined
    try {
      const reader = this.#elements
      reader.restart(payload, 2)
      const roomId = reader.text()
      const type = reader.text()
      if (!roomId || roomId.length > MAX.room_id || !type || type.length > MAX.type) return undefined
      const data = reader.value()
      const ref = length > LEAST && !reader.nil() ? reader.value() : undefined
      const settled = length === MOST && !reader.nil() ? reader.value() : undefined
      reader.end()
      // Written out, because a spread costs more than all the rest.
      if (ref === undefined && settled === undefined) return { t: 'message', room_id: roomId, type, data }
      if (!isRef(ref) || !isCount(settled)) return undefined
      return { t: 'message', room_id: roomId, type, data, ref, settled }
    } catch {
      return undefined
    }
  }

  /** Reads a `ping` directly, because idle clients send nothing else. Undefined: as for `#message`. */
  #ping(payload: Payload): ClientMessage | undefined {
    if (payload[0] !== FIXARRAY + 2 || payload[1] !== CLIENT_OPCODES.ping) return undefined
    try {
      const reader = this.#elements
      reader.restart(payload, 2)
      const at = reader.value()
      reader.end()
      return typeof at === 'number' ? { t: 'ping', at } : undefined
    } catch {
      return undefined
    }
  }

  #any(payload: Payload): ClientMessage {
    let reader = new MsgpackReader(payload, ELEMENT)
    if (!isArray(reader.peek()))
      throw new ProtocolError('a frame is not a MessagePack array; send [opcode, field, …]')
    const elements: Json[] = []
    let unsafe: UnsafeInteger | undefined
    for (let left = reader.array(); left > 0; left--) {
      const { at } = reader
      try {
        elements.push(reader.value())
      } catch (error) {
        if (!(error instanceof UnsafeInteger)) throw error
        unsafe ??= error
        elements.push(null)
        reader = new MsgpackReader(payload, { ...ELEMENT, at: endOfValue(payload, at) })
      }
    }
    reader.end()
    const message = parsePositional(elements)
    if (unsafe) throw unsafeInteger(unsafe, message)
    return message
  }

  address(roomId: string): Payload {
    const to = this.#writer.begin()
    to.array(2)
    to.number(ROOM_OPCODE)
    to.string(roomId)
    return to.take()
  }

  roomEncoder(hasLayers = false): RoomEncoder {
    return new MsgpackRoomEncoder(this.#writer, hasLayers)
  }

  layerEncoder(): LayerEncoder {
    return new MsgpackLayerEncoder(this.#writer)
  }

  ending(layers: readonly LayerPart[], numbers: LayerNumbers): Payload {
    if (layers.length === 0) return NO_LAYERS
    const to = this.#writer.begin()
    to.array(layers.length)
    for (const { layer, change } of layers) {
      const known = numbers.of(layer)
      const number = known ?? numbers.give(layer)
      to.array((known === undefined ? 2 : 1) + (change ? 3 : 0))
      to.number(number)
      if (known === undefined) to.string(layer)
      if (change) to.raw(change[this.subprotocol]!)
      else numbers.free(layer, number)
    }
    return to.take()
  }
}

const MEMBERS = STREAM_MESSAGES['state.resync'].fields.members

/** Maximum number of interned keys of a room's states. */
const MAX_INTERNED = 16_384
/** Minimum length of a key table at which it is searched for keys that the state no longer has. The search repeats at twice the length. */
const LOOKED_THROUGH_FROM = 1024
/** Longer keys (in UTF-16 code units) are not interned. */
const MAX_INTERNED_LENGTH = 64

/** The element `layers` of a frame without changed layers. */
const NO_LAYERS = Uint8Array.of(NIL)

/**
 * Interned keys of one state: the first patch that changes a key announces it, and an integer replaces it from then on. The table restarts
 * when the state has less than half of its keys, because a complete state carries all of them. A full table restarts when as many new keys
 * did not fit as it holds. So rooms with changing keys send at most twice the keys.
 */
class InternedKeys {
  readonly #writer: MsgpackWriter
  readonly #encoded = new EncodedState()
  readonly #keys: string[] = []
  readonly #index = new Map<string, number>()
  #missed = 0
  #lookThroughAt = LOOKED_THROUGH_FROM
  /** True if the state had less than half of the table's keys at the last search. */
  #stale = false
  #state: Json | undefined

  constructor(writer: MsgpackWriter) {
    this.#writer = writer
  }

  stateChanged(state: Json): void {
    this.#state = state
    this.#encoded.forget()
  }

  /** Returns the encoded state. */
  state(state: Json): Uint8Array {
    return this.#encoded.of(state, this.#encode)
  }

  /** Number of keys before the next patch. */
  begin(): number {
    if (this.#missed >= MAX_INTERNED || this.#stale) this.#forget()
    return this.#keys.length
  }

  /** Writes a change, and interns its keys. Returns true if the table has more than `known` keys now. */
  change(delta: Delta, known: number): boolean {
    try {
      writeChange(this.#writer, delta, this.#intern)
    } catch (error) {
      // No client will receive the keys that were interned here.
      this.#forget()
      throw error
    }
    return this.#keys.length > known
  }

  /** Writes a change again, whose keys are interned. */
  again(delta: Delta): void {
    writeChange(this.#writer, delta, (key) => this.#index.get(key))
  }

  /** `[from, …keys]`: the keys of the table from the index `from` on. */
  announce(from: number): void {
    this.#writer.array(1 + this.#keys.length - from)
    this.#writer.number(from)
    for (let i = from; i < this.#keys.length; i++) this.#writer.string(this.#keys[i]!)
  }

  /** A patch is written. */
  lookThrough(): void {
    if (this.#keys.length < this.#lookThroughAt || this.#state === undefined) return
    this.#lookThroughAt = 2 * this.#keys.length
    this.state(this.#state)
  }

  readonly #encode = (state: Json): Uint8Array => {
    const used = new Uint8Array(this.#keys.length)
    this.#writer.begin().value(state, (key) => {
      const index = this.#index.get(key)
      if (index !== undefined) used[index] = 1
      return index
    })
    if (used.length >= LOOKED_THROUGH_FROM) {
      const alive = used.reduce((sum, one) => sum + one, 0)
      this.#stale = alive < used.length / 2
    }
    return this.#writer.take()
  }

  readonly #intern: KeyIndex = (key) => {
    const known = this.#index.get(key)
    if (known !== undefined) return known
    if (key.length > MAX_INTERNED_LENGTH) return undefined
    if (this.#keys.length >= MAX_INTERNED) {
      this.#missed++
      return undefined
    }
    this.#index.set(key, this.#keys.length)
    return this.#keys.push(key) - 1
  }

  #forget(): void {
    this.#keys.length = 0
    this.#index.clear()
    this.#missed = 0
    this.#lookThroughAt = LOOKED_THROUGH_FROM
    this.#stale = false
    this.#encoded.forget()
  }
}

/** The state stream of one room as MessagePack. */
class MsgpackRoomEncoder implements RoomEncoder {
  readonly #writer: MsgpackWriter
  readonly #keys: InternedKeys
  /** Number of elements that `ending` adds. */
  readonly #ending: number

  /** `writer` is only used during a call, so encoders can share it. */
  constructor(writer: MsgpackWriter, hasLayers: boolean) {
    this.#writer = writer
    this.#keys = new InternedKeys(writer)
    this.#ending = hasLayers ? 1 : 0
  }

  stateChanged(state: Json): void {
    this.#keys.stateChanged(state)
  }

  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[]): Payload {
    const state = this.#keys.state(at.state)
    const to = this.#head(SERVER_OPCODES[t], 7 + this.#ending, at)
    this.#keys.announce(0)
    to.raw(state)
    writeField(MEMBERS, to, members)
    return to.take()
  }

  patch(at: PatchHead, delta: Delta | undefined): Payload {
    const keys = this.#keys
    const known = keys.begin()
    const to = this.#patch(at, delta)
    // Announced keys precede the change that needs them. Most patches announce none.
    if (delta && keys.change(delta, known)) {
      this.#head(SERVER_OPCODES['state.patch'], 6 + this.#ending, at)
      keys.announce(known)
      keys.again(delta)
    }
    const patch = to.take()
    keys.lookThrough()
    return patch
  }

  replay(at: PatchHead, delta: Delta | undefined): Payload {
    const to = this.#patch(at, delta)
    if (delta) writeChange(to, delta)
    return to.take()
  }

  /** Writes a patch up to its change. */
  #patch(at: PatchHead, delta: Delta | undefined): MsgpackWriter {
    const opcode = SERVER_OPCODES['state.patch']
    if (delta) {
      const to = this.#head(opcode, 6 + this.#ending, at)
      to.nil()
      return to
    }
    if (this.#ending === 0) return this.#head(opcode, 4, at)
    const to = this.#head(opcode, 7, at)
    to.nil()
    to.nil()
    return to
  }

  /** First elements of all frames of the state stream: `PATCH_HEAD`. */
  #head(opcode: number, length: number, { epoch, seq, checksum }: PatchHead): MsgpackWriter {
    const to = this.#writer.begin()
    to.array(length)
    to.number(opcode)
    if (epoch === undefined) to.nil()
    else to.number(epoch)
    to.number(seq)
    to.number(checksum)
    return to
  }
}

/** The changes of one layer as MessagePack: `checksum`, `keys` and `change`. A whole state is a change, too: `[state]`. */
class MsgpackLayerEncoder implements LayerEncoder {
  readonly #writer: MsgpackWriter
  readonly #keys: InternedKeys

  constructor(writer: MsgpackWriter) {
    this.#writer = writer
    this.#keys = new InternedKeys(writer)
  }

  stateChanged(state: Json): void {
    this.#keys.stateChanged(state)
  }

  state({ state, checksum }: LayerAt): Payload {
    const bytes = this.#keys.state(state)
    const to = this.#head(checksum)
    this.#keys.announce(0)
    to.array(1)
    to.raw(bytes)
    return to.take()
  }

  patch(checksum: number, delta: Delta): Payload {
    const keys = this.#keys
    const known = keys.begin()
    const to = this.#head(checksum)
    to.nil()
    if (keys.change(delta, known)) {
      this.#head(checksum)
      keys.announce(known)
      keys.again(delta)
    }
    const patch = to.take()
    keys.lookThrough()
    return patch
  }

  replay(checksum: number, delta: Delta): Payload {
    const to = this.#head(checksum)
    to.nil()
    writeChange(to, delta)
    return to.take()
  }

  #head(checksum: number): MsgpackWriter {
    const to = this.#writer.begin()
    to.number(checksum)
    return to
  }
}

function writeChange(to: MsgpackWriter, change: Change, keys?: KeyIndex): void {
  if (change === REMOVE) to.nil()
  else if (change instanceof Replace) {
    // Arrays and null must be wrapped, because they would read as a deeper change or a removal.
    if (typeof change.value === 'object') to.array(1)
    to.value(change.value, keys)
  } else if (change instanceof ObjectDelta) writeChanges(to, change, writeKey, keys)
  else writeArrayChange(to, change, keys)
}

type WriteKey<K> = (to: MsgpackWriter, key: K, keys?: KeyIndex) => void
const writeKey: WriteKey<string> = (to, key, keys) => to.key(key, keys)
const writeIndex: WriteKey<number> = (to, index) => to.number(index)

/** Writes changes by key. Changes with equal keys are written as a table, so that these keys are written once. */
function writeChanges<K>(
  to: MsgpackWriter,
  { keys: changed, changes }: Changes<K>,
  write: WriteKey<K>,
  keys?: KeyIndex,
): void {
  const { columns, rows } = tableOf(changes)
  const others = changes.length - rows
  if (rows > 0) {
    to.array(1 + rows * (1 + columns.length) + (others > 0 ? 1 : 0))
    to.array(columns.length)
    for (const column of columns) to.key(column, keys)
    for (let i = 0; i < changes.length; i++) {
      const change = changes[i]!
      if (!isRow(change, columns)) continue
      write(to, changed[i]!, keys)
      for (let j = 0; j < columns.length; j++) writeChange(to, ofColumn(change, columns[j]!, j), keys)
    }
    if (others === 0) return
  }
  to.map(others)
  for (let i = 0; i < changes.length; i++) {
    const change = changes[i]!
    if (rows > 0 && isRow(change, columns)) continue
    write(to, changed[i]!, keys)
    writeChange(to, change, keys)
  }
}

function writeArrayChange(to: MsgpackWriter, delta: ArrayDelta, keys?: KeyIndex): void {
  to.array(2)
  writeChanges(to, delta, writeIndex, keys)
  to.array(delta.splices.length * 3)
  for (const { at, remove, insert } of delta.splices) {
    to.number(at)
    to.number(remove)
    to.value(insert, keys)
  }
}

/** `changes[i]` belongs to `keys[i]`. */
interface Changes<K> {
  readonly keys: readonly K[]
  readonly changes: readonly Change[]
}

/** Maximum number of different sets of keys that are counted. */
const MAX_SHAPES = 4

interface ChangeTable {
  /** Keys that each row changes. */
  readonly columns: readonly string[]
  /** Number of changes that are rows. 0: a table would not be shorter. */
  rows: number
}

const NO_TABLE: ChangeTable = { columns: [], rows: 0 }

/** Returns the set of keys that most of these changes have. */
function tableOf(changes: readonly Change[]): ChangeTable {
  let best = NO_TABLE
  if (changes.length < 2) return best
  const shapes: ChangeTable[] = []
  for (const change of changes) {
    if (!(change instanceof ObjectDelta) || change.keys.length === 0) continue
    let i = 0
    while (i < shapes.length && !isRow(change, shapes[i]!.columns)) i++
    if (i < shapes.length) shapes[i]!.rows++
    else if (i < MAX_SHAPES) shapes.push({ columns: change.keys, rows: 1 })
  }
  for (const shape of shapes) if (shape.rows > Math.max(best.rows, 1)) best = shape
  return best
}

/** Returns true if a change has exactly these keys, in any order. */
function isRow(change: Change, columns: readonly string[]): change is ObjectDelta {
  if (!(change instanceof ObjectDelta) || change.keys.length !== columns.length) return false
  for (let i = 0; i < columns.length; i++)
    if (change.keys[i] !== columns[i] && !columns.includes(change.keys[i]!)) return false
  return true
}

/** Returns the change of a row in `column`, which is usually also its key `i`. */
const ofColumn = ({ keys, changes }: ObjectDelta, column: string, i: number): Change =>
  changes[keys[i] === column ? i : keys.indexOf(column)]!

function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((bytes, { length }) => bytes + length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
