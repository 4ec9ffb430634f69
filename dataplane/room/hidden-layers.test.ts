import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { TestMember } from '../../test/support/rooms/test-member.ts'
import type { Frame } from '../frame.ts'
import { FlushFrames, Subscription } from '../gateway/subscription.ts'
import { defineRoom } from './definition.ts'

interface Table {
  turn: number
  hands: Record<string, number[]>
  deck: number[]
  plans: Record<string, { x: number }> | number[]
}

/** Cards: each member sees its own hand, no member sees the deck, and the dealer's plan is shown to some. */
const cards = () =>
  defineRoom({
    type: 'cards',
    sync: { rate: 0 },
    layers: {
      'hands.*': (memberId) => `member:${memberId}`,
      deck: null,
      'plans.*': (name) => (name === 'bad' ? (7 as never) : `plan:${name}`),
    },
    events: { told: v.string() },
    messages: {
      draw: { data: v.number() },
      turn: { data: v.null() },
      plan: { data: v.object({ name: v.string(), x: v.nullable(v.number()) }) },
      show: { data: v.object({ to: v.string(), layer: v.any() }) },
      hide: { data: v.object({ from: v.string(), layer: v.any() }) },
      tell: { data: v.object({ layer: v.string(), text: v.string() }) },
      array: { data: v.null() },
    },
    create: (): Table => ({ turn: 0, hands: {}, deck: [1, 2, 3], plans: {} }),
    onJoin(state, member) {
      state.hands[member.id] = []
    },
    onLeave(state, member) {
      delete state.hands[member.id]
    },
    onMessage(state, input, ctx) {
      switch (input.type) {
        case 'draw':
          state.hands[input.member.id]?.push(input.data)
          break
        case 'turn':
          state.turn++
          break
        case 'plan': {
          const { name, x } = input.data
          if (Array.isArray(state.plans)) break
          if (x === null) delete state.plans[name]
          else state.plans[name] = { x }
          break
        }
        case 'show':
          ctx.show(input.data.to, input.data.layer)
          break
        case 'hide':
          ctx.hide(input.data.from, input.data.layer)
          break
        case 'tell':
          ctx.emit('told', input.data.text, { layer: input.data.layer })
          break
        case 'array':
          state.turn = 99
          state.plans = [1]
      }
    },
  })

async function table(options: BenchOptions = {}) {
  const members = await roomWith(cards(), ['ann', 'bob'], options)
  const { bench } = members
  return {
    ...members,
    say: (who: string, type: string, data: never | object | number | string | null = null) =>
      bench.say('cards', who, type, data as never),
  }
}

const held = ({ layers }: TestMember) => Object.fromEntries(layers)

