import { once } from 'node:events'
import { WebSocket } from 'ws'
import { MsgpackClientCodec } from '../../shared/protocol/client-codec.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { Player } from './load.ts'

/** What the clients of a scenario send: nothing, moves that change the state, or nudges that change nothing. */
export type InputKind = 'move' | 'nudge'

const VARIANTS = 64

/** Ready inputs, used in turn, so that encoding them costs the generator nothing. */
function inputs(room_id: string, type: InputKind): () => Uint8Array {
  const codec = new MsgpackClientCodec()
  const ready = Array.from({ length: VARIANTS }, () =>
    codec.encode({
      t: 'message',
      room_id,
      type,
      data: { x: Math.floor(Math.random() * 1_000), y: Math.floor(Math.random() * 1_000) },
    }),
  )
  let next = Math.floor(Math.random() * VARIANTS)
  return () => {
    next = (next + 1) % VARIANTS
    return ready[next]!
  }
}

/** A client that has said hello to a node and joined `room_type:key`. */
export async function joinRoomful(
  port: number,
  credentials: { project_id: string; token: string },
  room: { room_type: string; key: string },
  type: InputKind,
): Promise<Player> {
  const codec = new MsgpackClientCodec()
  const socket = new WebSocket(`ws://127.0.0.1:${port}`, codec.subprotocol)
  const say = (message: ClientMessage) => socket.send(codec.encode(message))
  await once(socket, 'open')
  await new Promise<void>((resolve, reject) => {
    socket.on('close', (code, reason) => reject(new Error(`the node closed with ${code} ${reason}`)))
    const listen = (data: Buffer) => {
      const message = codec.decode(data)
      if (message.t === 'welcome')
        say({ t: 'join', ref: 1, room_type: room.room_type, options: { key: room.key } })
      if (message.t === 'error') reject(new Error(`${message.code}: ${message.message}`))
      if (message.t !== 'state.snapshot') return
      socket.off('message', listen)
      resolve()
    }
    socket.on('message', listen)
    say({ t: 'hello', ...credentials })
  })
  return { socket, input: inputs(`${room.room_type}:${room.key}`, type) }
}

/** A client of the baseline; the room is the path. Sends the very bytes that roomful gets. */
export async function joinBare(port: number, key: string, type: InputKind): Promise<Player> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/${key}`)
  await once(socket, 'open')
  return { socket, input: inputs(`bench:${key}`, type) }
}
