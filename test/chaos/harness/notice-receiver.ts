import { createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

const KEY = Buffer.from('the key of the notices of chaos')
/** Longer than a node waits for an answer. */
const LATE_MS = 2500

/** What it does with a notice. */
export type Mood = 'accepts' | 'fails' | 'silent' | 'late'

/** The webhook of the backends of a run. */
export interface Notices {
  /** Called with each notice that has a valid signature. */
  onNotice: (id: string, body: string, accepted: boolean) => void
  mood: () => Mood
}

/** The webhook of a backend (`NOTIFY_URL`). It fails, does not answer, or answers when the node has given up, as its `mood` says. */
export class NoticeReceiver implements Notices {
  /** Value of `NOTIFY_SECRET`. */
  readonly secret = `whsec_${KEY.toString('base64')}`
  onNotice: Notices['onNotice'] = () => {}
  mood: () => Mood = () => 'accepts'
  readonly #server = createServer((request, response) => void this.#receive(request, response))

  static async open(): Promise<NoticeReceiver> {
    const receiver = new NoticeReceiver()
    await new Promise<void>((resolve) => receiver.#server.listen(0, '127.0.0.1', resolve))
    return receiver
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/notices`
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request).catch(() => undefined)
    // The node was killed while it sent.
    if (body === undefined) return
    const {
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signature,
    } = request.headers
    // The time is not looked at: the clocks of nodes jump.
    const expected = createHmac('sha256', KEY).update(`${id}.${timestamp}.${body}`).digest('base64')
    if (signature !== `v1,${expected}`) return void response.writeHead(401).end()
    const mood = this.mood()
    this.onNotice(String(id), body, mood === 'accepts')
    if (mood === 'silent') return
    if (mood === 'late') await new Promise((resolve) => setTimeout(resolve, LATE_MS))
    response.writeHead(mood === 'fails' ? 500 : 204).end()
  }
}
