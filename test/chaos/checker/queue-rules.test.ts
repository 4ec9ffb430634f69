import { describe, expect, it } from 'vitest'
import type { Fault, ViolationName } from './history.ts'
import { Ownerships } from './ownership.ts'
import { MATCH, matchAgain, moreWait, note, PLANTED_IN_QUEUE, queued, TICKETS, withQueue } from './planted.ts'
import { checkQueue } from './queue-rules.ts'
import { type OpenHistory, Scenario } from './scenario.ts'

const LATER_MS = 40_000

/** Names of the violations after these changes. */
function broken(...changes: ((history: OpenHistory) => void)[]): ViolationName[] {
  const scenario = new Scenario('journal')
  scenario.wait(LATER_MS)
  const history = withQueue(scenario.end())
  history.run.began = history.run.ended
  for (const change of changes) change(history)
  return [...new Set(checkQueue(history, new Ownerships(history)).map(({ name }) => name))]
}

/** A fault `before` milliseconds before the end of the run. */
const fault =
  (kind: Fault['kind'], before: number) =>
  (history: OpenHistory): void => {
    const at = history.end.at - before
    history.faults.push({ kind, at, until: at + 1 })
  }
const ends = (before: number) => (history: OpenHistory) => {
  const write = history.store.find(({ room }) => room === MATCH)!
  const at = history.end.at - before
  history.store.push({ ...write, kind: 'release', began: at, ended: at, forget: true })
}
const ended =
  (code: string, cancelled = false, before = 4000) =>
  (history: OpenHistory) =>
    note(history, before, { kind: 'ended', ticket: 'gil/1/0', code, cancelled })
const queueMoved = (before: number) => (history: OpenHistory) => {
  const [claim] = history.store
  const at = history.end.at - before
  history.store.push({ ...claim!, room: 'chaos-queue:default', began: at, ended: at })
}
const intrude = (seats: readonly string[], came: readonly string[]) => (history: OpenHistory) =>
  note(history, 5800, { kind: 'intruded', room: MATCH, tickets: TICKETS, seats, came }, 'jim')

describe('A queue', () => {
  it('breaks no rule if each ticket is matched once', () => expect(broken()).toEqual([]))

  it.each(Object.entries(PLANTED_IN_QUEUE))('breaks the rule %s', (name, plant) => {
    expect(broken(plant)).toEqual([name])
  })
})

describe('A ticket in a second match', () => {
  it.each([
    ['the first has ended', ends(4000)],
    ['the store has lost the first', fault('redis_lost', 4000)],
  ])('is right if %s', (_, change) => expect(broken(matchAgain, change)).toEqual([]))

  it.each([
    ['the first ends later', ends(2000)],
    ['the store loses the first later', fault('redis_lost', 2000)],
    ['its player was notified of the first, and a clock has jumped', fault('clock', 4000)],
  ])('is wrong if %s', (_, change) => expect(broken(matchAgain, change)).toEqual(['ticket_twice']))

  it('is right if its player was not notified of the first, and a clock has jumped', () => {
    const unnotified = (history: OpenHistory) => {
      history.queue!.records = history.queue!.records.filter(
        ({ client, kind }) => client !== 'gil' || kind !== 'announced',
      )
    }
    expect(broken(matchAgain, unnotified)).toEqual(['ticket_twice'])
    expect(broken(matchAgain, unnotified, fault('clock', 4000))).toEqual([])
  })
})

