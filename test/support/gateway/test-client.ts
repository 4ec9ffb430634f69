import { expect } from 'vitest'
import { CLOSE, type CloseName } from '../../../shared/protocol/error-codes.ts'
import type { ClientMessage, ServerMessage } from '../../../shared/protocol/messages.ts'
import { RawClient, upgraded } from '../raw-client.ts'

type Received<T extends ServerMessage['t']> = Extract<ServerMessage, { t: T }>

/** A `RawClient` that keeps what it receives, for tests that wait for one message after the other. */
export class TestClient extends RawClient {
  /** Everything received, oldest first. */
  readonly received: ServerMessage[] = []
  readonly #waiting: {
    matches: (message: ServerMessage) => boolean
    resolve: (message: ServerMessage) => void
  }[] = []
  #read = 0

  override readonly onMessage = (message: object): void => this.#receive(message as ServerMessage)

  /** Resolves when the websocket is open. */
  static override async open(url: string, protocols: string[] = [], options = {}): Promise<TestClient> {
    return new TestClient(await upgraded(url, protocols, options))
  }

  override send(...messages: ClientMessage[]): void {
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
