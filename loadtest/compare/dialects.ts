import { Agent, request } from 'node:http'
import { encode } from '@msgpack/msgpack'
import type { Json } from '../../shared/json.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { apply } from '../../shared/sync/apply.ts'
import type { Credentials } from '../clients/client.ts'
import { ControlIssuer } from '../issuer.ts'
import { type Dialect, type Door, type Joined, RawSocket } from './generator.ts'
import { type Listening, somewhere } from './servers/served.ts'

/** How each server is talked to: the bytes that its own client library would send and look for. */

const JOIN_MS = 30_000

/** Resolves once `step`, given each message, says that the client is in. */
function joined(socket: RawSocket, step: (message: Buffer) => boolean): Promise<Joined> {
  const messages: Buffer[] = []
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      clearTimeout(timer)
      socket.destroy()
      reject(new Error(`A client could not join: ${why}`))
    }
    const timer = setTimeout(() => fail(`there was no answer in ${JOIN_MS / 1_000} s`), JOIN_MS)
    socket.onClose = fail
    socket.onMessage = (bytes, from, to) => {
      const message = bytes.subarray(from, to)
      messages.push(message)
      try {
        if (!step(message)) return
      } catch (error) {
        return fail((error as Error).message)
      }
      clearTimeout(timer)
      resolve({ socket, messages })
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
  door: (doors, room) => {
    const owner = doors[room % doors.length]
    return owner?.direct ? owner : undefined
  },
  join: async ({ port }, _client, room) => joined(await RawSocket.open(port, `/${room}`), () => true),
  move: (_room, x = somewhere()) => Buffer.concat([float32(x), float32(somewhere())]),
  nudge: () => encode({ x: somewhere(), y: somewhere() }),
  mark: float32,
  isUpdate: () => true,
  answer: () => {},
  state(messages) {
    const places: Record<number, number[]> = {}
    for (const message of messages)
      for (let at = 0; at < message.length; at += 10)
        places[message.readUInt16LE(at)] = [message.readFloatLE(at + 2), message.readFloatLE(at + 6)]
    return places
  },
}

const codec = new MsgpackClientCodec()

/** A client that is not where its room is has been told so long before. */
const TOLD_MS = 8_000

/** Goes where the server says that the room is, as the SDK does: resumes there, then lets this connection go. Stays when it says nothing. */
async function goneWhereTold(
  here: Joined,
  own: MsgpackClientCodec,
  { project_id, session_id, resume_token }: Record<'project_id' | 'session_id' | 'resume_token', string>,
  joinedAt: { room_id: string; epoch: number; seq: number },
): Promise<Joined> {
  let { room_id, epoch, seq } = joinedAt
  const url = await new Promise<string | undefined>((resolve) => {
    const timer = setTimeout(resolve, TOLD_MS, undefined)
    here.socket.onMessage = (bytes, from, to) => {
      const message = own.decode(bytes.subarray(from, to))
      if (message.t === 'state.patch') ({ room_id, epoch, seq } = message)
      if (message.t !== 'reroute') return
      clearTimeout(timer)
      resolve(message.url)
    }
  })
  if (url === undefined) return here
  const port = Number(new URL(url).port)
  const socket = await RawSocket.open(port, '/', own.subprotocol)
  const there = new MsgpackClientCodec()
  const resume = { session_id, resume_token, rooms: [{ room_id, epoch, seq }] }
  socket.send(there.encode({ t: 'hello', project_id, resume }))
  const gone = await joined(socket, (bytes) => there.decode(bytes).t === 'welcome')
  here.socket.destroy()
  return { ...gone, port }
}

const roomful: Dialect = {
  async join({ port, credentials, direct }, client, key) {
    const own = new MsgpackClientCodec()
    const { projectId, token } = credentials[client]!
    const socket = await RawSocket.open(port, '/', own.subprotocol)
    const join = own.encode({ t: 'join', ref: 1, room_type: 'arena', options: { key } })
    socket.send(
      own.encode({ t: 'hello', project_id: projectId, token, ...(direct && { features: ['reroute'] }) }),
    )
    let session = { project_id: projectId, session_id: '', resume_token: '' }
    let room = { room_id: '', epoch: 0, seq: 0 }
    const here = await joined(socket, (bytes) => {
      const message = own.decode(bytes)
      if (message.t === 'welcome') {
        session = { ...session, ...message }
        socket.send(join)
      }
      if (message.t === 'error') throw new Error(`${message.code}: ${message.message}`)
      if (message.t !== 'state.snapshot') return false
      room = message
      return true
    })
    return direct ? goneWhereTold(here, own, session, room) : here
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
  state(messages) {
    const own = new MsgpackClientCodec()
    let state: Json = null
    for (const bytes of messages) {
      const message = own.decode(bytes)
      if (message.t === 'state.snapshot' || message.t === 'state.resync') state = message.state
      if (message.t === 'state.patch' && message.delta) state = apply(state, message.delta)
    }
    return state
  },
}

const agent = new Agent({ keepAlive: true })

/** A seat in a room, which Colyseus reserves over HTTP before the websocket. */
function reserveSeat(
  port: number,
  key: string,
): Promise<Record<'processId' | 'roomId' | 'sessionId', string>> {
  const body = JSON.stringify({ key })
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const path = '/matchmake/joinOrCreate/arena'
  return new Promise((resolve, reject) => {
    const asked = request({ agent, host: '127.0.0.1', port, path, method: 'POST', headers }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        if (response.statusCode === 200) resolve(JSON.parse(text))
        else reject(new Error(`A seat was refused with HTTP ${response.statusCode}: ${text}`))
      })
    })
    asked.on('error', reject)
    asked.end(body)
  })
}

