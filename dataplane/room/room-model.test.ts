import fc from 'fast-check'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { Checksum } from '../../shared/sync/checksum.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { runLength } from '../../test/support/run-length.ts'
import { type Durability, defineRoom } from './definition.ts'

interface State {
  players: Record<string, { x: number; bag: string[] }>
  words: string[]
  round: { n: number } | null
  deck: { n: number; marks: number[] }[]
  hand: { n: number; marks: number[] }[]
}
const start = (): State => ({
  players: {},
  words: [],
  round: null,
  deck: [1, 2, 3, 4, 5].map((n) => ({ n, marks: [] })),
  hand: [],
})

/** Applies a message, in the room and in the model alike. Throws for `boom`, after some changes. */
function act(
  state: State,
  who: string,
  what: string,
  n: number,
  emit: (name: string, to?: string) => void,
): void {
  const player = state.players[who]
  if (what === 'move' && player) player.x = n
  if (what === 'take' && player) player.bag.unshift(`item ${n}`)
  if (what === 'drop' && player) player.bag.splice(n % (player.bag.length + 1), 1)
  if (what === 'say') state.words.push(`word ${n}`)
  if (what === 'forget') state.words = state.words.slice(n % 3)
  if (what === 'round') state.round = n % 2 ? { n } : null
  if (what === 'deal' || what === 'misdeal') {
    const card = state.deck.pop() ?? state.hand.shift()!
    card.marks.push(n)
    state.hand.push(card)
    if (what === 'misdeal') throw new Error('misdeal')
  }
  if (what === 'collect') state.deck.unshift(...state.hand.splice(n % 3))
  if (what === 'sort') state.deck.sort((a, b) => ((a.n * n) % 7) - ((b.n * n) % 7)).reverse()
  if (what === 'discard')
    state.deck = state.deck.filter((card) => card.n % 4 !== n % 4 || state.deck.length < 3)
  if (what === 'shout') emit(`shout ${n}`)
  if (what === 'whisper') emit(`psst ${n}`, `m${n % 4}`)
  if (what === 'boom') {
    state.players = {}
    emit('boom')
    throw new Error('boom')
  }
}

const WHAT = [
  'move',
  'take',
  'drop',
  'say',
  'forget',
  'round',
  'shout',
  'whisper',
  'boom',
  'deal',
  'misdeal',
  'collect',
  'sort',
  'discard',
  'nothing',
] as const

const room = (durability: Durability, rate: number) =>
  defineRoom({
    type: 'model',
    messages: { act: { data: v.object({ what: v.string(), n: v.number() }) } },
    sync: { rate },
    durability,
    create: start,
    onJoin(state, { id: memberId }, ctx) {
      state.players[memberId] = { x: 0, bag: [] }
      ctx.emit(`hello ${memberId}`, null)
    },
    onMessage(state, { data, member }, ctx) {
      act(state, member.id, data.what, data.n, (name, to) => ctx.emit(name, null, to))
    },
    onLeave(state, { id: memberId }, ctx) {
      delete state.players[memberId]
      ctx.emit(`bye ${memberId}`, null)
    },
  })

/** The expected room: without frames, flushes and a store. */
class Model {
  state = start()
  readonly present = new Map<string, { heard: string[]; ref: number }>()

  join(who: string): void {
    this.present.set(who, { heard: [], ref: 0 })
    this.state.players[who] = { x: 0, bag: [] }
    this.#emit(`hello ${who}`)
  }

  leave(who: string): void {
    this.present.delete(who)
    delete this.state.players[who]
    this.#emit(`bye ${who}`)
  }

  act(who: string, what: string, n: number, ref: number): void {
    const member = this.present.get(who)!
    if (ref <= member.ref) return
    member.ref = ref
    const next = structuredClone(this.state)
    const said: [string, string | undefined][] = []
    try {
      act(next, who, what, n, (name, to) => said.push([name, to]))
    } catch {
      return
    }
    this.state = next
    for (const [name, to] of said) this.#emit(name, to)
  }

  #emit(name: string, to?: string): void {
    for (const [who, { heard }] of this.present)
      if (to === undefined || to === who) heard.push(`${name} null`)
  }
}

type Doing =
  | { do: 'act'; who: number; what: (typeof WHAT)[number]; n: number; again: boolean }
  | { do: 'come' | 'go' | 'lose' | 'return'; who: number }
