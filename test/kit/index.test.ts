import { createHook } from 'node:async_hooks'
import { execSync } from 'node:child_process'
import { pbkdf2Sync } from 'node:crypto'
import * as v from 'valibot'
import { expect, expectTypeOf, test } from 'vitest'
import type { Room } from '../../client/index.ts'
import { defineQueue, defineRoom } from '../../dataplane/index.ts'
import { testRooms } from './index.ts'

const duel = defineRoom({
  type: 'duel',
  maxPlayers: 3,
  reconnectSeconds: 10,
  options: v.object({ hp: v.optional(v.number(), 100) }),
  create: ({ hp }) => ({ full: hp, hp: {} as Record<string, number>, clock: 0, luck: 0 }),
  messages: {
    strike: {
      data: v.object({ power: v.number() }),
      reply: v.object({ hp: v.number() }),
      handle(state, { data, member }, ctx) {
        const target = Object.keys(state.hp).find((id) => id !== member.id)
        if (!target) return ctx.refuse('there is no opponent')
        const hp = (state.hp[target] ?? 0) - data.power
        state.hp[target] = hp
        state.luck = ctx.random()
        ctx.reply({ hp })
      },
    },
    invite: {
      data: v.string(),
      reply: v.boolean(),
      handle: (_state, { data }, ctx) => ctx.reply(ctx.reserve(data, 30)),
    },
    whisper: {
      data: v.object({ to: v.string(), text: v.string() }),
      handle: (_state, { data }, ctx) => ctx.emit('heard', data.text, data.to),
    },
  },
  calls: {
    heal: {
      data: v.object({ by: v.number() }),
      reply: v.object({ healed: v.number() }),
      handle(state, { data }, ctx) {
        if (data.by < 0) return ctx.refuse('that hurts')
        for (const id of Object.keys(state.hp)) state.hp[id]! += data.by
        ctx.reply({ healed: ctx.members.length })
      },
    },
  },
  events: { heard: v.string() },
  tick: { rate: 1 },
  async admit(member) {
    if (member.data?.banned === true) return 'you are banned'
  },
  onJoin(state, member) {
    state.hp[member.id] = state.full
  },
  onLeave(state, member) {
    delete state.hp[member.id]
  },
  onTick(state) {
    state.clock += 1
  },
})

const lobby = defineRoom({
  type: 'lobby',
  options: v.object({ name: v.string() }),
  create: () => ({ open: true }),
})

const table = defineRoom({
  type: 'table',
  maxPlayers: 2,
  options: v.object({ map: v.string() }),
  create: ({ map }) => ({ map, started: false }),
  listing: {
    data: v.object({ map: v.string() }),
    of: ({ map, started }) => (started ? null : { map }),
  },
  messages: {
    start: {
      handle(state) {
        state.started = true
      },
    },
  },
})

async function game() {
  const t = await testRooms([duel, lobby], { seed: 1 })
  const [a, b] = await t.join('duel', 2)
  return { t, a, b }
}

test('request resolves when the other players have the same update', async () => {
  const { t, a, b } = await game()
  expect(await a.request('strike', { power: 3 })).toEqual({ hp: 97 })
  expect(a.state.hp).toEqual({ [a.memberId]: 100, [b.memberId]: 97 })
  expect(b.state).toEqual(a.state)
  expect(await t.state(a)).toEqual(a.state)
  await b.leave()
  await expect(a.request('strike', { power: 3 })).rejects.toThrow('there is no opponent')
})

test('advance(30_000) runs 30 ticks of rate 1, and the time does not advance outside a call', async () => {
  const { t, a } = await game()
  const { now } = t
  const { clock } = a.state
  await new Promise(setImmediate)
  expect(t.now).toBe(now)
  await t.advance(30_000)
  expect(t.now).toBe(now + 30_000)
  expect(a.state.clock).toBe(clock + 30)
})

