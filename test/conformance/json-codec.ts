import {
  type ClientMessage,
  type Json,
  ProtocolFault,
  type ServerMessage,
  type ServerName,
} from './messages.ts'
import { list, operation, readFields, record, SHAPES } from './shapes.ts'

/** docs/protocol.md §3. */

export function encodeJson(message: ClientMessage): string {
  return JSON.stringify(message)
}

/** Reads a text frame of the server; undefined is a message this version does not know. */
export function decodeJson(frame: string): ServerMessage | undefined {
  const raw = record(JSON.parse(frame))
  if (typeof raw.t !== 'string') throw new ProtocolFault('a message is an object with t')
  if (!Object.hasOwn(SHAPES, raw.t)) return undefined
  const t = raw.t as ServerName
  const message = readFields(t, 'json', (field) => raw[field])
  if (t === 'state.patch') message.body = { codec: 'json', ops: list(raw.ops).map(operation) }
  if (t === 'state.snapshot' || t === 'state.resync') {
    if (raw.state === undefined) throw new ProtocolFault(`${t} without state`)
    message.body = { codec: 'json', state: raw.state as Json }
  }
  return message as unknown as ServerMessage
}
