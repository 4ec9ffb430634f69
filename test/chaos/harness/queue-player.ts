import { type Client, connect, type Room, RoomfulError } from 'roomful/client'
import { type Queues, type QueueTicket, withQueues } from 'roomful/client/queue'
import { MATCHED } from '../../../shared/protocol/messages.ts'
import type { QueueRecord, WaitingTicket, Without } from '../checker/history.ts'
import { type chaosQueue, LEVELS, type matchRoom, PARTY_SIZE, ticketName } from '../rooms.ts'
import type { ClientParts } from './player.ts'
import { ANY_NODE, actUntil, connectOptions, Network, randomDoor } from './sdk-player.ts'

type Rooms = { 'chaos-queue': typeof chaosQueue; 'chaos-match': typeof matchRoom }
type QueueClient = Client<Rooms> & Queues<Rooms>
type Match = Room<typeof matchRoom>

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
  ticket: QueueTicket<typeof matchRoom> | undefined
  placed: boolean
  announced: boolean
  cancelled: boolean
}

const CONNECT_MS = 10_000
/** Errors after which the queue has deleted a ticket. After other errors, the player requests the same ticket again. */
const OVER: ReadonlySet<string> = new Set(['party_timeout', 'party_full', 'seat_lost'])

/** A player with the SDK who queues (alone or in a party), cancels, reloads its page, and joins its matches. */
export class QueuePlayer {
  readonly #parts: QueuePlayerParts
  #network: Network
  #client: QueueClient | undefined
  #wish: Wish | undefined
  #room: Match | undefined
  #tickets = 0
  #isLast = false
  #closed = false

  constructor(parts: QueuePlayerParts) {
    this.#parts = parts
    this.#network = this.#newNetwork()
  }

  get name(): string {
    return this.#parts.name
  }

  /** The ticket with which the player waits. */
  get waiting(): WaitingTicket | undefined {
    const wish = this.#wish
    if (!wish?.ticket || !wish.placed || this.#client?.status !== 'online') return undefined
    return { client: this.name, ticket: wish.name, level: wish.level }
  }

  /** True while the player waits, or is in the room of its match. */
  get rests(): boolean {
    return this.waiting !== undefined || (this.#wish === undefined && this.#room?.status === 'joined')
  }

  start(): void {
    const { clock, random } = this.#parts
    const act = async (): Promise<void> => this.#act(await this.#connected())
    void actUntil(
      () => this.#closed,
      clock,
      () => 50 + 250 * random(),
      act,
    )
  }

  /** Stops new tickets, after one last ticket if the player does not wait. */
  rest(): void {
    this.#isLast = true
    if (!this.#wish) this.#want(undefined, 0)
  }

  close(): void {
    this.#closed = true
    this.#client?.close()
  }

  async #act(client: QueueClient): Promise<void> {
    const { random } = this.#parts
    const wish = this.#wish
    const draw = random()
    if (wish?.ticket) await this.#wait(wish, draw)
    else if (wish) this.#ask(client, wish)
    else if (this.#room) await this.#play(this.#room, draw)
    else if (!this.#isLast) await this.#choose(client, draw)
  }

  async #wait(wish: Wish, draw: number): Promise<void> {
    if (this.#isLast) return
    if (draw < 0.04) {
      wish.cancelled = true
      this.#parts.note({ kind: 'cancelling', ticket: wish.name })
      await wish.ticket?.cancel()
    } else if (draw < 0.1) this.#network.cut()
    else if (draw < 0.14) {
      // A reload of the page. The server is not notified.
      this.#network.cut()
      this.#client?.close()
      wish.ticket = undefined
      // The ticket has a match. The new page queues with another ticket.
      if (wish.announced) this.#want(undefined, wish.level)
    }
  }

  async #play(room: Match, draw: number): Promise<void> {
    if (this.#isLast && this.#wish === undefined) return
    if (draw < 0.4) await this.#leave(room)
    else if (draw < 0.5) this.#network.cut()
  }

  async #leave(room: Match): Promise<void> {
    this.#room = undefined
    await room.leave()
  }

  async #choose(client: QueueClient, draw: number): Promise<void> {
    const { board, name, random } = this.#parts
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
    const { note } = this.#parts
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

  #matched(wish: Wish, ticket: QueueTicket<typeof matchRoom>, room: Match): void {
    if (wish.ticket !== ticket) return
    const { note } = this.#parts
    const { tickets, seats } = room.state
    this.#wish = undefined
    this.#room = room
    room.onLeave(() => {
      if (this.#room === room) this.#room = undefined
    })
    const seated = seats[room.memberId] === this.name
    note({ kind: 'matched', ticket: wish.name, room: room.id, tickets: [...tickets], seated })
  }

  #ended(wish: Wish, ticket: QueueTicket<typeof matchRoom>, error: unknown): void {
    if (wish.ticket !== ticket || this.#closed) return
    if (!(error instanceof RoomfulError)) throw error
    const { name, cancelled, announced } = wish
    this.#parts.note({ kind: 'ended', ticket: name, code: error.code, cancelled })
    wish.ticket = undefined
    if (!cancelled && !announced && !OVER.has(error.code)) return
    this.#wish = undefined
    if (this.#isLast) this.#want(undefined, 0)
  }

  /** Tries to get a seat in a match of others. */
  async #intrude(client: QueueClient, room: string): Promise<void> {
    const { note } = this.#parts
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

  async #connected(): Promise<QueueClient> {
    if (this.#client && this.#client.status !== 'closed') return this.#client
    const { random, note } = this.#parts
    this.#room = undefined
    this.#network = this.#newNetwork()
    const connected = await connect<Rooms>(ANY_NODE, {
      ...connectOptions(this.#parts, this.#network),
      connectTimeoutMs: CONNECT_MS,
    })
    note({ kind: 'loaded' })
    note({ kind: 'connected' })
    connected.onConnectionChange((status) =>
      note({ kind: status === 'online' ? 'connected' : 'lost_connection' }),
    )
    const bytes = (count: number) => Uint8Array.from({ length: count }, () => 256 * random())
    const client = withQueues(connected, { float: random, bytes })
    this.#client = client
    if (this.#closed) client.close()
    return client
  }

  #newNetwork(): Network {
    const { dial, note, board } = this.#parts
    return new Network(
      () => randomDoor(this.#parts),
      (text) => {
        for (const match of matchesIn(text)) {
          if (this.#wish) this.#wish.announced = true
          // Another player may try to take a seat, because the match still has reserved seats.
          board.match = match.room
          note({ kind: 'announced', ...match })
        }
      },
      (door) => dial?.(door),
      () => {},
    )
  }
}

/** Returns the matches in a frame. A queue sends a match as the reason with which it ends a seat or refuses a join. */
function matchesIn(frame: string): { readonly room: string; readonly tickets: readonly string[] }[] {
  return frame
    .split(`${MATCHED}{`)
    .slice(1)
    .map((rest) => {
      const json = `{${rest.slice(0, rest.indexOf('}}') + 2)}`
      const { room_id: room, options } = JSON.parse(json) as {
        readonly room_id: string
        readonly options: { readonly tickets: readonly string[] }
      }
      return { room, tickets: options.tickets }
    })
}