describe('A match of a cancelled ticket', () => {
  const cancelled = ended('cancelled', true, 7000)
  const loaded = (history: OpenHistory) => note(history, 6500, { kind: 'loaded' })
  const placed = (before: number) => (history: OpenHistory) =>
    note(history, before, { kind: 'placed', ticket: 'gil/2/0' })

  it('is right if the player has loaded its page before the queue had its next ticket', () => {
    expect(broken(cancelled, loaded, placed(6400))).toEqual([])
    expect(broken(cancelled, placed(6600), loaded)).toEqual(['match_of_cancelled'])
  })

  it('is right if the player cancelled before the queue had answered', () => {
    const unanswered = (history: OpenHistory) => {
      const { records } = history.queue!
      records.splice(records.indexOf(queued(history, 'placed')), 1)
    }
    expect(broken(cancelled)).toEqual(['match_of_cancelled'])
    expect(broken(cancelled, unanswered)).toEqual([])
  })

  it('is right if the connection was lost while the player cancelled', () => {
    const cancelling = (history: OpenHistory) =>
      note(history, 7200, { kind: 'cancelling', ticket: 'gil/1/0' })
    const cut = (before: number) => (history: OpenHistory) =>
      note(history, before, { kind: 'lost_connection' })
    expect(broken(cancelled, cancelling, cut(7100))).toEqual([])
    for (const before of [7300, 6900])
      expect(broken(cancelled, cancelling, cut(before))).toEqual(['match_of_cancelled'])
  })

  it('is right if the queue had another owner before the player cancelled', () => {
    expect(broken(cancelled, queueMoved(7500))).toEqual([])
    expect(broken(cancelled, queueMoved(6500))).toEqual(['match_of_cancelled'])
  })
})

describe('A match that is announced after one of its players has cancelled', () => {
  const short = PLANTED_IN_QUEUE.match_short!
  const cancelled = (history: OpenHistory) =>
    note(history, 5500, { kind: 'ended', ticket: 'gil/1/0', code: 'cancelled', cancelled: true })
  const toldLate = (history: OpenHistory) => {
    queued(history, 'announced').at = history.end.at - 5000
  }
  const loaded = (before: number) => (history: OpenHistory) => note(history, before, { kind: 'loaded' })
  const unnotified = (history: OpenHistory) => {
    const { records } = history.queue!
    history.queue!.records = records.filter(
      ({ client, kind }) => client !== 'gil' || (kind !== 'announced' && kind !== 'matched'),
    )
  }

  it('is right if the player has loaded its page again after the match was made', () => {
    expect(broken(unnotified, cancelled, toldLate)).toEqual(['match_short'])
    expect(broken(unnotified, loaded(5900), cancelled, toldLate)).toEqual([])
    expect(broken(unnotified, loaded(6900), cancelled, toldLate)).toEqual(['match_short'])
    expect(broken(short, loaded(6900))).toEqual(['match_short'])
  })
})

