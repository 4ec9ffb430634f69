import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { RoomEvents, RoomMessages, RoomOptions, RoomState } from '../../shared/room-types.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom, isRoomDefinition } from './definition.ts'
import type { Member, TaskOutcome } from './definition-types.ts'

interface State {
  readonly players: Readonly<Record<string, { readonly x: number }>>
}

const typed = defineRoom({
  type: 'typed',
  options: v.object({ map: v.optional(v.string(), 'desert') }),
  messages: {
    move: { data: v.object({ x: v.number() }), rate: { perSecond: 2.5 } },
    say: { data: v.object({ text: v.optional(v.string(), '…') }) },
  },
  events: { hit: v.object({ by: v.string(), hp: v.optional(v.number(), 100) }) },
  create: (options): State => {
    expectTypeOf(options).toEqualTypeOf<{ map: string }>()
    return { players: {} }
  },
  timers: {
    turnEnds: {
      data: v.object({ turn: v.optional(v.number(), 1) }),
      handle(state, { data }, ctx) {
        expectTypeOf(data).toEqualTypeOf<{ turn: number }>()
        state.players.a = { x: data.turn }
        expectTypeOf(ctx.after(1000, 'turnEnds', {})).toEqualTypeOf<string>()
        // @ts-expect-error timers have the data their schema says
        ctx.after(1000, 'turnEnds', { turn: '2' })
        // @ts-expect-error only declared timers exist
        ctx.after(1000, 'turnStarts', {})
      },
    },
  },
  tasks: {
    loaded: {
      result: v.object({ score: v.optional(v.number(), 0) }),
      handle(state, outcome, ctx) {
        expectTypeOf(outcome).toEqualTypeOf<TaskOutcome<{ score: number }>>()
        if (outcome.ok) state.players.a = { x: outcome.value.score }
        ctx.task(async () => ({}), 'loaded')
        return { state: { players: {} } }
      },
    },
  },
  admit(member, options, ctx) {
    expectTypeOf(member).toEqualTypeOf<Member>()
    expectTypeOf(options.map).toEqualTypeOf<string>()
    expectTypeOf(ctx.state.players).toExtend<object>()
    return options.map === 'closed' ? 'this map is closed' : undefined
  },
  onMessage(state, input, ctx) {
    state.players.a = { x: 1 }
    if (input.type === 'move') {
      expectTypeOf(input.data).toEqualTypeOf<{ x: number }>()
      expectTypeOf(input.member).toEqualTypeOf<Member>()
      ctx.emit('hit', { by: input.member.id })
      // @ts-expect-error events have the data their schema says
      ctx.emit('hit', { by: 3 })
      // @ts-expect-error only declared events exist
      ctx.emit('miss', {})
      ctx.task(() => Promise.resolve({ score: 1 }), 'loaded')
      // @ts-expect-error a task begins by a function, and not before its turn is committed
      ctx.task(Promise.resolve({ score: 1 }), 'loaded')
      // @ts-expect-error work resolves to what its schema says
      ctx.task(async () => ({ score: '1' }), 'loaded')
      ctx.after(20_000, 'turnEnds', { turn: 2 }, { id: 'turn' })
      // @ts-expect-error timers have the data their schema says
      ctx.after(20_000, 'turnEnds', {}, { key: 'turn' })
      // @ts-expect-error only declared tasks exist
      ctx.task(async () => ({ score: 1 }), 'saved')
      return { event: { name: 'hit', data: { by: 'x', hp: 3 }, to: 'mem_a' } }
    }
    expectTypeOf(input.data).toEqualTypeOf<{ text: string }>()
    return
  },
})

const untyped = defineRoom({
  type: 'untyped',
  create: () => ({ count: 0 }),
  onJoin(state, _member, ctx) {
    state.count++
    ctx.emit('anything', { at: ctx.now })
  },
})

