import type { LayerPart } from '../../shared/protocol/codec.ts'
import { SUBPROTOCOLS } from '../../shared/protocol/messages.ts'
import type { Frame } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { MutableFrames, UpdateFrames } from './room-frames.ts'

/** Bytes of one update, as they were sent and recorded. */
export interface LoggedUpdate {
  readonly epoch: number
  /** When its first change was made (monotonic clock). Undefined: another owner made the update. */
  readonly since: number | undefined
  /** Frames as they were sent. None if another owner made the update. */
  readonly frames: UpdateFrames
  /** Its journal entry, if there is one. */
  readonly packed: Uint8Array | undefined
}

/** Consecutive updates in one buffer. The bytes are never changed, so frames of a replay are views. */
interface Block {
  readonly bytes: Buffer
  /** End of the last update. */
  end: number
  /** Number of updates. */
  length: number
  /** Names of the layers in its updates. A name has 30 bytes or more, and a change of a layer often fewer. */
  readonly names: string[]
  /** Bytes of memory that the block takes, with its buffer and names. */
  taken: number
}

/** Bytes that a block takes in addition to its buffer, and for each name in addition to its characters. */
const BLOCK_BYTES = 200
const NAME_BYTES = 8
const MIN_BLOCK_BYTES = 512
const MAX_BLOCK_BYTES = 32 * 1024
/** A new block has this share of the log, so that unused space is at most two such shares. */
const BLOCK_SHARE = 1 / 8

/** Size of the update (4 bytes), epoch and time (8 bytes each). Its byte strings follow. */
const HEAD_BYTES = 20
/** Kind of a byte string (1 byte) and its size (4 bytes). The number of its layer, if it has one, and the bytes follow. */
const STRING_HEAD_BYTES = 5
/** Index of the layer's name in the block. */
const LAYER_BYTES = 4

/** Kinds of byte strings. Frames have the index of their codec added. */
const PACKED = 0
const PATCH = 1
const REST = PATCH + SUBPROTOCOLS.length
/** A layer. No bytes: members no longer have it. */
const LAYER = REST + SUBPROTOCOLS.length
const GONE: Frames = { [SUBPROTOCOLS[0]]: new Uint8Array(0) }

/**
 * Consecutive updates as bytes, the oldest first, in blocks of memory. An object and buffers for each update would take several times its
 * bytes. A block without updates is released.
 */
export class UpdateLog {
  readonly #blocks: Block[] = []
  /** Start of the oldest update in the first block. */
  #start = 0
  /** Indexes of the names in the last block. */
  readonly #names = new Map<string, number>()
  readonly #size = { updates: 0, bytes: 0 }
  /** Number of updates, and the bytes of memory that the log takes. */
  readonly size: Readonly<{ updates: number; bytes: number }> = this.#size

