import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Json, JsonObject } from '../shared/json.ts'
import {
  type LayerEncoder,
  LayerNumbers,
  type LayerPart,
  type Payload,
  type RoomEncoder,
} from '../shared/protocol/codec.ts'
import type { ClientMessage } from '../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../shared/sync/checksum.ts'
import { diff } from '../shared/sync/testing/diff.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { type HiddenPattern, layersOf, visible } from '../test/support/hidden-layers.ts'
import { edit, edited } from '../test/support/json-arbitrary.ts'
import { merge } from './layers.ts'
import { Replica, type RoomFrame } from './replica.ts'
import { newCounters } from './stats.ts'

const ROOM = 'duel:one'
const PATTERNS: readonly HiddenPattern[] = [
  { path: ['hands', '*'], layer: (id) => `member:${id}` },
  { path: ['players', '*', 'hand'], layer: (id) => `member:${id}` },
  { path: ['deck'], layer: () => null },
  { path: ['secret', 'plan'], layer: () => 'team:red' },
]
const STATE: Json = {
  turn: 1,
  hands: { a: [1, 2], b: [3, 4] },
  players: { a: { x: 1, hand: { cards: [1] } }, b: { x: 2, hand: [] }, c: { x: 3 } },
  deck: [5, 6, 7],
  secret: { plan: { where: 'left' }, known: true },
}
const MINE = 'member:a'
const OTHERS = ['member:b', 'member:c', 'team:red']

/** Change of one state in one flush, and its encoding if a member had the state. */
interface Change {
  readonly from: Json
  readonly to: Json
  readonly payload: Payload | undefined
}

interface Flush {
  readonly at: { readonly room_id: string; readonly epoch: number; readonly seq: number }
  readonly base: Change
  readonly layers: ReadonlyMap<string, Change>
}

const part = (layer: string, payload: Payload | null): LayerPart => ({
  layer,
  change: payload && { 'roomful.v1.msgpack': payload },
})

/** A room that encodes its frames for one member, as an owner does, and that member's copy of the room. */
class HiddenRoom {
  readonly asked: ClientMessage[] = []
  readonly seen: [state: Json, previous: Json][] = []
  readonly clock = new FakeClock()
  readonly replica: Replica
  readonly granted = new Set<string>([MINE])
  state: Json
  epoch = 1000
  seq = 7
  online = true
  readonly #codec = new MsgpackCodec()
  readonly #client = new MsgpackClientCodec(ROOM)
  #base: RoomEncoder = this.#codec.roomEncoder(true)
  #numbers = new LayerNumbers()
  #encoders = new Map<string, LayerEncoder>()
  #history: Flush[] = []
  /** Layers that the member has had without a break since the connection was lost. */
  #throughout = new Set<string>()

  constructor(state: Json = STATE) {
    this.state = state
    this.replica = new Replica({
      roomId: ROOM,
      counters: newCounters(),
      decodeStates: true,
      report: (error) => {
        throw error
      },
      send: (message) => this.asked.push(message),
    })
    this.replica.restart()
    this.deliver(this.whole('snapshot'))
    this.replica.onState.add((now, previous) => this.seen.push([now, previous]))
  }

  /** The state that the member may see. */
  get visible(): Json {
    return visible(this.state, PATTERNS, (layer) => layer !== null && this.granted.has(layer))
  }

