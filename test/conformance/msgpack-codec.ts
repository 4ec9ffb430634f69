import { decode, encode } from '@msgpack/msgpack'
import {
  type ClientMessage,
  ProtocolFault,
  type ServerMessage,
  type ServerName,
  type WireValue,
} from './messages.ts'
import { announcement, list, readFields, SHAPES } from './shapes.ts'
import { checkShortest } from './shortest-form.ts'

/** docs/protocol.md §4. */

const NAMES = new Map(Object.entries(SHAPES).map(([t, { opcode }]) => [opcode, t as ServerName]))

function elements(message: ClientMessage): unknown[] {
  switch (message.t) {
    case 'hello': {
      if ('token' in message) return [0, message.project_id, message.token]
      const { session_id: sessionId, resume_token: resumeToken, rooms } = message.resume
      const positions = rooms.map(({ room_id: roomId, epoch, seq, settled }) => [
        roomId,
        epoch,
        seq,
        ...(settled === undefined ? [] : [settled]),
      ])
      return [0, message.project_id, [sessionId, resumeToken, positions]]
    }
    case 'join':
      return [1, message.ref, message.room_type, ...(message.options ? [message.options] : [])]
    case 'leave':
      return [2, message.ref, message.room_id]
    case 'message': {
      const { room_id: roomId, type, data, ref, settled } = message
      const head = [3, roomId, type, data]
      if (settled !== undefined) return [...head, ref ?? null, settled]
      return ref === undefined ? head : [...head, ref]
    }
    case 'state.resync':
      return [4, message.room_id, message.have_seq, message.reason === 'sequence' ? 0 : 1]
    case 'ping':
      return [5, message.at]
    case 'token':
      return [6, message.token]
  }
}

export function encodeMsgpack(message: ClientMessage): Uint8Array {
  return encode(elements(message))
}

function tagged(key: unknown): string {
  if (typeof key === 'string') return `$${key}`
  if (Number.isSafeInteger(key) && (key as number) >= 0) return `#${key}`
  throw new ProtocolFault(`a key is a string or an index, not ${String(key)}`)
}

/** One MessagePack value, its maps with tagged keys. */
export function decodeValue(bytes: Uint8Array): WireValue {
  checkShortest(bytes)
  return decode(bytes, { mapKeyConverter: tagged, keyDecoder: null }) as WireValue
}

/** Reads a binary frame of the server; undefined is a message this version does not know. */
export function decodeMsgpack(frame: Uint8Array): ServerMessage | undefined {
  const [opcode, ...fields] = list(decodeValue(frame)) as WireValue[]
  const t = NAMES.get(opcode as number)
  if (t === undefined) {
    if (typeof opcode !== 'number') throw new ProtocolFault(`an opcode is an integer, not ${String(opcode)}`)
    return undefined
  }
  if (t === 'state.patch') {
    const [keys, change] = fields.slice(4)
    const body = { codec: 'msgpack', announced: keys == null ? null : announcement(keys), change }
    return { ...readFields(t, 'msgpack', (_, index) => fields[index]), body } as unknown as ServerMessage
  }
  if (t === 'state.snapshot' || t === 'state.resync') {
    const [keys, state, ...behind] = fields.slice(4)
    if (state === undefined) throw new ProtocolFault(`${t} without state`)
    const flat = [...fields.slice(0, 4), ...behind]
    const message = readFields(t, 'msgpack', (_, index) => flat[index])
    return {
      ...message,
      body: { codec: 'msgpack', announced: announcement(keys), state },
    } as unknown as ServerMessage
  }
  return readFields(t, 'msgpack', (_, index) => fields[index]) as unknown as ServerMessage
}
