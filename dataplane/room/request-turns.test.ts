import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { hungTurns } from '../../test/support/rooms/hung-turns.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { RequestAnswer, RoomAction, RoomRequest } from '../traffic.ts'
import { type Durability, defineRoom } from './definition.ts'
import type { Turn, TurnHook } from './hooks.ts'
import { turnOf } from './room-code.ts'

const bank = (durability: Durability = 'journal') =>
  defineRoom({
    type: 'bank',
    durability,
    maxPlayers: 3,
    sync: { rate: 0 },
    idleSeconds: 5,
    options: v.object({ gold: v.optional(v.number(), 0) }),
    create: ({ gold }) => ({ gold, log: [] as string[] }),
    onLeave(state, member) {
      state.log.push(`left ${member.id}`)
    },
    messages: {
      spend: {
        data: v.number(),
        handle(state, { data }) {
          state.gold -= data
        },
      },
    },
    calls: {
      grant: {
        data: v.object({ gold: v.number() }),
        reply: v.object({ total: v.number() }),
        handle(state, { data, caller }, ctx) {
          if (data.gold < 0) return ctx.refuse('only a bank takes')
          state.gold += data.gold
          state.log.push(`${caller.keyId} ${caller.callId}`)
          ctx.reply({ total: state.gold })
        },
      },
      fail: {
        handle(state) {
          state.gold = -1
          throw new Error('broken')
        },
      },
      mute: { reply: v.string(), handle: () => {} },
      large: {
        reply: v.string(),
        handle: (_state, _input, ctx) => ctx.reply('x'.repeat(4000)),
      },
      end: { handle: (_state, _input, ctx) => ctx.close() },
    },
  })

const call = (name: string, data: unknown, callId = 'order_1'): RoomRequest => ({
  id: `key_1/${callId}`,
  hash: JSON.stringify([name, data]),
  do: { op: 'call', name, data: data as never, caller: { key_id: 'key_1', call_id: callId } },
})
const grant = (gold: number, callId?: string): RoomRequest => call('grant', { gold }, callId)
const other = (action: RoomAction, id = 'key_1/1'): RoomRequest => ({ id, hash: action.op, do: action })
const CREATE = { principal: 'backend:key_1', options: { gold: 100 } }

async function opened(options?: BenchOptions, durability?: Durability) {
  const { bench, ann } = await roomWith(bank(durability), ['ann'], options)
  return { bench, ann, ask: asking(bench) }
}

const asking =
  (bench: RoomBench) =>
  async (request: RoomRequest): Promise<RequestAnswer> => {
    const answer = bench.request('bank', request)
    await bench.untilIdle()
    return answer
  }

const codeOf = (answer: RequestAnswer) => ('code' in answer ? answer.code : 'reply')
const goldOf = ({ state }: { state: unknown }) => (state as { gold: number }).gold

