import type { AddressInfo } from 'node:net'
import { WebSocket, WebSocketServer } from 'ws'
import { CLIENT_OPCODES, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackReader, MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'

/** The faults find their frames by the opcode, so clients must use this subprotocol. */
const SUBPROTOCOL = 'roomful.v1.msgpack'

/** A websocket proxy of a node that injects a fault. */
export interface FaultyFront {
  readonly wsUrl: string
  close(): void
}

/** Starts a proxy of the node at `wsUrl`. It passes each frame through `fault`. Resolves when it listens. */
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
      for (const changed of toNode(frame, client))
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

/** Closes the client's socket like the node did. Codes 1005 and 1006 mean that the connection broke, and cannot be sent. */
function closeWith(client: WebSocket, code: number, reason: Buffer): void {
  if (code === 1005 || code === 1006) client.terminate()
  else client.close(code, reason)
}

/** Functions that replace one frame of `roomful.v1.msgpack` by zero or more frames. */
export interface Fault {
  /** `client`: an object that identifies the connection. */
  readonly toClient?: (frame: Uint8Array, client: object) => readonly Uint8Array[]
  readonly toNode?: (frame: Uint8Array, client: object) => readonly Uint8Array[]
}

/** A fault waits for this number of messages, so that every player has sent some. */
const MESSAGES = 110

/** Faults that a node could have. Each changes a single frame. Create a new fault for each node. */
export const FAULTS = {
  /** A patch is lost. */
  'skipped patch': skippedPatch,
  /** A patch has a wrong checksum. */
  'wrong checksum': () => toClient('state.patch', (frame) => [withWrongChecksum(frame)]),
  /** An event is lost, and the patch before it arrives. */
  'lost event': () => toClient('event', () => []),
  /** An ack is lost. The next ack includes it. */
  'lost ack': () => toClient('ack', () => []),
  /** A message is not applied, and the next ack includes it. */
  'acked but not applied': droppedMessage,
  /** A message is applied twice. */
  'applied twice': () => toNode((frame) => [frame, withoutRef(frame)]),
} as const satisfies Readonly<Record<string, () => Fault>>

export type FaultName = keyof typeof FAULTS

type Strike = (frame: Uint8Array) => readonly Uint8Array[]

/** Changes the first frame of a type to a client after `MESSAGES` messages. */
function toClient(type: keyof typeof SERVER_OPCODES, strike: Strike): Fault {
  let messages = 0
  let struck = false
  return {
    toNode: (frame) => {
      if (isMessage(frame)) messages++
      return [frame]
    },
    toClient: (frame) => {
      // The opcode follows the header of a short array, which is one byte.
      if (struck || messages < MESSAGES || frame[1] !== SERVER_OPCODES[type]) return [frame]
      struck = true
      return strike(frame)
    },
  }
}

/**
 * Drops a patch that no event follows. After an event of the same flush, the client would not see the gap. The checksum of the next patch would
 * show the fault instead.
 */
function skippedPatch(): Fault {
  let messages = 0
  let skipped = false
  let held: { readonly client: object; readonly patch: Uint8Array } | undefined
  return {
    toNode: (frame) => {
      if (isMessage(frame)) messages++
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

/** Drops a reliable message. The node gets the client's later messages with lower refs, and the client gets acks that include the dropped ref. */
function droppedMessage(): Fault {
  let dropped: { readonly client: object; readonly ref: number } | undefined
  let messages = 0
  return {
    toNode: (frame, client) => {
      if (isMessage(frame)) messages++
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

/** Changes one reliable message to the node after `MESSAGES` messages. */
function toNode(strike: Strike): Fault {
  let messages = 0
  let struck = false
  return {
    toNode: (frame) => {
      if (isMessage(frame)) messages++
      if (struck || messages < MESSAGES || !reliable(frame)) return [frame]
      struck = true
      return strike(frame)
    },
  }
}

const codec = new MsgpackCodec()

const isMessage = (frame: Uint8Array): boolean => frame[1] === CLIENT_OPCODES.message

/** Returns the message of a frame if it has a ref. */
function reliable(frame: Uint8Array) {
  if (!isMessage(frame)) return undefined
  const message = codec.decode(frame)
  return message.t === 'message' && message.ref !== undefined ? { ...message, ref: message.ref } : undefined
}

function withoutRef(frame: Uint8Array): Uint8Array {
  const message = codec.decode(frame)
  if (message.t !== 'message') throw new Error(`a ${message.t} has no ref to take away`)
  const { ref: _, settled: __, ...unreliable } = message
  return new MsgpackClientCodec().encode(unreliable)
}

/** Returns a patch with another checksum. It encodes the fields before the checksum again to find their length. */
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
