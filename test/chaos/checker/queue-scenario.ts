import { MATCH_PLAYERS } from '../queue-room.ts'
import type { QueueRecord } from './history.ts'
import type { OpenHistory } from './scenario.ts'

type Of<K extends QueueRecord['kind']> = Extract<QueueRecord, { kind: K }>
type Writable<T> = { -readonly [P in keyof T]: T[P] }

export const MATCH = 'chaos-match:one'
/** Tickets of the match: gil alone, hal and ida in a party. */
export const TICKETS = ['gil/1/0', 'hal/1/1', 'ida/1/1']
const PLAYERS = ['gil', 'hal', 'ida']
/** Time before the end of the run at which players hear of the match, milliseconds. */
const HEARD = 6000

/** Three players are matched, and jim waits. */
export function withQueue(history: OpenHistory): OpenHistory {
  const { at } = history.end
  const began = at - HEARD - 20
  history.store.push({
    kind: 'snapshot',
    node: 'node_b',
    room: MATCH,
    began,
    ended: began + 10,
    ok: true,
    epoch: 1,
    version: 0,
    content: { seq: 1, checksum: 0, visible: undefined, applied: {}, reserved: PLAYERS },
  })
  const records = TICKETS.flatMap((ticket, i): QueueRecord[] => {
    const client = PLAYERS[i]!
    return [
      { at: at - 9000 + i, client, kind: 'connected' },
      { at: at - 8000 + i, client, kind: 'asked', ticket },
      { at: at - 7900 + i, client, kind: 'placed', ticket },
      { at: at - HEARD + i, client, kind: 'heard', room: MATCH, tickets: TICKETS },
      { at: at - 5900 + i, client, kind: 'matched', ticket, room: MATCH, tickets: TICKETS, seated: true },
    ]
  })
  history.queue = {
    records: records.sort((one, other) => one.at - other.at),
    end: {
      at,
      queues: [{ node: 'node_a', state: { tickets: { jim: {} }, orders: {} } }],
      waiting: [{ client: 'jim', ticket: 'jim/1/0', level: 0 }],
      outside: [],
    },
  }
  return history
}

/** The first record of a kind. */
export const queued = <K extends QueueRecord['kind']>(history: OpenHistory, kind: K): Writable<Of<K>> =>
  history.queue!.records.find((record): record is Of<K> => record.kind === kind)!

/** Adds a record of gil, or of another player, so long before the end of the run. */
export function note(history: OpenHistory, before: number, record: object, client = 'gil'): void {
  const { records } = history.queue!
  records.push({ at: history.end.at - before, client, ...record } as QueueRecord)
  records.sort((one, other) => one.at - other.at)
}

/** Players hear of another match of gil, 3 s after that of the first. */
export const matchAgain = (history: OpenHistory): void => {
  const [room, tickets] = ['chaos-match:two', ['gil/1/0', 'kai/1/0', 'lea/1/0']]
  const write = history.store.find((call) => call.room === MATCH)!
  const content = { ...write.content!, reserved: ['kai'] }
  history.store.push({ ...write, room, content })
  note(history, HEARD - 3000, { kind: 'heard', room, tickets }, 'kai')
}

/** More tickets wait, which make a match together. */
export function moreWait(history: OpenHistory, tickets: readonly string[], level = 0): void {
  const { end } = history.queue!
  const waiting = tickets.map((ticket) => ({ client: ticket.split('/')[0]!, ticket, level }))
  const all = [...end.waiting, ...waiting]
  const state = { tickets: Object.fromEntries(all.map(({ client }) => [client, {}])), orders: {} }
  history.queue!.end = { ...end, waiting: all, queues: [{ node: 'node_a', state }] }
}

/** Ways to break the promises of a queue. */
export const PLANTED_IN_QUEUE = {
  ticket_twice: matchAgain,
  ticket_lost: (history: OpenHistory) =>
    moreWait(
      history,
      Array.from({ length: MATCH_PLAYERS - 1 }, (_, i) => `p${i}/1/0`),
    ),
  party_split: (history: OpenHistory) => {
    queued(history, 'heard').tickets = ['gil/1/0', 'hal/1/1', 'kai/1/0']
  },
  match_of_cancelled: (history: OpenHistory) =>
    note(history, 7000, { kind: 'ended', ticket: 'gil/1/0', code: 'cancelled', cancelled: true }),
  match_early: (history: OpenHistory) => {
    const write = history.store.find(({ room }) => room === MATCH)!
    write.ended += 25
  },
}
