import type { AddressInfo } from 'node:net'
import { WebSocket, WebSocketServer } from 'ws'
import { CLIENT_OPCODES, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackReader, MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec, unbatch } from '../../shared/protocol/msgpack-codec.ts'

/** Frames are told apart by their opcodes. */
const SUBPROTOCOL = 'roomful.v1.msgpack'

/** A websocket address before a node, through which its clients see it with a fault. */
export interface FaultyFront {
  readonly wsUrl: string
  close(): void
}

/** Stands before the node at `ws_url`: both hear each other's frames as `fault` has them. Resolves when it listens. */
export async function faultyFront(wsUrl: string, fault: Fault): Promise<FaultyFront> {
  const { toClient = pass, toNode = pass } = fault
  const server = new WebSocketServer({
    host: '127.0.0.1',
    port: 0,
    handleProtocols: (offered) => offered.has(SUBPROTOCOL) && SUBPROTOCOL,
  })
  server.on('connection', (client) => {
    const node = new WebSocket(wsUrl, SUBPROTOCOL)
    const early: Uint8Array[] = []
    client.on('message', (frame: Buffer) => {
      for (const changed of (unbatch(frame) ?? [frame]).flatMap((one) => toNode(one, client)))
        if (node.readyState === WebSocket.OPEN) node.send(changed)
        else early.push(changed)
    })
    node.on('open', () => {
      for (const frame of early) node.send(frame)
    })
    node.on('message', (frame: Buffer) => {
      for (const changed of toClient(frame, client)) client.send(changed)
    })
    client.on('close', () => node.terminate())
    node.on('close', (code, reason) => closeWith(client, code, reason))
    for (const socket of [client, node]) socket.on('error', () => undefined)
  })
  await new Promise<void>((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  return {
    wsUrl: `ws://127.0.0.1:${port}`,
    close: () => {
      for (const client of server.clients) client.terminate()
      server.close()
    },
  }
}

const pass = (frame: Uint8Array): readonly Uint8Array[] => [frame]

/** Closes as the node did. Codes that no endpoint may send stand for a connection that broke. */
function closeWith(client: WebSocket, code: number, reason: Buffer): void {
  if (code === 1005 || code === 1006) client.terminate()
  else client.close(code, reason)
}

/** What becomes of one frame of `roomful.v1.msgpack` on its way: the frames that go on in its place. */
export interface Fault {
  /** `client`: another object for each connection. */
  readonly toClient?: (frame: Uint8Array, client: object) => readonly Uint8Array[]
  readonly toNode?: (frame: Uint8Array, client: object) => readonly Uint8Array[]
}

/** Strikes once clients have sent this many messages: everyone has played for a while by then. */
const MESSAGES = 110

/** Faults a node could have, each of which strikes a single frame. A new one for each node. */
export const FAULTS = {
  /** A patch that never leaves. */
  'skipped patch': skippedPatch,
  /** A patch under a checksum that is not its state's. */
  'wrong checksum': () => toClient('state.patch', (frame) => [withWrongChecksum(frame)]),
  /** An event that never leaves, while the patch before it does. */
  'lost event': () => toClient('event', () => []),
  /** An ack that never leaves; the next one covers it. */
  'lost ack': () => toClient('ack', () => []),
  /** A message that is acked, with the next one, but was never applied. */
  'acked but not applied': droppedMessage,
  /** A message that is applied once more. */
  'applied twice': () => toNode((frame) => [frame, withoutRef(frame)]),
} as const satisfies Readonly<Record<string, () => Fault>>

export type FaultName = keyof typeof FAULTS

type Strike = (frame: Uint8Array) => readonly Uint8Array[]

/** Strikes the first frame of its type to a client once everyone has played for a while. */
function toClient(type: keyof typeof SERVER_OPCODES, strike: Strike): Fault {
  let messages = 0
  let struck = false
  return {
    toNode: (frame) => {
      messages += messagesIn(frame)
      return [frame]
    },
    toClient: (frame) => {
      // The opcode is behind the header of a short array, which is one byte.
      if (struck || messages < MESSAGES || frame[1] !== SERVER_OPCODES[type]) return [frame]
      struck = true
      return strike(frame)
    },
  }
}

/**
 * Skips a patch behind which no event comes: an event of the same flush would take the client past the gap, and the checksum of the next patch
 * would show the fault instead.
 */
function skippedPatch(): Fault {
  let messages = 0
  let skipped = false
  let held: { readonly client: object; readonly patch: Uint8Array } | undefined
  return {
    toNode: (frame) => {
      messages += messagesIn(frame)
      return [frame]
    },
    toClient: (frame, client) => {
      if (skipped || (held && held.client !== client)) return [frame]
      if (!held) {
        if (messages < MESSAGES || frame[1] !== SERVER_OPCODES['state.patch']) return [frame]
        held = { client, patch: frame }
        return []
      }
      const { patch } = held
      held = undefined
      skipped = frame[1] !== SERVER_OPCODES.event
      return skipped ? [frame] : [patch, frame]
    },
  }
}

/** Drops a reliable message. To the node, the later messages of its client close the gap; to the client, the next ack covers the dropped one. */
function droppedMessage(): Fault {
  let dropped: { readonly client: object; readonly ref: number } | undefined
  let messages = 0
  return {
    toNode: (frame, client) => {
      messages += messagesIn(frame)
      const message = dropped && dropped.client !== client ? undefined : reliable(frame)
      if (!dropped && message && messages >= MESSAGES) {
        dropped = { client, ref: message.ref }
        return []
      }
      if (!dropped) return [frame]
      if (!message) return [frame]
      const settled =
        Math.min(message.settled!, dropped.ref - 1) + Math.max(0, message.settled! - dropped.ref)
      return [new MsgpackClientCodec().encode({ ...message, ref: message.ref - 1, settled })]
    },
    toClient: (frame, client) => {
      if (dropped?.client !== client || frame[1] !== SERVER_OPCODES.ack) return [frame]
      const reader = new MsgpackReader(frame)
      reader.array()
      reader.value()
      const ref = reader.value() as number
      const writer = new MsgpackWriter().begin()
      writer.array(2)
      writer.value(SERVER_OPCODES.ack)
      writer.value(ref < dropped.ref ? ref : ref + 1)
      return [writer.take()]
    },
  }
}

/** Strikes one reliable message to the node once everyone has played for a while. */
function toNode(strike: Strike): Fault {
  let messages = 0
  let struck = false
  return {
    toNode: (frame) => {
      messages += messagesIn(frame)
      if (struck || messages < MESSAGES || !reliable(frame)) return [frame]
      struck = true
      return strike(frame)
    },
  }
}

const codec = new MsgpackCodec()

/** How many messages for rooms are in a frame. A client whose process is late sends several at once. */
const messagesIn = (frame: Uint8Array): number =>
  (unbatch(frame) ?? [frame]).filter((one) => one[1] === CLIENT_OPCODES.message).length

/** The message of a frame, if it has a ref. */
function reliable(frame: Uint8Array) {
  if (frame[1] !== CLIENT_OPCODES.message) return undefined
  const message = codec.decode(frame)
  return message.t === 'message' && message.ref !== undefined ? { ...message, ref: message.ref } : undefined
}

function withoutRef(frame: Uint8Array): Uint8Array {
  const message = codec.decode(frame)
  if (message.t !== 'message') throw new Error(`a ${message.t} has no ref to take away`)
  const { ref: _, settled: __, ...unreliable } = message
  return new MsgpackClientCodec().encode(unreliable)
}

/** The same patch under another checksum. What is before that is written again, in the same bytes, to find where it is. */
function withWrongChecksum(frame: Uint8Array): Uint8Array {
  const reader = new MsgpackReader(frame)
  const length = reader.array()
  const fields = [0, 1, 2].map(() => reader.value())
  const checksum = reader.value() as number
  const header = (sum: number): Uint8Array => {
    const writer = new MsgpackWriter().begin()
    writer.array(length)
    for (const field of [...fields, sum]) writer.value(field)
    return writer.take()
  }
  return Buffer.concat([header((checksum ^ 1) >>> 0), frame.subarray(header(checksum).length)])
}
