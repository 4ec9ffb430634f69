import * as v from 'valibot'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { Room } from '../../client/index.ts'
import type { Json } from '../../shared/json.ts'
import type { RoomState } from '../../shared/room-types.ts'
import { defineRoom } from './definition.ts'
import type { ContextOf, Draft, RoomContext, TaskOutcome } from './definition-types.ts'

const duel = defineRoom({
  type: 'duel',
  layers: { 'hands.*': (memberId) => `member:${memberId}`, deck: null, 'teams.*.plan': 'coach' },
  options: v.object({ cards: v.optional(v.number(), 3) }),
  create: ({ cards }) => ({
    deck: Array.from({ length: cards }, (_, i) => i),
    hands: {} as Record<string, number[]>,
    teams: { red: { plan: '', score: 0 } },
    turn: null as string | null,
  }),
  messages: {
    ready: {},
    draw: {
      reply: v.object({ card: v.number() }),
      handle(state, { data, member }, ctx) {
        expectTypeOf(data).toEqualTypeOf<null>()
        requireTurn(state.turn, ctx)
        drawn(ctx, state.deck.pop() ?? 0)
        state.hands[member.id] = []
        endTurn(state, ctx)
      },
    },
    play: {
      data: v.object({ card: v.number() }),
      handle(state, { data, member }, ctx) {
        expectTypeOf(data).toEqualTypeOf<{ card: number }>()
        const turn = requireTurn(state.turn, ctx)
        if (turn !== member.id) return ctx.refuse(`it is the turn of ${turn}`)
        const reached = score(ctx)
        if (reached > 3) return ctx.refuse(`not with ${reached}`)
        ctx.emit('played', data, member)
        ctx.emit('played', data, ctx.members)
        endTurn(state, ctx)
      },
    },
  },
  events: { played: v.object({ card: v.number() }), over: v.null() },
  timers: {
    turnEnds: {
      data: v.object({}),
      handle(state, _input, ctx) {
        endTurn(state, ctx)
      },
    },
  },
  tasks: {
    saved: {
      result: v.string(),
      handle(state, outcome, ctx) {
        expectTypeOf(outcome).toEqualTypeOf<TaskOutcome<string>>()
        endTurn(state, ctx)
      },
    },
    paid: {
      retry: true,
      data: v.object({ gold: v.pipe(v.string(), v.transform(Number)) }),
      result: v.boolean(),
      async run(data, { id }) {
        expectTypeOf(data).toEqualTypeOf<{ gold: number }>()
        expectTypeOf(id).toEqualTypeOf<string>()
        return data.gold > 0
      },
      handle(state, outcome, ctx) {
        expectTypeOf(outcome.data).toEqualTypeOf<{ gold: number }>()
        if (outcome.ok) expectTypeOf(outcome.value).toEqualTypeOf<boolean>()
        endTurn(state, ctx)
      },
    },
  },
  onMessage(state, input, ctx) {
    expectTypeOf(input.type).toEqualTypeOf<'ready'>()
    expectTypeOf(input.data).toEqualTypeOf<null>()
    endTurn(state, ctx)
  },
  onJoin: (_state, member, ctx) => welcome(ctx, member.id),
})

/** Works in every room. */
function requireTurn(turn: string | null, ctx: RoomContext): string {
  return turn ?? ctx.refuse(`it has not begun in ${ctx.key}`)
}

function welcome(ctx: RoomContext, id: string): void {
  ctx.log.info({ random: ctx.random(), at: ctx.now, room: ctx.roomId }, 'welcome')
  ctx.show(ctx.members[0] ?? id, 'coach')
  ctx.hide(id, 'coach')
  if (ctx.cancel('turn')) ctx.kick(id)
  // @ts-expect-error: which events there are depends on the definition
  ctx.emit('over', null)
  // @ts-expect-error: so does which timers there are
  ctx.after(1, 'turnEnds', {})
}