test('a simulated second without events takes fewer than 8 event-loop turns', async () => {
  const t = await testRooms([lobby])
  await t.join('lobby', 2, { name: 'x' })
  let turns = 0
  const hook = createHook({
    init(_id, type) {
      if (type === 'Immediate') turns++
    },
  })
  hook.enable()
  await t.advance(600_000)
  hook.disable()
  // Nodes count each other's subscribers ten times a second. Without the delayed answer, each count would take several turns.
  expect(turns / 600).toBeLessThan(8)
})

test('the same seed gives the same random numbers', async () => {
  const luck = async (seed: number) => {
    const t = await testRooms([duel], { seed })
    const [a] = await t.join('duel', 2)
    await a.request('strike', { power: 1 })
    return a.state.luck
  }
  expect(await luck(1)).toBe(await luck(1))
  expect(await luck(2)).not.toBe(await luck(1))
})

test.each(['killOwner', 'drainOwner'] as const)(
  'after each of three calls of %s, the room continues and a message that was sent before has one effect',
  async (end) => {
    const { t, a, b } = await game()
    await a.request('strike', { power: 3 })
    for (const hp of [96, 95, 94]) {
      const struck = a.request('strike', { power: 1 })
      await t[end]()
      expect(await struck).toEqual({ hp })
      expect(b.state.hp[b.memberId]).toBe(hp)
      expect(b.members.map(({ connected }) => connected)).toEqual([true, true])
    }
  },
)

test('a dropped player is shown as disconnected, keeps its seat for reconnectSeconds, and can reconnect', async () => {
  const { t, a, b } = await game()
  const shown = () => b.members.map(({ connected }) => connected)
  await t.drop(a)
  expect(shown()).toEqual([false, true])
  const struck = a.request('strike', { power: 1 })
  await t.advance(5_000)
  await t.reconnect(a)
  expect(await struck).toEqual({ hp: 99 })
  expect(shown()).toEqual([true, true])
  await t.drop(a)
  await t.advance(11_000)
  expect(shown()).toEqual([true])
})

test('a killed owner runs no more code of the room', async () => {
  const calls: string[] = []
  const hall = defineRoom({
    type: 'hall',
    create: () => ({ lost: 0 }),
    onDisconnect(state, member) {
      calls.push(member.id)
      state.lost += 1
    },
  })
  const t = await testRooms([hall])
  const [ada] = await t.join('hall', 2)
  await t.killOwner()
  await t.advance(1000)
  expect({ calls, lost: ada.state.lost }).toEqual({ calls: [], lost: 0 })
})

test('a reservation survives killOwner, and ends when advance passes its time', async () => {
  const { t, a } = await game()
  expect([await a.request('invite', 'ada'), await a.request('invite', 'eve')]).toEqual([true, false])
  await t.killOwner()
  await expect(t.join('duel', [{ sub: 'eve' }])).rejects.toMatchObject({ code: 'room_full' })
  await t.advance(31_000)
  const [eve] = await t.join('duel', [{ sub: 'eve' }])
  expect(eve.members).toHaveLength(3)
})

test('rooms shows every committed change, and full rooms only with the option full', async () => {
  const t = await testRooms([table, duel])
  expect(await t.rooms('table')).toEqual([])
  const [ada] = await t.join('table', 1, { key: 'a', map: 'desert' })
  await t.join('table', 1, { key: 'b', map: 'forest' })
  const keys = async (query?: Parameters<typeof t.rooms<'table'>>[1]) =>
    (await t.rooms('table', query)).map(({ key, players }) => [key, players])
  expect(await keys({ order: 'oldest' })).toEqual([
    ['a', 1],
    ['b', 1],
  ])
  expect(await keys({ where: { map: 'forest' } })).toEqual([['b', 1]])
  const [bob] = await t.join('table', 1, { key: 'a', map: 'desert' })
  expect(await keys()).toEqual([['b', 1]])
  expect(await keys({ full: true, where: { map: 'desert' } })).toEqual([['a', 2]])
  await bob.leave()
  expect(await keys({ where: { map: 'desert' } })).toEqual([['a', 1]])
  await ada.send('start')
  expect(await keys()).toEqual([['b', 1]])
  await expect(t.rooms('duel')).rejects.toMatchObject({ code: 'invalid_options' })
})