describe('A call', () => {
  it('is one turn in the order of arrival, and gets its reply with epoch and seq', async () => {
    const { bench, ann } = await opened()
    bench.message('bank', 'ann', 'spend', 5, 1)
    const first = bench.request('bank', grant(7, 'a'))
    bench.message('bank', 'ann', 'spend', 1, 2)
    const second = bench.request('bank', grant(1, 'b'))
    await bench.untilIdle()
    expect([await first, await second]).toEqual([
      { reply: { total: 2 }, epoch: ann.epoch, seq: ann.seq },
      { reply: { total: 2 }, epoch: ann.epoch, seq: ann.seq },
    ])
    expect(ann.state).toEqual({ gold: 2, log: ['key_1 a', 'key_1 b'] })
  })

  it('is answered only after its commit', async () => {
    const { bench } = await opened()
    bench.store.mood = 'deaf'
    const answer = bench.request('bank', grant(5))
    const repeated = bench.request('bank', grant(5))
    await bench.advance(1000)
    expect(bench.sentOf('answer')).toEqual([])
    bench.store.mood = 'fine'
    await bench.advance(3000)
    expect([await answer, await repeated]).toEqual([
      expect.objectContaining({ reply: { total: 5 } }),
      expect.objectContaining({ reply: { total: 5 } }),
    ])
  })

  it('that the handler refuses, or that throws, changes nothing, and both are outcomes', async () => {
    const { bench, ann, ask } = await opened()
    const refused = await ask(grant(-1, 'a'))
    expect(refused).toEqual({ code: 'room_logic_refused', message: 'only a bank takes' })
    const failed = await ask(call('fail', null, 'b'))
    expect(failed).toEqual({ code: 'room_logic_failed', message: "the room's logic failed" })
    expect(codeOf(await ask(call('mute', null, 'c')))).toBe('room_logic_failed')
    expect([goldOf(ann), bench.counts['error room_logic_failed']]).toEqual([0, 2])
    expect([await ask(grant(-1, 'a')), await ask(call('fail', null, 'b'))]).toEqual([refused, failed])
    expect(bench.counts['error room_logic_failed']).toBe(2)
  })

  it.each([
    ['grant', { gold: 'much' }, /gold: /],
    ['grant', null, /Expected Object/],
    ['fail', 1, /no data is expected/],
    ['toString', null, /bank has no call "toString": there are grant, fail, mute, large, end/],
  ])('with bad data is refused, and its id can be used again: %s %j', async (name, data, text) => {
    const { ask } = await opened()
    expect(await ask(call(name, data))).toEqual({
      code: 'invalid_request',
      message: expect.stringMatching(text),
    })
    expect(await ask(grant(5))).toMatchObject({ reply: { total: 5 } })
  })

  it('whose handler did not return under the last owner is not started again', async () => {
    const { nodes, hang } = hungTurns()
    const { bench, ann } = await opened(nodes)
    await hang({ ...(await turnIn(bench, 'onCall')), subject: 'key_1/order_1', type: 'grant' })
    const next = await died(bench, ann)
    expect(codeOf(await asking(next)(grant(5)))).toBe('room_logic_failed')
    expect(await asking(next)(grant(5, 'order_2'))).toMatchObject({ reply: { total: 5 } })
  })
})

/** Returns a turn of the room's present owner. */
async function turnIn(bench: RoomBench, hook: TurnHook): Promise<Turn> {
  const name = 'prj_test/bank:a'
  const { epoch } = (await bench.store.store.rooms.inspect(name))!
  return turnOf({ name, epoch }, hook)
}

describe('A request with create, after three calls of create that did not return', () => {
  const threeHung = async () => {
    const { nodes, hang } = hungTurns()
    const { bench, ask } = await opened(nodes)
    const turn = await turnIn(bench, 'create')
    for (const ref of [1, 2, 3]) await hang({ ...turn, subject: 'ses_of_bob', ref })
    return { bench, ask }
  }

  it('is handled by a room that exists', async () => {
    const { bench } = await threeHung()
    bench.mayAct = false
    const next = bench.successor()
    expect(await asking(next)({ ...grant(5), create: CREATE })).toMatchObject({ reply: { total: 5 } })
  })

  it('creates no new room', async () => {
    const { ask } = await threeHung()
    await ask(call('end', null))
    expect(codeOf(await ask({ ...grant(5, 'order_2'), create: CREATE }))).toBe('room_logic_failed')
  })
})

/** The owner dies, and the next one opens the room. */
async function died(bench: RoomBench, ann: Awaited<ReturnType<typeof opened>>['ann']): Promise<RoomBench> {
  bench.mayAct = false
  const next = bench.successor([ann])
  await next.resume('bank', ann)
  return next
}