function endTurn(state: Draft<RoomState<typeof duel>>, ctx: ContextOf<typeof duel>): void {
  state.turn = null
  ctx.emit('over', null)
  ctx.after(1000, 'turnEnds', {}, { id: 'turn' })
  ctx.task(async () => 'x', 'saved')
  // @ts-expect-error: there is no such event
  ctx.emit('lost', null)
  // @ts-expect-error: a card is a number
  ctx.emit('played', { card: 'ace' })
  // @ts-expect-error: there is no such timer
  ctx.after(1000, 'turnBegins', {})
  // @ts-expect-error: the work resolves to a text
  ctx.task(async () => 3, 'saved')
  ctx.task('paid', { gold: '5' }, { id: 'order_1' })
  // @ts-expect-error: the data has gold as a text
  ctx.task('paid', { gold: 5 })
  // @ts-expect-error: a task with retry has its own work
  ctx.task(async () => true, 'paid')
  // @ts-expect-error: a task without retry needs work
  ctx.task('saved', {})
  // @ts-expect-error: not every message has a reply
  ctx.reply({ card: 3 })
}

function drawn(ctx: ContextOf<typeof duel, 'draw'>, card: number): void {
  ctx.reply({ card })
  // @ts-expect-error: a card is a number
  ctx.reply({ card: 'ace' })
}

function score(ctx: ContextOf<typeof duel>): number {
  return ctx.members.length
}

const other = defineRoom({
  type: 'other',
  create: () => ({ n: 0 }),
  messages: { ready: {}, look: { reply: v.number(), handle: (state, _, ctx) => ctx.reply(state.n) } },
  events: { played: v.object({ card: v.string() }), over: v.null(), more: v.null() },
  onMessage() {},
  onJoin(_state, member, ctx) {
    welcome(ctx, member.id)
    overOnly(ctx)
    // @ts-expect-error: the helper sets a timer that this room does not have
    score(ctx)
  },
})
const anyEvent = defineRoom({
  type: 'any',
  create: () => ({}),
  onJoin(_state, member, ctx) {
    ctx.emit('whatever', { at: ctx.now })
    welcome(ctx, member.id)
    overOnly(ctx)
  },
})
const small = defineRoom({ type: 'small', create: () => ({}), events: { over: v.null() } })
const wrong = defineRoom({ type: 'wrong', create: () => ({}), events: { over: v.number() } })
const overOnly = (ctx: ContextOf<typeof small>): void => ctx.emit('over', null)

const listed = defineRoom({
  type: 'listed',
  layers: { 'hands.*': (memberId) => `member:${memberId}`, deck: null },
  listing: {
    data: v.object({ map: v.string(), level: v.optional(v.number(), 1) }),
    of: (state, { key, players, maxPlayers }) => {
      expectTypeOf(state.deck).toEqualTypeOf<readonly number[] | undefined>()
      // @ts-expect-error: the state is read-only
      state.map = key
      return players < maxPlayers ? { map: state.map } : null
    },
  },
  codes: true,
  create: () => ({ map: 'desert', deck: [1], hands: {} as Record<string, number[]> }),
})

describe('the listing of a room', () => {
  it('gets what every member sees, and gives clients the type of its data', () => {
    type Data = NonNullable<(typeof listed)['~types']>['listing']
    expectTypeOf<Data>().toEqualTypeOf<{ map: string; level: number }>()
    type None = NonNullable<(typeof small)['~types']>['listing']
    expectTypeOf<None>().toEqualTypeOf<never>()
    defineRoom({
      type: 'wrong',
      create: () => ({ map: 'desert' }),
      // @ts-expect-error: the data has a map, which is a text
      listing: { data: v.object({ map: v.string() }), of: () => ({ map: 3 }) },
    })
  })

  it('without `data` has one type error, the missing property', () => {
    const define = () =>
      defineRoom({
        type: 'wrong',
        create: () => ({ map: 'desert' }),
        // @ts-expect-error: Property 'data' is missing
        listing: {
          of: (state) => ({ map: state.map }),
        },
      })
    expect(define).toThrow('listing.data is undefined; it must be a validator')
  })
})

