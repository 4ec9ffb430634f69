import { connect, createServer, type Socket } from 'node:net'

/** Stands between a client and a Redis, and does to their connections what networks do. */
export interface RedisProxy {
  /** What the client connects to instead of the server. */
  readonly url: string
  /**
   * Drops from now on what the server sends on every open connection on which the client has said `word` (a command, or the
   * connection's name). The connections stay open, and what the client sends still arrives.
   */
  mute(word: string): void
  /** What the server says from now on arrives again. */
  unmute(): void
  /** Breaks every open connection; new ones work. */
  cut(): void
  close(): Promise<void>
}

interface Pair {
  readonly client: Socket
  readonly server: Socket
  said: string
  muted: boolean
}

/** Starts a proxy on a free port of this machine in front of the Redis at `url`. */
export async function proxyRedis(url: string): Promise<RedisProxy> {
  const { hostname, port } = new URL(url)
  const pairs = new Set<Pair>()

  const join = (client: Socket) => {
    const server = connect(Number(port || 6379), hostname)
    const pair: Pair = { client, server, said: '', muted: false }
    pairs.add(pair)
    client.on('data', (chunk) => {
      pair.said += chunk.toString('latin1')
      server.write(chunk)
    })
    server.on('data', (chunk) => {
      if (!pair.muted) client.write(chunk)
    })
    const part = () => {
      pairs.delete(pair)
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) socket.on('error', part).on('close', part)
  }

  const listener = createServer(join)
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const address = listener.address()
  if (typeof address !== 'object' || !address) throw new Error('the proxy has no port')

  const cut = () => {
    for (const pair of pairs) pair.client.destroy()
  }
  return {
    url: `redis://127.0.0.1:${address.port}`,
    mute: (word) => {
      for (const pair of pairs) pair.muted ||= pair.said.includes(word)
    },
    unmute: () => {
      for (const pair of pairs) pair.muted = false
    },
    cut,
    close: () => {
      cut()
      return new Promise((resolve) => listener.close(() => resolve()))
    },
  }
}
