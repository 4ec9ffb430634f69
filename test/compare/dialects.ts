import { encode } from '@msgpack/msgpack'
import type { WebSocket } from 'ws'
import { ControlIssuer, type Credentials } from '../../loadtest/issuer.ts'
import type { Json } from '../../shared/json.ts'
import { type DecodedMessage, ReadingCodec } from '../../shared/protocol/codec.ts'
import { type ClientMessage, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { apply } from '../../shared/sync/delta.ts'
import { type Dialect, dial, type Endpoint, each, type Joined } from './generator.ts'
import { type Listening, mapOf, place, somewhere } from './servers/served.ts'

/** The wire format of each server: the bytes that its client library sends and reads. */

const JOIN_MS = 30_000

/** Resolves when `step`, called with each message, returns true. */
function joined(socket: WebSocket, step: (message: Buffer) => boolean): Promise<Joined> {
  const messages: Buffer[] = []
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      clearTimeout(timer)
      socket.terminate()
      reject(new Error(`a client could not join: ${why}`))
    }
    const closed = (code: number, reason: Buffer): void => fail(`closed with ${code} ${reason}`)
    const timer = setTimeout(() => fail(`no answer within ${JOIN_MS / 1_000} s`), JOIN_MS)
    socket.on('error', ({ message }) => fail(message))
    socket.once('close', closed)
    socket.on('message', (message: Buffer) => {
      messages.push(message)
      try {
        if (!step(message)) return
      } catch (error) {
        return fail((error as Error).message)
      }
      clearTimeout(timer)
      socket.off('close', closed)
      resolve({ socket, messages })
    })
  })
}

const float32 = (x: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(x)
  return bytes
}

const bare: Dialect = {
  endpoint: (endpoints, room) => {
    const owner = endpoints[room % endpoints.length]
    return owner?.direct ? owner : undefined
  },
  join: ({ port }, _client, room) => joined(dial(port, `/${room}`), () => true),
  move: (_room, x = somewhere()) => Buffer.concat([float32(x), float32(somewhere())]),
  nudge: () => encode(place()),
  mark: float32,
  isUpdate: () => true,
  state(messages) {
    const places: Record<number, number[]> = {}
    for (const message of messages)
      for (let at = 0; at < message.length; at += 10)
        places[message.readUInt16LE(at)] = [message.readFloatLE(at + 2), message.readFloatLE(at + 6)]
    return places
  },
}

/** Encodes the moves of all clients. */
const encoder = new MsgpackClientCodec()

/** Opens a connection of roomful. `until` resolves when `step`, called with each message, returns true. It rejects on an error of the server. */
function connect(port: number, hello: ClientMessage) {
  const codec = new MsgpackClientCodec()
  const socket = dial(port, '/', codec.subprotocol)
  const send = (message: ClientMessage): void => socket.send(codec.encode(message))
  socket.once('open', () => send(hello))
  const until = (step: (message: DecodedMessage) => boolean): Promise<Joined> =>
    joined(socket.removeAllListeners('message'), (bytes) => {
      const message = codec.decode(bytes)
      if (message.t === 'error') throw new Error(`${message.code}: ${message.message}`)
      return step(message)
    })
  return { codec, socket, send, until }
}

/** Rooms with layers refuse clients without it. */
const FEATURES = ['layers']

interface Session {
  readonly project_id: string
  readonly session_id: string
  readonly resume_token: string
}

/** Connects client number `client`. Resolves when it has a session. */
async function welcomed({ port, credentials }: Endpoint, client: number) {
  const { projectId: project_id, token } = credentials[client]!
  const connection = connect(port, { t: 'hello', project_id, token, features: FEATURES })
  let session: Session = { project_id, session_id: '', resume_token: '' }
  await connection.until((message) => {
    if (message.t === 'welcome') session = { ...session, ...message }
    return message.t === 'welcome'
  })
  return { ...connection, session }
}

/** The server sends `move` within this time if the room is at another node. */
const REROUTE_MS = 8_000

