import { describe, expect, it } from 'vitest'
import { Inbox } from './inbox.ts'
import { nowhere, refuseAll, type Why } from './place.ts'
import { type Arrival, roomAddress, type ToEdge, type ToOwner } from './traffic.ts'

const room = roomAddress('prj_test', 'counter', 'a')
type Said = ToOwner extends infer M ? (M extends ToOwner ? Omit<M, 'room' | 'member_id'> : never) : never

const seat = { edge: 'node_b', turn: 0, codec: 'roomful.v1.json', session_id: 'ses_1' } as const
const join: Said = { kind: 'join', request_id: 1, ...seat, sub: null, principal: 'token', options: {} }
/** One message of each kind that gets a different answer. */
const SAID = {
  message: { kind: 'message', type: 'inc', data: null },
  reliable: { kind: 'message', type: 'inc', data: null, ref: 2 },
  leave: { kind: 'leave', reason: 'left', request_id: 3 },
  attach: { kind: 'attach', ask: 1, ...seat, epoch: 1, seq: 1, settled: 0, through: 0 },
  detach: { kind: 'detach' },
  request: { kind: 'request', request: { id: 'operator/1', hash: '', do: { op: 'close' } } },
} satisfies Record<string, Said>

const arrival = (memberId: string, said: Said): Arrival => ({
  message: { room, member_id: memberId, ...said } as ToOwner,
  from: 'node_b',
})

/** Answers of a room that cannot be served, and the messages that search for the room again. */
function refused(why: Why, arrivals: readonly Arrival[]) {
  const sent: ToEdge[] = []
  const inbox = new Inbox(10)
  for (const each of arrivals) inbox.add(each)
  refuseAll(inbox, nowhere(why, 'because'), (_, message) => sent.push(message))
  return {
    answers: sent.map((message) => {
      const said = message.kind === 'answer' ? message.answer : message
      return 'code' in said ? `${message.kind} ${said.code}` : message.kind
    }),
    again: inbox.arrivals.map(({ message }) => `${message.kind} ${message.member_id}`),
  }
}

const one = (why: Why, said: Said): string => {
  const { answers, again } = refused(why, [arrival('ann', said)])
  return again.length > 0 ? 'again' : (answers[0] ?? 'none')
}

describe('A message for a room that cannot be served', () => {
  const retry = (code: string) => ({
    join: `refused ${code}`,
    message: `error ${code}`,
    reliable: 'redirect',
    leave: `error ${code}`,
    attach: 'none',
    detach: 'none',
    request: `answer ${code}`,
  })
  const noSeat = {
    message: 'no_seat',
    reliable: 'no_seat',
    leave: 'no_seat',
    attach: 'no_seat',
    request: 'answer room_not_found',
  }
  const again = Object.fromEntries(Object.keys(SAID).map((kind) => [kind, 'again']))
  const table: Record<Why, Readonly<Record<string, string>>> = {
    absent: { join: 'again', ...noSeat, detach: 'none' },
    rate_limited: { join: 'refused rate_limited', ...again },
    project_full: { join: 'refused project_full', ...again },
    too_many_rooms: { join: 'refused too_many_rooms', ...again },
    not_created: { join: 'refused room_logic_failed', ...again },
    unavailable: retry('room_unavailable'),
    newer: retry('room_unavailable'),
    no_node: retry('overloaded'),
    busy: retry('room_unavailable'),
    unsaved: { ...retry('room_unavailable'), reliable: 'no_seat', attach: 'no_seat' },
    quarantined: {
      join: 'refused room_unavailable',
      ...noSeat,
      request: 'answer room_unavailable',
      detach: 'none',
    },
    unknown_type: {
      join: 'refused unknown_room_type',
      ...noSeat,
      request: 'answer unknown_room_type',
      detach: 'none',
    },
  }
  it.each(Object.entries(table))('gets the answer of the table of refusals: %s', (why, answers) => {
    const said: Record<string, Said> = { join, ...SAID }
    const actual = Object.entries(said).map(([kind, message]) => [kind, one(why as Why, message)])
    expect(Object.fromEntries(actual)).toEqual(answers)
  })

  it('searches for the room again if it is behind a join that may create the room, and is refused in front of it', () => {
    const arrivals = [
      arrival('ann', SAID.attach),
      arrival('bob', join),
      arrival('bob', SAID.reliable),
      arrival('ann', SAID.message),
    ]
    expect(refused('absent', arrivals)).toEqual({
      answers: ['no_seat'],
      again: ['join bob', 'message bob', 'message ann'],
    })
  })

  it('is refused to joins that create no room, in front of and behind a join that creates it', () => {
    const finding = { ...join, create: false } as const
    const arrivals = [arrival('ann', finding), arrival('bob', join), arrival('cyd', finding)]
    expect(refused('absent', arrivals)).toEqual({
      answers: ['refused room_not_found', 'refused room_not_found'],
      again: ['join bob'],
    })
    expect(refused('project_full', arrivals)).toEqual({
      answers: ['refused project_full'],
      again: ['join ann', 'join cyd'],
    })
    expect(refused('unavailable', arrivals.slice(2)).answers).toEqual(['refused room_unavailable'])
  })

  it('is refused only to the first join, if that join may not create the room', () => {
    const arrivals = [arrival('ann', SAID.attach), arrival('bob', join), arrival('cyd', join)]
    expect(refused('project_full', arrivals)).toEqual({
      answers: ['refused project_full'],
      again: ['attach ann', 'join cyd'],
    })
  })

  it('sends one redirect to an edge, however many of its reliable messages were queued', () => {
    const arrivals = [1, 2, 3].map((ref) => arrival('ann', { ...SAID.reliable, ref }))
    expect(refused('unavailable', arrivals).answers).toEqual(['redirect'])
  })
})