test('rooms shows the room of a killed node only when the room has another owner', async () => {
  const t = await testRooms([table])
  const [ada] = await t.join('table', 1, { map: 'desert' })
  await t.killOwner()
  expect(await t.rooms('table')).toMatchObject([{ key: 'default', players: 1, data: { map: 'desert' } }])
  await t.drop(ada)
  await t.killOwner()
  expect(await t.rooms('table')).toEqual([])
  await t.reconnect(ada)
  expect(await t.rooms('table')).toMatchObject([{ players: 1 }])
  await ada.leave()
  await t.advance(60_000)
  expect(await t.rooms('table')).toEqual([])
})

test('a request without an answer rejects after 60 s with the name of the request', async () => {
  const { t, a } = await game()
  await t.drop(a)
  await expect(a.request('strike', { power: 1 })).rejects.toThrow(
    `request("strike") was not answered within 60 s of the test's time`,
  )
})

test('join waits for a load that takes real time', async () => {
  const saved = defineRoom({
    type: 'saved',
    create: () => ({ from: 'nowhere' }),
    load: async () => {
      for (let turns = 0; turns < 200; turns++) await new Promise((resolve) => setImmediate(resolve))
      await new Promise((resolve) => setTimeout(resolve, 20))
      return { from: 'elsewhere' }
    },
  })
  const t = await testRooms([saved])
  const [a] = await t.join('saved')
  expect(a.state).toEqual({ from: 'elsewhere' })
})

test('players join with their sub, data and options, and a refused join rejects as in the SDK', async () => {
  const t = await testRooms([duel])
  const [ada, bob] = await t.join('duel', [{ sub: 'ada' }, { sub: 'bob', data: { banned: false } }], {
    key: 'k',
    hp: 7,
  })
  expect(ada.members.map(({ sub }) => sub)).toEqual(['ada', 'bob'])
  expect(bob.state.hp[bob.memberId]).toBe(7)
  const refused = t.join('duel', [{ data: { banned: true } }], { key: 'k' })
  await expect(refused).rejects.toMatchObject({ code: 'join_refused', message: 'you are banned' })
})

test('received returns all bytes that a player has received', async () => {
  const { t, a, b } = await game()
  const said = (room: object, text: string) => Buffer.concat(t.received(room)).includes(text)
  await a.send('whisper', { to: b.memberId, text: 'the key is under the mat' })
  expect([said(a, 'under the mat'), said(b, 'under the mat')]).toEqual([false, true])
})

test('close rejects pending and later requests', async () => {
  const { t, a, b } = await game()
  const pending = a.request('strike', { power: 1 })
  await t.close()
  await expect(pending).rejects.toMatchObject({ code: 'client_closed' })
  await expect(b.request('strike', { power: 1 })).rejects.toMatchObject({ code: 'not_in_room' })
})

test('rooms have the types of their definitions', async () => {
  const { t, a } = await game()
  expectTypeOf(a).toEqualTypeOf<Room<typeof duel>>()
  expectTypeOf(t.state(a)).resolves.toEqualTypeOf<{
    full: number
    hp: Record<string, number>
    clock: number
    luck: number
  }>()
  // Checked by the compiler only.
  void (async () => {
    const [room, ...more] = await t.join('lobby', 3, { name: 'x' })
    expectTypeOf(room).toEqualTypeOf<Room<typeof lobby>>()
    expectTypeOf(more.length).toEqualTypeOf<2>()
    expectTypeOf(await t.join('duel')).toEqualTypeOf<[Room<typeof duel>]>()
    // @ts-expect-error: no such room type
    await t.join('chess')
    // @ts-expect-error: the options are needed
    await t.join('lobby', 1)
    // @ts-expect-error: power is a number
    await a.request('strike', { power: 'x' })
  })
})