describe('An idempotency id', () => {
  it('has one effect and one answer, under this owner and the next', async () => {
    const { bench, ann, ask } = await opened()
    const answer = await ask(grant(5))
    bench.message('bank', 'ann', 'spend', 1, 1)
    await bench.advance(100)
    expect(await ask(grant(5))).toEqual(answer)
    const next = await died(bench, ann)
    expect(await asking(next)(grant(5))).toEqual(answer)
    expect(await asking(next)(grant(6, 'order_2'))).toMatchObject({ reply: { total: 10 } })
  })

  it('has one effect if the owner dies between the commit and the answer', async () => {
    const { bench, ann } = await opened()
    bench.store.mood = 'silent'
    void bench.request('bank', grant(5))
    await bench.untilIdle()
    expect(bench.sentOf('answer')).toEqual([])
    const next = await died(bench, ann)
    expect(await asking(next)(grant(5))).toMatchObject({ reply: { total: 5 }, seq: ann.seq })
    expect(goldOf(ann)).toBe(5)
  })

  it('is refused with another content', async () => {
    const { ask } = await opened()
    await ask(grant(5))
    expect(codeOf(await ask(grant(6)))).toBe('conflict')
  })

  it('is known for ten minutes', async () => {
    const { bench, ann, ask } = await opened()
    const answer = await ask(grant(5))
    await bench.advance(9 * 60_000, 10_000)
    expect(await ask(grant(5))).toEqual(answer)
    await bench.advance(2 * 60_000, 10_000)
    expect(await ask(grant(5))).toMatchObject({ reply: { total: 10 } })
    expect(goldOf(ann)).toBe(10)
  })

  it('is refused with rate_limited when the room keeps 2,000, and none is dropped early', async () => {
    const { bench, ask } = await opened()
    const answers = Array.from({ length: 2000 }, (_, n) => bench.request('bank', grant(1, `order_${n}`)))
    await bench.advance(1000)
    expect(new Set((await Promise.all(answers)).map(codeOf))).toEqual(new Set(['reply']))
    await bench.advance(99_000, 10_000)
    const oldestEnds = { code: 'rate_limited', retry_after_seconds: 500 }
    expect(await ask(grant(1, 'one_more'))).toMatchObject(oldestEnds)
    const cancel = other({ op: 'cancel', subs: ['bob'] }, 'key_1/one_more')
    expect(await ask(cancel)).toMatchObject(oldestEnds)
    expect(bench.counts['limit outcomes']).toBe(2)
    expect(await ask(grant(1, 'order_0'))).toEqual(await answers[0])
    await bench.advance(600_000, 10_000)
    expect(codeOf(await ask(grant(1, 'one_more')))).toBe('reply')
  })

  it('is refused with rate_limited when the answers have 1 MiB', async () => {
    const { bench, ask } = await opened()
    const answers = Array.from({ length: 300 }, (_, n) => bench.request('bank', call('large', null, `${n}`)))
    await bench.advance(1000)
    const codes = (await Promise.all(answers)).map(codeOf)
    const kept = codes.indexOf('rate_limited')
    expect(kept).toBeGreaterThan(250)
    expect(kept * 4000).toBeLessThan(1024 * 1024)
    expect(bench.counts['limit outcomes']).toBe(300 - kept)
    expect(codeOf(await ask(call('large', null, '0')))).toBe('reply')
  })

  it('is known after a handoff, also with durability none', async () => {
    const { bench, ann, ask } = await opened({}, 'none')
    const answer = await ask(grant(5))
    const next = bench.successor([ann])
    await bench.host.rooms.running[0]!.handOver('node_b')
    await next.resume('bank', ann)
    expect(await asking(next)(grant(5))).toEqual(answer)
  })

  it('is stored with the snapshot before the answer leaves, in a snapshot room', async () => {
    const { bench, ann, ask } = await opened({}, 'snapshot')
    const answer = await ask(grant(5))
    const next = await died(bench, ann)
    expect(await asking(next)(grant(5))).toEqual(answer)
    expect(goldOf(ann)).toBe(5)
  })
})

describe('An idempotency id of a room that has ended', () => {
  it('has its answer in the store, and in a new room with the same key, for ten minutes', async () => {
    const { bench, ask } = await opened()
    const request = grant(5)
    const answer = await ask(request)
    const ended = await ask(call('end', null, 'order_2'))
    expect(ended).toMatchObject({ reply: null })
    await bench.untilIdle()
    expect(bench.host.rooms.size).toBe(0)
    const address = bench.address('bank')
    expect(await bench.host.stored.answerLeft(address, request)).toEqual(answer)
    expect(await bench.host.stored.answerLeft(address, call('end', null, 'order_2'))).toEqual(ended)
    expect(codeOf((await bench.host.stored.answerLeft(address, { ...request, hash: 'other' }))!)).toBe(
      'conflict',
    )
    expect(await bench.host.stored.answerLeft(address, grant(5, 'order_3'))).toBeUndefined()
    expect(await ask(request)).toEqual(answer)
    expect(codeOf(await ask(grant(5, 'order_3')))).toBe('room_not_found')
    await bench.advance(9 * 60_000, 10_000)
    const bob = await bench.join('bank', 'bob')
    expect(await ask(request)).toEqual(answer)
    expect(goldOf(bob)).toBe(0)
    await bench.advance(2 * 60_000, 10_000)
    expect(await ask(request)).toMatchObject({ reply: { total: 5 } })
    expect(await bench.host.stored.answerLeft(address, request)).toBeUndefined()
  })
})

