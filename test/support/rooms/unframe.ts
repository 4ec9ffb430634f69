import type { Frame } from '../../../dataplane/frame.ts'

/** The payloads of one or more unmasked websocket frames. */
export function unframe(bytes: Frame): Uint8Array[] {
  const payloads: Uint8Array[] = []
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  for (let at = 0; at < bytes.length; ) {
    const short = view.getUint8(at + 1)
    const header = short === 126 ? 4 : short === 127 ? 10 : 2
    const length =
      short === 126 ? view.getUint16(at + 2) : short === 127 ? Number(view.getBigUint64(at + 2)) : short
    payloads.push(bytes.subarray(at + header, at + header + length))
    at += header + length
  }
  return payloads
}
