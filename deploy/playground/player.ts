import {
  type Client,
  type ConnectOptions,
  connect,
  type ListedRoom,
  type Room,
  type WebSocketConstructor,
  type WebSocketLike,
} from '../../client/index.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import { ReadingCodec, type ReadMessage } from '../../shared/protocol/codec.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { type Delta, REMOVE, toOperations } from '../../shared/sync/delta.ts'
import type { DevPlayer } from '../cli/dev-routes.ts'

/** A line of the log of a player. */
export interface Entry {
  readonly id: number
  /** Flush of the room that contained it. */
  readonly seq?: number
  readonly kind: 'sent' | 'patch' | 'event' | 'member' | 'reply' | 'refused' | 'link'
  readonly what: string
  readonly data?: string
}

type NewEntry = Omit<Entry, 'id'>

const MOST_ENTRIES = 200

/** One of the two players of the page: its connection, its room, and its log. */
export class Player {
  readonly name: string
  room: Room | undefined
  /** Entries, latest first. */
  log: readonly Entry[] = []
  /** Node of its socket. */
  node = ''
  joining = false
  readonly line = new Line((message) => this.#heard(message))
  readonly #changed: () => void
  #client: Client | undefined
  /** Seq of the last state. */
  #seq = 0
  #lastId = 0

  /** Calls `changed` after each visible change. */
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

  /** Connects to `url` and joins, with `member.data`. A failure appears in the log. */
  async join(
    url: string,
    type: string,
    options: JsonObject,
    { data, watch }: { readonly data?: JsonObject | undefined; readonly watch: boolean },
  ): Promise<void> {
    this.joining = true
    this.#changed()
    try {
      const { WebSocket } = this.line
      // Without reroutes: a single socket at a time keeps the log in order.
      const player = { sub: this.name, ...(data && { data }) }
      this.#client = await connectAs(player, url, { WebSocket, reroute: false })
      this.#client.onConnectionChange((status, error) => this.#link(status, error))
      this.room = await this.#client.join(type, options, { watch })
      this.room.onMembersChange(() => this.#changed())
      this.room.onLeave((reason, error) => {
        this.#link(`left (${reason})`, error)
        this.leave()
      })
    } catch (error) {
      this.#refused('cannot join', error)
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

  /** Sends a message. Its outcome appears in the log. */
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

  #heard(message: ReadMessage): void {
    if (message.t === 'welcome') this.node = message.node_id
    const member = (id: string): string => this.room?.members.find((one) => one.id === id)?.sub ?? id
    const entry = entryOf(message, member)
    if ('seq' in message) this.#seq = message.seq
    const isOfFlush = 'seq' in message || message.t === 'event' || message.t === 'member'
    if (entry) this.#note(isOfFlush ? { ...entry, seq: this.#seq } : entry)
    else this.#changed()
  }

  #link(what: string, error?: Error): void {
    this.#note({ kind: 'link', what, ...(error && { data: error.message }) })
  }

  #refused(what: string, error: unknown): void {
    const { code, message } = error as { code?: string; message: string }
    this.#note({ kind: 'refused', what, data: code === undefined ? message : `${code}: ${message}` })
  }

  #note(entry: NewEntry): void {
    this.log = [{ ...entry, id: ++this.#lastId }, ...this.log.slice(0, MOST_ENTRIES - 1)]
    this.#changed()
  }
}

/** Returns the log entry of a message from the server. Undefined: it has none. `nameOf` returns the name of a member. */
function entryOf(message: ReadMessage, nameOf: (memberId: string) => string): NewEntry | undefined {
  switch (message.t) {
    case 'welcome':
      return { kind: 'link', what: message.resumed ? 'resumed' : 'connected', data: message.node_id }
    case 'state.snapshot':
    case 'state.resync':
      return { kind: 'patch', what: 'whole state' }
    case 'state.patch': {
      const { delta, layers } = message
      const lines = [
        ...(delta ? linesOf(delta) : []),
        ...layers.flatMap(({ layer, change }) =>
          change === REMOVE
            ? `layer ${layer} is gone`
            : linesOf(change).map((line) => `layer ${layer}: ${line}`),
        ),
      ]
      return { kind: 'patch', what: 'patch', data: lines.join('\n') || 'nothing changed' }
    }
    case 'event':
      return { kind: 'event', what: message.name, data: textOf(message.data) }
    case 'member': {
      const { connected, spectator, sub } = message
      const present = connected ? (spectator ? 'watches' : 'is here') : 'is away'
      const what = connected === undefined ? 'is no player' : present
      return { kind: 'member', what, data: sub ?? nameOf(message.member_id) }
    }
    case 'left':
      return { kind: 'member', what: 'left', data: message.reason }
    case 'reply':
      return { kind: 'reply', what: `to ${message.ref}`, data: textOf(message.data) }
  }
  return undefined
}

const linesOf = (delta: Delta): string[] =>
  toOperations(delta).map((one) => `${one.op} ${one.path} ${'value' in one ? textOf(one.value) : ''}`)

async function connectAs(
  player: DevPlayer,
  url: string,
  options: Omit<ConnectOptions, 'dev'>,
): Promise<Client> {
  const { project_id: projectId, token } = await devToken(player)
  const getToken = async () => (await devToken(player)).token
  return connect(url, { ...options, projectId, token, getToken })
}

/**
 * Calls `show` with the rooms of a type, and again after each change, until the returned function is called. `failed`: the type has no
 * list.
 */
export function watchList(
  url: string,
  type: string,
  show: (rooms: readonly ListedRoom[]) => void,
  failed: (error: Error) => void,
): () => void {
  const end = new AbortController()
  const { signal } = end
  const fail = (error: Error): void => {
    if (!signal.aborted) failed(error)
  }
  connectAs({ sub: 'playground' }, url, { signal })
    .then((client) => client.watchRooms(type, { full: true, limit: 100 }, show, fail))
    .catch(fail)
  return () => end.abort()
}

async function devToken(player: DevPlayer): Promise<{ project_id: string; token: string }> {
  const response = await fetch('/dev/token', { method: 'POST', body: JSON.stringify(player) })
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.detail)
  return answer
}

const LONGEST = 600
const textOf = (value: Json): string => {
  const text = JSON.stringify(value)
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
}

/** Network of one player, which can be slow or cut. It reports every received message. */
class Line {
  /** Delay in each direction, in milliseconds. */
  delayMs = 0
  /** WebSocket class for the client. */
  readonly WebSocket: WebSocketConstructor
  readonly #open = new Set<WebSocket>()
  #cutUntil = 0

