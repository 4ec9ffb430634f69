import { type Client, type ConnectionStatus, connect, type Room, RoomfulError } from 'roomful/client'
import type { WebSocket } from 'ws'
import { sleep } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { systemRandom } from '../../shared/random.ts'
import { type End, playerIn } from '../chaos/checker/history.ts'
import { type ChaosState, type chaosRoom, layersIn, marksIn } from '../chaos/rooms.ts'
import { type Address, Network } from './network.ts'
import { type ClientParts, DEAF_MS, type Door, MOST_WAITING, type NewOp, Player } from './player.ts'

const CONNECT_AGAIN_MS = 500

/** A player with the SDK. The SDK does not expose frames, so the player records what the SDK reports to its user. */
export class SdkPlayer extends Player {
  readonly #network = new Network({
    to: (url) => this.#addressFor(url),
    created: (socket, node, before) => {
      socket.once('open', () => this.parts.note({ kind: 'connected', node }))
      if (this.#client?.status === 'online') this.disturb(before, socket)
    },
    frame: (frame) => {
      this.#marks(frame)
      // The client reads the frame first. No state change shows the loss of a seat before the client has another seat.
      queueMicrotask(() => this.#noteLoss())
      return frame
    },
  })
  readonly #marks = marked((marks) => this.parts.note({ kind: 'marks', marks }))
  #client: Client | undefined
  #room: Room<ReturnType<typeof chaosRoom>> | undefined
  #member = ''
  /** False: the seat of `#member` is lost, and the client waits for another seat. */
  #hasSeat = false
  /** Last recorded view and layers, as JSON. */
  #view = ''
  #lastRef = 0
  #waiting = 0
  /** Number of completed moves to the node of its room. */
  #moves = 0
  #seatsLost = 0

  get answered(): boolean {
    return this.#client?.status === 'online' && this.#room?.status === 'joined' && this.#waiting === 0
  }

  protected get ready(): boolean {
    return this.#room?.status === 'joined' && this.#waiting < MOST_WAITING
  }

  protected connect(): void {
    void this.#begin()
  }

  cut(): void {
    this.#network.cut()
  }

  /** The SDK has only one connection, so a race is a cut. */
  race(): void {
    this.cut()
  }