test('notices returns the notices that a backend receives, also after killOwner', async () => {
  const match = defineRoom({
    type: 'match',
    sync: { rate: 0 },
    create: () => ({}),
    notices: { won: v.object({ by: v.string() }) },
    messages: {
      win: { data: v.string(), handle: (_state, { data }, ctx) => ctx.notify('won', { by: data }) },
      end: { handle: (_state, _input, ctx) => ctx.close() },
    },
    onDispose: (_state, ctx) => ctx.notify('won', { by: 'nobody' }),
  })
  const t = await testRooms([match])
  const [one] = await t.join('match', 1, { key: 'one' })
  const [two] = await t.join('match', 1, { key: 'two' })
  await one.send('win', 'ada')
  await two.send('win', 'bob')
  expect(t.notices()).toMatchObject([
    { type: 'won', projectId: 'prj_test', roomId: 'match:one', data: { by: 'ada' } },
    { roomId: 'match:two', data: { by: 'bob' } },
  ])
  await t.killOwner(one)
  await one.send('win', 'eve')
  await one.send('end')
  expect(t.notices(one).map(({ data }) => data.by)).toEqual(['ada', 'eve', 'nobody'])
  await t.close()
})

test('client has the methods of the SDK, and its promises advance the time', async () => {
  const table = defineRoom({
    type: 'table',
    maxPlayers: 2,
    create: () => ({ seen: {} as Record<string, string> }),
    codes: true,
    listing: { data: v.object({}), of: () => ({}) },
    messages: {
      hi: { reply: v.string(), handle: (_state, { member }, ctx) => ctx.reply(`hi ${member.sub}`) },
    },
    onJoin(state, member) {
      state.seen[member.sub ?? ''] = String((member.data as { elo?: number } | null)?.elo)
    },
  })
  const ranked = defineQueue({
    type: 'ranked',
    room: 'table',
    players: 2,
    ticket: v.object({ elo: v.number() }),
  })
  const t = await testRooms([table, ranked])
  const ada = await t.client({ sub: 'ada', data: { elo: 1200 } })
  const bob = await t.client({ sub: 'bob' })
  const seen: number[] = []
  bob.watchRooms('table', { full: true }, (rooms) => seen.push(rooms.length))

  const room = await ada.create('table')
  expect(await room.request('hi')).toBe('hi ada')
  const same = await bob.joinByCode(room.code!)
  expect(room.state).toEqual({ seen: { ada: '1200', bob: 'undefined' } })
  await t.advance(2000)
  expect([seen.at(-1), (await bob.rooms('table', { full: true })).length]).toEqual([1, 1])
  await t.drop(bob)
  expect(room.members.map(({ connected }) => connected)).toEqual([true, false])
  await t.reconnect(bob)
  await t.killOwner()
  expect([same.status, ada.status]).toEqual(['joined', 'online'])

  const { code } = await ada.party({ size: 2 })
  const tickets = [
    ada.queue('ranked', { elo: 1 }, { party: code }),
    bob.queue('ranked', { elo: 2 }, { party: code }),
  ]
  const [first, second] = [await tickets[0]!.matched, await tickets[1]!.matched]
  expect([first.id === second.id, first.members.length]).toEqual([true, 2])
  await expect(ada.joinByCode('nobody')).rejects.toMatchObject({ code: 'room_not_found' })
  await t.close()
})

