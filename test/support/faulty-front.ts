import type { AddressInfo } from 'node:net'
import { WebSocket, WebSocketServer } from 'ws'
import type { Fault } from './faults.ts'

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
      for (const changed of toNode(frame))
        if (node.readyState === WebSocket.OPEN) node.send(changed)
        else early.push(changed)
    })
    node.on('open', () => {
      for (const frame of early) node.send(frame)
    })
    node.on('message', (frame: Buffer) => {
      for (const changed of toClient(frame)) client.send(changed)
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