describe('hidden layers', () => {
  it('are shown and hidden with their present contents, and events go to the members that have them', async () => {
    const { ann, bob, say } = await table()
    await say('ann', 'plan', { name: 'a', x: 1 })
    await say('ann', 'show', { to: 'bob', layer: 'plan:a' })
    expect(held(bob)['plan:a']).toEqual({ plans: { a: { x: 1 } } })
    await say('ann', 'plan', { name: 'a', x: 2 })
    await say('ann', 'tell', { layer: 'plan:a', text: 'psst' })
    await say('ann', 'tell', { layer: 'member:ann', text: 'own' })
    expect(held(bob)['plan:a']).toEqual({ plans: { a: { x: 2 } } })
    expect([ann.heard, bob.heard]).toEqual([['+bob', 'told "own"'], ['told "psst"']])
    // It is empty for a while.
    await say('ann', 'plan', { name: 'a', x: null })
    expect(held(bob)['plan:a']).toBeUndefined()
    await say('ann', 'plan', { name: 'a', x: 3 })
    expect(held(bob)['plan:a']).toEqual({ plans: { a: { x: 3 } } })
    await say('ann', 'hide', { from: 'bob', layer: 'plan:a' })
    expect(held(bob)['plan:a']).toBeUndefined()
    await say('ann', 'plan', { name: 'a', x: 4 })
    expect(held(bob)['plan:a']).toBeUndefined()
    expect(ann.layers.has('plan:a')).toBe(false)
    expect([...ann.faults, ...bob.faults]).toEqual([])
  })

  it.each(['roomful.v1.json', 'roomful.v1.msgpack'] as const)(
    'of others change no byte that a member gets (%s)',
    async (codec) => {
      const bytesOfAnn = async (secret: [type: string, data: object | number][]) => {
        const bench = new RoomBench([cards()])
        const ann = await bench.join('cards', 'ann', { codec })
        await bench.join('cards', 'bob', { codec: 'roomful.v1.msgpack' })
        for (const [type, data] of secret) await bench.say('cards', 'bob', type, data as never)
        await bench.say('cards', 'ann', 'draw', 1)
        bench.resync('cards', ann, 'checksum')
        await bench.resume('cards', ann)
        return Buffer.concat(ann.received)
      }
      const some = await bytesOfAnn([
        ['draw', 7],
        ['draw', 8],
        ['draw', 9],
      ])
      const others = await bytesOfAnn([
        ['plan', { name: 'a', x: 1 }],
        ['show', { to: 'bob', layer: 'plan:a' }],
        ['plan', { name: 'a', x: 2 }],
      ])
      expect(others.equals(some)).toBe(true)
    },
  )

  it('follow the code of the owner: if it hides other parts, all members get their layers again, and values that fit no pattern are hidden from all', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const bench = new RoomBench([cards()], { clock, store })
    const ann = await bench.join('cards', 'ann')
    await bench.say('cards', 'ann', 'draw', 7)
    await bench.host.close()
    const layers = { 'deck.*': null, turn: 'clock' }
    const heir = new RoomBench([{ ...cards(), layers }], { clock, store, nodeId: 'node_b' })
    heir.members.set('ann', ann)
    const answer = await heir.resume('cards', ann)
    expect(answer.resumed).toBe(false)
    expect([ann.state, held(ann)]).toEqual([{ hands: { ann: [7] }, plans: {} }, {}])
    await heir.say('cards', 'ann', 'show', { to: 'ann', layer: 'clock' })
    expect([held(ann), ann.faults]).toEqual([{ clock: { turn: 0 } }, []])
  })

  // Seen in chaos: such a member had an old layer, and the next patch of the layer did not fit.
  it('are sent whole to a member whose edge forwarded updates while the room counted it as detached', async () => {
    const { bench, ann, bob, say } = await table()
    await say('ann', 'plan', { name: 'a', x: 1 })
    bench.host.edgeMissed('node_a')
    bench.attach('cards', ann)
    await say('ann', 'show', { to: 'bob', layer: 'plan:a' })
    await say('ann', 'turn')
    expect([bob.state, held(bob)['plan:a']]).toMatchObject([{ turn: 1 }, undefined])
    const answer = await bench.resume('cards', bob)
    expect([answer.resumed, held(bob)['plan:a'], bob.faults]).toEqual([false, { plans: { a: { x: 1 } } }, []])
  })

  // Seen in chaos: the whole state was an earlier one, with the old epoch, and its layers had the new epoch. So the client dropped them.
  it('have the epoch of the whole state when the room is written again after the store has lost it', async () => {
    const { bench, bob, say } = await table()
    await say('bob', 'draw', 7)
    const ask = () => bench.send('cards', 'bob', { kind: 'resync', reason: 'checksum' })
    ask()
    await bench.untilIdle()
    const before = bench.host.rooms.running[0]!.core.epoch
    const { rooms } = new RoomBench([]).store.store
    bench.store.follow(() => rooms)
    bench.host.recheck()
    await bench.untilIdle()
    expect(bench.host.rooms.running[0]!.core.epoch).toBeGreaterThan(before)
    ask()
    await bench.untilIdle()
    expect([held(bob), bob.faults]).toEqual([{ 'member:bob': { hands: { bob: [7] } } }, []])
  })

  it('are the present ones after a change of the codec and back, also if they are so large that their bytes are kept', async () => {
    const notes = defineRoom({
      type: 'notes',
      layers: { 'notes.*': (memberId) => `member:${memberId}` },
      messages: { write: { data: v.string() } },
      create: () => ({ notes: {} as Record<string, string> }),
      onMessage(state, { member, data }) {
        state.notes[member.id] = data.repeat(20_000)
      },
    })
    const bench = new RoomBench([notes])
    await bench.join('notes', 'ann')
    const write = async (text: string) => {
      bench.message('notes', 'ann', 'write', text)
      await bench.advance(100)
    }
    const resumed = async (codec: Subprotocol) => {
      const ann = new TestMember('ann', codec)
      bench.members.set('ann', ann)
      await bench.resume('notes', ann)
      return [held(ann)['member:ann'], ann.faults]
    }
    await write('a')
    await resumed('roomful.v1.msgpack')
    await resumed('roomful.v1.json')
    await write('b')
    expect(await resumed('roomful.v1.msgpack')).toEqual([{ notes: { ann: 'b'.repeat(20_000) } }, []])
  })

  it('do not change in a running room whose code is edited', async () => {
    const { bench, bob, say } = await table()
    bench.host.replaceRoom({ ...cards(), layers: undefined })
    await say('ann', 'draw', 7)
    await say('ann', 'show', { to: 'bob', layer: 'member:ann' })
    expect([bob.state, held(bob)['member:ann']]).toEqual([
      { turn: 0, hands: {}, plans: {} },
      { hands: { ann: [7] } },
    ])
  })

  it('are limited in number for each member', async () => {
    const { bench, ann, say } = await table({ limits: { layers: 2 }, revealFailures: true })
    for (const layer of ['a', 'b', 'c']) await say('ann', 'show', { to: 'bob', layer })
    expect(ann.errors).toMatchObject([{ message: expect.stringContaining('limit reached: 1024 layers') }])
    expect(bench.counts['limit layers']).toBe(1)
    await say('ann', 'hide', { from: 'bob', layer: 'a' })
    await say('ann', 'show', { to: 'bob', layer: 'c' })
    expect(ann.errors.length).toBe(1)
  })

  it('are shown to operators, with the members that have them', async () => {
    const { bench, say } = await table()
    await say('ann', 'show', { to: 'bob', layer: 'plan:a' })
    expect(bench.describe('cards')?.members.map(({ layers }) => layers)).toEqual([
      ['member:ann'],
      ['member:bob', 'plan:a'],
    ])
  })

  it('change at most 100,000 times in a turn, kicks included', async () => {
    const loops = defineRoom({
      type: 'loops',
      sync: { rate: 0 },
      layers: { red: 'team:red' },
      messages: { loop: { data: v.number() } },
      create: () => ({ red: {} }),
      onMessage(_state, { data, member }, ctx) {
        ctx.kick('nobody')
        for (let n = 1; n < data; n++) ctx.hide(member, 'team:red')
      },
    })
    const bench = new RoomBench([loops], { revealFailures: true })
    const ann = await bench.join('loops', 'ann')
    await bench.say('loops', 'ann', 'loop', 100_000, 1)
    expect(ann.errors).toEqual([])
    await bench.say('loops', 'ann', 'loop', 100_001, 2)
    expect(ann.errors).toMatchObject([{ message: expect.stringContaining('100000 kicks and changes') }])
  })

  it('need no support by clients if all of them are null, and then members can have none', async () => {
    const safe = defineRoom({
      type: 'safe',
      sync: { rate: 0 },
      layers: { secret: null },
      messages: { turn: { data: v.null() }, show: { data: v.null() } },
      create: () => ({ turn: 0, secret: 7 }),
      onMessage(state, { type, member }, ctx) {
        if (type === 'show') ctx.show(member, `member:${member.id}`)
        state.turn++
        state.secret++
      },
    })
    const bench = new RoomBench([safe], { revealFailures: true })
    const ann = await bench.join('safe', 'ann', { layers: false })
    await bench.say('safe', 'ann', 'turn', null, 1)
    await bench.say('safe', 'ann', 'show', null, 2)
    expect(ann.errors).toMatchObject([{ message: expect.stringContaining('has none that members can have') }])
    expect([ann.state, bench.describe('safe')!.state]).toEqual([{ turn: 1 }, { turn: 1, secret: 8 }])
    expect(ann.faults).toEqual([])
  })

  it('fail a turn that names one which the room type cannot have', async () => {
    const teams = defineRoom({
      type: 'teams',
      layers: { red: 'team:red', deck: null },
      messages: { show: { data: v.string() } },
      create: () => ({ red: {}, deck: [] }),
      onMessage: (_state, { data, member }, ctx) => ctx.show(member, data),
    })
    const bench = new RoomBench([teams], { revealFailures: true })
    const ann = await bench.join('teams', 'ann')
    for (const [i, layer] of ['team:red', 'member:bob', 'team:rde'].entries())
      await bench.say('teams', 'ann', 'show', layer, i + 1)
    await bench.advance(100)
    expect(ann.errors).toMatchObject([
      {
        message:
          'ctx.show got the layer "team:rde", which the room type teams does not have: there are team:red, member:<id> of each member',
      },
    ])
  })

  it.each([
    [
      'the name of no layer',
      'show',
      { to: 'bob', layer: 3 },
      /ctx\.show got the layer 3; names of layers are texts/,
    ],
    ['its own layer', 'hide', { from: 'bob', layer: 'member:bob' }, /of that member itself/],
    [
      'an array where a pattern runs through',
      'array',
      null,
      /plans is an array, and the pattern plans\.\* of layers runs through it/,
    ],
    [
      'a name that its function does not make',
      'plan',
      { name: 'bad', x: 1 },
      /layers\["plans\.\*"\] returned 7 for the keys \["bad"\]/,
    ],
  ])('fail a turn with %s, and nothing of it happens', async (_, type, data, message) => {
    const { bench, ann, say } = await table({ revealFailures: true })
    await bench.say('cards', 'ann', type, data as never, 1)
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', message: expect.stringMatching(message) }])
    await say('ann', 'turn')
    expect(ann.state).toEqual({ turn: 1, hands: {}, plans: {} })
    expect(ann.faults).toEqual([])
  })
})

