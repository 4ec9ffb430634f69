import { encode } from '@msgpack/msgpack'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import type { Credentials } from '../clients/client.ts'
import { ControlIssuer } from '../issuer.ts'
import { type Dialect, type Door, RawSocket } from './generator.ts'
import { type Listening, somewhere } from './servers/served.ts'

/** How each server is talked to: the bytes that its own client library would send and look for. */

const JOIN_MS = 30_000

/** Resolves once `step`, given each message, says that the client is in. */
function joined(socket: RawSocket, step: (message: Buffer) => boolean): Promise<RawSocket> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      clearTimeout(timer)
      socket.destroy()
      reject(new Error(`A client could not join: ${why}`))
    }
    const timer = setTimeout(() => fail(`there was no answer in ${JOIN_MS / 1_000} s`), JOIN_MS)
    socket.onClose = fail
    socket.onMessage = (bytes, from, to) => {
      try {
        if (!step(bytes.subarray(from, to))) return
      } catch (error) {
        return fail((error as Error).message)
      }
      clearTimeout(timer)
      resolve(socket)
    }
    socket.stall(false)
  })
}

const float32 = (x: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(x)
  return bytes
}

const bare: Dialect = {
  join: async ({ port }, _client, room) => joined(await RawSocket.open(port, `/${room}`), () => true),
  move: (_room, x = somewhere()) => Buffer.concat([float32(x), float32(somewhere())]),
  nudge: () => encode({ x: somewhere(), y: somewhere() }),
  mark: float32,
  isUpdate: () => true,
  answer: () => {},
}

const codec = new MsgpackClientCodec()

const roomful: Dialect = {
  async join({ port, credentials }, client, key) {
    const own = new MsgpackClientCodec()
    const { projectId, token } = credentials[client]!
    const socket = await RawSocket.open(port, '/', own.subprotocol)
    const hello = own.encode({ t: 'hello', project_id: projectId, token })
    const join = own.encode({ t: 'join', ref: 1, room_type: 'arena', options: { key } })
    socket.send(hello)
    return joined(socket, (bytes) => {
      const message = own.decode(bytes)
      if (message.t === 'welcome') socket.send(join)
      if (message.t === 'error') throw new Error(`${message.code}: ${message.message}`)
      return message.t === 'state.snapshot'
    })
  },
  move: (room, x = somewhere(), ref) =>
    codec.encode({
      t: 'message',
      room_id: `arena:${room}`,
      type: 'move',
      data: { x, y: somewhere() },
      ...(ref !== undefined && { ref }),
    }),
  nudge: (room) =>
    codec.encode({
      t: 'message',
      room_id: `arena:${room}`,
      type: 'nudge',
      data: { x: somewhere(), y: somewhere() },
    }),
  mark: (x) => Buffer.from([0xcd, x >> 8, x & 0xff]),
  isUpdate: (bytes, at) => bytes[at + 1] === SERVER_OPCODES['state.patch'],
  answer: () => {},
}

export const DIALECTS = { roomful, bare }
export type ServerName = keyof typeof DIALECTS

/** Has tokens issued for so many clients, by a server that wants them. */
export async function openDoor(listening: Listening, clients: number): Promise<Door> {
  const { controlUrl } = listening
  const credentials: Credentials[] = []
  if (controlUrl === undefined) return { ...listening, credentials }
  const issuer = new ControlIssuer({ controlUrl, controlToken: undefined })
  while (credentials.length < clients) {
    const some = Math.min(100, clients - credentials.length)
    credentials.push(...(await Promise.all(Array.from({ length: some }, () => issuer.issue()))))
  }
  return { ...listening, credentials }
}
