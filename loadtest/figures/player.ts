import { type Client, connect, type Room } from '../../client/index.ts'
import type { Durability } from '../../dataplane/rooms/definition.ts'
import type { Credentials, Slot } from './cluster.ts'
import { type Doors, socketBy } from './doors.ts'
import type { FigureRoom } from './room.ts'

/** Which room of which kind. */
export interface RoomName {
  readonly durability: Durability
  readonly key: string
}

export const roomIdOf = ({ durability, key }: RoomName): string => `figures-${durability}:${key}`

/** A client in a room of the figures that says `op` again and again, and writes down when each had its effect. */
export class Player {
  readonly home: Slot
  /** When the ack of each op came, on this process' monotonic clock, milliseconds. */
  readonly effects: number[] = []
  sent = 0
  /** Ops whose promise was kept. */
  acked = 0
  /** Ops whose promise was not kept, and why. */
  readonly failures: string[] = []
  readonly #client: Client
  readonly #room: Room<FigureRoom>
  readonly #member_id: string
  readonly #open = new Set<Promise<void>>()
  #timer: NodeJS.Timeout | undefined

  private constructor(home: Slot, client: Client, room: Room<FigureRoom>) {
    this.home = home
    this.#client = client
    this.#room = room
    this.#member_id = room.memberId
  }

  /** Connects to `home`, or where `doors` lead when that is closed, and joins. */
  static async join(
    home: Slot,
    { durability, key }: RoomName,
    credentials: Credentials,
    doors?: Doors,
  ): Promise<Player> {
    const client = await connect(home.ws_url, {
      ...credentials,
      ...(doors && { WebSocket: socketBy(doors, home) }),
    })
    const room = await client.join<FigureRoom>(`figures-${durability}`, { key })
    return new Player(home, client, room)
  }

  /** Sends one op every `every_ms` from now on, by absolute deadlines, whatever comes back. */
  start(every_ms: number, phase = Math.random()): void {
    let due = performance.now() + phase * every_ms
    const beat = (): void => {
      const now = performance.now()
      for (; due <= now; due += every_ms) void this.op()
      this.#timer = setTimeout(beat, due - now)
    }
    this.#timer = setTimeout(beat, due - performance.now())
  }

  /** Sends one op; resolves when it had its effect, or never will. */
  op(): Promise<void> {
    this.sent += 1
    const done = this.#room.send('op', { n: this.sent }).then(
      () => {
        this.acked += 1
        this.effects.push(performance.now())
      },
      (error: Error) => void this.failures.push(error.message),
    )
    this.#open.add(done)
    return done.finally(() => this.#open.delete(done))
  }

  /** Sends nothing more; resolves when everything sent had its effect or `within_ms` are over: with whether it had. */
  async stop(within_ms: number): Promise<boolean> {
    clearTimeout(this.#timer)
    let late: NodeJS.Timeout | undefined
    const settled = await Promise.race([
      Promise.all(this.#open).then(() => true),
      new Promise<boolean>((resolve) => {
        late = setTimeout(resolve, within_ms, false)
      }),
    ])
    clearTimeout(late)
    return settled
  }

  /** Whether the session it began with is not the one it has, or not in the room any more. */
  get session_lost(): boolean {
    return this.#room.status !== 'joined' || this.#room.memberId !== this.#member_id
  }

  /** How many of its acked ops the room does not know of; below 0: it knows of more than were sent. */
  get acks_lost(): number {
    const { count = 0 } = this.#room.state.players[this.#member_id] ?? {}
    return count > this.sent ? this.sent - count : Math.max(0, this.acked - count)
  }

  leave(): Promise<void> {
    return this.#room.leave()
  }

  close(): void {
    this.#client.close()
  }
}
