import { WebSocket } from 'ws'
import { CLOSE, type CloseName } from '../../shared/protocol/close-codes.ts'

/** What `ws` closes with by itself when a frame breaks the rules (RFC 6455, section 7.4.1), in our own table's words. */
const VERDICTS: ReadonlyMap<number, readonly [CloseName, string]> = new Map([
  [1002, ['protocol_error', 'not a valid websocket frame']],
  [1003, ['protocol_error', 'not a valid websocket frame']],
  [1007, ['protocol_error', 'a text frame must be UTF-8']],
  [1008, ['protocol_error', 'too many fragments']],
  [1009, ['payload_too_large', CLOSE.payload_too_large.meaning]],
])

/**
 * The server's end of a websocket. Closes with the codes of our table where `ws` would use the protocol's own, and emits `closing` as
 * soon as a closing handshake begins, from either side, because nothing may be written behind a close frame. The event carries the
 * row's name for a broken frame and for a goodbye, nothing for any other close of the client.
 */
export class ServerSocket extends WebSocket {
  override close(code?: number, reason?: string | Buffer): void {
    // A code without a reason is ws's own verdict; an echo of the client's close frame always has one, if empty.
    const verdict = code !== undefined && reason === undefined ? VERDICTS.get(code) : undefined
    this.emit('closing', verdict?.[0] ?? (code === CLOSE.normal.code ? 'normal' : undefined))
    if (verdict) super.close(CLOSE[verdict[0]].code, verdict[1])
    else super.close(code, reason)
  }
}
