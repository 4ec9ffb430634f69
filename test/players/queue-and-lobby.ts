import {
  type Client,
  type ConnectOptions,
  connect,
  type ListedRoom,
  type Room,
  RoomfulError,
  type Unsubscribe,
} from 'roomful/client'
import { type Queues, type QueueTicket, withQueues } from 'roomful/client/queue'
import type { WebSocket } from 'ws'
import { sleep } from '../../shared/clock.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import type {
  Expected,
  FoundBy,
  ListedRow,
  LobbyRecord,
  QueueRecord,
  WaitingTicket,
  Without,
} from '../chaos/checker/history.ts'
import {
  type chaosQueue,
  LEVELS,
  type lobbyRoom,
  type matchRoom,
  PARTY_SIZE,
  ticketName,
} from '../chaos/rooms.ts'
import type { ClientParts } from './player.ts'
import { Actor, marked } from './sdk.ts'

type MatchRoom = ReturnType<typeof matchRoom>
type Rooms = { 'chaos-queue': typeof chaosQueue; 'chaos-match': MatchRoom }
type QueueClient = Client<Rooms> & Queues<Rooms>
type Match = Room<MatchRoom>

/** Data that players of the queue share outside of the service. */
interface QueueBoard {
  /** Number of the last party. */
  parties: number
  /** Party that waits for its second player. */
  invitation: Invitation | undefined
  /** Room of the latest match that a player was notified of. */
  match: string | undefined
}

interface Invitation {
  readonly by: string
  readonly party: number
  readonly code: string
  readonly level: number
}

/** The name is also the `sub` of the player. */
interface QueuePlayerParts extends ClientParts {
  readonly note: (note: Without<QueueRecord, 'at' | 'client'>) => void
  readonly board: QueueBoard
}

/** A ticket with name and data, from the first request until it is matched or cancelled. */
interface Wish {
  readonly name: string
  readonly level: number
  readonly code: string | undefined
  /** Undefined: the player must request it, or request it again. */
  ticket: QueueTicket<MatchRoom> | undefined
  placed: boolean
  announced: boolean
  cancelled: boolean
}

const CONNECT_MS = 10_000
/** Errors after which the queue has deleted a ticket. After other errors, the player requests the same ticket again. */
const OVER: ReadonlySet<string> = new Set([
  ...['party_timeout', 'party_full', 'seat_lost'],
  ...['join_refused', 'party_refused', 'match_failed', 'gave_up'],
])

/** A player with the SDK who queues (alone or in a party), cancels, reloads its page, and joins its matches. */
export class QueuePlayer extends Actor<QueueClient, QueuePlayerParts> {
  #wish: Wish | undefined
  #room: Match | undefined
  #tickets = 0

  /** The ticket with which the player waits. */
  get waiting(): WaitingTicket | undefined {
    const wish = this.#wish
    if (!wish?.ticket || !wish.placed || this.client?.status !== 'online') return undefined
    return { client: this.name, ticket: wish.name, level: wish.level }
  }

  /** True while the player waits, or is in the room of its match. */
  get rests(): boolean {
    return this.waiting !== undefined || (this.#wish === undefined && this.#room?.status === 'joined')
  }

  /** Stops new tickets, after one last ticket if the player does not wait. */
  override rest(): void {
    super.rest()
    if (!this.#wish) this.#want(undefined, 0)
  }

  protected pause(): number {
    return 50 + 250 * this.parts.random()
  }

  protected async act(client: QueueClient): Promise<void> {
    const { random } = this.parts
    const wish = this.#wish
    const draw = random()
    if (wish?.ticket) await this.#wait(wish, draw)
    else if (wish) this.#ask(client, wish)
    else if (this.#room) await this.#play(this.#room, draw)
    else if (!this.resting) await this.#choose(client, draw)
  }

  async #wait(wish: Wish, draw: number): Promise<void> {
    if (this.resting) return
    if (draw < 0.04) {
      wish.cancelled = true
      this.parts.note({ kind: 'cancelling', ticket: wish.name })
      await wish.ticket?.cancel()
    } else if (draw < 0.1) this.network.cut()
    else if (draw < 0.14) {
      // A reload of the page. The server is not notified.
      this.network.cut()
      this.client?.close()
      wish.ticket = undefined
      // The ticket has a match. The new page queues with another ticket.
      if (wish.announced) this.#want(undefined, wish.level)
    }
  }

  async #play(room: Match, draw: number): Promise<void> {
    if (this.resting && this.#wish === undefined) return
    if (draw < 0.4) await this.#leave(room)
    else if (draw < 0.5) this.network.cut()
  }

  async #leave(room: Match): Promise<void> {
    this.#room = undefined
    await room.leave()
  }

  async #choose(client: QueueClient, draw: number): Promise<void> {
    const { board, name, random } = this.parts
    const { invitation, match } = board
    if (draw < 0.25 && match !== undefined) await this.#intrude(client, match)
    else if (draw < 0.5 && invitation && invitation.by !== name) {
      board.invitation = undefined
      this.#want(invitation, invitation.level)
    } else {
      const level = random() < 0.8 ? 0 : Math.floor(random() * LEVELS)
      if (draw > 0.75 && !invitation) {
        const { code } = await client.party({ size: PARTY_SIZE })
        board.parties += 1
        board.invitation = { by: name, party: board.parties, code, level }
        this.#want(board.invitation, level)
      } else this.#want(undefined, level)
    }
  }