describe('a context', () => {
  it('goes to helpers for contexts that accept no more than it does', () => {
    const use = (
      ctx: ContextOf<typeof duel>,
      drawing: ContextOf<typeof duel, 'draw'>,
      few: ContextOf<typeof small>,
      any: ContextOf<typeof anyEvent>,
    ) => {
      const contexts: RoomContext[] = [ctx, drawing, few, any]
      overOnly(ctx)
      overOnly(drawing)
      overOnly(any)
      // @ts-expect-error: the helper emits what this room has no event for
      const more: ContextOf<typeof duel> = few
      // @ts-expect-error: the helper emits other data
      const numbers: ContextOf<typeof wrong> = few
      // @ts-expect-error: the helper replies, and not every message has a reply
      drawn(ctx, 3)
      return [contexts, more, numbers]
    }
    expectTypeOf(use).toBeFunction()
  })
})

describe('messages without data', () => {
  it('are sent without data, beside others', () => {
    const use = async (room: Room<typeof duel>) => {
      void room.send('ready')
      void room.send('ready', null, { reliable: false })
      void room.send('play', { card: 3 })
      expectTypeOf(await room.request('draw')).toEqualTypeOf<{ card: number }>()
      // @ts-expect-error: the message has no data
      void room.send('ready', { card: 3 })
      // @ts-expect-error: the data is missing
      void room.send('play')
      // @ts-expect-error: a card is a number
      void room.send('play', { card: 'ace' })
      // @ts-expect-error: there is no such message
      void room.send('pass')
      // @ts-expect-error: it has no reply
      void room.request('ready')
    }
    expectTypeOf(use).toBeFunction()
  })

  it('are known if no message of the room has data', () => {
    const small = defineRoom({
      type: 'small',
      create: () => ({ n: 0 }),
      messages: { ready: {}, go: {} },
      onMessage(_state, { type, data }) {
        expectTypeOf(type).toEqualTypeOf<'ready' | 'go'>()
        expectTypeOf(data).toEqualTypeOf<null>()
      },
    })
    expectTypeOf<Parameters<Room<typeof small>['send']>[0]>().toEqualTypeOf<'ready' | 'go'>()
  })

  it('need a schema for their data', () => {
    const define = () => {
      defineRoom({
        type: 'wrong',
        create: () => ({}),
        messages: {
          // @ts-expect-error: data is a schema
          say: { data: { text: 'string' }, handle() {} },
        },
      })
    }
    expectTypeOf(define).toBeFunction()
  })
})

describe('the state in a client', () => {
  it('has optional values where layers hide them', () => {
    expectTypeOf<Room<typeof duel>['state']>().toEqualTypeOf<{
      readonly deck?: readonly number[]
      readonly hands: { readonly [id: string]: readonly number[] | undefined }
      readonly teams: { readonly red: { readonly plan?: string; readonly score: number } }
      readonly turn: string | null
    }>()
    expectTypeOf<RoomState<typeof duel>['deck']>().toEqualTypeOf<number[]>()
    expectTypeOf<Room<typeof other>['state']>().toEqualTypeOf<{ readonly n: number }>()
  })
})

describe('a state that is not JSON', () => {
  class Deck {
    cards: number[] = []
    shuffle(): void {}
  }
  it('is a type error at the place of the value', () => {
    const define = () => {
      defineRoom({
        type: 'wrong',
        create: () => ({
          fine: { a: [1, 'x', null], b: { c: true } } as {
            a: (number | string | null)[]
            b?: { c: boolean }
          },
          loose: {} as { [id: string]: { x: number } | undefined },
          json: null as Json,
          any: {} as Record<string, unknown>,
          tree: { below: [] } as Tree,
          // @ts-expect-error: a Map is not JSON
          players: new Map<string, number>(),
          // @ts-expect-error: nor is a Set
          names: new Set<string>(),
          // @ts-expect-error: nor a Date
          startedAt: new Date(),
          // @ts-expect-error: nor undefined
          winner: undefined as string | undefined,
          // @ts-expect-error: nor undefined, also in an array
          seats: [] as (string | undefined)[],
          // @ts-expect-error: nor a function
          roll: () => 3,
          // @ts-expect-error: nor an instance of a class
          deck: new Deck(),
          // @ts-expect-error: nor a bigint
          coins: 3n,
          table: {
            // @ts-expect-error: wherever it is
            seats: [new Date()],
          },
        }),
      })
      defineRoom({
        type: 'wrong',
        options: v.object({ size: v.number() }),
        // @ts-expect-error: also where the type is declared elsewhere
        create: ({ size }): { at: Date; size: number } => ({ at: new Date(), size }),
      })
      // @ts-expect-error: also as the whole
      defineRoom({ type: 'wrong', create: () => new Map<string, string>() })
    }
    expectTypeOf(define).toBeFunction()
  })
})
interface Tree {
  readonly below: readonly Tree[]
}

