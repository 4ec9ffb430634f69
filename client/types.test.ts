import * as v from 'valibot'
import { expectTypeOf, test } from 'vitest'
import { defineQueue, defineRoom } from '../dataplane/index.ts'
import type { Json } from '../shared/json.ts'
import { inRoom } from '../test/support/client/play.ts'
import { type Client, connect, type Member, type Room, type TypedRoom } from './index.ts'
import { useEvent, useQueue, useRoom, useRoomState, useRooms } from './react.ts'

const arena = defineRoom({
  type: 'arena',
  options: v.object({ map: v.optional(v.string(), 'desert') }),
  messages: {
    move: { data: v.object({ x: v.number(), y: v.number() }) },
    shout: { data: v.object({ text: v.optional(v.string(), 'hey') }) },
    ready: { data: v.null() },
    strike: {
      data: v.object({ power: v.optional(v.number(), 1) }),
      reply: v.object({ hp: v.optional(v.number(), 100) }),
      handle(state, { data, member, type }, ctx) {
        expectTypeOf(type).toEqualTypeOf<'strike'>()
        expectTypeOf(data).toEqualTypeOf<{ power: number }>()
        expectTypeOf(state.players[member.id]?.x).toEqualTypeOf<number | undefined>()
        ctx.emit('hit', { by: member.id, damage: data.power })
        // @ts-expect-error: there is no such event
        ctx.emit('miss', {})
        ctx.reply({})
        // @ts-expect-error: hp is a number
        ctx.reply({ hp: 'full' })
        // @ts-expect-error: there is no such key in the data
        void data.strength
      },
    },
    dodge: {
      data: v.null(),
      handle(_state, _input, ctx) {
        // @ts-expect-error: the type declares no reply
        ctx.reply(null)
      },
    },
    look: { data: v.null(), reply: v.array(v.string()) },
  },
  events: { hit: v.object({ by: v.string(), damage: v.number() }) },
  create: () => ({ players: {} as Record<string, { x: number; y: number; tags: string[] }> }),
  onMessage(state, input, ctx) {
    // Messages with a handler in `messages` do not arrive here.
    expectTypeOf(input.type).toEqualTypeOf<'move' | 'shout' | 'ready' | 'look'>()
    if (input.type === 'look') {
      ctx.reply(Object.keys(state.players))
      return
    }
    const player = input.type === 'move' ? state.players[input.member.id] : undefined
    if (!player) return ctx.refuse('you are not here')
    // TypeScript knows that it exists, because refuse never returns.
    expectTypeOf(player.x).toBeNumber()
    // @ts-expect-error: a refusal needs a reason
    return ctx.refuse()
  },
})
type Arena = Room<typeof arena>

interface Chess {
  readonly state: { board: string[][]; turn: 'white' | 'black' }
  readonly messages: { readonly resign: null }
  readonly events: { readonly over: { winner: string } }
  readonly options: { rated: boolean }
}

test('the state has the type of the definition, and is readonly at every depth', () => {
  expectTypeOf<Arena['state']>().toEqualTypeOf<{
    readonly players: {
      readonly [id: string]: { readonly x: number; readonly y: number; readonly tags: readonly string[] }
    }
  }>()
  expectTypeOf<Room<TypedRoom<Chess>>['state']>().toEqualTypeOf<{
    readonly board: readonly (readonly string[])[]
    readonly turn: 'white' | 'black'
  }>()
})

test('messages have the input types of the definition’s schemas', () => {
  const use = (room: Arena) => {
    void room.send('move', { x: 1, y: 2 })
    void room.send('move', { x: 1, y: 2 }, { reliable: false })
    void room.send('shout', {})
    void room.send('ready')
    void room.send('ready', null, { reliable: false })
    // @ts-expect-error: y is missing
    void room.send('move', { x: 1 })
    // @ts-expect-error: the data is missing
    void room.send('move')
    // @ts-expect-error: there is no such message
    void room.send('jump', {})
  }
  expectTypeOf(use).toBeFunction()
})

test('requests are the messages with a reply, and resolve to it', () => {
  const use = async (room: Arena, untyped: Room) => {
    expectTypeOf(await room.request('strike', { power: 3 })).toEqualTypeOf<{ hp: number }>()
    expectTypeOf(await room.request('look')).toEqualTypeOf<string[]>()
    expectTypeOf(await untyped.request('anything', { x: 1 })).toEqualTypeOf<Json>()
    void room.send('strike', {})
    // @ts-expect-error: a move has no reply
    void room.request('move', { x: 1, y: 2 })
    // @ts-expect-error: the power is a number
    void room.request('strike', { power: 'much' })
    // @ts-expect-error: the data is missing
    void room.request('strike')
  }
  expectTypeOf(use).toBeFunction()
})

const rooms = [arena, defineRoom({ type: 'lobby', create: () => ({ open: true }) })]
const byName = { first: arena }