  position(): End['members'][number] | undefined {
    if (this.#room?.status !== 'joined' || this.#client?.status !== 'online') return undefined
    return { client: this.name, ...this.#place(), state: this.#room.state as Json }
  }

  describe(): string {
    return `${this.name} (SDK) is ${this.#client?.status ?? 'not connected'}, ${this.#room?.status ?? 'in no room'}, with ${this.#waiting} unanswered`
  }

  override close(): void {
    super.close()
    this.#client?.close()
  }

  #addressFor(url: string): Address | undefined {
    return url === ANY_NODE ? randomNode(this.parts) : addressOf(this.parts, this.rerouting(url))
  }

  async #begin(): Promise<void> {
    const { roomType, key, reroutes: reroute } = this.parts
    this.#moves = 0
    this.#seatsLost = 0
    try {
      this.#client = await connect(ANY_NODE, { ...connectOptions(this.parts, this.#network), reroute })
      const room = await this.#client.join<ReturnType<typeof chaosRoom>>(roomType as 'chaos-journal', {
        key,
      })
      this.#room = room
      this.#joined()
      room.onStateChange(() => this.#changed())
      room.onLeave(() => {
        if (this.closed) return
        if (this.#hasSeat) this.parts.note({ kind: 'lost', ...this.#place(), why: 'seat' })
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
    this.parts.clock.schedule(CONNECT_AGAIN_MS, () => {
      if (!this.closed) void this.#begin()
    })
  }

  /** Records that the server has ended the seat. */
  #noteLoss(): void {
    const { seatsLost = 0 } = this.#client?.stats ?? {}
    if (seatsLost === this.#seatsLost || !this.#room) return
    this.#seatsLost = seatsLost
    this.#hasSeat = false
    this.parts.note({ kind: 'lost', ...this.#place(), why: 'seat' })
  }

  #place() {
    const { roomType, key } = this.parts
    return { room: `${roomType}:${key}`, member: this.#member }
  }

  #joined(): void {
    this.#member = this.#room?.memberId ?? ''
    this.#hasSeat = true
    this.#view = ''
    this.parts.note({ kind: 'joined', ...this.#place() })
    this.#changed()
  }

  #changed(): void {
    const room = this.#room
    if (!room) return
    const { moves = 0 } = this.#client?.stats ?? {}
    if (moves > this.#moves) this.parts.note({ kind: 'rerouted' })
    this.#moves = moves
    this.#noteLoss()
    if (room.memberId !== this.#member) {
      if (this.#hasSeat) this.parts.note({ kind: 'lost', ...this.#place(), why: 'session' })
      this.#joined()
      return
    }
    const view = playerIn(room.state as Json, this.#member)
    if (!view) return
    const { count, lastRef, chain } = view
    const layers = layersIn(room.state as ChaosState, this.#member)
    const shown = JSON.stringify([count, chain, layers])
    if (shown === this.#view) return
    this.#view = shown
    this.parts.note({ kind: 'view', ...this.#place(), view: { count, lastRef, chain }, layers })
  }

  protected deafen(): void {
    this.#network.deafen()
    this.parts.clock.schedule(DEAF_MS, () => this.cut())
  }

  protected send({ ask, ...op }: NewOp): void {
    const room = this.#room
    // While the client waits for a seat, the SDK would queue the op and send it as the next member.
    if (room?.status !== 'joined') return
    // The client may have another member id since the last state change.
    this.#changed()
    this.#lastRef += 1
    const ref = this.#lastRef
    // The client may have another member id when the answer arrives.
    const place = this.#place()
    this.parts.note({ kind: 'sent', ...place, ref, ...op, ask, again: false })
    this.#waiting += 1
    const data = { ...op, ref }
    const sent = ask ? room.request('ask', data) : room.send('op', data)
    sent
      .then(
        (reply) => {
          if (reply) this.parts.note({ kind: 'reply', ...place, ref, reply })
          this.parts.note({ kind: 'ack', ...place, ref })
        },
        (error: unknown) => {
          const code = error instanceof RoomfulError ? error.code : 'unknown'
          // If the session is lost, the client does not know whether the op was applied.
          if (!UNKNOWN.includes(code)) this.parts.note({ kind: 'refused', ...place, ref, code })
        },
      )
      .finally(() => {
        this.#waiting -= 1
      })
  }
}

/** Errors after which the client does not know whether an op was applied. */
const UNKNOWN = ['resume_failed', 'client_closed', 'not_in_room', 'seat_lost', 'unknown']

/** Address for `connect`: the network sends each connection to a random node. */
const ANY_NODE = 'ws://127.0.0.1:9/any-node'

const addressOf = ({ dial }: ClientParts, door: Door): Address => ({ ...door, connection: dial?.(door) })

/** Returns the address of a random running node. Undefined: none runs. */
function randomNode(parts: ClientParts): Address | undefined {
  const doors = parts.doors()
  const door = doors[Math.floor(parts.random() * doors.length)]
  return door && addressOf(parts, door)
}

/** Options of `connect` for a client that does not follow a `move` to the node of its room. */
const connectOptions = ({ projectId, token, clock, random }: ClientParts, { WebSocket }: Network) => ({
  projectId,
  token,
  reroute: false,
  WebSocket,
  clock,
  random: { float: random, bytes: (count: number) => systemRandom.bytes(count) },
  onError: () => {},
})

/** Returns a hook for frames that calls `note` with the marks of each frame that has marks. */
export const marked =
  (note: (marks: readonly string[]) => void) =>
  (frame: Buffer): Buffer => {
    const marks = marksIn(String(frame))
    if (marks.length > 0) note(marks)
    return frame
  }

/** Client of the SDK, also with queues. */
interface Closable {
  readonly status: ConnectionStatus
  close(): void
}

/** A player with the SDK who acts again and again, at random nodes. It connects again after its client has closed. */
export abstract class Actor<C extends Closable, P extends ClientParts = ClientParts> {
  protected readonly parts: P
  protected readonly network = new Network({
    to: () => randomNode(this.parts),
    created: (socket, node) => this.dialled(socket, node),
    frame: (frame) => {
      this.received(frame)
      return frame
    },
  })
  protected client: C | undefined
  protected resting = false
  protected closed = false

  constructor(parts: P) {
    this.parts = parts
  }

  get name(): string {
    return this.parts.name
  }

  start(): void {
    void this.#play()
  }

  rest(): void {
    this.resting = true
  }

  close(): void {
    this.closed = true
    this.client?.close()
  }

  /** Connects. `options`: also those for `connect`. */
  protected abstract connect(url: string, options: ReturnType<typeof connectOptions>): Promise<C>
  /** Called with a new client. */
  protected abstract connected(client: C): void
  protected abstract act(client: C): Promise<unknown>
  /** Returns the time until the next act, in ms. */
  protected abstract pause(): number
  protected dialled(_socket: WebSocket, _node: string): void {}
  protected received(_frame: Buffer): void {}

  async #play(): Promise<void> {
    while (!this.closed) {
      try {
        await this.act(await this.#online())
      } catch (error) {
        // Connections and rooms get lost.
        if (!(error instanceof RoomfulError)) throw error
      }
      await sleep(this.parts.clock, this.pause())
    }
  }

  async #online(): Promise<C> {
    if (this.client && this.client.status !== 'closed') return this.client
    const client = await this.connect(ANY_NODE, connectOptions(this.parts, this.network))
    this.client = client
    this.connected(client)
    if (this.closed) client.close()
    return client
  }
}
