import { WebSocket } from 'ws'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'

/** What becomes of one frame on its way to the client; undefined: it is lost. */
export type Tamper = (frame: Buffer) => Buffer | undefined

/** A websocket class for the SDK's `WebSocket` option, on a network that loses and corrupts frames as `tamper` says, and can be stalled and cut. */
export function tamperedSocket(tamper: Tamper = (frame) => frame) {
  const open = new Set<WebSocket>()
  class TamperedSocket extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(url, protocols)
      open.add(this)
      this.once('close', () => open.delete(this))
    }
    override emit(event: string | symbol, ...args: unknown[]): boolean {
      if (event !== 'message') return super.emit(event, ...args)
      const frame = tamper(Buffer.from(args[0] as ArrayBuffer))
      return frame === undefined ? false : super.emit('message', Uint8Array.from(frame).buffer, args[1])
    }
  }
  return {
    WebSocket: TamperedSocket,
    /** Stops reading, as a phone in a tunnel does, until `read`. */
    stall: () => {
      for (const socket of open) socket.pause()
    },
    read: () => {
      for (const socket of open) socket.resume()
    },
    /** Ends every connection without a goodbye. */
    cut: () => {
      for (const socket of open) socket.terminate()
    },
  }
}

/** Whether a frame of `roomful.v1.msgpack` is a patch. */
export const isPatch = (frame: Buffer): boolean => frame[1] === SERVER_OPCODES['state.patch']