  deliver(...payloads: readonly Payload[]): void {
    for (const payload of payloads) this.replica.receive(this.#client.decode(payload) as RoomFrame)
  }

  /** Decodes frames and drops them, as if they were lost after the codec. */
  drop(...payloads: readonly Payload[]): void {
    for (const payload of payloads) this.#client.decode(payload)
  }

  /** Returns a complete state for the member, with its layers. */
  whole(kind: 'snapshot' | 'resync'): Payload {
    const base = this.#basis(this.state)
    const head = { ...this.#at, checksum: new Checksum().of(base), state: base }
    const whole = this.#base.whole(`state.${kind}`, head, [])
    this.#numbers.restart()
    return this.#completed(
      whole,
      [...this.granted].map((layer) => this.#wholeLayer(layer)),
    )
  }

  #wholeLayer(layer: string): LayerPart {
    const state = this.hidden(layer)
    return part(layer, this.#encoder(layer).state({ checksum: new Checksum().of(state), state }))
  }

  #completed(frame: Payload, layers: readonly LayerPart[]): Payload {
    return Buffer.concat([frame, this.#codec.ending(layers, this.#numbers)])
  }

  hidden(layer: string): JsonObject {
    return layersOf(this.state, PATTERNS).get(layer) ?? {}
  }

  /** Makes the next flush and returns the member's frame. `wrong`: the patch of this layer gets a wrong checksum. */
  flush(next: Json, { show, hide, wrong }: { show?: string; hide?: string; wrong?: string } = {}): Payload {
    const [before, after] = [layersOf(this.state, PATTERNS), layersOf(next, PATTERNS)]
    const from = this.#basis(this.state)
    this.state = next
    this.seq += 1
    const to = this.#basis(next)
    const at = this.#at
    const payload = this.#base.patch({ ...at, checksum: new Checksum().of(to) }, diff(from, to))
    const layers = new Map<string, Change>()
    for (const layer of new Set([...before.keys(), ...after.keys()])) {
      const change = { from: before.get(layer) ?? {}, to: after.get(layer) ?? {} }
      const delta = diff(change.from, change.to)
      if (!delta) continue
      const checksum = new Checksum().of(change.to) ^ (layer === wrong ? 1 : 0)
      const encoder = this.#encoders.get(layer)
      encoder?.stateChanged(change.to)
      layers.set(layer, { ...change, payload: encoder?.patch(checksum >>> 0, delta) })
    }
    const flush = { at, base: { from, to, payload }, layers }
    this.#history.push(flush)
    const kept = [...this.granted].filter((layer) => layer !== hide)
    if (show) this.granted.add(show)
    if (hide) this.granted.delete(hide)
    if (hide) this.#throughout.delete(hide)
    return this.#completed(payload, [
      ...this.#changes(flush, kept),
      ...(show ? [this.#wholeLayer(show)] : []),
      ...(hide ? [part(hide, null)] : []),
    ])
  }

  lose(): void {
    this.online = false
    this.#throughout = new Set(this.granted)
  }

  resume(): void {
    this.online = true
    this.#numbers = new LayerNumbers()
    const have = this.replica.position!.seq
    const missed = this.#history.filter(({ at }) => at.seq > have)
    for (const flush of missed) {
      const own = this.#changes(flush, [...this.#throughout])
      // The last one has the layers that the member got and lost since then.
      for (const layer of flush === missed.at(-1) ? [MINE, ...OTHERS] : [])
        if (!this.granted.has(layer)) own.push(part(layer, null))
        else if (!this.#throughout.has(layer)) own.push(this.#wholeLayer(layer))
      const { at, base } = flush
      const sent = base.payload && at.epoch === this.epoch
      const { from, to } = base
      const patch = sent
        ? base.payload
        : this.#base.replay({ ...at, checksum: new Checksum().of(to) }, diff(from, to))
      this.deliver(this.#completed(patch, own))
    }
  }

  /** Another node takes the room over. */
  move(): void {
    this.epoch += 1
    this.#base = this.#codec.roomEncoder(true)
    this.#encoders = new Map()
  }

  /** Returns the changes of layers in a flush for a member that has them. What this owner has not encoded is encoded without key tables. */
  #changes({ at, layers }: Flush, held: readonly string[]): LayerPart[] {
    return held.flatMap((layer) => {
      const change = layers.get(layer)
      if (!change) return []
      const { from, to, payload } = change
      if (payload && at.epoch === this.epoch) return [part(layer, payload)]
      return [part(layer, this.#encoder(layer).replay(new Checksum().of(to), diff(from, to)!))]
    })
  }

  #encoder(layer: string): LayerEncoder {
    const encoder = this.#encoders.get(layer) ?? this.#codec.layerEncoder()
    this.#encoders.set(layer, encoder)
    return encoder
  }

  #basis(state: Json): Json {
    return visible(state, PATTERNS, () => false)
  }

  get #at() {
    return { room_id: ROOM, epoch: this.epoch, seq: this.seq }
  }
}

const put = (state: Json, change: JsonObject): Json => ({ ...(state as JsonObject), ...change })

type Step =
  | { do: 'edit'; edits: Parameters<typeof edited>[1][] }
  | { do: 'toggle'; layer: number }
  | { do: 'lose' | 'resume' | 'move' | 'miss' | 'wrong' }
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('edit' as const),
      edits: fc.array(edit(), { minLength: 1, maxLength: 3 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('toggle' as const), layer: fc.nat(2) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom(
        'lose' as const,
        'resume' as const,
        'move' as const,
        'miss' as const,
        'wrong' as const,
      ),
    }),
  },
)

/** Expects that equal parts are the same object, down to the first array. */
function expectShared(before: Json, after: Json): void {
  if (typeof before !== 'object' || typeof after !== 'object' || before === null || after === null) return
  if (isDeepStrictEqual(before, after)) expect(after).toBe(before)
  else if (!Array.isArray(before) && !Array.isArray(after))
    for (const [key, value] of Object.entries(after as JsonObject))
      if (Object.hasOwn(before, key)) expectShared((before as JsonObject)[key]!, value)
}

test('after random edits, grants, losses and moves, the state is what the member may see, and unchanged parts are the same objects', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const room = new HiddenRoom()
      const flush = (next: Json, options: Parameters<HiddenRoom['flush']>[1], arrives = true) => {
        const before = room.replica.state
        const calls = room.seen.length
        const frame = room.flush(next, options)
        if (!room.online) return
        if (arrives) room.deliver(frame)
        if (arrives && !options?.wrong) {
          expectShared(before, room.replica.state)
          expect(room.seen.length - calls).toBe(room.replica.state === before ? 0 : 1)
          expect(room.asked).toEqual([])
          return
        }
        // The next flush reveals the gap.
        if (!arrives) room.drop(frame)
        if (!arrives) room.deliver(room.flush(room.state))
        if (room.asked.length > 0) expect(room.replica.state).toBe(before)
        if (room.asked.length > 0) room.deliver(room.whole('resync'))
        room.asked.length = 0
      }
      const someEdit = (i: number) => put(room.state, { turn: i, hands: { a: [i], b: [i, i] } })
      for (const [i, one] of steps.entries()) {
        const toggle = (layer: string) => (room.granted.has(layer) ? { hide: layer } : { show: layer })
        if (one.do === 'edit') flush(one.edits.reduce(edited, room.state), {})
        else if (one.do === 'toggle') flush(room.state, toggle(OTHERS[one.layer]!))
        else if (one.do === 'miss') flush(someEdit(i + 100), toggle(OTHERS[i % 3]!), false)
        else if (one.do === 'wrong' && room.online) flush(someEdit(i + 100), { wrong: MINE })
        else if (one.do === 'move') room.move()
        else if (one.do === 'lose' && room.online) room.lose()
        else if (one.do === 'resume' && !room.online) room.resume()
        if (room.online) expect(room.replica.state).toEqual(room.visible)
      }
      if (!room.online) room.resume()
      expect(room.replica.state).toEqual(room.visible)
      expect(room.asked).toEqual([])
    }),
    { numRuns: 300 },
  )
})

