import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type BenchOptions, RoomBench } from '../../test/support/rooms/room-bench.ts'
import { QUEUE_PRINCIPALS } from '../place.ts'
import type { RequestAnswer, RoomRequest } from '../traffic.ts'
import { defineRoom } from './definition.ts'
import type { Member } from './definition-types.ts'

const PLAYERS = { ada: { elo: 1200 }, bob: null }
const OPTIONS = { map: 'ice' }
const MATCH = {
  id: 'queue:a',
  hash: 'seats',
  create: { principal: QUEUE_PRINCIPALS.reserve, options: OPTIONS },
  do: {
    op: 'reserve',
    subs: Object.keys(PLAYERS),
    seconds: 30,
    players: Object.entries(PLAYERS).map(([sub, data]) => ({ sub, data })),
  },
} as const satisfies RoomRequest
const CANCEL: RoomRequest = { ...MATCH, do: { op: 'cancel', subs: MATCH.do.subs } }

type Verdict = string | undefined | Error

/** The questions to `admit`, which the test answers. */
class Questions {
  /** Calls of `onDispose`. */
  disposed = 0
  readonly asked: { readonly member: Member; readonly options: unknown; readonly members: number }[] = []
  readonly #answers = new Map<string | null, (verdict: Verdict) => void>()

  readonly admit = (member: Member, options: unknown, ctx: { members: readonly Member[] }) => {
    this.asked.push({ member, options, members: ctx.members.length })
    return new Promise<string | undefined>((resolve, reject) =>
      this.#answers.set(member.sub, (verdict) =>
        verdict instanceof Error ? reject(verdict) : resolve(verdict),
      ),
    )
  }

  answer(sub: string, verdict?: Verdict): void {
    this.#answers.get(sub)!(verdict)
  }
}

function match(options: BenchOptions = {}) {
  const questions = new Questions()
  const duel = defineRoom({
    type: 'duel',
    maxPlayers: 2,
    idleSeconds: 1,
    onIdle: 'dispose',
    options: v.object({ map: v.string() }),
    create: ({ map }) => ({ map }),
    admit: questions.admit,
    onJoin(_state, { sub }, ctx) {
      if (sub === 'ada') ctx.reserve('bob', 60)
    },
    onDispose: () => void questions.disposed++,
  })
  const bench = new RoomBench([duel], options)
  return { bench, questions, ask: askerOf(bench) }
}

/** Sends a request, and returns its answer as soon as there is one. */
const askerOf =
  (bench: RoomBench) =>
  async (request: RoomRequest = MATCH) => {
    const got: { answer?: RequestAnswer } = {}
    void bench.request('duel', request).then((answer) => {
      got.answer = answer
    })
    await bench.untilIdle()
    return got
  }

const reservedIn = (bench: RoomBench) => bench.describe('duel')?.reservations.map(({ sub }) => sub)

describe('The room of a match', () => {
  it.each([
    ['admit has refused a player', 0, 'go away', false],
    ['no player has joined it', 0, undefined, false],
    ['a player has joined it and left', 1, undefined, true],
  ])('that ends when %s calls onDispose %d times', async (_why, times, verdict, joins) => {
    const { bench, questions, ask } = match()
    await ask()
    questions.answer('ada')
    questions.answer('bob', verdict)
    await bench.advance(100)
    if (joins) {
      await bench.join('duel', 'ada', { sub: 'ada', options: OPTIONS })
      bench.leave('duel', 'ada')
    }
    await bench.advance(70_000, 100)
    expect([bench.host.rooms.size, questions.disposed]).toEqual([0, times])
  })
})