test('a client with the types of the rooms joins them by room type', () => {
  const use = async (client: Client<typeof rooms>, named: Client<typeof byName>) => {
    expectTypeOf(await client.join('arena', { map: 'ice' })).toEqualTypeOf<Arena>()
    expectTypeOf((await client.join('lobby')).state).toEqualTypeOf<{ readonly open: boolean }>()
    expectTypeOf(await named.join('arena')).toEqualTypeOf<Arena>()
    expectTypeOf(await connect<typeof rooms>('ws://x', { projectId: 'p' })).toEqualTypeOf(client)
    expectTypeOf(await client.join<TypedRoom<Chess>>('chess', { rated: true })).toEqualTypeOf<
      Room<TypedRoom<Chess>>
    >()
    // @ts-expect-error: there is no such room
    await client.join('arene')
    // @ts-expect-error: a map is a string
    await client.join('arena', { map: 1 })
  }
  expectTypeOf(use).toBeFunction()
})

test('a wrong option is one error, and not one for each later line', () => {
  const duel = defineRoom({
    type: 'duel',
    options: v.object({ map: v.string() }),
    listing: { data: v.object({ level: v.number() }), of: () => null },
    create: () => ({ over: false }),
  })
  const use = async (client: Client<readonly [typeof arena, typeof duel]>) => {
    const to = { create: false }
    const all = [
      // @ts-expect-error: a map is a string
      await client.join('arena', { map: 1 }),
      // @ts-expect-error: a map is a string
      await client.join('arena', { map: 1 }, to),
      // @ts-expect-error: a map is a string
      await client.create('arena', { map: 1 }),
    ]
    for (const room of all) {
      room.onStateChange(({ players }, before) => [players.me?.x, before.players])
      room.on('hit', ({ damage }) => damage)
      void room.send('move', { x: 1, y: 2 })
      void room.request('strike', { power: 3 }).then(({ hp }) => hp)
      void room.leave()
    }
    // @ts-expect-error: a level is a number
    const made = await client.joinOrCreate('duel', { map: 'ice' }, { where: { level: 'x' } })
    void made.state.over
    // @ts-expect-error: a level is a number
    const [row] = await client.rooms('duel', { where: { level: 'x' } })
    void row?.data.level
    // @ts-expect-error: a level is a number
    client.watchRooms('duel', { where: { level: 'x' } }, (rooms) => rooms[0]?.data.level)
    // @ts-expect-error: a map is a string
    const named = await client.join<typeof arena>('arena', { map: 1 })
    void named.state.players.me?.x
  }
  expectTypeOf(use).toBeFunction()
})

test('events have the types of the definition', () => {
  const use = (room: Arena) => {
    room.on('hit', (data) => {
      expectTypeOf(data).toEqualTypeOf<{ readonly by: string; readonly damage: number }>()
    })
    // @ts-expect-error: there is no such event
    room.on('miss', () => {})
  }
  expectTypeOf(use).toBeFunction()
})

test('callbacks and selectors have the type of the state', () => {
  const use = (room: Arena) => {
    room.onStateChange((state, previous) => {
      expectTypeOf(state).toEqualTypeOf<Arena['state']>()
      expectTypeOf(previous).toEqualTypeOf<Arena['state']>()
    })
    room.onStateChange.select(
      (state) => state.players.me?.x,
      (x, before) => {
        expectTypeOf(x).toEqualTypeOf<number | undefined>()
        expectTypeOf(before).toEqualTypeOf<number | undefined>()
      },
    )
    room.onMembersChange((members) => expectTypeOf(members).toEqualTypeOf<readonly Member[]>())
  }
  expectTypeOf(use).toBeFunction()
})

test('join options have the types of the definition, and a key', () => {
  const use = async (client: Client) => {
    expectTypeOf(
      await client.join<typeof arena>('arena', { key: 'lobby', map: 'ice' }),
    ).toEqualTypeOf<Arena>()
    await client.join<typeof arena>('arena')
    await client.join<TypedRoom<Chess>>('chess', { rated: true, key: 'table-1' })
    // @ts-expect-error: rated is missing
    await client.join<TypedRoom<Chess>>('chess')
    // @ts-expect-error: a map is a string
    await client.join<typeof arena>('arena', { map: 1 })
  }
  expectTypeOf(use).toBeFunction()
})

test('without a definition all types are JSON', async () => {
  const { room } = await inRoom()
  expectTypeOf(room.state).toEqualTypeOf<Json>()
  room.on('anything', (data) => expectTypeOf(data).toEqualTypeOf<Json>())
  void room.send('anything', { x: [1, null] }, { reliable: false })
})

test('the address is optional only with dev, and the project always', () => {
  const use = async () => {
    await connect({ dev: 'alice' })
    await connect('wss://games.example', { getToken: async () => 'v4.public.…' })
    // @ts-expect-error: the address of a deployment is missing
    await connect({ getToken: async () => 'v4.public.…' })
  }
  expectTypeOf(use).toBeFunction()
})