type Step = Doing | { do: 'turn' } | { do: 'wait' } | { do: 'hold' } | { do: 'let' }

const who = fc.nat({ max: 3 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('act' as const),
      who,
      what: fc.constantFrom(...WHAT),
      n: fc.nat({ max: 20 }),
      again: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('come' as const, 'go', 'lose', 'return'), who }) },
  {
    weight: 3,
    arbitrary: fc.constantFrom<Step>({ do: 'turn' }, { do: 'wait' }, { do: 'hold' }, { do: 'let' }),
  },
)

async function play(steps: readonly Step[], durability: Durability, rate: number): Promise<void> {
  const bench = new RoomBench([room(durability, rate)])
  const model = new Model()
  const refs = new Map<string, number>()
  for (const taken of steps) {
    if (taken.do === 'turn') await bench.untilIdle()
    else if (taken.do === 'wait') await bench.advance(60, 60)
    else if (taken.do === 'hold') bench.store.mood = 'slow'
    else if (taken.do === 'let') bench.store.let()
    else await take(taken, bench, model, refs)
  }
  await answerAll(bench)
  await bench.advance(200, 50)
  for (const id of model.present.keys())
    if (!bench.members.get(id)!.attached) bench.attach('model', bench.members.get(id)!)
  await bench.advance(100, 50)
  for (const [id, { heard, ref }] of model.present) {
    const member = bench.members.get(id)!
    expect(member.faults).toEqual([])
    expect(member.state).toEqual(model.state)
    expect(member.checksum).toBe(new Checksum().of(member.state))
    // In one flush, events for all members come before events for one.
    const [told, whispered] = split(events(member))
    const [toBeTold, toBeWhispered] = split(heard)
    expect(told).toEqual(toBeTold)
    expect(whispered).toEqual(toBeWhispered)
    expect(member.members.map(({ member_id: memberId }) => memberId).sort()).toEqual(
      [...model.present.keys()].sort(),
    )
    // Every ref is acked, or answered with an error.
    expect(Math.max(member.acked, ...member.errors.map((error) => error.ref ?? 0))).toBe(ref)
  }
}

/** The store answers all waiting requests, and does so until none waits. */
async function answerAll(bench: RoomBench): Promise<void> {
  bench.store.mood = 'fine'
  while (bench.store.held > 0) {
    bench.store.let()
    await bench.untilIdle()
  }
}

const split = (heard: readonly string[]): [string[], string[]] => [
  heard.filter((news) => !news.startsWith('psst')),
  heard.filter((news) => news.startsWith('psst')),
]

const events = ({ heard }: TestMember): string[] => heard.filter((news) => news.endsWith(' null'))

async function take(taken: Doing, bench: RoomBench, model: Model, refs: Map<string, number>): Promise<void> {
  const id = `m${taken.who}`
  const member = bench.members.get(id)
  const present = model.present.has(id)
  if (taken.do === 'come' && !present) {
    // A player who joins again has another session and another client.
    bench.members.delete(id)
    refs.set(id, 0)
    bench.askToJoin('model', id, { codec: taken.who % 2 ? 'roomful.v1.json' : 'roomful.v1.msgpack' })
    model.join(id)
  } else if (!present || !member) return
  else if (taken.do === 'go') {
    bench.leave('model', id)
    model.leave(id)
    // The name is free only after its player has left.
    await answerAll(bench)
    await bench.advance(60, 60)
  } else if (taken.do === 'lose' && member.inRoom && member.attached) bench.detach('model', member)
  else if (taken.do === 'return' && member.inRoom && !member.attached) {
    member.attached = true
    bench.attach('model', member)
  } else if (taken.do === 'act') {
    const ref = refs.get(id)! + (taken.again ? 0 : 1)
    if (ref === 0) return
    refs.set(id, ref)
    bench.message('model', id, 'act', { what: taken.what, n: taken.n }, ref)
    model.act(id, taken.what, taken.n, ref)
  }
}

describe('every member', () => {
  it('has the state of the room, after random histories', async () => {
    const settings = fc.record({
      durability: fc.constantFrom<Durability>('journal', 'snapshot', 'none'),
      rate: fc.constantFrom(0, 20),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 24, size: 'max' }),
        settings,
        (steps, { durability, rate }) =>
          play([{ do: 'come', who: 0 }, { do: 'come', who: 1 }, ...steps], durability, rate),
      ),
      { numRuns: runLength(200, 2_500) },
    )
  })
})