test('jumpClock moves ctx.now, Date in room code and the due times of one node, and not its ticks', async () => {
  const clock = defineRoom({
    type: 'clock',
    tick: { rate: 1 },
    create: () => ({ now: 0, dates: [0], ticks: 0, fired: false }),
    timers: {
      bell: {
        data: v.null(),
        handle(state) {
          state.fired = true
        },
      },
    },
    messages: {
      look: {
        handle(state, _input, ctx) {
          state.now = ctx.now
          state.dates = [
            Date.now(),
            Date.parse(new Date().toISOString()),
            Date.parse(Date()) + (Math.floor(ctx.now) % 1000),
          ]
        },
      },
      wind: { handle: (_state, _input, ctx) => ctx.after(60_000, 'bell', null) },
    },
    onTick(state) {
      state.ticks += 1
    },
  })
  const t = await testRooms([clock])
  const [a] = await t.join('clock', 1, { key: 'a' })
  const node = (await t.owner(a))!
  t.jumpClock(node, 600_000)
  await a.send('look')
  expect(Math.round((a.state.now - t.now) / 1000)).toBe(600)
  expect(a.state.dates).toEqual(Array(3).fill(Math.floor(a.state.now)))
  await a.send('wind')
  const { ticks } = await t.state(a)
  await t.advance(2000)
  expect(a.state.ticks - ticks).toBe(2)
  // The clock of the next owner is right, so the timer is due ten minutes later.
  await t.killOwner(a)
  await t.advance(120_000)
  expect(a.state.fired).toBe(false)
  await t.advance(600_000)
  expect(a.state.fired).toBe(true)
  expect(() => t.jumpClock('node-9', 1)).toThrow(/no node is called node-9: use node-\d, node-\d/)
  await t.close()
})

test('the global Date is the real one after all tests of rooms have ended, in any order', async () => {
  const { Date: real } = globalThis
  const [first, second] = [await testRooms([]), await testRooms([])]
  await first.close()
  await second.close()
  expect(globalThis.Date).toBe(real)
  const open = await testRooms([])
  expect(() => (Date.now = () => 0)).toThrow("Cannot assign to read only property 'now' of Date")
  // As fake timers do.
  class Fake extends Date {}
  Fake.now = () => 1
  Object.assign(Fake, { isFake: true })
  expect([Fake.now(), 'isFake' in Date]).toEqual([1, false])
  await open.close()
})

test('Date in a task is the wall clock of its node, and the real time outside of rooms', async () => {
  const clock = defineRoom({
    type: 'clock',
    create: () => ({ late: 0 }),
    tasks: {
      look: {
        result: v.number(),
        handle(state, outcome, ctx) {
          if (outcome.ok) state.late = ctx.now - outcome.value
        },
      },
    },
    onJoin(_state, _member, ctx) {
      ctx.task(async () => {
        await null
        return Date.now()
      }, 'look')
    },
  })
  const t = await testRooms([clock])
  const [a] = await t.join('clock')
  await t.advance(1000)
  expect([a.state.late >= 0, a.state.late < 1000]).toEqual([true, true])
  expect(Math.abs(Date.now() - t.now)).toBeGreaterThan(86_400_000)
  expect([new Date(0).getTime(), new Date() instanceof Date]).toEqual([0, true])
  const { Date: before } = globalThis
  await t.close()
  expect(globalThis.Date).not.toBe(before)
})

const pond = defineRoom({
  type: 'pond',
  onIdle: 'sleep',
  create: () => ({ away: [] as number[], ended: false, late: [] as string[] }),
  messages: {
    look: {
      data: v.boolean(),
      handle(state, { data }, ctx) {
        if (data) ctx.refuse('not now')
        state.away.push(ctx.awayMs)
        if (state.ended) state.late.push('look')
      },
    },
    wind: { handle: (_state, _input, ctx) => ctx.after(200, 'end', null) },
  },
  timers: {
    end: {
      data: v.null(),
      handle(state) {
        state.ended = true
      },
    },
  },
})

test('ctx.awayMs is the time without an owner in the first turn that succeeds, and 0 in all others', async () => {
  const t = await testRooms([pond])
  const [a] = await t.join('pond')
  await a.send('look', false)
  await t.advance(100_000)
  const killedAt = t.now
  await t.killOwner(a)
  await expect(a.send('look', true)).rejects.toMatchObject({ message: 'not now' })
  const ranAt = t.now
  await a.send('look', false)
  await a.send('look', false)
  const [first, away, later] = a.state.away
  expect([first, later]).toEqual([0, 0])
  expect(away).toBeGreaterThan(0)
  expect(away).toBeLessThan(ranAt - killedAt + 1000)
  await a.leave()
  await t.advance(3_600_000)
  const [b] = await t.join('pond')
  await b.send('look', false)
  // The room was empty for 30 s before it slept.
  expect(Math.round(b.state.away.at(-1)! / 10_000)).toBe(357)
  await t.close()
})

