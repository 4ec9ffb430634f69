import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/connection.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'

/** What becomes of one frame on its way to the client; undefined: it is lost. */
export type Tamper = (frame: Buffer) => Buffer | undefined

/** Whether a frame of `roomful.v1.msgpack` is a patch. */
export const isPatch = (frame: Buffer): boolean => frame[1] === SERVER_OPCODES['state.patch']

/** What becomes of the connections of one client. */
interface DoorsOptions {
  /** Where a connection may go, asked again for each; default: where the SDK wants to. */
  readonly doors?: () => readonly string[]
  /** Everything the client is told, decoded, before it sees it. */
  readonly told?: (message: DecodedMessage) => void
  /** Loses or spoils frames behind `told`. */
  readonly tamper?: Tamper
  /** Whom to trust behind `wss:`, PEM; default: whom Node trusts. */
  readonly ca?: string
}

/**
 * A websocket class for the SDK's `WebSocket` option which goes to one door after the other, whatever address the SDK names: a load
 * balancer without a process.
 */
export function doorsSocket({
  doors = () => [],
  told = () => {},
  tamper = (frame) => frame,
  ca,
}: DoorsOptions = {}) {
  const open = new Set<WebSocket>()
  let codec = new MsgpackClientCodec()
  let next = 0
  class DoorsSocket extends WebSocket {
    constructor(url: string, protocols: string[]) {
      const all = doors()
      super(all[next++ % all.length] ?? url, protocols, { ca })
      open.add(this)
      this.once('close', () => open.delete(this))
    }
    override emit(event: string | symbol, ...args: unknown[]): boolean {
      if (event !== 'message') return super.emit(event, ...args)
      const frame = Buffer.from(args[0] as ArrayBuffer)
      // Only what reaches the SDK: a socket that it has let go of may still have something to say.
      if (this.onmessage) hear(frame)
      const rest = tamper(frame)
      return rest === undefined ? false : super.emit('message', Uint8Array.from(rest).buffer, args[1])
    }
  }
  const hear = (frame: Buffer): void => {
    const message = codec.decode(Uint8Array.from(frame))
    if (message.t === 'welcome' && !message.resumed) codec = new MsgpackClientCodec()
    told(message)
  }
  return {
    WebSocket: DoorsSocket as unknown as WebSocketConstructor,
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
    /** Where the present connection goes: one of the doors. */
    door: (): string | undefined => [...open].at(-1)?.url.replace(/\/$/, ''),
  }
}