describe('The outcomes of a room whose onDispose did not return', () => {
  const stuck = async () => {
    const { nodes, hang } = hungTurns()
    const { bench, ask } = await opened(nodes)
    const answer = await ask(grant(5))
    await hang(await turnIn(bench, 'onDispose'))
    bench.mayAct = false
    return { next: bench.successor(), answer }
  }

  it('are left in the store', async () => {
    const { next, answer } = await stuck()
    expect(codeOf(await asking(next)(grant(5, 'order_2')))).toBe('room_not_found')
    expect(await next.host.stored.answerLeft(next.address('bank'), grant(5))).toEqual(answer)
    expect(await asking(next)(grant(5))).toEqual(answer)
  })

  it('go to the next room', async () => {
    const { next, answer } = await stuck()
    const bob = await next.join('bank', 'bob')
    expect(await asking(next)(grant(5))).toEqual(answer)
    expect(goldOf(bob)).toBe(0)
  })
})

describe('A request with create that comes again after its room has ended', () => {
  const afterEnd = async () => {
    const { bench, ask } = await opened({ quota: { maxRooms: 1 } })
    const request = { ...grant(5), create: CREATE }
    const answer = await ask(request)
    await ask(call('end', null, 'order_2'))
    expect(bench.host.rooms.size).toBe(0)
    return { bench, ask, request, answer }
  }

  it('gets its stored answer, and creates no room', async () => {
    const { bench, ask, request, answer } = await afterEnd()
    expect(await ask({ ...request, create: { ...CREATE, options: { gold: 'much' } as never } })).toEqual(
      answer,
    )
    expect(codeOf(await ask({ ...request, hash: 'other' }))).toBe('conflict')
    const cancel = { ...request, do: { op: 'cancel', subs: ['bob'] } } as const
    expect(await ask(cancel)).toMatchObject({ reply: { cancelled: true } })
    expect([
      bench.host.rooms.size,
      await bench.host.stored.answerLeft(bench.address('bank'), request),
    ]).toEqual([0, answer])
    const made = bench.request('bank', { ...request, id: 'key_1/9' }, 'b')
    await bench.untilIdle()
    expect(codeOf(await made)).toBe('reply')
  })

  it('does not keep a join that waits with it from creating the room', async () => {
    const { bench, request, answer } = await afterEnd()
    const repeated = bench.request('bank', request)
    const bob = await bench.join('bank', 'bob')
    expect([await repeated, bob.inRoom, goldOf(bob)]).toEqual([answer, true, 0])
  })
})

