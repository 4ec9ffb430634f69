import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A websocket address before a node that can be shut, as a load balancer that ends and comes back. */
export interface Door {
  readonly wsUrl: string
  /** Breaks every connection, and each new one at once. */
  shut(): void
  open(): void
  close(): void
}

/** Stands, open, before the node at `ws_url`. Resolves when it listens. */
export async function doorBefore(wsUrl: string): Promise<Door> {
  const { hostname, port } = new URL(wsUrl)
  const sockets = new Set<Socket>()
  let isShut = false
  const keep = (socket: Socket, other: () => Socket): void => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.once('close', () => {
      sockets.delete(socket)
      other().destroy()
    })
  }
  const server = createServer((client) => {
    if (isShut) {
      client.destroy()
      return
    }
    const node = connect(Number(port), hostname)
    keep(client, () => node)
    keep(node, () => client)
    client.pipe(node)
    node.pipe(client)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const shut = (): void => {
    isShut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    wsUrl: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    shut,
    open: () => {
      isShut = false
    },
    close: () => {
      shut()
      server.close()
    },
  }
}
