import type { Client, Room, RoomfulError } from '../../client/index.ts'
import { type Queues, type QueueTicket, withQueues } from '../../client/queue.ts'
import * as option from '../option-kinds.ts'
import { withinTimeLimit } from '../players/pace.ts'
import { type Check, checkOf } from '../result.ts'
import type { MatchRoom } from '../rooms/match.ts'
import type { LoadQueue } from '../rooms/queue.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

const QUEUE = 'load-queue:default'
/** Tickets that are opened or cancelled each second. */
const QUEUED = 200
/** Distance between the levels of tickets that do not match. */
const STEP = 10
const GOAL_MS = 1200

/** A queue for ranked matches of two. */
export const matchmaking = defineScenario({
  name: 'matchmaking',
  meaning:
    'Thousands of tickets that do not match wait in a queue, and some are cancelled. Then pairs of matching tickets arrive, and partners for some waiting ones.',
  options: {
    waiting: option.count('waiting tickets', 5000),
    cancelled: option.count('of them cancelled, which makes room for new ones', 300),
    pairs: option.count('pairs that come, and partners of waiting players', 200),
    rate: option.decimal('pairs per second', 5),
    seconds: option.seconds('how long each state is watched', 20),
    calm: option.seconds('time before and after', 6),
  },
  local: { direct: true },

  async run(ctx, { waiting: count, cancelled, pairs, rate, seconds, calm }) {
    const { sdk, local } = ctx
    const queue = new QueuePlayers(ctx)
    const levels = Array.from({ length: count }, (_, i) => i * STEP)
    const players = await ctx.phase('connect', count / QUEUED, () => queue.connect(levels, 'w'))
    const enter = (coming: readonly Player[]) =>
      sdk.ramp(coming, QUEUED, (player) => {
        const ticket = queue.enter(player)
        return new Promise<void>((resolve, reject) => {
          ticket.onChange(() => resolve())
          ticket.matched.catch(reject)
        })
      })
    await enter(players.slice(0, 1))
    const owner = await local.ownerOf(QUEUE)
    await ctx.pass(calm)
    const watch = async () => (await ctx.local.usageDuring(() => ctx.pass(seconds))).cpu([owner])
    const idle = await ctx.phase('without tickets', seconds, watch)
    await ctx.phase('queue', count / QUEUED, () => enter(players.slice(1)))
    await ctx.pass(calm)
    const busy = await ctx.phase('tickets wait', seconds, watch)
    const waiting = () => players.filter(({ ticket }) => ticket)
    const informed = waiting().filter(
      ({ client, ticket }, _, all) => client.status === 'online' && ticket!.waiting === all.length,
    )
    const of = `${count} waiting tickets`
    const goal = { value: 10 }
    ctx.figure({ name: `CPU of ${of}, of one core`, value: 100 * (busy - idle), unit: '%', goal })
    ctx.figure({ name: 'CPU of their sessions without tickets', value: 100 * idle, unit: '%' })
    const delivered = (100 * informed.length) / Math.max(1, waiting().length)
    ctx.figure({ name: `${of}: delivered`, value: delivered, unit: '%' })
    await ctx.phase('cancel', cancelled / QUEUED, () =>
      sdk.ramp(waiting().slice(-cancelled), QUEUED, (player) => queue.cancel(player)),
    )
    const matched = async (name: string, matching: readonly (readonly [Player, Player])[]) => {
      const values = await queue.match(matching, rate)
      ctx.samples({ name, unit: 'ms', values, goal: { p99: GOAL_MS } })
    }
    const pair = (some: readonly Player[], others: readonly Player[]) =>
      some.flatMap((player, i): [Player, Player][] => (others[i] ? [[player, others[i]]] : []))
    await ctx.phase('pairs', pairs / rate, async () => {
      const fitting = Array.from({ length: pairs }, (_, i) => i * STEP + STEP / 2)
      const first = await queue.connect(fitting, 'a')
      await matched('match of two fitting tickets', pair(first, await queue.connect(fitting, 'b')))
    })
    await ctx.phase('partners', pairs / rate, async () => {
      const all = waiting()
      // Spread over all.
      const indices = Array.from({ length: pairs }, (_, i) => Math.floor((i * all.length) / pairs))
      const chosen = indices.flatMap((index) => all[index] ?? [])
      const levels = chosen.map(({ level }) => level)
      await matched('match with a ticket that waits', pair(chosen, await queue.connect(levels, 'p')))
    })
    await ctx.pass(calm)
    const tickets = await local.metric(owner, 'service_queue_tickets')
    for (const check of matchmakingChecks(queue, waiting().length, tickets)) ctx.check(check)
  },
})

type Rooms = { 'load-queue': LoadQueue; 'load-match': MatchRoom }

/** A player with a client. Its name is the `sub` of its token and the name of its ticket. */
interface Player {
  readonly name: string
  readonly client: Client<Rooms> & Queues<Rooms>
  readonly level: number
  /** Undefined: it does not wait. */
  ticket: QueueTicket<MatchRoom> | undefined
}

/** What a matched player found in the joined room. */
export interface Matched {
  readonly player: string
  /** The player with the matching ticket. */
  readonly partner: string
  readonly room: string
  /** Tickets of the match. */
  readonly tickets: readonly string[]
  /** Players who got a seat in the room, in any order. A seat that was given twice is listed twice. */
  readonly seats: readonly string[]
  readonly isMember: boolean
}

