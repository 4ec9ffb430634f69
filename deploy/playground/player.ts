import {
  type Client,
  connect,
  type Room,
  type WebSocketConstructor,
  type WebSocketLike,
} from '../../client/index.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { toOperations } from '../../shared/sync/delta.ts'

/** A line of what a player has seen. */
export interface Entry {
  readonly id: number
  /** The flush it came with. */
  readonly seq?: number
  readonly kind: 'sent' | 'patch' | 'event' | 'member' | 'reply' | 'refused' | 'link'
  readonly what: string
  readonly data?: string
}

const MOST_ENTRIES = 200

/** One of the two players of the page: its connection, its room, and what it has seen of it. */
export class Player {
  name: string
  room: Room | undefined
  /** The latest first. */
  log: readonly Entry[] = []
  /** The node that holds its socket. */
  node = ''
  joining = false
  readonly line = new Line((message) => this.#heard(message))
  readonly #changed: () => void
  #client: Client | undefined
  #lastId = 0

  /** `changed` is called whenever there is something else to show. */
  constructor(name: string, changed: () => void) {
    this.name = name
    this.#changed = changed
  }

  get status(): string {
    return this.joining ? 'connecting' : (this.#client?.status ?? 'not connected')
  }

  get latency(): number | undefined {
    return this.#client?.status === 'online' ? Math.round(this.#client.latency) : undefined
  }

  /** Connects to `url` and joins; what goes wrong is in the log. */
  async join(url: string, type: string, options: JsonObject): Promise<void> {
    this.joining = true
    this.#changed()
    try {
      const { project_id: projectId, token } = await devToken(this.name)
      const getToken = async () => (await devToken(this.name)).token
      const { WebSocket } = this.line
      // Not rerouted: one socket after the other keeps the log in order.
      this.#client = await connect(url, { projectId, token, getToken, WebSocket, reroute: false })
      this.#client.onConnectionChange((status, error) =>
        this.#note({ kind: 'link', what: status, ...(error && { data: error.message }) }),
      )
      this.room = await this.#client.join(type, options)
      this.room.onMembersChange(() => this.#changed())
      this.room.onLeave((reason, error) => {
        this.#note({ kind: 'link', what: `left (${reason})`, ...(error && { data: error.message }) })
        this.leave()
      })
    } catch (error) {
      this.#refused('no way in', error)
      this.leave()
    }
    this.joining = false
    this.#changed()
  }

  leave(): void {
    this.#client?.close()
    this.#client = undefined
    this.room = undefined
    this.node = ''
    this.#changed()
  }

  /** Sends a message; its outcome is in the log. */
  async send(type: string, data: Json, replies: boolean): Promise<void> {
    this.#note({ kind: 'sent', what: type, data: textOf(data) })
    try {
      if (replies) await this.room?.request(type, data)
      else await this.room?.send(type, data)
    } catch (error) {
      this.#refused(type, error)
    }
  }

  clear(): void {
    this.log = []
    this.#changed()
  }

  #heard(message: DecodedMessage): void {
    switch (message.t) {
      case 'welcome':
        this.node = message.node_id
        this.#note({ kind: 'link', what: message.resumed ? 'resumed' : 'connected', data: this.node })
        break
      case 'state.snapshot':
      case 'state.resync':
        this.#note({ kind: 'patch', seq: message.seq, what: 'whole state' })
        break
      case 'state.patch':
      case 'layer.patch': {
        const operations = message.delta ? toOperations(message.delta) : []
        const what = message.t === 'layer.patch' ? `layer ${message.layer}` : 'patch'
        const lines = operations.map(
          (one) => `${one.op} ${one.path} ${'value' in one ? textOf(one.value) : ''}`,
        )
        this.#note({ kind: 'patch', seq: message.seq, what, data: lines.join('\n') || 'nothing changed' })
        break
      }
      case 'layer.state':
      case 'layer.gone':
        this.#note({ kind: 'patch', seq: message.seq, what: `${message.t} ${message.layer}` })
        break
      case 'event':
        this.#note({ kind: 'event', seq: message.seq, what: message.name, data: textOf(message.data) })
        break
      case 'room.joined':
      case 'room.left':
        this.#note({
          kind: 'member',
          seq: message.seq,
          what: message.t,
          data: message.sub ?? message.member_id,
        })
        break
      case 'room.presence': {
        const who = this.room?.members.find(({ id }) => id === message.member_id)?.sub ?? message.member_id
        const what = message.connected ? 'is back' : 'has lost the connection'
        this.#note({ kind: 'member', seq: message.seq, what, data: who })
        break
      }
      case 'reply':
        this.#note({ kind: 'reply', what: `to ${message.ref}`, data: textOf(message.data) })
        break
      default:
        this.#changed()
    }
  }

  #refused(what: string, error: unknown): void {
    const { code, message } = error as { code?: string; message: string }
    this.#note({ kind: 'refused', what, data: code === undefined ? message : `${code}: ${message}` })
  }

  #note(entry: Omit<Entry, 'id'>): void {
    this.log = [{ ...entry, id: ++this.#lastId }, ...this.log.slice(0, MOST_ENTRIES - 1)]
    this.#changed()
  }
}

