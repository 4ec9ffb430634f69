import { connect as connectTcp, createServer, type Server, type Socket } from 'node:net'
import { type Client, connect, type Room, RoomfulError } from 'roomful/client'
import type { Json } from '../../../shared/json.ts'
import { type End, playerIn, type View } from '../checker/history.ts'
import type { chaosRoom } from '../room-logic.ts'
import { DEAF_MS, type Door, MOST_WAITING, type NewOp, Player } from './player.ts'

const CONNECT_AGAIN_MS = 500

/** A client with the SDK, behind a load balancer of its own. The SDK tells no frames: what is written down is what its user sees. */
export class SdkPlayer extends Player {
  #front: Front | undefined
  #client: Client | undefined
  #room: Room<ReturnType<typeof chaosRoom>> | undefined
  #member = ''
  #view: View | undefined
  #lastRef = 0
  #waiting = 0

  get settled(): boolean {
    return this.#client?.status === 'online' && this.#room?.status === 'joined' && this.#waiting === 0
  }

  protected get ready(): boolean {
    return this.#room?.status === 'joined' && this.#waiting < MOST_WAITING
  }

  protected connect(): void {
    void this.#begin()
  }

  cut(): void {
    this.#front?.cut()
  }

  /** The SDK has one connection at a time. */
  race(): void {
    this.cut()
  }

  stand(): End['members'][number] | undefined {
    if (this.#room?.status !== 'joined' || this.#client?.status !== 'online') return undefined
    return { client: this.name, ...this.#place(), state: this.#room.state as Json }
  }

  describe(): string {
    return `${this.name} (SDK) is ${this.#client?.status ?? 'not connected'}, ${this.#room?.status ?? 'in no room'}, with ${this.#waiting} unsettled`
  }

  override close(): void {
    super.close()
    this.#client?.close()
    void this.#front?.close()
  }

  async #begin(): Promise<void> {
    const { doors, random, project_id: projectId, token, room_type: roomType, key } = this.parts
    const connected = ({ node }: Door) => this.parts.note({ kind: 'connected', node })
    this.#front ??= await Front.open({ doors, random, connected })
    try {
      this.#client = await connect(this.#front.url, { projectId, token, onError: () => {} })
      const room = await this.#client.join<ReturnType<typeof chaosRoom>>(roomType as 'chaos-journal', {
        key,
      })
      this.#room = room
      this.#joined()
      room.onStateChange(() => this.#changed())
      room.onLeave(() => {
        if (this.closed) return
        this.parts.note({ kind: 'lost', ...this.#place(), why: 'seat' })
        this.#room = undefined
        this.#client?.close()
        this.#again()
      })
    } catch {
      this.#client?.close()
      this.#again()
    }
  }

  #again(): void {
    setTimeout(() => {
      if (!this.closed) void this.#begin()
    }, CONNECT_AGAIN_MS).unref()
  }

  #place() {
    const { room_type: roomType, key } = this.parts
    return { room: `${roomType}:${key}`, member: this.#member }
  }

  #joined(): void {
    this.#member = this.#room?.memberId ?? ''
    this.#view = undefined
    this.parts.note({ kind: 'joined', ...this.#place() })
    this.#changed()
  }

  #changed(): void {
    const room = this.#room
    if (!room) return
    if (room.memberId !== this.#member) {
      this.parts.note({ kind: 'lost', ...this.#place(), why: 'session' })
      this.#joined()
      return
    }
    const view = playerIn(room.state as Json, this.#member)
    if (!view || (view.count === this.#view?.count && view.chain === this.#view.chain)) return
    this.#view = view
    this.parts.note({ kind: 'view', ...this.#place(), view: { ...view } })
  }

  protected deafen(): void {
    this.#front?.deafen()
    setTimeout(() => this.cut(), DEAF_MS).unref()
  }

  protected send({ op, refuse }: NewOp): void {
    const room = this.#room
    if (!room) return
    // It may be another member since the last change of the state.
    this.#changed()
    this.#lastRef += 1
    const ref = this.#lastRef
    // The member may be another when the answer comes.
    const place = this.#place()
    this.parts.note({ kind: 'sent', ...place, ref, op, refuse, again: false })
    this.#waiting += 1
    room
      .send('op', { op, ref, refuse })
      .then(
        () => this.parts.note({ kind: 'ack', ...place, ref }),
        (error: unknown) => {
          const code = error instanceof RoomfulError ? error.code : 'unknown'
          // With its session lost no one knows whether an op was applied.
          if (!UNKNOWN.includes(code)) this.parts.note({ kind: 'refused', ...place, ref, code })
        },
      )
      .finally(() => {
        this.#waiting -= 1
      })
  }
}

/** Errors that do not say what became of an op. */
const UNKNOWN = ['resume_failed', 'client_closed', 'not_in_room', 'seat_lost', 'unknown']

interface FrontParts {
  readonly doors: () => readonly Door[]
  readonly random: () => number
  /** A connection goes to this node. */
  readonly connected: (door: Door) => void
}

/** A load balancer in one class: each connection goes to a node drawn at random. */
class Front {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #pairs = new Map<Socket, Socket>()

  private constructor({ doors, random, connected }: FrontParts) {
    this.#server = createServer((client) => {
      const all = doors()
      const door = all[Math.floor(random() * all.length)]
      if (!door) {
        client.destroy()
        return
      }
      connected(door)
      const { hostname, port } = new URL(door.url)
      const node = connectTcp(Number(port), hostname)
      this.#pairs.set(node, client)
      node.on('close', () => this.#pairs.delete(node))
      for (const [from, to] of [
        [client, node],
        [node, client],
      ] as const) {
        this.#sockets.add(from)
        from.setNoDelay(true)
        from.pipe(to)
        from.on('error', () => to.destroy())
        from.on('close', () => {
          this.#sockets.delete(from)
          to.destroy()
        })
      }
    })
  }

  static async open(parts: FrontParts): Promise<Front> {
    const front = new Front(parts)
    await new Promise<void>((resolve, reject) => {
      front.#server.once('error', reject)
      front.#server.listen(0, '127.0.0.1', resolve)
    })
    return front
  }

  get url(): string {
    const address = this.#server.address()
    if (typeof address !== 'object' || !address) throw new Error('the front has no port')
    return `ws://127.0.0.1:${address.port}`
  }

  /** Nothing comes back to the client any more on the connections there are; what it sends arrives. */
  deafen(): void {
    for (const [node, client] of this.#pairs) node.unpipe(client).resume()
  }

  /** Breaks every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }
}
