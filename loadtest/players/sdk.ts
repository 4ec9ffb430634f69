import { WebSocket } from 'ws'
import { type Client, connect, type RoomCollection, type WebSocketConstructor } from '../../client/index.ts'
import { type BackendOptions, roomful } from '../../server/index.ts'
import type { Clock } from '../../shared/clock.ts'
import { type Credentials, givenCredentials, type Issuer } from '../issuer.ts'
import { ramp } from './pace.ts'

interface TrafficHandlers {
  dialled(): void
  /** A frame of the server, before the SDK receives it. */
  received(frame: Uint8Array): void
  sent(frame: Uint8Array): void
}

/**
 * Returns the index of the address for a connection of a client, of `count` addresses. The clients of an address that fails spread evenly
 * over the others.
 */
export function addressOf(client: number, connection: number, count: number): number {
  const turn = connection % count
  const others = turn === 0 ? 0 : 1 + ((Math.floor(client / count) + turn - 1) % (count - 1))
  return (client + others) % count
}

/** The sockets of one client. Each connection goes to another address. They can be cut and stalled. */
export class MeteredSocket {
  readonly WebSocket: WebSocketConstructor
  #socket: WebSocket | undefined

  constructor(urls: readonly string[], client: number, handlers: Partial<TrafficHandlers> = {}) {
    let connections = 0
    const address = (): string => urls[addressOf(client, connections++, urls.length)]!
    const use = (socket: WebSocket): void => {
      this.#socket = socket
    }
    this.WebSocket = class extends WebSocket {
      constructor(_url: string, protocols: string[]) {
        super(address(), protocols, { perMessageDeflate: false })
        use(this)
        handlers.dialled?.()
        this.on('message', (data) => {
          if (data instanceof ArrayBuffer) handlers.received?.(new Uint8Array(data))
          else if (Buffer.isBuffer(data)) handlers.received?.(data)
        })
      }

      override send(frame: Uint8Array): void {
        handlers.sent?.(frame)
        super.send(frame)
      }
    }
  }

  /** Ends the connection without a close frame, like a failing network. */
  cut(): void {
    this.#socket?.terminate()
  }

  /** Stops reading, like a phone in a tunnel. */
  stall(): void {
    this.#socket?.pause()
  }

  /** Continues to read. Resolves with true when the backlog has been read, with false when the connection has ended. */
  readOn(): Promise<boolean> {
    const socket = this.#socket
    socket?.resume()
    if (socket?.readyState !== WebSocket.OPEN) return Promise.resolve(false)
    return new Promise((resolve) => {
      socket.once('close', () => resolve(false))
      // The pong follows the backlog.
      socket.once('pong', () => resolve(true))
      socket.ping()
    })
  }
}

interface SdkClientsOptions {
  readonly wsUrls: readonly string[]
  readonly issuer: Issuer
  readonly clock: Clock
  /** Rejects when the run is interrupted. */
  readonly interrupted: Promise<never>
}

/** Number of clients that are opened each second. */
const PER_SECOND = 200

/** SDK clients in the main thread, for scenarios whose players do more than send messages. */
export class SdkClients {
  readonly #options: SdkClientsOptions
  readonly #clients: { close(): void }[] = []

  constructor(options: SdkClientsOptions) {
    this.#options = options
  }

  /**
   * Connects a client for each player. A player is the `sub` of its token. Undefined: the token without a `sub`, which all clients share.
   * `issuer`: default that of the run.
   */
  async connect<Rooms extends RoomCollection>(
    players: readonly (string | undefined)[],
    issuer = this.#options.issuer,
  ): Promise<Client<Rooms>[]> {
    const clients: Client<Rooms>[] = []
    let shared: Promise<Credentials> | undefined
    await this.ramp(players, PER_SECOND, async (sub, number) => {
      if (sub === undefined) shared ??= issuer.issue()
      const credentials = await (sub === undefined ? shared! : issuer.issue(sub))
      clients[number] = await this.open<Rooms>(credentials, number, { reroute: false })
    })
    this.#clients.push(...clients)
    return clients
  }

  /** Connects client number `number`, which the caller closes. Clients are spread over the addresses by their numbers. */
  open<Rooms extends RoomCollection>(
    { projectId, token }: Pick<Credentials, 'projectId' | 'token'>,
    number: number,
    options: { readonly reconnect?: false; readonly reroute?: false },
  ): Promise<Client<Rooms>> {
    const { wsUrls, clock } = this.#options
    const { WebSocket } = new MeteredSocket(wsUrls, number)
    const onError = () => undefined
    return connect<Rooms>(wsUrls[0]!, { projectId, token, WebSocket, clock, onError, ...options })
  }

  /** Creates a project. Resolves with a key with all scopes, and an issuer whose players have one token without a `sub`. */
  async project(): Promise<{ readonly options: BackendOptions; readonly issuer: Issuer }> {
    const options = await this.unlessInterrupted(this.#options.issuer.issueProject())
    const token = await this.unlessInterrupted(roomful(options).token())
    return { options, issuer: givenCredentials({ projectId: options.projectId, token }) }
  }

  /** Does `work` for each item, this many per second. Rejects with the first error after the ramp. */
  async ramp<T>(
    items: readonly T[],
    perSecond: number,
    work: (item: T, number: number) => Promise<void>,
  ): Promise<void> {
    const pace = { perSecond, offset: 0, ended: () => false }
    const errors: unknown[] = []
    const guarded = ([number, item]: [number, T]) =>
      work(item, number).catch((error: unknown) => void errors.push(error))
    await this.unlessInterrupted(ramp(this.#options.clock, [...items.entries()], pace, guarded))
    if (errors.length > 0) throw errors[0]
  }

  /** Does `work` this many times, as `ramp`. */
  repeat(times: number, perSecond: number, work: (number: number) => Promise<void>): Promise<void> {
    return this.ramp(Array.from({ length: times }), perSecond, (_, number) => work(number))
  }

  unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }

  close(): void {
    for (const client of this.#clients) client.close()
  }
}