async function devToken(name: string): Promise<{ project_id: string; token: string }> {
  const response = await fetch(`/dev/token?name=${encodeURIComponent(name)}`)
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.detail)
  return answer
}

const LONGEST = 600
const textOf = (value: Json): string => {
  const text = JSON.stringify(value)
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
}

/** A code of the page's own: not the 1000 of a goodbye, so that the session waits to be resumed. */
const CUT = 3001

/** One player's line to the server, which can be slow, or cut, and is listened to. */
class Line {
  /** How much later everything arrives, each way; in milliseconds. */
  delayMs = 0
  /** What to connect with. */
  readonly WebSocket: WebSocketConstructor
  readonly #open = new Set<WebSocket>()
  #cutUntil = 0

  /** `heard` gets each message as it arrives. */
  constructor(heard: (message: DecodedMessage) => void) {
    // One for all sockets of the player: a resumed session goes on with the keys that were announced.
    const codec = new MsgpackClientCodec()
    const line = this
    this.WebSocket = class implements WebSocketLike {
      binaryType = ''
      onopen: unknown = null
      onmessage: unknown = null
      onclose: unknown = null
      onerror: unknown = null
      readonly #socket: WebSocket
      readonly #out = line.#queue()

      constructor(url: string, protocols: string[]) {
        const socket = new WebSocket(url, protocols)
        this.#socket = socket
        const inwards = line.#queue()
        const call = (handler: unknown, event: Event): void => {
          if (typeof handler === 'function') handler(event)
        }
        socket.binaryType = 'arraybuffer'
        socket.onopen = (event) => inwards(() => call(this.onopen, event))
        socket.onmessage = (event: MessageEvent<ArrayBuffer>) =>
          inwards(() => {
            heard(codec.decode(new Uint8Array(event.data)))
            call(this.onmessage, event)
          })
        socket.onclose = (event) => {
          line.#open.delete(socket)
          inwards(() => call(this.onclose, event))
        }
        line.#open.add(socket)
        if (performance.now() < line.#cutUntil) socket.close()
      }

      send(data: Uint8Array<ArrayBuffer>): void {
        this.#out(() => this.#socket.readyState === WebSocket.OPEN && this.#socket.send(data))
      }

      close(code?: number): void {
        this.#out(() => this.#socket.close(code))
      }
    }
  }

  /** Breaks it, as a lost network would, and lets nothing through for `ms`. */
  cut(ms: number): void {
    this.#cutUntil = performance.now() + ms
    for (const socket of this.#open) socket.close(CUT, 'cut in the playground')
  }

  /** Does one thing after the other, each as late as the line is slow, in order also when that changes. */
  #queue(): (work: () => void) => void {
    let free = 0
    return (work) => {
      const now = performance.now()
      if (this.delayMs === 0 && now >= free) return work()
      free = Math.max(free, now + this.delayMs)
      setTimeout(work, free - now)
    }
  }
}