describe('defineRoom', () => {
  it('lets a state have parts that are any JSON', () => {
    defineRoom({
      type: 'loose',
      messages: { put: { data: v.object({ value: v.any() }) } },
      create: (): { cells: Record<string, Json>; any: Json } => ({ cells: {}, any: null }),
      onMessage(state, { data }) {
        state.cells.a = data.value
        state.any = [state.cells.a ?? null, { b: 1 }]
      },
    })
  })

  it('infers what a client sees', () => {
    expectTypeOf<RoomState<typeof typed>>().toEqualTypeOf<State>()
    expectTypeOf<RoomMessages<typeof typed>['move']>().toEqualTypeOf<{ x: number }>()
    expectTypeOf<RoomMessages<typeof typed>['say']>().toEqualTypeOf<{ text?: string | undefined }>()
    expectTypeOf<keyof RoomMessages<typeof typed>>().toEqualTypeOf<'move' | 'say'>()
    expectTypeOf<RoomEvents<typeof typed>>().toEqualTypeOf<{
      readonly hit: { by: string; hp: number }
    }>()
    expectTypeOf<RoomOptions<typeof typed>>().toExtend<{ map?: string | undefined }>()
    expectTypeOf<RoomState<typeof untyped>>().toEqualTypeOf<{ count: number }>()
    expectTypeOf<RoomEvents<typeof untyped>>().toEqualTypeOf<{ readonly [name: string]: Json }>()
    expectTypeOf<RoomOptions<typeof untyped>>().toExtend<JsonObject>()
  })

  it('rejects handlers whose result is not a state of this room', () => {
    defineRoom({
      type: 'wrong',
      messages: { a: { data: v.null() } },
      create: () => ({ count: 0 }),
      // @ts-expect-error the state has a count, which is a number
      onMessage: () => ({ state: { count: 'many' } }),
    })
  })

  it('fills in defaults and freezes', () => {
    expect(untyped).toMatchObject({
      maxPlayers: Number.POSITIVE_INFINITY,
      sync: { rate: 20 },
      durability: 'journal',
      idleSeconds: 30,
      sleepDays: 30,
      onIdle: 'dispose',
    })
    expect(typed.messages.move?.rate).toEqual({ perSecond: 2.5, burst: 3 })
    expect(Object.isFrozen(typed)).toBe(true)
  })

  it('takes on_message for onMessage', () => {
    const handler = () => {}
    expect(defineRoom({ type: 'room', create: () => ({}), on_message: handler }).onMessage).toBe(handler)
  })

  it('recognizes a definition by its brand, not by its module', () => {
    expect(isRoomDefinition(typed)).toBe(true)
    expect(isRoomDefinition({ ...typed })).toBe(true)
    expect(isRoomDefinition({ type: 'typed', create: () => ({}) })).toBe(false)
  })

  const broken: [string, object, RegExp][] = [
    ['a type that cannot stand in a room id', { type: 'a:b' }, /type is "a:b"; it must be 1–64 letters/],
    ['a field there is none of', { players: 2 }, /players is no field of a room; there are type, maxPlayers/],
    ['a misspelled field', { onMesage: () => {} }, /onMesage: write onMessage/],
    ['the old name of a field', { max_players: 2 }, /max_players: write maxPlayers/],
    ['a handler under both of its names', { onMessage: () => {}, on_message: () => {} }, /give one of them/],
    [
      'the old name of a rate',
      { messages: { a: { data: v.null(), rate: { per_second: 5 } } }, onMessage: () => {} },
      /per_second: write perSecond/,
    ],
    ['no create', { create: undefined }, /create is undefined; it must be a function/],
    ['a negative sync rate', { sync: { rate: -1 } }, /sync is \{"rate":-1\}; it must be/],
    ['a tick rate of 0', { tick: { rate: 0 }, onTick: () => {} }, /tick is \{"rate":0\}/],
    ['an absurd tick rate', { tick: { rate: 1e6 }, onTick: () => {} }, /at most 240 calls/],
    ['a tick without handler', { tick: { rate: 1 } }, /tick needs an onTick/],
    ['a handler without tick', { onTick: () => {} }, /onTick needs tick/],
    ['a durability there is not', { durability: 'disk' }, /durability is "disk"; it must be journal/],
    ['no seats', { maxPlayers: 0 }, /maxPlayers is 0/],
    [
      'spectators without a number',
      { spectators: {} },
      /spectators.max is undefined; it must be a whole number/,
    ],
    [
      'too many spectators whom all members see',
      { spectators: { max: 51, visible: true } },
      /spectators.max is 51 with visible: true; it must be at most 50/,
    ],
    [
      'a message of spectators in a room type without them',
      { messages: { a: { spectators: true } }, onMessage: () => {} },
      /messages.a.spectators is true, but the room type has no spectators/,
    ],
    ['negative idleness', { idleSeconds: -3 }, /idleSeconds is -3/],
    [
      'sleep without end',
      { sleepDays: Number.POSITIVE_INFINITY },
      /sleepDays is .*; it must be 0.01 to 3650/,
    ],
    ['sleep of no time', { sleepDays: 0 }, /sleepDays is 0; it must be 0.01 to 3650/],
    [
      'a save that says neither how often nor where to',
      { save: { everySecond: 5, to: 'disk' } },
      /everySecond: write everySeconds; save.everySeconds is undefined; it must be 1 to 86400; save.to is "disk"; it must be a function/,
    ],
    [
      'a listing without data that takes time',
      { listing: { of: async () => null, sleep: true } },
      /sleep is no field of listing; there are data, of, sleeping; listing.data is undefined; it must be a validator.*listing.of is an async function; it must be a function, not an async one/,
    ],
    [
      'a listing of rooms that sleep, in a type whose rooms end',
      { listing: { data: v.object({}), of: () => null, sleeping: true } },
      /listing.sleeping is true, but the rooms do not sleep: set onIdle: sleep/,
    ],
    ['codes of other kinds', { codes: 6 }, /codes is 6; it must be true or false/],
    ['version 0', { version: 0 }, /version is 0; it must be a whole number, at least 1/],
    [
      'migrations with holes',
      { version: 4, migrate: { 1: () => {}, 3: () => {} } },
      /version 4 needs migrate.2, which makes a state of version 3 of one of version 2/,
    ],
    ['a version that nothing leads to', { version: 2 }, /version 2 needs migrate.1/],
    [
      'migrations beyond the version, and one that takes time',
      { version: 2, migrate: { 1: async () => {}, 2: () => {} } },
      /migrate.1 is an async function; it must be a function, not an async one.*migrate.2 begins with no version below 2/,
    ],
    ['a misspelled end', { onIdle: 'sleeps' }, /onIdle is "sleeps"; it must be dispose or sleep/],
    [
      'rest for what is not stored',
      { onIdle: 'sleep', durability: 'none' },
      /onIdle: sleep needs a room that is stored; .* write journal or snapshot/,
    ],
    ['an async handler', { onJoin: async () => {} }, /onJoin is async; handlers are synchronous turns/],
    [
      'a misspelled field of a message',
      {
        messages: { a: { data: v.null(), rates: { perSecond: 1 }, on_message: () => {} } },
        onMessage: () => {},
      },
      /rates: write rate; on_message is no field of messages.a; there are data, reply, rate, spectators, handle/,
    ],
    [
      'an async handler of a message, and a reply that is no schema',
      { messages: { a: { data: v.null(), reply: {}, handle: async () => {} } } },
      /messages.a.reply is \{\}; it must be a validator.*messages.a.handle is an async function; it must be a function, not an async one/,
    ],
    [
      'messages without a handler',
      { messages: { a: { data: v.null() } } },
      /messages without handle need an onMessage/,
    ],
    [
      'a message without validator',
      { messages: { move: { data: {} } }, onMessage: () => {} },
      /messages\.move\.data is \{\}; it must be a validator/,
    ],
    [
      'a misspelled field of a timer, and no handler',
      { timers: { ends: { dat: v.null(), handel: () => {} } } },
      /dat: write data; handel: write handle; timers.ends.data is undefined; it must be a validator.*timers.ends.handle is undefined; it must be a function/,
    ],
    [
      'an async handler of a timer',
      { timers: { ends: { data: v.null(), handle: async () => {} } } },
      /timers.ends.handle is an async function; it must be/,
    ],
    [
      'a rate of nothing',
      { messages: { move: { data: v.null(), rate: { perSecond: 0, burst: 0 } } }, onMessage: () => {} },
      /perSecond is 0; .*burst is 0/,
    ],
    [
      'the former form of a task',
      { tasks: { a: v.null() } },
      /tasks.a is a schema: write a: \{ result: schema, handle\(state, outcome, ctx\)/,
    ],
    [
      'a misspelled field of a task, and no handler',
      { tasks: { a: { results: v.null() } } },
      /results: write result; tasks.a.result is undefined; it must be a validator.*tasks.a.handle is undefined; it must be a function/,
    ],
    [
      'layers that are no object',
      { layers: null },
      /layers is null; it must be an object by patterns of paths/,
    ],
    ['no patterns', { layers: {} }, /layers is empty/],
    [
      'a pattern that runs into an array',
      { layers: { 'decks[0]': null } },
      /layers\["decks\[0\]"\] is no pattern/,
    ],
    [
      'a pattern with a gap',
      { layers: { 'hands..cards': null } },
      /layers\["hands\.\.cards"\] is no pattern/,
    ],
    [
      'a layer that is a number',
      { layers: { deck: 3 } },
      /layers\["deck"\] is 3; it must be the name of a layer/,
    ],
    ['a layer without a name', { layers: { deck: '' } }, /layers\["deck"\] is ""; names of layers are/],
    [
      'a layer with a name that no object can have as a key',
      { layers: { deck: '__proto__' } },
      /layers\["deck"\] is "__proto__"; names of layers are/,
    ],
    [
      'a function of a layer that has no key to get',
      { layers: { deck: () => 'a' } },
      /layers\["deck"\] has no \* whose key/,
    ],
    [
      'patterns that overlap',
      { layers: { 'hands.*': null, 'hands.a.cards': 'x', 'hands.b': 'y' } },
      /"hands\.\*" and "hands\.a\.cards", which overlap.*"hands\.\*" and "hands\.b", which overlap/,
    ],
  ]
  it.each(broken)('rejects %s', (_, fields, message) => {
    expect(() => defineRoom({ type: 'room', create: () => ({}), ...fields })).toThrow(message)
  })
})

/** A pattern that matches nothing hides nothing: with `hand.*` in place of `hands.*`, all players saw all hands. */
describe('a pattern of layers', () => {
  const state = () => ({
    deck: [1],
    hands: {} as Record<string, number[]>,
    teams: { red: { plan: 'x', score: 1 } } as Record<string, { plan?: string; score: number }>,
    board: { secret: null },
  })
  const withPattern = (pattern: string, create: (options: JsonObject) => object = () => state()) =>
    defineRoom({ type: 'room', create, layers: { [pattern]: null } })

  it.each([
    ['hand.*', /layers\["hand\.\*"\] hides nothing: create makes no hand in the state: write hands\.\*;/],
    ['hands_of.*', /create makes no hands_of in the state: there are deck, hands, teams, board/],
    ['teams.*.plans', /create makes no plans in teams\.\*: write teams\.\*\.plan;/],
    ['board.secrets.*', /create makes no secrets in board: write board\.secret\.\*;/],
  ])('that matches nothing is rejected when the room type loads: %s', (pattern, message) => {
    expect(() => withPattern(pattern)).toThrow(message)
  })

  it.each([
    'deck',
    'hands.*',
    'hands.*.cards.secret',
    'teams.*.plan',
    'teams.*.hideout',
    'board.secret',
    '*',
  ])('is accepted if it matches, or may match later parts: %s', (pattern) => {
    expect(withPattern(pattern).layers).toEqual({ [pattern]: null })
  })

  it.each([
    [
      'hand.*',
      /layers\["hand\.\*"\] hides nothing: the schema `state` has no hand in the state: write hands\.\*;/,
    ],
    ['teams.red.plans', /the schema `state` has no plans in teams\.red: write teams\.red\.plan;/],
    ['hands.*', undefined],
    ['teams.red.plan', undefined],
    ['json.x', undefined],
  ])('is checked against the schema of the state when the room type loads: %s', (pattern, message) => {
    const team = v.object({ plan: v.string() })
    const schema = v.object({
      deck: v.array(v.number()),
      hands: v.record(v.string(), v.array(v.number())),
      teams: v.object({ red: v.nullable(team) }),
      json: v.any(),
    })
    const define = () =>
      defineRoom({
        type: 'room',
        create: (_options): object => state(),
        state: schema,
        layers: { [pattern]: null },
      })
    if (message) expect(define).toThrow(message)
    else expect(define).not.toThrow()
  })

  it('is accepted if create does not return, and the load continues', () => {
    const looping = (): object => {
      for (;;);
    }
    expect(withPattern('hands.*', () => looping()).layers).toEqual({ 'hands.*': null })
  })

  it('is checked when the first room is created, if create takes options: the room is refused, and not public', async () => {
    const lines: string[] = []
    const log = pino({}, { write: (line) => void lines.push(line) })
    const create = (options: JsonObject) => ({ ...state(), size: options.size ?? 3 })
    const bench = new RoomBench([withPattern('hand.*', create)], { log })
    const ann = await bench.join('room', 'ann')
    expect([ann.inRoom, ann.errors]).toMatchObject([false, [{ code: 'room_logic_failed' }]])
    expect(lines.join('')).toContain('create makes no hand in the state: write hands.*')
    const right = new RoomBench([withPattern('hands.*', create)])
    expect(await right.join('room', 'ann')).toMatchObject({ inRoom: true })
  })
})