/** Players who queue. Waiting players have different levels, and the two of a pair have the same. */
class QueuePlayers {
  readonly matched: Matched[] = []
  /** Tickets that ended without a match, or waited although a matching one did. */
  readonly lost: string[] = []
  readonly #ctx: RunContext

  constructor(ctx: RunContext) {
    this.#ctx = ctx
  }

  /** Connects a player for each level. They have no ticket yet. */
  async connect(levels: readonly number[], prefix: string): Promise<Player[]> {
    const names = levels.map((_, i) => `${prefix}${i}`)
    const clients = await this.#ctx.sdk.connect<Rooms>(names)
    return levels.flatMap((level, i) => {
      const client = clients[i]
      return client ? [{ name: names[i]!, client: withQueues(client), level, ticket: undefined }] : []
    })
  }

  /** Opens a ticket. If the ticket ends while it is the player's current ticket, it counts as lost. */
  enter(player: Player): QueueTicket<MatchRoom> {
    const { client, name, level } = player
    const ticket = client.queue('load-queue', { name, level })
    player.ticket = ticket
    ticket.matched.catch((error: RoomfulError) => {
      if (player.ticket === ticket && client.status !== 'closed')
        this.lost.push(`${name} lost its ticket: ${error.code}`)
    })
    return ticket
  }

  async cancel(player: Player): Promise<void> {
    const { ticket } = player
    player.ticket = undefined
    await ticket!.cancel()
    const code = await ticket!.matched.then(
      (room) => `a match in ${room.id}`,
      (error: RoomfulError) => error.code,
    )
    if (code !== 'cancelled') this.lost.push(`${player.name} cancelled its ticket, and got ${code}`)
  }

  /**
   * Pairs of players queue, both at one moment, unless they are waiting. Resolves to the times until both are in their room, in
   * milliseconds.
   */
  async match(pairs: readonly (readonly [Player, Player])[], perSecond: number): Promise<number[]> {
    const { sdk, clock } = this.#ctx
    const times: number[] = []
    await sdk.ramp(pairs, perSecond, async (pair) => {
      const began = clock.monotonic()
      const rooms = await Promise.all(pair.map((player) => this.#matchOf(player)))
      times.push(clock.monotonic() - began)
      const [one, other] = pair
      if (rooms[0]) this.#found(one, other, rooms[0])
      if (rooms[1]) this.#found(other, one, rooms[1])
      for (const { client } of pair) client.close()
    })
    return times
  }

  /** Returns the room of the player's match. Undefined: it has none, which is recorded. */
  async #matchOf(player: Player): Promise<Room<MatchRoom> | undefined> {
    const ticket = player.ticket ?? this.enter(player)
    player.ticket = undefined
    let why = ''
    const late = (within: string) => {
      why = within
      void ticket.cancel()
    }
    try {
      return await withinTimeLimit(this.#ctx.clock, ticket.matched, late)
    } catch (error) {
      this.lost.push(`${player.name} got no match: ${why || (error as RoomfulError).code}`)
      return undefined
    }
  }

  #found({ name, client }: Player, partner: Player, room: Room<MatchRoom>): void {
    const { tickets, seats } = room.state
    this.matched.push({
      player: name,
      partner: partner.name,
      room: room.id,
      tickets: [...tickets],
      seats: Object.values(seats),
      isMember: client.status === 'online' && room.status === 'joined' && seats[room.memberId] === name,
    })
  }
}

/** Checks of the promises of a queue. `waiting`: waiting players. `tickets`: number of tickets in the queue. */
export function matchmakingChecks(
  { matched, lost }: { readonly matched: readonly Matched[]; readonly lost: readonly string[] },
  waiting: number,
  tickets: number,
): Check[] {
  const rooms = new Map<string, Set<string>>()
  for (const { tickets, room } of matched)
    for (const ticket of tickets) rooms.set(ticket, (rooms.get(ticket) ?? new Set()).add(room))
  const twice = [...rooms].filter(([, of]) => of.size > 1)
  const check = (name: string, meaning: string, examples: readonly string[]): Check =>
    checkOf(name, meaning, `${matched.length} matched players`, examples)
  return [
    check(
      'tickets in two matches',
      'A ticket is in one match.',
      twice.map(([ticket, of]) => `${ticket} is in ${[...of].join(' and ')}`),
    ),
    check(
      'lost tickets',
      'A ticket waits until it is cancelled, or matched with another that fits.',
      waiting === tickets ? lost : [...lost, `the queue has ${tickets} tickets, and ${waiting} players wait`],
    ),
    check(
      'seats given twice',
      'A seat is given to one player, for whom it was reserved.',
      matched.flatMap(misseated),
    ),
    check(
      'matched without a seat',
      'A matched player has its seat in the room of its match.',
      matched.flatMap(unseated),
    ),
  ]
}

const misseated = ({ room, tickets, seats }: Matched): string[] => {
  const isRight = new Set(seats).size === seats.length && seats.every((player) => tickets.includes(player))
  return isRight ? [] : [`${room} of ${tickets.join(' and ')} gave seats to ${seats.join(', ')}`]
}

const unseated = ({ player, partner, room, tickets, isMember }: Matched): string[] => {
  const isMatch = tickets.length === 2 && [player, partner].every((name) => tickets.includes(name))
  if (isMatch && isMember) return []
  const what = isMember ? 'is a member' : 'is no member'
  return [`${player}, whose partner is ${partner}, ${what} of ${room}, which is of ${tickets.join(' and ')}`]
}