/** Of Colyseus' `Protocol`. */
const COLYSEUS = { join: 10, data: 13, state: 14, patch: 15 }

/** A message of a type, as its client library writes them. */
const colyseusMessage = (type: string, data: object): Buffer =>
  Buffer.concat([Buffer.from([COLYSEUS.data, 0xa0 | type.length]), Buffer.from(type), encode(data)])

const colyseus: Dialect = {
  async join({ port }, _client, key) {
    const { processId, roomId, sessionId } = await reserveSeat(port, key)
    const socket = await RawSocket.open(port, `/${processId}/${roomId}?sessionId=${sessionId}`)
    return joined(socket, ([code]) => {
      if (code === COLYSEUS.join) socket.send(Buffer.from([COLYSEUS.join]))
      return code === COLYSEUS.state
    })
  },
  move: (_room, x = somewhere()) => colyseusMessage('move', { x, y: somewhere() }),
  nudge: () => colyseusMessage('nudge', { x: somewhere(), y: somewhere() }),
  mark: float32,
  isUpdate: (bytes, at) => bytes[at] === COLYSEUS.patch,
  answer: () => {},
  async state(messages) {
    // A variable, since it is not installed where types are checked.
    const name = '@colyseus/schema'
    const { Reflection } = await import(name)
    const [first, ...others] = messages
    // Behind two short strings and the length of what follows, which takes 1 byte below 128 and else 2 or 3.
    const afterToken = 2 + first![1]!
    const length = afterToken + 1 + first![afterToken]!
    const prefix = { 204: 2, 205: 3 }[first![length]!] ?? 1
    const decoder = Reflection.decode(first, { offset: length + prefix })
    for (const message of others)
      if (message[0] === COLYSEUS.state || message[0] === COLYSEUS.patch)
        decoder.decode(message, { offset: 1 })
    return decoder.state.toJSON()
  },
}

/** Of Engine.IO and Socket.IO: the first characters of what they send. */
const isEvent = (bytes: Buffer, at: number): boolean => bytes[at] === 0x34 && bytes[at + 1] === 0x32

const socketio: Dialect = {
  async join({ port }, _client, room) {
    const socket = await RawSocket.open(port, '/socket.io/?EIO=4&transport=websocket')
    return joined(socket, (message) => {
      if (message[0] === 0x30) socket.send(`40${JSON.stringify({ room })}`)
      return isEvent(message, 0)
    })
  },
  move: (_room, x = somewhere()) => `42${JSON.stringify(['move', { x, y: somewhere() }])}`,
  nudge: () => `42${JSON.stringify(['nudge', { x: somewhere(), y: somewhere() }])}`,
  mark: (x) => Buffer.from(`"x":${x},`),
  isUpdate: isEvent,
  answer(socket, bytes, at) {
    if (bytes[at] === 0x32) socket.send('3')
  },
  state(messages) {
    const state: Record<string, Record<string, object>> = { players: {}, entities: {} }
    for (const message of messages.filter((each) => isEvent(each, 0))) {
      const [, part] = JSON.parse(message.toString('utf8', 2)) as [string, typeof state]
      for (const kind in part)
        for (const id in part[kind]) state[kind]![id] = { ...state[kind]![id], ...part[kind]![id] }
    }
    return state
  },
}

export const DIALECTS = { roomful, bare, colyseus, socketio }
export type ServerName = keyof typeof DIALECTS

/** The ways into a server of one or more processes. Has tokens issued for so many clients, each for another player, where it wants them. */
export async function openDoors(
  listening: readonly Listening[],
  clients: number,
  direct: boolean,
): Promise<Door[]> {
  const credentials: Credentials[] = []
  const doors = listening.map((each): Door => ({ ...each, credentials, direct }))
  const controlUrl = listening[0]?.controlUrl
  if (controlUrl === undefined) return doors
  const issuer = new ControlIssuer({ controlUrl, controlToken: undefined })
  while (credentials.length < clients) {
    const from = credentials.length
    const some = Array.from({ length: Math.min(100, clients - from) }, (_, i) =>
      issuer.issue(`player-${from + i}`),
    )
    credentials.push(...(await Promise.all(some)))
  }
  return doors
}
