import type { Duplex } from 'node:stream'
import { type Client, type ConnectOptions, connect, type Room, RoomfulError } from 'roomful/client'
import { WebSocket } from 'ws'
import { type Clock, sleep } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import { systemRandom } from '../../../shared/random.ts'
import { type End, playerIn } from '../checker/history.ts'
import { type ChaosState, type chaosRoom, layersIn, marksIn } from '../rooms.ts'
import { type ClientParts, DEAF_MS, type Door, MOST_WAITING, type NewOp, Player } from './player.ts'

const CONNECT_AGAIN_MS = 500

/** A player with the SDK. The SDK does not expose frames, so the player records what the SDK reports to its user. */
export class SdkPlayer extends Player {
  readonly #network = new Network(
    (url) => this.#doorOf(url),
    (frame) => {
      this.#marks(frame)
      // The client reads the frame first. No state change shows the loss of a seat before the client has another seat.
      queueMicrotask(() => this.#noteLoss())
    },
    (door) => this.parts.dial?.(door),
    (door, socket, before) => {
      socket.once('open', () => this.parts.note({ kind: 'connected', node: door.node }))
      if (this.#client?.status === 'online') this.disturb(before, socket)
    },
  )
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

  #doorOf(url: string): Door | undefined {
    return url === ANY_NODE ? randomDoor(this.parts) : this.rerouting(url)
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

/** Address for `connect`: `Network` sends each connection to a random node. */
export const ANY_NODE = 'ws://127.0.0.1:9/any-node'

/** Returns a random running node. Undefined: none runs. */
export function randomDoor({ doors, random }: ClientParts): Door | undefined {
  const all = doors()
  return all[Math.floor(random() * all.length)]
}

/** Options of `connect` for a client that does not follow a `move` to the node of its room. */
export const connectOptions = ({ projectId, token, clock, random }: ClientParts, { WebSocket }: Network) => ({
  projectId,
  token,
  reroute: false,
  WebSocket,
  clock,
  random: { float: random, bytes: (count: number) => systemRandom.bytes(count) },
  onError: () => {},
})

/** Calls `act` until `isOver`, with a pause after each call. Ignores errors of the SDK, because connections and rooms get lost. */
export async function actUntil(
  isOver: () => boolean,
  clock: Clock,
  pauseMs: () => number,
  act: () => Promise<unknown>,
): Promise<void> {
  while (!isOver()) {
    try {
      await act()
    } catch (error) {
      if (!(error instanceof RoomfulError)) throw error
    }
    await sleep(clock, pauseMs())
  }
}

/** Returns a function that calls `note` with the marks of each frame that has marks. */
export const marked =
  (note: (marks: readonly string[]) => void) =>
  (frame: string): void => {
    const marks = marksIn(frame)
    if (marks.length > 0) note(marks)
  }

/** Connections of one SDK client, with injectable faults. */
export class Network {
  readonly WebSocket: NonNullable<ConnectOptions['WebSocket']>
  readonly #open = new Set<RoutedSocket>()

  /**
   * `to` returns the node for the URL of a new connection. `received` is called with each frame. `dial` is `ClientParts.dial`. `created` is
   * called with a new connection and the previous one.
   */
  constructor(
    to: (url: string) => Door | undefined,
    received: (frame: string) => void,
    dial: (door: Door) => Duplex | undefined,
    created: (door: Door, socket: WebSocket, before: WebSocket | undefined) => void,
  ) {
    const open = this.#open
    this.WebSocket = class extends RoutedSocket {
      constructor(url: string, protocols: string[]) {
        const door = to(url)
        const connection = door && dial(door)
        const inProcess = connection && { createConnection: () => connection, perMessageDeflate: false }
        super(door?.url ?? url, protocols, inProcess)
        this.onframe = received
        if (door) created(door, this, [...open].at(-1))
        open.add(this)
        this.once('close', () => open.delete(this))
      }
    } as NonNullable<ConnectOptions['WebSocket']>
  }

  /** Drops all incoming messages of the open connections. Messages of the client still arrive. */
  deafen(): void {
    for (const socket of this.#open) socket.deaf = true
  }

  /** Breaks all connections without a closing handshake. */
  cut(): void {
    for (const socket of this.#open) socket.terminate()
  }
}

class RoutedSocket extends WebSocket {
  deaf = false
  onframe: (frame: string) => void = () => {}

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (event === 'message') this.onframe(String(Buffer.from(args[0] as ArrayBuffer)))
    return !(this.deaf && event === 'message') && super.emit(event, ...args)
  }
}