describe('A ticket without a match', () => {
  it('is not lost if its player cancelled it', () => {
    expect(broken(ended('cancelled', true))).toEqual([])
    expect(broken(ended('cancelled'))).toEqual(['ticket_lost'])
  })

  it('is not lost if its player was away for long, or a data loss or a clock explains it', () => {
    const lost = ended('seat_lost', false, 100)
    const away = (ms: number) => (history: OpenHistory) =>
      note(history, 100 + ms, { kind: 'lost_connection' })
    const back = (history: OpenHistory) => note(history, 200, { kind: 'connected' })
    expect(broken(lost)).toEqual(['ticket_lost'])
    expect(broken(lost, away(7500), back)).toEqual(['ticket_lost'])
    expect(broken(lost, away(8500))).toEqual([])
    expect(broken(lost, away(8500), back)).toEqual([])
    for (const kind of ['clock', 'redis_lost'] as const)
      expect(broken(ended('seat_lost'), fault(kind, 5000))).toEqual([])
  })

  it('is not lost if the queue may have ended it under an earlier owner, whose reason was lost', () => {
    const asked = (ticket: string) => (history: OpenHistory) => note(history, 5000, { kind: 'asked', ticket })
    const lost = (ticket: string) => (history: OpenHistory) =>
      note(history, 4000, { kind: 'ended', ticket, code: 'seat_lost', cancelled: false })
    for (const ended of ['gil/3/0', 'gil/1/7']) {
      expect(broken(asked(ended), lost(ended), queueMoved(4500))).toEqual([])
      expect(broken(asked(ended), lost(ended), queueMoved(5500))).toEqual(['ticket_lost'])
    }
    expect(broken(asked('gil/1/0'), lost('gil/1/0'), queueMoved(4500))).toEqual(['ticket_lost'])
  })

  it('is not lost if its party was incomplete for long', () => {
    expect(broken(ended('party_timeout'))).toEqual(['ticket_lost'])
    const early = (history: OpenHistory) => note(history, 60_000, { kind: 'asked', ticket: 'gil/1/0' })
    expect(broken(ended('party_timeout'), early)).toEqual([])
  })

  it('is not lost if matches have refused its player three times', () => {
    const asked = (history: OpenHistory) => note(history, 60_000, { kind: 'asked', ticket: 'gil/3/0' })
    expect(broken(ended('ticket_refused'), asked, asked)).toEqual(['ticket_lost'])
    expect(broken(ended('ticket_refused'), asked, asked, asked)).toEqual([])
  })

  it('is lost if it waits and fits others, or if only its player or only the queue has it', () => {
    expect(broken((history) => moreWait(history, ['kai/1/0']))).toEqual([])
    expect(broken((history) => moreWait(history, ['kai/1/7', 'lea/1/7']))).toEqual(['ticket_lost'])
    expect(broken((history) => moreWait(history, ['kai/1/7', 'lea/1/7'], 1))).toEqual([])
    expect(broken((history) => moreWait(history, ['kai/1/7', 'lea/1/8']))).toEqual([])
    const set = (state: object) => (history: OpenHistory) => {
      history.queue!.end.queues = [{ node: 'node_a', state: { tickets: { jim: {} }, orders: {}, ...state } }]
    }
    expect(broken(set({ tickets: {} }))).toEqual(['ticket_lost'])
    expect(broken(set({ tickets: { jim: {}, kai: {} } }))).toEqual(['ticket_lost'])
    expect(broken(set({ orders: { one: {} } }))).toEqual(['ticket_lost'])
  })
})

describe('A seat of a match', () => {
  it('is given to its player only', () => {
    for (const change of [{ seated: false }, { tickets: ['kai/1/0'] }])
      expect(broken((history) => void Object.assign(queued(history, 'matched'), change))).toEqual([
        'seat_twice',
      ])
  })

  it('is given to another player only if it is free, or if a clock or a data loss explains it', () => {
    expect(broken(intrude(['jim', 'gil'], ['gil', 'hal']))).toEqual([])
    expect(broken(intrude(['jim', 'gil'], ['gil']))).toEqual(['seat_twice'])
    for (const kind of ['clock', 'redis_lost'] as const)
      expect(broken(intrude(['jim', 'gil'], ['gil']), fault(kind, 5900))).toEqual([])
  })

  it('is kept for its player until the player has left it', () => {
    const unmatched = (history: OpenHistory) => {
      history.queue!.records = history.queue!.records.filter(({ kind }) => kind !== 'matched')
    }
    expect(broken(ended('room_full'), unmatched)).toEqual(['seat_twice'])
    expect(broken(ended('room_full'))).toEqual([])
    expect(broken(ended('room_full'), unmatched, fault('redis_lost', 5000))).toEqual([])
  })
})

it('A player without a ticket and a match is left out, and a queue has one owner', () => {
  expect(broken((history) => void Object.assign(history.queue!.end, { outside: ['kai'] }))).toEqual([
    'left_out',
  ])
  const twice = (history: OpenHistory) => {
    const [queue] = history.queue!.end.queues
    history.queue!.end.queues = [queue!, { ...queue!, node: 'node_b' }]
  }
  expect(broken(twice)).toEqual(['two_owners'])
})

it('A run in which few tickets are matched proves nothing', () => {
  expect(broken(({ run }) => void Object.assign(run, { began: run.ended - 60_000 }))).toEqual(['too_little'])
})
