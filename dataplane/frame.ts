import type { Payload } from '../shared/protocol/codec.ts'

/** Encoded bytes of one or more websocket frames. Immutable, so that they can be written to any number of sockets. */
export type Frame = Uint8Array

const FIN = 0x80
const TEXT = 0x1
const BINARY = 0x2

const NO_ENDING = new Uint8Array(0)

/**
 * Encodes one unmasked, uncompressed websocket message (RFC 6455, section 5.2). Members get all messages as such frames. `ending`: the end
 * of the payload.
 */
export function frame(payload: Payload, binary: boolean, ending: Payload = NO_ENDING): Frame {
  const length = payload.length + ending.length
  const header = length < 126 ? 2 : length < 65536 ? 4 : 10
  const bytes = Buffer.allocUnsafe(header + length)
  bytes[0] = FIN | (binary ? BINARY : TEXT)
  if (header === 2) bytes[1] = length
  else if (header === 4) {
    bytes[1] = 126
    bytes.writeUInt16BE(length, 2)
  } else {
    bytes[1] = 127
    bytes.writeBigUInt64BE(BigInt(length), 2)
  }
  bytes.set(payload, header)
  if (ending.length > 0) bytes.set(ending, header + payload.length)
  return bytes
}

/** Returns the payloads of one or more frames, in order. */
export function payloadsOf(frames: Frame): Uint8Array[] {
  const payloads: Uint8Array[] = []
  const view = new DataView(frames.buffer, frames.byteOffset, frames.byteLength)
  for (let at = 0; at < frames.length; ) {
    const short = view.getUint8(at + 1)
    const header = short === 126 ? 4 : short === 127 ? 10 : 2
    const length =
      short === 126 ? view.getUint16(at + 2) : short === 127 ? Number(view.getBigUint64(at + 2)) : short
    payloads.push(frames.subarray(at + header, at + header + length))
    at += header + length
  }
  return payloads
}

/** Concatenates frames. */
export const joinFrames = (frames: readonly Frame[]): Frame =>
  frames.length === 1 ? frames[0]! : Buffer.concat(frames)