  /** `heard` receives each message when it arrives. */
  constructor(heard: (message: ReadMessage) => void) {
    // One codec for all sockets of the player, because a resumed session uses the keys that were announced before.
    const codec = new ReadingCodec(new MsgpackClientCodec())
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
        for (const type of ['open', 'message', 'close'] as const)
          socket.addEventListener(type, (event) =>
            inwards(() => {
              if (event instanceof MessageEvent) heard(codec.decode(new Uint8Array(event.data)))
              const handler = this[`on${type}`]
              if (typeof handler === 'function') handler(event)
            }),
          )
        socket.binaryType = 'arraybuffer'
        socket.addEventListener('close', () => line.#open.delete(socket))
        line.#open.add(socket)
        if (performance.now() < line.#cutUntil) socket.close()
      }

      send(data: Uint8Array<ArrayBuffer>): void {
        this.#out(() => this.#socket.readyState === WebSocket.OPEN && this.#socket.send(data))
      }

      close(): void {
        this.#out(() => this.#socket.close())
      }
    }
  }

  /** Breaks the connection, like a lost network, and blocks all traffic for `ms`. */
  cut(ms: number): void {
    this.#cutUntil = performance.now() + ms
    for (const socket of this.#open) socket.close()
  }

  /** Runs work in order, each item with the delay at that moment. */
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
