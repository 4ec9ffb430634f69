import {
  type Client,
  connect,
  type ListedRoom,
  type Room,
  RoomfulError,
  type Unsubscribe,
} from 'roomful/client'
import { sleep } from '../../../shared/clock.ts'
import type { Expected, FoundBy, ListedRow, LobbyRecord, Without } from '../checker/history.ts'
import type { lobbyRoom } from '../rooms.ts'
import type { ClientParts } from './player.ts'
import { ANY_NODE, actUntil, connectOptions, marked, Network, randomDoor } from './sdk-player.ts'

type Lobby = typeof lobbyRoom

/** Data that lobby players share outside of the service. */
interface Board {
  readonly subs: readonly string[]
  /** The latest codes, oldest first. */
  readonly codes: Expected[]
  /** By sub, the latest reservation for this player. */
  readonly reservations: Map<string, Expected>
}

/** The name is also the `sub` of the player. */
interface LobbyPlayerParts extends ClientParts {
  readonly note: (note: Without<LobbyRecord, 'at' | 'client'>) => void
  readonly board: Board
}

const QUERY_MS = 300
const CODES = 4
const EVERYTHING = { full: true, limit: 100 } as const

/** A player with the SDK who moves between rooms by `joinOrCreate`, `create`, codes and reservations. It also watches and queries the list. */
export class LobbyPlayer {
  readonly #parts: LobbyPlayerParts
  readonly #network: Network
  #client: Client<{ 'chaos-lobby': Lobby }> | undefined
  #unwatch: Unsubscribe = () => {}
  #room: Room<Lobby> | undefined
  /** When the room was found. */
  #since = 0
  #node = 'none'
  #rows: readonly ListedRow[] = []
  #resting = false
  #closed = false

  constructor(parts: LobbyPlayerParts) {
    this.#parts = parts
    const { dial, note } = parts
    this.#network = new Network(
      () => randomDoor(parts),
      marked((marks) => note({ kind: 'marks', marks })),
      (door) => dial?.(door),
      (door, socket) =>
        socket.once('open', () => {
          this.#node = door.node
        }),
    )
  }

  get name(): string {
    return this.#parts.name
  }

  /** Latest result of the player's watch. */
  get rows(): readonly ListedRow[] {
    return this.#rows
  }

  get hasRoom(): boolean {
    return this.#room?.status === 'joined' && this.#client?.status === 'online'
  }

  start(): void {
    const { clock, random } = this.#parts
    const act = async (): Promise<void> => this.#act(await this.#connected())
    void actUntil(
      () => this.#closed,
      clock,
      () => 100 + 400 * random(),
      act,
    )
    void this.#query()
  }

  /** From now on, the player only joins a room if it has none. */
  rest(): void {
    this.#resting = true
  }

  close(): void {
    this.#closed = true
    this.#unwatch()
    this.#client?.close()
  }

  async #query(): Promise<void> {
    const { clock } = this.#parts
    while (!this.#closed) {
      await sleep(clock, QUERY_MS)
      const rows = await this.#client?.rooms('chaos-lobby', EVERYTHING).catch(() => undefined)
      if (rows) this.#listed(rows)
    }
  }

  async #connected() {
    if (this.#client && this.#client.status !== 'closed') return this.#client
    const { random } = this.#parts
    this.#unwatch()
    this.#room = undefined
    const client = await connect<{ 'chaos-lobby': Lobby }>(ANY_NODE, {
      ...connectOptions(this.#parts, this.#network),
      random: { float: random, bytes: (count) => Uint8Array.from({ length: count }, () => 256 * random()) },
    })
    this.#client = client
    this.#unwatch = client.watchRooms('chaos-lobby', EVERYTHING, (rows) => {
      this.#rows = this.#listed(rows)
    })
    if (this.#closed) client.close()
    return client
  }

  #listed(listed: readonly ListedRoom<Lobby>[]): readonly ListedRow[] {
    const rows = listed.map(({ roomId: room, members, reserved, data: { phase } }) => ({
      room,
      members,
      reserved,
      phase,
    }))
    this.#parts.note({ kind: 'listed', node: this.#node, rows })
    return rows
  }

  async #act(client: Client<{ 'chaos-lobby': Lobby }>): Promise<void> {
    const { name, board, random } = this.#parts
    const draw = random()
    if (this.#resting) {
      if (!this.#room) await this.#find('joinOrCreate', () => client.joinOrCreate('chaos-lobby', {}))
      return
    }
    const invitation = board.reservations.get(name)
    board.reservations.delete(name)
    if (invitation && invitation.room !== this.#room?.id) {
      const key = invitation.room.slice(invitation.room.indexOf(':') + 1)
      await this.#leave()
      const join = () => client.join('chaos-lobby', { key }, { create: false })
      await this.#find('reservation', join, invitation)
    } else if (this.#room) await this.#play(this.#room, draw)
    else if (draw < 0.3 && board.codes.length > 0) {
      const shared = board.codes[Math.floor(random() * board.codes.length)]!
      await this.#find('code', () => client.joinByCode<Lobby>(shared.code!), shared)
    } else if (draw < 0.45) await this.#find('create', () => client.create('chaos-lobby', {}))
    else await this.#find('joinOrCreate', () => client.joinOrCreate('chaos-lobby', {}))
  }

  async #play(room: Room<Lobby>, draw: number): Promise<void> {
    const { board, name, random, clock } = this.#parts
    if (room.status !== 'joined') return
    if (draw < 0.25) await this.#leave()
    else if (draw < 0.5) {
      const others = board.subs.filter((other) => other !== name)
      const sub = others[Math.floor(random() * others.length)]!
      const { reserved } = await room.request('reserve', { sub })
      if (reserved) board.reservations.set(sub, { room: room.id, since: clock.monotonic() })
    } else if (draw < 0.6) await room.send('turn', null)
    else if (draw < 0.7) this.#network.cut()
    else if (room.code !== undefined) {
      board.codes.push({ room: room.id, since: this.#since, code: room.code })
      if (board.codes.length > CODES) board.codes.shift()
    }
  }

  async #find(by: FoundBy, join: () => Promise<Room<Lobby>>, expected?: Expected): Promise<void> {
    const { note, clock } = this.#parts
    const because = expected && { expected }
    try {
      const room = await join()
      this.#room = room
      this.#since = clock.monotonic()
      room.onLeave(() => {
        if (this.#room === room) this.#room = undefined
      })
      note({ kind: 'found', by, room: room.id, code: room.code, ...because })
    } catch (error) {
      if (!(error instanceof RoomfulError)) throw error
      note({ kind: 'not_found', by, error: error.code, ...because })
    }
  }

  async #leave(): Promise<void> {
    const room = this.#room
    this.#room = undefined
    await room?.leave()
  }
}