  #want(invitation: Invitation | undefined, level: number): void {
    this.#tickets += 1
    this.#wish = {
      name: ticketName(this.name, this.#tickets, invitation?.party),
      level,
      code: invitation?.code,
      ticket: undefined,
      placed: false,
      announced: false,
      cancelled: false,
    }
  }

  #ask(client: QueueClient, wish: Wish): void {
    const { note } = this.parts
    const { name, level, code } = wish
    const room = this.#room
    this.#room = undefined
    room?.leave().catch(() => {})
    note({ kind: 'asked', ticket: name })
    const ticket = client.queue('chaos-queue', { name, level }, code === undefined ? {} : { party: code })
    wish.ticket = ticket
    wish.placed = false
    ticket.onChange(() => {
      if (wish.placed || wish.ticket !== ticket) return
      wish.placed = true
      note({ kind: 'placed', ticket: name })
    })
    ticket.matched.then(
      (found) => this.#matched(wish, ticket, found),
      (error: unknown) => this.#ended(wish, ticket, error),
    )
  }

  #matched(wish: Wish, ticket: QueueTicket<MatchRoom>, room: Match): void {
    if (wish.ticket !== ticket) return
    const { note } = this.parts
    const { tickets, seats } = room.state
    this.#wish = undefined
    this.#room = room
    room.onLeave(() => {
      if (this.#room === room) this.#room = undefined
    })
    const seated = seats[room.memberId] === this.name
    note({ kind: 'matched', ticket: wish.name, room: room.id, tickets: [...tickets], seated })
  }

  #ended(wish: Wish, ticket: QueueTicket<MatchRoom>, error: unknown): void {
    if (wish.ticket !== ticket || this.closed) return
    if (!(error instanceof RoomfulError)) throw error
    const { name, cancelled, announced } = wish
    this.parts.note({ kind: 'ended', ticket: name, code: error.code, cancelled })
    wish.ticket = undefined
    if (!cancelled && !announced && !OVER.has(error.code)) return
    this.#wish = undefined
    if (this.resting) this.#want(undefined, 0)
  }

  /** Tries to get a seat in a match of others. */
  async #intrude(client: QueueClient, room: string): Promise<void> {
    const { note } = this.parts
    const key = room.slice(room.indexOf(':') + 1)
    try {
      const joined = await client.join('chaos-match', { key }, { create: false })
      const { tickets, seats, came } = joined.state
      note({
        kind: 'intruded',
        room,
        tickets: [...tickets],
        seats: Object.values(seats),
        came: Object.keys(came),
      })
      await joined.leave()
    } catch (error) {
      if (!(error instanceof RoomfulError)) throw error
      note({ kind: 'kept_out', room, code: error.code })
    }
  }

  protected async connect(url: string, options: ConnectOptions): Promise<QueueClient> {
    const { random } = this.parts
    this.#room = undefined
    const client = await connect<Rooms>(url, { ...options, connectTimeoutMs: CONNECT_MS })
    const bytes = (count: number) => Uint8Array.from({ length: count }, () => 256 * random())
    return withQueues(client, { float: random, bytes })
  }

  protected connected(client: QueueClient): void {
    const { note } = this.parts
    note({ kind: 'loaded' })
    note({ kind: 'connected' })
    client.onConnectionChange((status) =>
      note({ kind: status === 'online' ? 'connected' : 'lost_connection' }),
    )
  }

  protected override received(frame: Buffer): void {
    const { note, board } = this.parts
    const match = matchIn(frame)
    if (!match) return
    if (this.#wish) this.#wish.announced = true
    // Another player may try to take a seat, because the match still has reserved seats.
    board.match = match.room
    note({ kind: 'announced', ...match })
  }
}

/** Returns the match with which a queue ends a seat or refuses a join. Undefined: the frame has none. */
function matchIn(frame: Buffer): { readonly room: string; readonly tickets: readonly string[] } | undefined {
  const message = new MsgpackClientCodec('').decode(frame)
  const match = message.t === 'left' || message.t === 'error' ? message.match : undefined
  return match && { room: match.room_id, tickets: match.options.tickets as readonly string[] }
}

type Lobby = typeof lobbyRoom
type LobbyClient = Client<{ 'chaos-lobby': Lobby }>

/** Data that lobby players share outside of the service. */
interface LobbyBoard {
  readonly subs: readonly string[]
  /** The latest codes, oldest first. */
  readonly codes: Expected[]
  /** By sub, the latest reservation for this player. */
  readonly reservations: Map<string, Expected>
}

