import { CLIENT_OPCODES, ROOM_OPCODE, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackReader } from '../../shared/protocol/msgpack.ts'
import type { StreamContext } from '../../shared/protocol/msgpack-client-codec.ts'

/** What a frame of the server is about, decoded no further than that takes. */
export type ServerFrame =
  /** Something of the state stream of a room. `whole`: a snapshot or a resync, after which everything before does not matter. */
  | {
      readonly kind: 'patch' | 'whole' | 'event' | 'presence'
      readonly room_id: string
      readonly epoch: number
      readonly seq: number
    }
  | { readonly kind: 'ack'; readonly room_id: string; readonly ref: number }
  | { readonly kind: 'draining'; readonly reconnect_in_ms: number }
  | { readonly kind: 'other' }

const OTHER: ServerFrame = { kind: 'other' }
const STREAM: Readonly<Record<number, 'patch' | 'whole' | 'event' | 'presence'>> = {
  [SERVER_OPCODES['state.patch']]: 'patch',
  [SERVER_OPCODES['state.snapshot']]: 'whole',
  [SERVER_OPCODES['state.resync']]: 'whole',
  [SERVER_OPCODES.event]: 'event',
  [SERVER_OPCODES['room.joined']]: 'presence',
  [SERVER_OPCODES['room.left']]: 'presence',
  [SERVER_OPCODES['room.presence']]: 'presence',
}

/**
 * Peeks into a frame of the server in `roomful.v1.msgpack`. `context`: what the frames before it on this connection have said. Throws a
 * ProtocolError for what is none.
 */
export function peekServerFrame(frame: Uint8Array, context: StreamContext): ServerFrame {
  // An array of at most 15 elements, then the opcode, below 128: a byte each.
  const opcode = frame[1] ?? 0
  const kind = STREAM[opcode]
  const reader = new MsgpackReader(frame, { at: 2 })
  if (opcode === ROOM_OPCODE) context.enter(reader.value() as string)
  if (kind === undefined && opcode !== SERVER_OPCODES.ack && opcode !== SERVER_OPCODES.draining) return OTHER
  if (opcode === SERVER_OPCODES.draining)
    return { kind: 'draining', reconnect_in_ms: reader.value() as number }
  const { room } = context
  if (kind === undefined) return { kind: 'ack', room_id: room, ref: reader.value() as number }
  const epoch = context.epoch(reader.value() as number)
  return { kind, room_id: room, epoch, seq: reader.value() as number }
}

/** What a frame of a client asks for, of what has to be looked at. */
export type ClientFrame =
  /** A reliable message. `n`: the number it carries in its data, where it does. */
  | { readonly kind: 'message'; readonly ref: number; readonly n: number | undefined }
  | { readonly kind: 'resync' }
  /** A hello that resumes nothing. */
  | { readonly kind: 'new session' }
  | { readonly kind: 'other' }

/** Peeks into a frame of a client in `roomful.v1.msgpack`. */
export function peekClientFrame(frame: Uint8Array): ClientFrame {
  if (frame[1] === CLIENT_OPCODES['state.resync']) return { kind: 'resync' }
  if (frame[1] === CLIENT_OPCODES.hello) return isResume(frame) ? { kind: 'other' } : { kind: 'new session' }
  // Five elements: a message with a ref; six: with what its client knows besides.
  if ((frame[0] !== 0x95 && frame[0] !== 0x96) || frame[1] !== CLIENT_OPCODES.message)
    return { kind: 'other' }
  const reader = new MsgpackReader(frame, { at: 2 })
  const [_room_id, _type, data, ref] = [reader.value(), reader.value(), reader.value(), reader.value()]
  const n = (data as { readonly n?: unknown } | null)?.n
  return { kind: 'message', ref: ref as number, n: typeof n === 'number' ? n : undefined }
}

/** Whether a hello carries what resumes a session instead of a token. */
function isResume(frame: Uint8Array): boolean {
  const reader = new MsgpackReader(frame, { at: 2 })
  const [_project_id, what] = [reader.value(), reader.value()]
  return typeof what !== 'string'
}
