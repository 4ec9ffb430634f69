import { once } from 'node:events'
import { expect } from 'vitest'
import { WebSocket } from 'ws'
import { CLOSE, type CloseName } from '../../../shared/protocol/error-codes.ts'
import type { ClientMessage, ServerMessage } from '../../../shared/protocol/messages.ts'

type Received<T extends ServerMessage['t']> = Extract<ServerMessage, { t: T }>

/** A bare websocket client that speaks `roomful.v1.json` and notes what it gets. */
export class TestClient {
  readonly ws: WebSocket
  /** Everything received, oldest first. */
  readonly received: ServerMessage[] = []
  readonly closed: Promise<{ code: number; reason: string }>
  readonly #waiting: {
    matches: (message: ServerMessage) => boolean
    resolve: (message: ServerMessage) => void
  }[] = []
  #read = 0

  private constructor(ws: WebSocket) {
    this.ws = ws
    ws.on('message', (data) => this.#receive(JSON.parse(String(data)) as ServerMessage))
    ws.on('error', () => {})
    // Not with `once`, which rejects at an error: a test that does not wait for the end would fail by that.
    this.closed = new Promise((resolve) => {
      ws.once('close', (code, reason) => resolve({ code, reason: String(reason) }))
    })
  }

  /** Resolves when the websocket is open. */
  static async open(url: string, protocols: string[] = [], options = {}): Promise<TestClient> {
    const client = new TestClient(new WebSocket(url, protocols, { perMessageDeflate: false, ...options }))
    await once(client.ws, 'open')
    return client
  }

  send(...messages: ClientMessage[]): void {
    for (const message of messages) this.ws.send(JSON.stringify(message))
  }

  /** The next message of a kind that was not yet returned by `next`, skipping others. */
  next<T extends ServerMessage['t']>(
    t: T,
    fits: (message: Received<T>) => boolean = () => true,
  ): Promise<Received<T>> {
    const matches = (message: ServerMessage): boolean => message.t === t && fits(message as Received<T>)
    while (this.#read < this.received.length) {
      const message = this.received[this.#read++]!
      if (matches(message)) return Promise.resolve(message as Received<T>)
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ matches, resolve: (message) => resolve(message as Received<T>) })
      void this.closed.then(({ code, reason }) =>
        reject(new Error(`closed with ${code} "${reason}" while waiting for ${t}`)),
      )
    })
  }

  /** Everything the server has sent so far is here when this resolves. */
  async roundTrip(): Promise<void> {
    const at = this.received.length + Math.random()
    this.send({ t: 'ping', at })
    await this.next('pong', (pong) => pong.at === at)
  }

  #receive(message: ServerMessage): void {
    this.received.push(message)
    const first = this.#waiting[0]
    if (!first) return
    this.#read = this.received.length
    if (!first.matches(message)) return
    this.#waiting.shift()
    first.resolve(message)
  }
}

/** The server closes the connection with this code, and a reason that fits. */
export async function expectClose(client: TestClient, name: CloseName, reason: RegExp): Promise<void> {
  expect(await client.closed).toEqual({ code: CLOSE[name], reason: expect.stringMatching(reason) })
}