describe('A request', () => {
  it('reserves seats, all or none', async () => {
    const { bench, ask } = await opened()
    const seats = (subs: string[], id: string) => ask(other({ op: 'reserve', subs, seconds: 30 }, id))
    expect(codeOf(await seats(['bob', 'cat', 'dan'], '1/1'))).toBe('room_full')
    expect(await seats(['bob', 'cat'], '1/2')).toMatchObject({ reply: { reserved: true } })
    expect((await bench.join('bank', 'dan', { sub: 'dan' })).errors).toMatchObject([{ code: 'room_full' }])
    expect((await bench.join('bank', 'bob', { sub: 'bob' })).inRoom).toBe(true)
    await bench.advance(30_000, 1000)
    expect((await bench.join('bank', 'dan', { sub: 'dan' })).inRoom).toBe(true)
  })

  it('to reserve is refused with durability none', async () => {
    const { ask } = await opened({}, 'none')
    expect(codeOf(await ask(other({ op: 'reserve', subs: ['bob'], seconds: 30 })))).toBe('conflict')
  })

  it('to cancel ends the reservations of its id, and refuses a later one', async () => {
    const { bench, ask } = await opened()
    const subs = ['bob', 'cat']
    const reserve = other({ op: 'reserve', subs, seconds: 30 })
    await ask(reserve)
    for (let n = 0; n < 2; n++)
      expect(await ask(other({ op: 'cancel', subs }))).toMatchObject({ reply: { cancelled: true } })
    expect(codeOf(await ask(reserve))).toBe('cancelled')
    expect((await bench.join('bank', 'dan', { sub: 'dan' })).inRoom).toBe(true)
    const late = { ...reserve, id: 'key_1/2', create: CREATE }
    const cancel = { ...late, do: { op: 'cancel', subs } } as const
    const [cancelled, reserved] = [bench.request('bank', cancel, 'b'), bench.request('bank', late, 'b')]
    await bench.untilIdle()
    expect([await cancelled, codeOf(await reserved)]).toMatchObject([
      { reply: { cancelled: true } },
      'cancelled',
    ])
  })

  it('to close is answered again when a new room has the key, and does not end that room', async () => {
    const { bench, ask } = await opened()
    const closed = await ask(other({ op: 'close' }))
    await bench.advance(1000)
    const bob = await bench.join('bank', 'bob')
    expect(await ask(other({ op: 'close' }))).toEqual(closed)
    await bench.advance(1000)
    expect(bob.inRoom).toBe(true)
  })

  it('to close has one answer, also if the owner dies between the commit and the end of the room', async () => {
    const { bench, ann } = await opened()
    const close = other({ op: 'close' })
    await bench.advance(100)
    bench.store.mood = 'silent'
    void bench.request('bank', close)
    await bench.untilIdle()
    const next = await died(bench, ann)
    const closed = await asking(next)(close)
    await next.advance(1000)
    await next.join('bank', 'bob')
    expect([closed, await asking(next)(close)]).toMatchObject([{ reply: { ended: true } }, closed])
  })

  it('to kick ends a seat once, even if another kicked seat has ended it already', async () => {
    const gone: string[] = []
    const pair = defineRoom({
      type: 'bank',
      create: () => ({}),
      onLeave(_state, member, ctx) {
        gone.push(member.id)
        for (const { id, sub } of ctx.members) if (sub === member.sub) ctx.kick(id)
      },
    })
    const bench = new RoomBench([pair])
    await bench.join('bank', 'ann', { sub: 'ann' })
    await bench.join('bank', 'ann2', { sub: 'ann' })
    await asking(bench)(other({ op: 'kick', sub: 'ann' }))
    expect(gone).toHaveLength(2)
  })

  it('kicks all members of a player, whose onLeave runs', async () => {
    const { bench, ann, ask } = await opened()
    const bob = await bench.join('bank', 'bob', { sub: 'bob' })
    await bench.join('bank', 'bob2', { sub: 'bob' })
    const kick = other({ op: 'kick', sub: 'bob', reason: 'rude' })
    expect(await ask(kick)).toMatchObject({ reply: { kicked: 2 } })
    expect(bob.heard.at(-1)).toBe('-bob kicked: rude')
    expect(ann.state).toEqual({ gold: 0, log: ['left bob', 'left bob2'] })
    await bench.join('bank', 'bob3', { sub: 'bob' })
    expect(await ask(kick)).toMatchObject({ reply: { kicked: 2 } })
    expect(ann.members).toHaveLength(2)
  })

  it('keeps its room in the store until its outcome expires, even if orphans are kept for less', async () => {
    const { bench, ask } = await opened({ limits: { recordTtlMs: 10_000 } })
    const answer = await ask(grant(5))
    bench.mayAct = false
    bench.store.mood = 'deaf'
    await bench.advance(9 * 60_000, 30_000)
    expect(await asking(bench.successor())(grant(5))).toEqual(answer)
  })

  it('to describe runs no turn, and shows the same from the record of a sleeping room', async () => {
    const { bench, ask } = await opened()
    await ask(other({ op: 'reserve', subs: ['bob'], seconds: 3600 }))
    const shown = { state: true, layers: false }
    const described = await ask(other({ op: 'describe', ...shown }, 'describe'))
    expect(described).toEqual({
      reply: {
        members: [{ member_id: 'ann', sub: null, connected: true, spectator: false, data: null }],
        reservations: [{ sub: 'bob', expires_at: expect.any(String) }],
        state: { gold: 0, log: [] },
      },
      epoch: expect.any(Number),
      seq: expect.any(Number),
    })
    bench.leave('bank', 'ann')
    await bench.advance(6000, 500)
    expect(bench.host.rooms.size).toBe(0)
    const recorded = await bench.host.stored.view(bench.address('bank'), shown)
    expect(recorded).toMatchObject({ reply: { members: [], state: { gold: 0, log: ['left ann'] } } })
    expect(bench.host.rooms.size).toBe(0)
    expect(await bench.host.stored.view(bench.address('bank', 'never'), shown)).toBeUndefined()
  })

  it('to describe shows nothing that is not committed', async () => {
    const { bench } = await opened()
    bench.store.mood = 'slow'
    void bench.request('bank', grant(5))
    await bench.untilIdle()
    const described = bench.request('bank', other({ op: 'describe', state: true, layers: false }, 'describe'))
    await bench.untilIdle()
    expect(bench.sentOf('answer')).toEqual([])
    bench.store.let()
    await bench.untilIdle()
    expect(await described).toMatchObject({ reply: { state: { gold: 5 } } })
  })

  it('creates a missing room with create, and otherwise gets an error', async () => {
    const bench = new RoomBench([bank()])
    const ask = asking(bench)
    expect(codeOf(await ask(grant(5)))).toBe('room_not_found')
    const open = { ...other({ op: 'open' }), create: CREATE }
    const answer = await ask(open)
    expect(answer).toMatchObject({ reply: { created: true } })
    expect(await ask(open)).toEqual(answer)
    expect(await ask({ ...open, id: 'key_1/2' })).toMatchObject({ reply: { created: false } })
    expect(await ask(grant(5))).toMatchObject({ reply: { total: 105 } })
  })

  it('gets the reason why its room is not created', async () => {
    const bench = new RoomBench([bank()], { quota: { maxRooms: 1 } })
    const open = (gold: unknown, key?: string) => {
      const create = { principal: 'backend:key_1', options: { gold } as never }
      return bench.request('bank', { ...other({ op: 'open' }), create }, key)
    }
    const answers = [open('much', 'a')]
    await bench.untilIdle()
    answers.push(open(1, 'a'))
    await bench.untilIdle()
    answers.push(open(1, 'b'))
    await bench.untilIdle()
    expect((await Promise.all(answers)).map(codeOf)).toEqual(['invalid_options', 'reply', 'project_full'])
  })

  it('takes one place in the inbox for each 16 KiB, in a room that cannot act', async () => {
    const { bench } = await opened({ limits: { waitingMessages: 10 } })
    bench.mayAct = false
    const large = (n: number) =>
      bench.request('bank', call('grant', { gold: 1, text: 'x'.repeat(30_000) }, `${n}`))
    const answers = Array.from({ length: 4 }, (_, n) => large(n))
    const small = bench.request('bank', grant(1, 'small'))
    bench.mayAct = true
    bench.host.recheck()
    await bench.untilIdle()
    answers.push(small, large(4))
    await bench.untilIdle()
    const held = ['reply', 'reply', 'room_unavailable', 'room_unavailable', 'reply', 'reply']
    expect((await Promise.all(answers)).map(codeOf)).toEqual(held)
  })

  it('waits in a bounded inbox while its room ends', async () => {
    const { bench } = await opened({ limits: { waitingMessages: 3 } })
    bench.store.mood = 'deaf'
    const end = bench.request('bank', call('end', null))
    const answers = Array.from({ length: 5 }, (_, n) =>
      bench.request('bank', { ...grant(1, `${n}`), create: CREATE }),
    )
    await bench.untilIdle()
    bench.store.mood = 'fine'
    await bench.advance(3000)
    const codes = ['reply', 'reply', 'reply', 'reply', 'room_unavailable', 'room_unavailable']
    expect((await Promise.all([end, ...answers])).map(codeOf)).toEqual(codes)
  })

  it('has separate places in the inbox of a room that cannot act', async () => {
    const { bench, ann } = await opened({ limits: { waitingMessages: 3 } })
    bench.store.mood = 'deaf'
    bench.message('bank', 'ann', 'spend', 1, 1)
    await bench.advance(100)
    for (let ref = 2; ref <= 6; ref++) bench.message('bank', 'ann', 'spend', 1, ref)
    const answers = Array.from({ length: 5 }, (_, n) => bench.request('bank', grant(10, `${n}`)))
    bench.store.mood = 'fine'
    await bench.advance(3000)
    expect((await Promise.all(answers)).map(codeOf)).toEqual([
      'reply',
      'reply',
      'reply',
      'room_unavailable',
      'room_unavailable',
    ])
    expect(goldOf(ann)).toBe(26)
  })
})