describe('base and layers merged', () => {
  test('the base wins unless both values are objects', () => {
    expect(merge({ a: 1, b: { c: [1] } }, [{ a: { x: 1 }, b: { c: { d: 1 }, e: 2 } }]).state).toEqual({
      a: 1,
      b: { c: [1], e: 2 },
    })
    expect(merge([1], [{ a: 1 }]).state).toEqual([1])
  })

  test('a merge reads only the objects on the paths to hidden values, neither the rest of the base nor the hidden content', () => {
    const read: string[] = []
    const watched = (name: string, value: Json): Json =>
      new Proxy(value as object, {
        ownKeys: (target) => {
          read.push(name)
          return Reflect.ownKeys(target)
        },
      }) as Json
    const cells = watched('cells', { x: { y: 1 } })
    const [b, c] = [{ b: watched('the hand of b', [1]) }, { c: watched('the hand of c', { x: 1 }) }]
    const map = watched('the map', { far: 1 })
    const layers = [{ hands: b }, { hands: c, cells: { x: { z: 2 } } }]
    const first = merge({ turn: 1, hands: {}, cells, map }, layers)
    expect(first.state).toMatchObject({ turn: 1, hands: { ...b, ...c }, cells: { x: { y: 1, z: 2 } } })
    read.length = 0
    const second = merge({ turn: 2, hands: {}, cells, map }, layers, first)
    const third = merge(
      second.base,
      [{ hands: { b: 2 } }, { hands: c, cells: (layers[1] as JsonObject).cells! }],
      second,
    )
    expect(read).toEqual([])
    expect((third.state as JsonObject).cells).toBe((first.state as JsonObject).cells)
    expect((third.state as JsonObject).hands).toEqual({ b: 2, ...c })
  })
})