/** The name is also the `sub` of the player. */
interface LobbyPlayerParts extends ClientParts {
  readonly note: (note: Without<LobbyRecord, 'at' | 'client'>) => void
  readonly board: LobbyBoard
}

const QUERY_MS = 300
const CODES = 4
const EVERYTHING = { full: true, limit: 100 } as const

/** A player with the SDK who moves between rooms by `joinOrCreate`, `create`, codes and reservations. It also watches and queries the list. */
export class LobbyPlayer extends Actor<LobbyClient, LobbyPlayerParts> {
  #unwatch: Unsubscribe = () => {}
  #room: Room<Lobby> | undefined
  /** When the room was found. */
  #since = 0
  #node = 'none'
  #rows: readonly ListedRow[] = []
  readonly #marks = marked((marks) => this.parts.note({ kind: 'marks', marks }))

  /** Latest result of the player's watch. */
  get rows(): readonly ListedRow[] {
    return this.#rows
  }

  get hasRoom(): boolean {
    return this.#room?.status === 'joined' && this.client?.status === 'online'
  }

  override start(): void {
    super.start()
    void this.#query()
  }

  override close(): void {
    this.#unwatch()
    super.close()
  }

  protected pause(): number {
    return 100 + 400 * this.parts.random()
  }

  protected override dialled(socket: WebSocket, node: string): void {
    socket.once('open', () => {
      this.#node = node
    })
  }

  protected override received(frame: Buffer): void {
    this.#marks(frame)
  }

  async #query(): Promise<void> {
    const { clock } = this.parts
    while (!this.closed) {
      await sleep(clock, QUERY_MS)
      const rows = await this.client?.rooms('chaos-lobby', EVERYTHING).catch(() => undefined)
      if (rows) this.#listed(rows)
    }
  }

  protected connect(url: string, options: ConnectOptions): Promise<LobbyClient> {
    const { random } = this.parts
    this.#unwatch()
    this.#room = undefined
    const bytes = (count: number) => Uint8Array.from({ length: count }, () => 256 * random())
    return connect(url, { ...options, random: { float: random, bytes } })
  }

  protected connected(client: LobbyClient): void {
    this.#unwatch = client.watchRooms('chaos-lobby', EVERYTHING, (rows) => {
      this.#rows = this.#listed(rows)
    })
  }

  #listed(listed: readonly ListedRoom<Lobby>[]): readonly ListedRow[] {
    const rows = listed.map(({ roomId: room, players, reserved, data: { phase } }) => ({
      room,
      players,
      reserved,
      phase,
    }))
    this.parts.note({ kind: 'listed', node: this.#node, rows })
    return rows
  }

  /** While it rests, the player only joins a room if it has none. */
  protected async act(client: LobbyClient): Promise<void> {
    const { name, board, random } = this.parts
    const draw = random()
    if (this.resting) {
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
    else if (draw < 0.25 && this.#rows.length > 0) {
      const { room } = this.#rows[Math.floor(random() * this.#rows.length)]!
      const key = room.slice(room.indexOf(':') + 1)
      await this.#find('watch', () => client.join('chaos-lobby', { key }, { watch: true }))
    } else if (draw < 0.45 && board.codes.length > 0) {
      const shared = board.codes[Math.floor(random() * board.codes.length)]!
      await this.#find('code', () => client.joinByCode<Lobby>(shared.code!), shared)
    } else if (draw < 0.55) await this.#find('create', () => client.create('chaos-lobby', {}))
    else await this.#find('joinOrCreate', () => client.joinOrCreate('chaos-lobby', {}))
  }

  async #play(room: Room<Lobby>, draw: number): Promise<void> {
    const { board, name, random, clock } = this.parts
    if (room.status !== 'joined') return
    if (draw < 0.25) await this.#leave()
    // Until the room makes it a player, a spectator sends nothing.
    else if (room.spectator) return
    else if (draw < 0.5) {
      const others = board.subs.filter((other) => other !== name)
      const sub = others[Math.floor(random() * others.length)]!
      const { reserved } = await room.request('reserve', { sub })
      if (reserved) board.reservations.set(sub, { room: room.id, since: clock.monotonic() })
    } else if (draw < 0.6) await room.send('turn', null)
    else if (draw < 0.7) this.network.cut()
    else if (room.code !== undefined) {
      board.codes.push({ room: room.id, since: this.#since, code: room.code })
      if (board.codes.length > CODES) board.codes.shift()
    }
  }

  async #find(by: FoundBy, join: () => Promise<Room<Lobby>>, expected?: Expected): Promise<void> {
    const { note, clock } = this.parts
    const because = expected && { expected }
    try {
      const room = await join()
      this.#room = room
      this.#since = clock.monotonic()
      room.onLeave(() => {
        if (this.#room === room) this.#room = undefined
      })
      note({ kind: 'found', by, room: room.id, code: room.code, ...because })
      let watches = room.spectator
      room.onMembersChange(() => {
        if (watches && !room.spectator) note({ kind: 'found', by: 'watch', room: room.id, code: room.code })
        watches = room.spectator
      })
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