describe('A request for the seats of a match', () => {
  it('asks admit for all players at the same time, and reserves when it has allowed all of them', async () => {
    const { bench, questions, ask } = match()
    const asked = await ask()
    expect(
      questions.asked.map(({ member, options, members }) => [member.sub, member.data, options, members]),
    ).toEqual([
      ['ada', { elo: 1200 }, OPTIONS, 0],
      ['bob', null, OPTIONS, 0],
    ])
    questions.answer('bob')
    await bench.untilIdle()
    expect([asked.answer, reservedIn(bench)]).toEqual([undefined, []])
    questions.answer('ada')
    await bench.untilIdle()
    expect(asked.answer).toMatchObject({ reply: { reserved: true } })
    expect(reservedIn(bench)).toEqual(['ada', 'bob'])
  })

  it('that admit refuses for a player reserves no seat, ends the room, and keeps its answer', async () => {
    const { bench, questions, ask } = match()
    const asked = await ask()
    questions.answer('ada')
    questions.answer('bob', 'you are too strong')
    await bench.untilIdle()
    expect(asked.answer).toMatchObject({ reply: { refused: { bob: 'you are too strong' } } })
    expect(bench.host.rooms.size).toBe(0)
    expect((await ask()).answer).toEqual(asked.answer)
    expect([bench.host.rooms.size, questions.asked.length]).toEqual([0, 2])
  })

  it('fails if admit throws', async () => {
    const { bench, questions, ask } = match()
    const asked = await ask()
    questions.answer('ada')
    questions.answer('bob', new Error('no database'))
    await bench.untilIdle()
    expect(asked.answer).toMatchObject({ code: 'room_logic_failed' })
    expect(bench.host.rooms.size).toBe(0)
  })

  it('fails with timeout if admit has not answered for 8 s, and the room stays until then', async () => {
    const { bench, questions, ask } = match()
    const asked = await ask()
    questions.answer('ada')
    await bench.advance(7900, 100)
    expect([asked.answer, bench.host.rooms.size]).toEqual([undefined, 1])
    await bench.advance(200, 100)
    expect([asked.answer, bench.host.rooms.size]).toMatchObject([{ code: 'timeout' }, 0])
  })

  it('waits for the same answer if it is repeated, and admit runs once', async () => {
    const { bench, questions, ask } = match()
    const [first, second] = [await ask(), await ask()]
    const other = await ask({ ...MATCH, hash: 'other' })
    for (const sub of MATCH.do.subs) questions.answer(sub)
    await bench.untilIdle()
    expect(first.answer).toMatchObject({ reply: { reserved: true } })
    expect([second.answer, questions.asked.length]).toEqual([first.answer, 2])
    expect(other.answer).toMatchObject({ code: 'conflict' })
  })

  it('is ended by a cancel while admit decides, and verdicts that follow reserve nothing', async () => {
    const { bench, questions, ask } = match()
    const asked = await ask()
    const cancelled = await ask(CANCEL)
    expect([asked.answer, cancelled.answer]).toMatchObject([
      { code: 'cancelled' },
      { reply: { cancelled: true } },
    ])
    for (const sub of MATCH.do.subs) questions.answer(sub)
    await bench.advance(100)
    expect(bench.host.rooms.size).toBe(0)
    expect((await ask()).answer).toMatchObject({ code: 'cancelled' })
  })

  it('is asked again by the next owner, if the owner has crashed before the answer was stored', async () => {
    const { bench, questions, ask } = match()
    await ask()
    await bench.advance(100)
    bench.mayAct = false
    bench.store.mood = 'deaf'
    questions.answer('ada', 'go away')
    questions.answer('bob')
    const next = bench.successor()
    const again = await askerOf(next)()
    expect(questions.asked).toHaveLength(4)
    for (const sub of MATCH.do.subs) questions.answer(sub)
    await next.untilIdle()
    expect(again.answer).toMatchObject({ reply: { reserved: true } })
  })

  it('lets the players join without another call of admit, also at the next owner, unless they change the options', async () => {
    const { bench, questions, ask } = match()
    await ask()
    for (const sub of MATCH.do.subs) questions.answer(sub)
    await bench.advance(100)
    expect((await bench.join('duel', 'ada', { sub: 'ada', options: OPTIONS })).inRoom).toBe(true)
    bench.mayAct = false
    const next = bench.successor([...bench.members.values()])
    const other = await next.join('duel', 'bob', { sub: 'bob', options: { map: 'fire' } })
    expect([other.inRoom, questions.asked.length]).toEqual([false, 3])
    questions.answer('bob', 'no fire here')
    await next.untilIdle()
    expect((await next.join('duel', 'bob2', { sub: 'bob', options: OPTIONS })).inRoom).toBe(true)
    expect(questions.asked).toHaveLength(3)
  })

  it('lets a player join without another call of admit after ctx.reserve has made the time of its seat longer', async () => {
    const { bench, questions, ask } = match()
    await ask()
    for (const sub of MATCH.do.subs) questions.answer(sub)
    await bench.untilIdle()
    await bench.join('duel', 'ada', { sub: 'ada', options: OPTIONS })
    await bench.advance(40_000, 100)
    expect((await bench.join('duel', 'bob', { sub: 'bob', options: OPTIONS })).inRoom).toBe(true)
  })
})