describe('handlers', () => {
  const create = () => ({ count: 0 })

  it('are type errors if they are async', () => {
    const define = () => {
      defineRoom({
        type: 'wrong',
        create,
        // @ts-expect-error: a handler is a turn, without await
        async onJoin(state) {
          state.count++
        },
        messages: {},
        timers: {
          // @ts-expect-error: a handler is a turn, without await
          ended: { data: v.null(), async handle() {} },
        },
      })
      defineRoom({
        type: 'wrong',
        create,
        messages: {
          add: {
            data: v.number(),
            // @ts-expect-error: a handler is a turn, without await
            async handle(state, { data }) {
              state.count += data
            },
          },
        },
      })
    }
    expectTypeOf(define).toBeFunction()
  })

  it('are type errors if they return anything except state and event', () => {
    const define = () => {
      defineRoom({
        type: 'right',
        create,
        messages: {
          add: { handle: ({ count }) => ({ state: { count: count + 1 }, event: { name: 'x', data: null } }) },
        },
      })
      defineRoom({
        type: 'wrong',
        create,
        messages: {
          // @ts-expect-error: there is no sate
          add: { handle: ({ count }) => ({ sate: { count: count + 1 }, event: { name: 'x', data: null } }) },
        },
      })
      defineRoom({
        type: 'wrong',
        create,
        // @ts-expect-error: this is the state itself
        onJoin: ({ count }) => ({ count }),
        // @ts-expect-error: an assignment returns its value
        onLeave: (state) => (state.count = 3),
        // @ts-expect-error: the count is a number
        onDispose: () => ({ state: { count: 'many' } }),
      })
    }
    expectTypeOf(define).toBeFunction()
  })
})

describe('a pattern of layers', () => {
  it('is a type error if the state has no such part', () => {
    const define = () => {
      const create = () => ({
        hands: {} as Record<string, { cards: number[] }>,
        teams: { red: { plan: '' } },
        deck: [1],
        maybe: {} as { secret?: { x: number } },
        json: {} as Json,
        any: {} as Record<string, unknown>,
      })
      defineRoom({
        type: 'right',
        create,
        layers: {
          'hands.*.cards': (id) => `member:${id}`,
          'teams.red.plan': null,
          deck: null,
          'maybe.secret.x': 'x',
          'json.a.b': 'x',
          'any.*.b': (key) => key,
        },
      })
      defineRoom({
        type: 'wrong',
        layers: {
          // @ts-expect-error: there is no hand
          'hand.*': (id) => `member:${id}`,
          // @ts-expect-error: there are no plans
          'teams.*.plans': (team) => `team:${team}`,
          // @ts-expect-error: patterns do not go into arrays
          'deck.*': null,
        },
        create,
      })
      defineRoom({
        type: 'wrong',
        options: v.object({ size: v.number() }),
        layers: {
          // @ts-expect-error: there is no hand, also where create takes options
          'hand.*': (id) => `member:${id}`,
          deck: null,
        },
        create: ({ size }) => ({ ...create(), size }),
        onJoin(state) {
          expectTypeOf(state.size).toEqualTypeOf<number>()
        },
      })
    }
    expectTypeOf(define).toBeFunction()
  })
})
