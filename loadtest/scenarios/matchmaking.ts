import type { Matched, MatchmakingFindings } from '../clients/matchmaking.ts'
import * as option from '../option-kinds.ts'
import type { Check } from '../result.ts'
import { defineScenario } from '../scenario.ts'
import { cpuDuring } from './cpu.ts'

const QUEUE = 'load-queue:default'
/** Tickets that are opened each second. */
const QUEUED = 200
const GOAL_MS = 1200
const MAX_EXAMPLES = 5

/** A queue for ranked matches of two. */
export const matchmaking = defineScenario({
  name: 'matchmaking',
  meaning:
    'Thousands of tickets that do not fit wait in a queue. Some are cancelled, then pairs of fitting tickets come, and partners of some who wait.',
  options: {
    waiting: option.count('tickets that wait', 5000),
    cancelled: option.count('of them cancelled, which makes room for those that come', 300),
    pairs: option.count('pairs that come, and partners of those who wait', 200),
    rate: option.decimal('pairs per second', 5),
    seconds: option.seconds('how long each state is watched', 20),
    calm: option.seconds('time before and after', 6),
  },
  service: 'local',
  local: { direct: true },

  async run(ctx, { waiting, cancelled, pairs, rate, seconds, calm }) {
    const players = ctx.matchmaking
    await ctx.phase('connect', waiting / QUEUED, () => players.connect({ count: waiting }))
    await players.queue({ count: 1 })
    const owner = await ctx.local.ownerOf(QUEUE)
    await ctx.pass(calm)
    const watch = () => cpuDuring(ctx, () => ctx.pass(seconds), [owner])
    const idle = await ctx.phase('without tickets', seconds, watch)
    await ctx.phase('queue', waiting / QUEUED, () => players.queue({ count: waiting }))
    await ctx.pass(calm)
    const busy = await ctx.phase('tickets wait', seconds, watch)
    const of = `${waiting} waiting tickets`
    const goal = { value: 10 }
    ctx.figure({ name: `CPU of ${of}, of one core`, value: 100 * (busy - idle), unit: '%', goal })
    ctx.figure({ name: 'CPU of their sessions without tickets', value: 100 * idle, unit: '%' })
    ctx.figure({ name: `${of}: delivered`, value: 100 * players.informed, unit: '%' })
    await ctx.phase('cancel', cancelled / QUEUED, () => players.cancel({ count: cancelled }))
    const expected = { count: pairs, perSecond: rate }
    const matched = (name: string, values: number[]) =>
      ctx.samples({ name, unit: 'ms', values, goal: { p99: GOAL_MS } })
    const times = await ctx.phase('pairs', pairs / rate, () => players.pairs(expected))
    matched('match of two fitting tickets', times)
    const waited = await ctx.phase('partners', pairs / rate, () => players.partners(expected))
    matched('match with a ticket that waits', waited)
    await ctx.pass(calm)
    const tickets = await ctx.local.metric(owner, 'service_queue_tickets')
    for (const check of matchmakingChecks(players.findings, players.waiting, tickets)) ctx.check(check)
    players.close()
  },
})

/** The promises of a queue. `waiting`: players who wait. `tickets`: those that the queue has. */
export function matchmakingChecks(
  { matched, lost }: MatchmakingFindings,
  waiting: number,
  tickets: number,
): Check[] {
  const rooms = new Map<string, Set<string>>()
  for (const { tickets, room } of matched)
    for (const ticket of tickets) rooms.set(ticket, (rooms.get(ticket) ?? new Set()).add(room))
  const twice = [...rooms].filter(([, of]) => of.size > 1)
  const note = `${matched.length} matched players`
  const check = (
    name: string,
    meaning: string,
    examples: readonly string[],
    violations = examples.length,
  ) => ({
    name,
    meaning,
    violations,
    note,
    examples: examples.slice(0, MAX_EXAMPLES),
  })
  return [
    check(
      'tickets in two matches',
      'A ticket is in one match.',
      twice.map(([ticket, of]) => `${ticket} is in ${[...of].join(' and ')}`),
    ),
    check(
      'lost tickets',
      'A ticket waits until it is cancelled, or matched with one that fits.',
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