  /** Copies an update into the log. */
  add({ epoch, since, frames: { patch, rest, layers }, packed }: LoggedUpdate): void {
    let size = HEAD_BYTES + sizeOf(patch) + sizeOf(rest)
    if (packed) size += STRING_HEAD_BYTES + packed.length
    if (layers) for (const { change } of layers) size += sizeOf(change ?? GONE, LAYER_BYTES)
    const block = this.#blockFor(size)
    const { bytes, end } = block
    bytes.writeUInt32LE(size, end)
    bytes.writeDoubleLE(epoch, end + 4)
    bytes.writeDoubleLE(since ?? Number.NaN, end + 12)
    let at = end + HEAD_BYTES
    if (packed) at = write(bytes, at, PACKED, packed)
    at = writeFrames(bytes, at, PATCH, patch)
    at = writeFrames(bytes, at, REST, rest)
    if (layers)
      for (const { layer, change } of layers)
        at = writeFrames(bytes, at, LAYER, change ?? GONE, this.#indexOf(layer, block))
    block.end = at
    block.length++
    this.#size.updates++
  }

  /** Removes the oldest update, and returns its epoch. Undefined: the log is empty. */
  shift(): number | undefined {
    const [block] = this.#blocks
    if (!block) return undefined
    const epoch = block.bytes.readDoubleLE(this.#start + 4)
    this.#start += block.bytes.readUInt32LE(this.#start)
    block.length--
    this.#size.updates--
    if (this.#start === block.end) {
      this.#blocks.shift()
      this.#size.bytes -= block.taken
      this.#start = 0
    }
    return epoch
  }

  clear(): void {
    this.#blocks.length = 0
    this.#start = 0
    this.#size.updates = 0
    this.#size.bytes = 0
  }

  /** Yields the updates from number `from` on. The oldest is number 0. */
  *from(from: number): IterableIterator<LoggedUpdate> {
    let skipped = 0
    // Most members have missed few updates, so most blocks are not looked at.
    for (const [i, { bytes, end, length, names }] of this.#blocks.entries())
      if (skipped + length <= from) skipped += length
      else
        for (let at = i === 0 ? this.#start : 0; at < end; at += bytes.readUInt32LE(at))
          if (skipped < from) skipped++
          else yield read(bytes, at, names)
  }

  /** Returns the index of a name in the last block. */
  #indexOf(name: string, block: Block): number {
    const known = this.#names.get(name)
    if (known !== undefined) return known
    this.#names.set(name, block.names.length)
    block.taken += NAME_BYTES + name.length
    this.#size.bytes += NAME_BYTES + name.length
    return block.names.push(name) - 1
  }

  #blockFor(size: number): Block {
    const last = this.#blocks.at(-1)
    if (last && last.end + size <= last.bytes.length) return last
    const share = Math.min(MAX_BLOCK_BYTES, Math.max(MIN_BLOCK_BYTES, this.#size.bytes * BLOCK_SHARE))
    // Not from the pool of Node, whose blocks would stay in memory as long as one update.
    const bytes = Buffer.allocUnsafeSlow(Math.max(size, Math.ceil(share)))
    const block = { bytes, end: 0, length: 0, names: [], taken: BLOCK_BYTES + bytes.length }
    this.#blocks.push(block)
    this.#names.clear()
    this.#size.bytes += block.taken
    return block
  }
}

function sizeOf(frames: Frames | undefined, layerBytes = 0): number {
  let size = 0
  if (frames)
    for (const codec of SUBPROTOCOLS) {
      const bytes = frames[codec]
      if (bytes) size += STRING_HEAD_BYTES + layerBytes + bytes.length
    }
  return size
}

/** Writes a byte string for each codec. Returns the end. */
function writeFrames(
  into: Buffer,
  at: number,
  kind: number,
  frames: Frames | undefined,
  layer?: number,
): number {
  let end = at
  if (frames)
    for (let i = 0; i < SUBPROTOCOLS.length; i++) {
      const bytes = frames[SUBPROTOCOLS[i]!]
      if (bytes) end = write(into, end, kind + i, bytes, layer)
    }
  return end
}

/** Writes a byte string. Returns its end. */
function write(into: Buffer, at: number, kind: number, bytes: Uint8Array, layer?: number): number {
  into[at] = kind
  into.writeUInt32LE(bytes.length, at + 1)
  let start = at + STRING_HEAD_BYTES
  if (layer !== undefined) start = into.writeUInt32LE(layer, start)
  into.set(bytes, start)
  return start + bytes.length
}

/** Reads the update at `start`. `names`: those of the layers. */
function read(bytes: Buffer, start: number, names: readonly string[]): LoggedUpdate {
  const end = start + bytes.readUInt32LE(start)
  const since = bytes.readDoubleLE(start + 12)
  const patch: MutableFrames = {}
  let packed: Uint8Array | undefined
  let rest: MutableFrames | undefined
  let layers: LayerPart[] | undefined
  let last: { readonly layer: string; readonly change: MutableFrames } | undefined
  for (let at = start + HEAD_BYTES; at < end; ) {
    const kind = bytes[at]!
    const layerAt = at + STRING_HEAD_BYTES
    const stringAt = kind < LAYER ? layerAt : layerAt + LAYER_BYTES
    at = stringAt + bytes.readUInt32LE(at + 1)
    const string: Frame = bytes.subarray(stringAt, at)
    if (kind === PACKED) packed = string
    else if (kind < REST) patch[SUBPROTOCOLS[kind - PATCH]!] = string
    else if (kind < LAYER) {
      rest ??= {}
      rest[SUBPROTOCOLS[kind - REST]!] = string
    } else {
      const layer = names[bytes.readUInt32LE(layerAt)]!
      layers ??= []
      if (last?.layer !== layer) {
        last = { layer, change: {} }
        layers.push(string.length > 0 ? last : { layer, change: null })
      }
      last.change[SUBPROTOCOLS[kind - LAYER]!] = string
    }
  }
  return {
    epoch: bytes.readDoubleLE(start + 4),
    since: Number.isNaN(since) ? undefined : since,
    frames: { patch, rest, layers },
    packed,
  }
}