/** Moves to the node of the room as the SDK does: resumes there, then closes this connection. Without a `move` stays here. */
async function rerouted(
  here: Joined,
  { codec, socket, session }: Awaited<ReturnType<typeof welcomed>>,
  joinedAt: Position,
): Promise<Joined> {
  let room = joinedAt
  const url = await new Promise<string | undefined>((resolve) => {
    const timer = setTimeout(resolve, REROUTE_MS, undefined)
    socket.removeAllListeners('message').on('message', (bytes: Buffer) => {
      const message = codec.decode(bytes)
      if (message.t === 'state.patch') room = { ...room, ...message }
      if (message.t !== 'move') return
      clearTimeout(timer)
      resolve(message.url)
    })
  })
  if (url === undefined) return here
  const port = Number(new URL(url).port)
  const moved = await connect(port, resumeOf(session, room)).until(({ t }) => t === 'welcome')
  socket.terminate()
  return { ...moved, port }
}

/** Position of a client in its room. */
interface Position {
  readonly room_id: string
  readonly member_id: string
  readonly epoch: number
  readonly seq: number
}

/** Returns the `hello` of a client that resumes. */
function resumeOf(
  { project_id, session_id, resume_token }: Session,
  { room_id, member_id, epoch, seq }: Position,
): ClientMessage {
  const rooms = [{ room_id, member_id, epoch, seq, settled: 0 }]
  return { t: 'hello', project_id, resume: { session_id, resume_token, rooms }, features: FEATURES }
}

/** Prepares a resume at the node of a client; see `Joined.prepareResume`. */
function preparedResume(port: number, session: Session, messages: readonly Buffer[], joined: Position) {
  const codec = new MsgpackClientCodec()
  let latest = joined
  for (const bytes of messages) {
    const message = codec.decode(bytes)
    if (message.t.startsWith('state.')) latest = { ...latest, ...message }
  }
  return async (): Promise<Joined> => {
    const { send, until } = connect(port, resumeOf(session, latest))
    const missing = new Set(['pong', 'state'])
    return until(({ t }) => {
      // As the SDK does, which thus confirms that it has the next token.
      if (t === 'welcome') send({ t: 'ping', at: 0 })
      missing.delete(t.startsWith('state.') ? 'state' : t)
      return missing.size === 0
    })
  }
}

const roomful: Dialect = {
  async join(endpoint, client, key, watch = false) {
    const connection = await welcomed(endpoint, client)
    connection.send({
      t: 'join',
      request_id: 1,
      room_type: 'arena',
      options: { key },
      ...(watch && { watch }),
    })
    let room = { room_id: '', member_id: '', epoch: 0, seq: 0 }
    const here = await connection.until((message) => {
      if (message.t === 'joined') room = { ...room, member_id: message.member_id }
      if (message.t === 'state.snapshot') room = { ...message, member_id: room.member_id }
      return message.t === 'state.snapshot'
    })
    if (endpoint.direct) return rerouted(here, connection, room)
    const prepareResume = () => preparedResume(endpoint.port, connection.session, here.messages, room)
    return { ...here, prepareResume }
  },
  async watch(endpoint, client, map) {
    const { send, until } = await welcomed(endpoint, client)
    send({ t: 'rooms', request_id: 1, room_type: 'arena', query: { where: { map } }, watch: true })
    return until(({ t }) => t === 'rooms')
  },
  async finder(endpoint, client, map) {
    const { send, until } = await welcomed(endpoint, client)
    const room = { room_type: 'arena', query: { where: { map } }, options: {} }
    return () => {
      send({ t: 'find', request_id: 1, room })
      return until((message) => {
        if (message.t === 'found') {
          send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: message.key } })
        }
        return message.t === 'state.snapshot'
      })
    }
  },
  move: (room, x, ref) =>
    encoder.encode({
      t: 'message',
      room_id: `arena:${room}`,
      type: 'move',
      data: place(x),
      ...(ref !== undefined && { ref, settled: ref - 1 }),
    }),
  nudge: (room) => encoder.encode({ t: 'message', room_id: `arena:${room}`, type: 'nudge', data: place() }),
  goodbye: encoder.encode({ t: 'goodbye' }),
  mark: (x) => Buffer.from([0xcd, x >> 8, x & 0xff]),
  isUpdate: (bytes) => bytes[1] === SERVER_OPCODES['state.patch'],
  state(messages) {
    const codec = new ReadingCodec(new MsgpackClientCodec())
    let state: Json = null
    for (const bytes of messages) {
      const message = codec.decode(bytes)
      if (message.t === 'state.snapshot' || message.t === 'state.resync') state = message.state
      if (message.t === 'state.patch' && message.delta) state = apply(state, message.delta)
    }
    return state
  },
}

