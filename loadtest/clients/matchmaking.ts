import type { Client, Room, RoomfulError } from '../../client/index.ts'
import { type Queues, type QueueTicket, withQueues } from '../../client/queue.ts'
import type { Clock } from '../../shared/clock.ts'
import type { MatchRoom } from '../rooms/match.ts'
import type { LoadQueue } from '../rooms/queue.ts'
import { withinTimeLimit } from './client.ts'
import { SdkClients, type SdkClientsOptions } from './sdk-clients.ts'

type Rooms = { 'load-queue': LoadQueue; 'load-match': MatchRoom }

/** A player with a client. Its name is the `sub` of its token and the name of its ticket. */
interface Player {
  readonly name: string
  readonly client: Client<Rooms> & Queues<Rooms>
  readonly level: number
  ticket: QueueTicket<MatchRoom> | undefined
}

/** What a matched player found in the room that it has joined. */
export interface Matched {
  readonly player: string
  /** The player with the fitting ticket. */
  readonly partner: string
  readonly room: string
  /** Tickets of the match. */
  readonly tickets: readonly string[]
  /** Players who have got a seat in the room, in any order. A seat that was given twice is there twice. */
  readonly seats: readonly string[]
  readonly isMember: boolean
}

/** What players of the queue have seen. */
export interface MatchmakingFindings {
  readonly matched: readonly Matched[]
  /** Tickets that have ended without a match, or waited although a fitting one did. */
  readonly lost: readonly string[]
}

/** Tickets that are opened or cancelled each second. */
const PER_SECOND = 200
/** Distance between the levels of tickets that do not fit. */
const STEP = 10

/** Players who queue. Waiting players have different levels, and the two of a pair have the same. */
export class MatchmakingClients {
  readonly #clock: Clock
  readonly #clients: SdkClients<Rooms>
  readonly #waiting: Player[] = []
  readonly #matched: Matched[] = []
  readonly #lost: string[] = []
  #players = 0
  #pairs = 0

  constructor(options: SdkClientsOptions) {
    this.#clock = options.clock
    this.#clients = new SdkClients(options)
  }

  get findings(): MatchmakingFindings {
    return { matched: this.#matched, lost: this.#lost }
  }

  /** Connects players who have no ticket yet. */
  async connect({ count }: { count: number }): Promise<void> {
    const from = this.#waiting.length
    const levels = Array.from({ length: count }, (_, i) => (from + i) * STEP)
    this.#waiting.push(...(await this.#connect(levels, 'w')))
  }

  /** Players queue until `count` wait. */
  async queue({ count }: { count: number }): Promise<void> {
    const coming = this.#waiting.slice(0, count).filter(({ ticket }) => !ticket)
    await this.#clients.ramp(coming, PER_SECOND, async (player) => {
      const ticket = this.#queue(player)
      await new Promise<void>((resolve, reject) => {
        ticket.onChange(() => resolve())
        ticket.matched.catch(reject)
      })
    })
  }

  /** Number of players who wait. */
  get waiting(): number {
    return this.#waiting.filter(({ ticket }) => ticket).length
  }

  /** Share of the waiting players who are online, and have the present number of tickets. */
  get informed(): number {
    const waiting = this.#waiting.filter(({ ticket }) => ticket)
    const right = waiting.filter(
      ({ client, ticket }) => client.status === 'online' && ticket!.waiting === waiting.length,
    )
    return right.length / Math.max(1, waiting.length)
  }

  /** So many waiting players cancel their tickets. */
  async cancel({ count }: { count: number }): Promise<void> {
    const leaving = this.#waiting.filter(({ ticket }) => ticket).slice(-count)
    await this.#clients.ramp(leaving, PER_SECOND, async (player) => {
      const { ticket } = player
      player.ticket = undefined
      await ticket!.cancel()
      const code = await ticket!.matched.then(
        (room) => `a match in ${room.id}`,
        (error: RoomfulError) => error.code,
      )
      if (code !== 'cancelled') this.#lost.push(`${player.name} cancelled its ticket, and got ${code}`)
    })
  }

  /** Pairs of players queue, both at one moment. Resolves to the times until both are in their room, in milliseconds. */
  async pairs({ count, perSecond }: { count: number; perSecond: number }): Promise<number[]> {
    const levels = Array.from({ length: count }, () => this.#pairs++ * STEP + STEP / 2)
    const first = await this.#connect(levels, 'a')
    const second = await this.#connect(levels, 'b')
    return this.#match(
      first.map((player, i) => [player, second[i]!]),
      perSecond,
    )
  }

  /** A partner queues for some of the players who wait, spread over all. */
  async partners({ count, perSecond }: { count: number; perSecond: number }): Promise<number[]> {
    const waiting = this.#waiting.filter(({ ticket }) => ticket)
    const chosen = Array.from({ length: count }, (_, i) => waiting[Math.floor((i * waiting.length) / count)]!)
    const partners = await this.#connect(
      chosen.map(({ level }) => level),
      'p',
    )
    return this.#match(
      chosen.map((player, i) => [player, partners[i]!]),
      perSecond,
    )
  }

  close(): void {
    this.#clients.close()
  }

  async #match(pairs: readonly (readonly [Player, Player])[], perSecond: number): Promise<number[]> {
    const times: number[] = []
    await this.#clients.ramp(pairs, perSecond, async (pair) => {
      const began = this.#clock.monotonic()
      const rooms = await Promise.all(pair.map((player) => this.#matchOf(player)))
      times.push(this.#clock.monotonic() - began)
      const [one, other] = pair
      if (rooms[0]) this.#found(one, other, rooms[0])
      if (rooms[1]) this.#found(other, one, rooms[1])
      for (const { client } of pair) client.close()
    })
    return times
  }

  /** The room of the player's match. Undefined: it has none, which is written down. */
  async #matchOf(player: Player): Promise<Room<MatchRoom> | undefined> {
    const ticket = player.ticket ?? this.#queue(player)
    player.ticket = undefined
    let why = ''
    const late = (within: string) => {
      why = within
      void ticket.cancel()
    }
    try {
      return await withinTimeLimit(this.#clock, ticket.matched, late)
    } catch (error) {
      this.#lost.push(`${player.name} got no match: ${why || (error as RoomfulError).code}`)
      return undefined
    }
  }

  /** A ticket that ends while it is that of its player is lost. */
  #queue(player: Player): QueueTicket<MatchRoom> {
    const { client, name, level } = player
    const ticket = client.queue('load-queue', { name, level })
    player.ticket = ticket
    ticket.matched.catch((error: RoomfulError) => {
      if (player.ticket === ticket && client.status !== 'closed')
        this.#lost.push(`${name} lost its ticket: ${error.code}`)
    })
    return ticket
  }

  #found({ name, client }: Player, partner: Player, room: Room<MatchRoom>): void {
    const { tickets, seats } = room.state
    this.#matched.push({
      player: name,
      partner: partner.name,
      room: room.id,
      tickets: [...tickets],
      seats: Object.values(seats),
      isMember: client.status === 'online' && room.status === 'joined' && seats[room.memberId] === name,
    })
  }

  /** Connects a player for each level. */
  async #connect(levels: readonly number[], prefix: string): Promise<Player[]> {
    const names = levels.map((_, i) => `${prefix}${this.#players + i}`)
    this.#players += names.length
    const clients = await this.#clients.connect(names)
    return clients.map((client, i) => ({
      name: names[i]!,
      client: withQueues(client),
      level: levels[i]!,
      ticket: undefined,
    }))
  }
}