test("React's hooks have the types of the room's definition", () => {
  const useTable = () => {
    const room = useRoom<typeof arena>('arena', { key: 'lobby', map: 'ice' })
    expectTypeOf(room).toEqualTypeOf<Arena>()
    expectTypeOf(useRoomState(room)).toEqualTypeOf<Arena['state']>()
    expectTypeOf(useRoomState(room, ({ players }) => Object.keys(players))).toEqualTypeOf<string[]>()
    useEvent(room, 'hit', (hit) => expectTypeOf(hit.damage).toBeNumber())
    // @ts-expect-error: there is no such event
    useEvent(room, 'miss', () => {})
    // @ts-expect-error: a map is a string
    useRoom<typeof arena>('arena', { map: 1 })
  }
  expectTypeOf(useTable).toBeFunction()
})

test('lists and searches have the type of the listing’s data', () => {
  const duel = defineRoom({
    type: 'duel',
    options: v.object({ map: v.string() }),
    listing: {
      data: v.object({
        map: v.picklist(['ice', 'desert']),
        level: v.number(),
        ranked: v.boolean(),
        tags: v.array(v.string()),
      }),
      of: () => null,
    },
    create: () => ({ over: false }),
  })
  const use = async (client: Client<readonly [typeof duel, typeof arena]>, untyped: Client) => {
    const [first] = await client.rooms('duel', {
      where: { map: ['ice', 'desert'], level: { min: 3 }, ranked: true },
      order: 'newest',
    })
    expectTypeOf(first!.data.level).toBeNumber()
    client.watchRooms('duel', { where: { map: 'ice' } }, (rooms) =>
      expectTypeOf(rooms[0]!.data.map).toEqualTypeOf<'ice' | 'desert'>(),
    )
    expectTypeOf(await client.joinOrCreate('duel', { map: 'ice' }, { where: { level: 3 } })).toEqualTypeOf<
      Room<typeof duel>
    >()
    expectTypeOf(await client.create('arena')).toEqualTypeOf<Arena>()
    expectTypeOf(await client.join('duel', { map: 'ice' }, { create: false })).toEqualTypeOf<
      Room<typeof duel>
    >()
    const room = await client.joinByCode('K7QX2M')
    if (room.type === 'duel') expectTypeOf(room.state.over).toBeBoolean()
    expectTypeOf(await client.joinByCode<typeof arena>('K7QX2M')).toEqualTypeOf<Arena>()
    await untyped.rooms('anything', { where: { anything: { min: 3 }, other: ['x'] } })
    // @ts-expect-error: the listing has no such field
    await client.rooms('duel', { where: { mapp: 'ice' } })
    // @ts-expect-error: a map is one of two words
    await client.rooms('duel', { where: { map: 'fire' } })
    // @ts-expect-error: only numbers have a range
    await client.rooms('duel', { where: { ranked: { min: 1 } } })
    // @ts-expect-error: a list has no conditions
    await client.rooms('duel', { where: { tags: 'x' } })
    // @ts-expect-error: there is no such room
    await client.create('duell', { map: 'ice' })
    // @ts-expect-error: the map is missing
    await client.create('duel')
    // @ts-expect-error: the key is not an option of the room
    await client.joinOrCreate('duel', { map: 'ice', key: 'mine' })
  }
  expectTypeOf(use).toBeFunction()
  const useLobby = () => {
    const rooms = useRooms<typeof duel>('duel', { where: { ranked: false } })
    expectTypeOf(rooms[0]!.data.level).toBeNumber()
  }
  expectTypeOf(useLobby).toBeFunction()
})

test('useQueue takes the data of a ticket and returns the room of the match', () => {
  const ranked = defineQueue({
    type: 'ranked',
    room: 'arena',
    players: 2,
    ticket: v.object({ elo: v.number() }),
  })
  const useRanked = () => {
    const { room, waitedMs } = useQueue<typeof ranked, typeof arena>('ranked', { elo: 1200 })
    expectTypeOf(room).toEqualTypeOf<Arena | undefined>()
    expectTypeOf(waitedMs).toBeNumber()
    // @ts-expect-error: the ticket has a number
    useQueue<typeof ranked, typeof arena>('ranked', { elo: 'high' })
  }
  expectTypeOf(useRanked).toBeFunction()
  void ranked
})

test('entry of a queue decides the types of its rules, and the client sends the data of its schema', () => {
  const signed = defineQueue({
    type: 'signed',
    room: 'arena',
    players: 2,
    ticket: v.object({ mode: v.string() }),
    entry: ({ mode }, { sub, data }, ctx) => {
      expectTypeOf(sub).toEqualTypeOf<string | null>()
      return typeof data?.elo === 'number' ? { mode, elo: data.elo } : ctx.refuse('no rating yet')
    },
    near: ({ elo }) => elo,
    // @ts-expect-error: what entry returns has no rank
    shard: ({ rank }) => rank,
  })
  const useSigned = () => {
    useQueue<typeof signed, typeof arena>('signed', { mode: 'ice' })
    // @ts-expect-error: the client sends no rating
    useQueue<typeof signed, typeof arena>('signed', { mode: 'ice', elo: 1200 })
  }
  expectTypeOf(useSigned).toBeFunction()
  void signed
})