/** Message codes of Colyseus' `Protocol`. */
const COLYSEUS = { join: 10, data: 13, state: 14, patch: 15 }

/** A message of a type, as Colyseus' client library encodes it. */
const colyseusMessage = (type: string, data: object): Buffer =>
  Buffer.concat([Buffer.from([COLYSEUS.data, 0xa0 | type.length]), Buffer.from(type), encode(data)])

/** Reserves a seat over HTTP and takes it. Resolves with the first message of the code `until`. */
async function colyseusJoin(port: number, options: object, until: number, name = 'arena'): Promise<Joined> {
  const response = await fetch(`http://127.0.0.1:${port}/matchmake/joinOrCreate/${name}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(options),
  })
  if (!response.ok)
    throw new Error(`a seat was refused with HTTP ${response.status}: ${await response.text()}`)
  const { processId, roomId, sessionId } = await response.json()
  const socket = dial(port, `/${processId}/${roomId}?sessionId=${sessionId}`)
  return joined(socket, ([code]) => {
    if (code === COLYSEUS.join) socket.send(Buffer.from([COLYSEUS.join]))
    return code === until
  })
}

const colyseus: Dialect = {
  join: ({ port }, _client, key) => colyseusJoin(port, { key, map: mapOf(key) }, COLYSEUS.state),
  watch: ({ port }, _client, map) =>
    colyseusJoin(port, { filter: { name: 'arena', metadata: { map } } }, COLYSEUS.data, 'lobby'),
  finder:
    async ({ port }, _client, map) =>
    () =>
      colyseusJoin(port, { map }, COLYSEUS.state),
  move: (_room, x) => colyseusMessage('move', place(x)),
  nudge: () => colyseusMessage('nudge', place()),
  mark: float32,
  isUpdate: ([code]) => code === COLYSEUS.patch,
  async state(messages) {
    // A variable, because the package is not installed where types are checked.
    const name = '@colyseus/schema'
    const { Reflection } = await import(name)
    const [first, ...others] = messages
    // The schema comes after two short strings and a length, which takes 1 byte below 128 and else 2 or 3.
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

/** True for an event: `4` is the code of an Engine.IO message, and `2` of a Socket.IO event. */
const isEvent = (bytes: Buffer): boolean => bytes[0] === 0x34 && bytes[1] === 0x32

const socketio: Dialect = {
  join({ port }, _client, room) {
    const socket = dial(port, '/socket.io/?EIO=4&transport=websocket')
    return joined(socket, (message) => {
      if (message[0] === 0x30) socket.send(`40${JSON.stringify({ room })}`)
      return isEvent(message)
    })
  },
  move: (_room, x) => `42${JSON.stringify(['move', place(x)])}`,
  nudge: () => `42${JSON.stringify(['nudge', place()])}`,
  mark: (x) => Buffer.from(`"x":${x},`),
  isUpdate: isEvent,
  answer(socket, [code]) {
    if (code === 0x32) socket.send('3')
  },
  state(messages) {
    const state: Record<string, Record<string, object>> = { players: {}, entities: {} }
    for (const message of messages.filter(isEvent)) {
      const [, part] = JSON.parse(message.toString('utf8', 2)) as [string, typeof state]
      for (const kind in part)
        for (const id in part[kind]) state[kind]![id] = { ...state[kind]![id], ...part[kind]![id] }
    }
    return state
  },
}

export const DIALECTS = { roomful, bare, colyseus, socketio } satisfies Record<string, Dialect>
export type ServerName = keyof typeof DIALECTS

/** Returns the endpoints of a server. For roomful, also issues a token of a different player for each client. */
export async function endpointsOf(
  listening: readonly Listening[],
  clients: number,
  direct: boolean,
): Promise<Endpoint[]> {
  let credentials: readonly Credentials[] = []
  const controlUrl = listening[0]?.controlUrl
  if (controlUrl !== undefined) {
    const issuer = new ControlIssuer({ controlUrl, controlToken: undefined })
    credentials = await each([...Array(clients).keys()], 100, (i) => issuer.issue(`player-${i}`))
  }
  return listening.map((addresses) => ({ ...addresses, credentials, direct }))
}
