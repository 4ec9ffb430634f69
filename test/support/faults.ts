import { MsgpackClientCodec } from '../../shared/protocol/client-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { MsgpackReader } from '../../shared/protocol/msgpack-reader.ts'
import { MsgpackWriter } from '../../shared/protocol/msgpack-writer.ts'
import { OPCODES } from '../../shared/protocol/opcodes.ts'

/** What becomes of one frame of `roomful.v1.msgpack` on its way: the frames that go on in its place. */
export interface Fault {
  readonly to_client?: (frame: Uint8Array) => readonly Uint8Array[]
  readonly to_node?: (frame: Uint8Array) => readonly Uint8Array[]
}

/** Strikes once, at so many frames of its kind: everybody has played for a while by then. */
const AT = 200

/** Faults a node could have, each of which strikes a single frame. A new one for each node. */
export const FAULTS = {
  /** A patch that never leaves. */
  'skipped patch': () => ({ to_client: once(isServer('state.patch'), () => []) }),
  /** A patch under a checksum that is not its state's. */
  'wrong checksum': () => ({
    to_client: once(isServer('state.patch'), (frame) => [withWrongChecksum(frame)]),
  }),
  /** An ack that never leaves; the next one covers it. */
  'lost ack': () => ({ to_client: once(isServer('ack'), () => []) }),
  /** A message that is acked, with the next one, but was never applied. */
  'acked but not applied': () => ({ to_node: once(isReliable, () => []) }),
  /** A message that is applied once more. */
  'applied twice': () => ({ to_node: once(isReliable, (frame) => [frame, withoutRef(frame)]) }),
} as const satisfies Readonly<Record<string, () => Fault>>

export type FaultName = keyof typeof FAULTS

/** Lets frames pass, but for one that `strikes` is asked about. */
function once(
  isOne: (frame: Uint8Array) => boolean,
  strike: (frame: Uint8Array) => readonly Uint8Array[],
): (frame: Uint8Array) => readonly Uint8Array[] {
  let seen = 0
  return (frame) => (isOne(frame) && ++seen === AT ? strike(frame) : [frame])
}

/** The opcode is behind the header of a short array, which is one byte. */
const isServer = (type: keyof typeof OPCODES) => (frame: Uint8Array) => frame[1] === OPCODES[type]

const codec = new MsgpackCodec()

function isReliable(frame: Uint8Array): boolean {
  if (frame[1] !== OPCODES.message) return false
  const message = codec.decode(frame)
  return message.t === 'message' && message.ref !== undefined
}

function withoutRef(frame: Uint8Array): Uint8Array {
  const message = codec.decode(frame)
  if (message.t !== 'message') throw new Error(`a ${message.t} has no ref to take away`)
  const { ref: _, ...unreliable } = message
  return new MsgpackClientCodec().encode(unreliable)
}

/** The same patch under another checksum. What is before that is written anew, in the same bytes, to find where it is. */
function withWrongChecksum(frame: Uint8Array): Uint8Array {
  const reader = new MsgpackReader(frame)
  const length = reader.array()
  const fields = [0, 1, 2, 3].map(() => reader.value())
  const checksum = reader.value() as number
  const header = (sum: number): Uint8Array => {
    const writer = new MsgpackWriter().begin()
    writer.array(length)
    for (const field of [...fields, sum]) writer.value(field)
    return writer.take()
  }
  return Buffer.concat([header((checksum ^ 1) >>> 0), frame.subarray(header(checksum).length)])
}