test('a message that was sent before a crash comes before a timer that was due during it', async () => {
  const t = await testRooms([pond])
  const [a, b] = await t.join('pond', 2)
  await a.send('wind')
  // The edge of one of them dies with the owner.
  await Promise.all([t.killOwner(a), a.send('look', false), b.send('look', false)])
  expect([a.state.late, a.state.away.length]).toEqual([[], 2])
  await t.advance(2000)
  expect(a.state.ended).toBe(true)
  await t.close()
})

test('backend.refuse answers notices with 500, and the room repeats them in order', async () => {
  const match = defineRoom({
    type: 'match',
    create: () => ({}),
    notices: { won: v.string() },
    messages: { win: { data: v.string(), handle: (_state, { data }, ctx) => ctx.notify('won', data) } },
  })
  const t = await testRooms([match])
  const [a] = await t.join('match')
  t.backend.refuse(2)
  await a.send('win', 'ada')
  await a.send('win', 'bob')
  await t.advance(500)
  expect(t.notices()).toEqual([])
  await t.advance(20_000)
  expect(t.notices(a).map(({ data }) => data)).toEqual(['ada', 'bob'])
  await t.close()
})

test('a call of a backend takes effect once, also when it is repeated after killOwner', async () => {
  const { t, a: ada, b: bob } = await game()
  const reply = await t.call(ada, 'heal', { by: 5 }, { id: 'order_1' })
  expectTypeOf(reply).toEqualTypeOf<{ healed: number }>()
  const underWay = t.call(ada, 'heal', { by: 5 }, { id: 'order_1' })
  await t.killOwner(ada)
  expect(await underWay).toEqual(reply)
  expect(await t.call(bob, 'heal', { by: 5 }, { id: 'order_1' })).toEqual(reply)
  expect(Object.values((await t.state(ada)).hp)).toEqual([105, 105])
  await expect(t.call(ada, 'heal', { by: 6 }, { id: 'order_1' })).rejects.toMatchObject({ code: 'conflict' })
  await expect(t.call(ada, 'heal', { by: -1 })).rejects.toMatchObject({ code: 'room_logic_refused' })
  // @ts-expect-error: there is no such call
  await expect(t.call(ada, 'hurt', {})).rejects.toMatchObject({ code: 'invalid_request' })
})

test('roomful/test exports one function, and types', async () => {
  expect(Object.keys(await import('./index.ts'))).toEqual(['testRooms'])
})

test.each<[what: string, slip: (bags: object) => unknown, reason: string]>([
  ['another program', () => execSync('true'), 'room code called execSync'],
  ['a long hash', () => pbkdf2Sync('a', 'b', 150_000, 9, 'sha512'), 'room code called pbkdf2Sync'],
  ['a wait', () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), 'called Atomics.wait'],
  ['a signal', () => process.emit('SIGTERM'), 'room code called process.emit'],
  ['an exit', () => process.exit(1), 'room code called process.exit'],
  [
    'a method of arrays',
    (bags) => {
      const { slot, item } = { slot: '__proto__', item: 'push' }
      ;(Object.values(bags) as unknown as Record<string, Record<string, number>>)[slot]![item] = 1
    },
    'room code tried to overwrite Array.prototype.push',
  ],
])('room code may not do what nodes forbid: %s', async (_what, slip, reason) => {
  const rogue = defineRoom({
    type: 'rogue',
    create: () => ({ turns: 0, bags: {} }),
    messages: {
      slip: {
        handle(state) {
          state.turns += 1
          slip(state.bags)
        },
      },
    },
  })
  const t = await testRooms([rogue])
  const [room] = await t.join('rogue')
  await expect(room.send('slip', null)).rejects.toThrow(reason)
  expect(room.state).toEqual({ turns: 0, bags: {} })
  await t.close()
})