describe('layer costs', () => {
  const ENTITIES = 300
  const MEMBERS = 300
  const SEEN = 60

  /** Fog of war: each member sees the entities near it. */
  const fog = defineRoom({
    type: 'fog',
    sync: { rate: 0 },
    layers: { 'entities.*': (id) => `entity:${id}` },
    messages: { move: { data: v.number() } },
    create: () => ({
      entities: Object.fromEntries(Array.from({ length: ENTITIES }, (_, i) => [`e${i}`, { x: i, y: 0 }])),
      joined: 0,
    }),
    onJoin(state, member, ctx) {
      const first = state.joined++
      for (let i = 0; i < SEEN; i++) ctx.show(member, `entity:e${(first + i) % ENTITIES}`)
    },
    onMessage(state, { data }) {
      for (let i = 0; i < data; i++) state.entities[`e${i}`]!.y++
    },
  })

  /** Number of encodings from now on. */
  function countEncodes() {
    const count = { encodes: 0 }
    const counting = <E extends object>(encoder: E): E => {
      const methods = encoder as { [name: string]: (...args: unknown[]) => unknown }
      for (const name of ['patch', 'whole', 'state', 'replay']) {
        const encode = methods[name]
        if (encode)
          methods[name] = (...args) => {
            count.encodes++
            return encode.apply(encoder, args)
          }
      }
      return encoder
    }
    const { layerEncoder, roomEncoder } = MsgpackCodec.prototype
    vi.spyOn(MsgpackCodec.prototype, 'layerEncoder').mockImplementation(function (this: MsgpackCodec) {
      return counting(layerEncoder.call(this))
    })
    vi.spyOn(MsgpackCodec.prototype, 'roomEncoder').mockImplementation(function (
      this: MsgpackCodec,
      ...args
    ) {
      return counting(roomEncoder.apply(this, args))
    })
    return count
  }

  it('300 members who see 60 of 300 entities each: a flush encodes what has changed once, and each member costs one write', async () => {
    const count = countEncodes()
    const bench = new RoomBench([fog])
    for (let i = 0; i < MEMBERS; i++) bench.askToJoin('fog', `m${i}`)
    await bench.untilIdle()
    for (const moved of [ENTITIES, 1, 0]) {
      count.encodes = 0
      bench.sent.length = 0
      await bench.say('fog', 'm0', 'move', moved)
      expect(count.encodes).toBe(moved === 0 ? 0 : moved + 1)
    }
    await bench.say('fog', 'm0', 'move', ENTITIES)
    const update = bench.sentOf('update').at(-1)!
    expect(update.layers!.members.map(({ own }) => own.length)).toEqual(Array(MEMBERS).fill(SEEN))
    expect([...bench.members.values()].flatMap(({ faults }) => faults)).toEqual([])

    const writes: Frame[] = []
    const outbox = {
      congested: false,
      write: (frame: Frame) => writes.push(frame),
      push: (frame: Frame) => writes.push(frame),
    }
    const connection = {
      codec: new MsgpackCodec(),
      outbox: { ...outbox, pushState: () => {} },
      address: () => {},
      send: () => {},
    }
    const flush = new FlushFrames(update.seq, update.patch!, update.rest, true, update.layers)
    for (const memberId of bench.members.keys()) {
      const session = { connection, subscriptions: new Map(), right: { turn: 0 } } as never
      const join = { kind: 'join' } as never
      const subscription = new Subscription(session, update.room, memberId, {} as never, 0, join)
      const joined = { member_id: memberId, request_id: 1, members: [], snapshot: {} }
      subscription.joined(joined, update.epoch, update.seq - 1)
      expect(subscription.flush(flush, update.epoch)).toBe('sent')
    }
    expect(writes.length).toBe(MEMBERS)
  })
})
