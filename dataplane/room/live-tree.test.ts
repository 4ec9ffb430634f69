import { describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { applyOperations } from '../../shared/protocol/testing/json-client-codec.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { apply, type Change, type Delta, REMOVE, Replace, toOperations } from '../../shared/sync/delta.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { type HiddenPattern, layersOf, visible } from '../../test/support/hidden-layers.ts'
import { runLength } from '../../test/support/run-length.ts'
import { type LayerRules, NOBODY } from './layer-rules.ts'
import { merged } from './layers.ts'
import { LiveState } from './state.ts'

const UNLIMITED = Number.POSITIVE_INFINITY

type Obj = { [key: string]: unknown }
type Container = Obj | unknown[]
const isContainer = (value: unknown): value is Container => typeof value === 'object' && value !== null

/** Does with a new value what a state of plain objects does: copies it, and keeps the parts that were in `old`, which it replaces. */
function putIn(value: unknown, old?: unknown): unknown {
  if (!isContainer(value)) return value
  if (Array.isArray(value)) {
    const kept = new Set(Array.isArray(old) ? old.filter(isContainer) : [])
    return value.map((element) => (kept.delete(element as Container) ? element : putIn(element)))
  }
  const before = isContainer(old) && !Array.isArray(old) ? old : {}
  return Object.fromEntries(
    Object.entries(value).map(([key, part]) => {
      const there = Object.hasOwn(before, key) ? before[key] : undefined
      return [key, isContainer(part) && part === there ? part : putIn(part, there)]
    }),
  )
}
/** The live live copies values itself. */
const asIs = (value: unknown): unknown => value

/** A turn of random steps on a live or plain state. The steps depend only on `random` and on the state. */
class Turn {
  readonly #random: SeededRandom
  readonly #put: typeof putIn
  readonly #held: Container[] = []
  root: unknown
  readonly seen: unknown[] = []
  /** An array with holes. The turn has ended with them. */
  holed: unknown[] | undefined

  constructor(root: unknown, seed: number, put: typeof putIn) {
    this.root = root
    this.#random = new SeededRandom(seed)
    this.#put = put
  }

  play(): void {
    for (let steps = this.#below(8); steps >= 0 && !this.holed; steps--) this.#step()
    if (this.#below(5) === 0) throw new Error('undone')
  }

  #below = (n: number): number => Math.floor(this.#random.float() * n)
  #pick = <T>(from: readonly T[]): T => from[this.#below(from.length)]!
  #key = (): string => this.#pick(['a', 'b', 'c', 'items', '1', '0', 'toString', 'ü'])

  #value(depth = 0): unknown {
    const kind = this.#below(depth > 2 ? 4 : 8)
    if (kind === 0) return this.#below(5)
    if (kind === 1) return this.#below(1000) / 7
    if (kind === 2) return this.#pick(['x', 'yy', '', 'é', 'long '.repeat(10)])
    if (kind === 3) return this.#pick([null, true, false])
    if (kind < 6) return Array.from({ length: this.#below(5) }, () => this.#value(depth + 1))
    return Object.fromEntries(
      Array.from({ length: this.#below(4) }, () => [this.#key(), this.#value(depth + 1)]),
    )
  }

  /** A container of the state, or one from earlier in the turn that may have left the state. */
  #some(): Container {
    let at = this.#held.length > 0 && this.#below(3) === 0 ? this.#pick(this.#held) : (this.root as Container)
    for (let steps = this.#below(4); steps > 0; steps--) {
      const below = Object.values(at).filter(isContainer)
      if (below.length === 0) break
      at = this.#pick(below)
    }
    this.#held.push(at)
    return at
  }

  #step(): void {
    const at = this.#some()
    if (Array.isArray(at)) this.#inArray(at)
    else this.#inObject(at)
  }

  #new = (): unknown => (this.#below(4) === 0 ? this.#some() : this.#value())

  #inObject(at: Obj): void {
    const keys = Object.keys(at)
    const key = keys.length > 0 && this.#below(3) > 0 ? this.#pick(keys) : this.#key()
    const now = Object.hasOwn(at, key) ? at[key] : undefined
    const assign = (value: unknown) => {
      if (value !== now || value === undefined) at[key] = this.#put(value, now)
    }
    switch (this.#below(10)) {
      case 0:
        delete at[key]
        break
      case 1:
        delete at[key]
        at[key] = this.#put(this.#value())
        break
      case 2:
        if (now !== undefined) at[key] = now
        break
      case 3:
        if (isContainer(now)) this.#held.push(now)
        if (Array.isArray(now)) assign(now.filter(() => this.#below(3) > 0))
        else if (isContainer(now)) assign({ ...now, [this.#key()]: this.#new() })
        break
      case 4:
        if (Array.isArray(now)) assign([...now, this.#new()])
        else if (isContainer(now))
          assign(Object.fromEntries(Object.entries(now).filter(() => this.#below(3) > 0)))
        break
      case 5: {
        const before = structuredCloneOf(now)
        assign(1)
        if (before !== undefined) at[key] = this.#put(before)
        break
      }
      case 6:
        this.seen.push(Object.keys(at), key in at, JSON.stringify(at))
        break
      case 7:
        if (typeof now === 'number') at[key] = now + 1
        break
      default:
        assign(this.#new())
    }
  }

  #inArray(at: unknown[]): void {
    const put = (value: unknown) => this.#put(value)
    const index = this.#below(at.length + 1)
    switch (this.#below(21)) {
      case 0:
      case 1:
        this.seen.push(at.push(put(this.#new()), ...(this.#below(2) ? [put(this.#new())] : [])))
        break
      case 2: {
        const taken = at.pop()
        if (isContainer(taken)) {
          this.#held.push(taken)
          if (!Array.isArray(taken)) taken.x = this.#below(9)
          if (this.#below(2)) at.unshift(put(taken))
        }
        break
      }
      case 3: {
        const taken = at.shift()
        if (isContainer(taken)) this.#held.push(taken)
        break
      }
      case 4:
        at.unshift(put(this.#new()))
        break
      case 5:
      case 6:
        this.seen.push(
          JSON.stringify(at.splice(index, this.#below(3), ...(this.#below(2) ? [put(this.#new())] : []))),
        )
        break
      case 7:
        at.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
        break
      case 8:
        at.reverse()
        break
      case 9: {
        const value = this.#new()
        const [from, to] = [index, index + this.#below(3)]
        if (this.#put === asIs) at.fill(value, from, to)
        else at.splice(from, Math.min(to, at.length) - from, ...at.slice(from, to).map(() => put(value)))
        break
      }
      case 10: {
        const to = this.#below(3)
        if (this.#put === asIs) at.copyWithin(to, index)
        else copyWithinOf(at, to, index)
        break
      }
      case 11:
        if (index < at.length) Object.assign(at, { [index]: at[index] })
        break
      case 12:
        at.length = index
        break
      case 13:
        if (isContainer(at[index]) && !Array.isArray(at[index]))
          at[index] = put({ ...at[index], n: this.#below(3) })
        break
      case 15:
      case 16:
        this.seen.push(JSON.stringify(this.#generic(at, index)))
        break
      case 17:
        this.#leaveHoles(at, index)
        break
      case 14: {
        const element = this.#pick(at)
        this.seen.push(
          at.includes(element),
          at.indexOf(element),
          at.lastIndexOf(element),
          JSON.stringify([...at]),
        )
        this.seen.push(
          at.map((one) => typeof one),
          at.at(-1) === at[at.length - 1],
          at.concat([1]).length,
        )
        break
      }
      default: {
        const value = this.#new()
        if (value !== at[index]) at[index] = put(value)
      }
    }
  }

  /** A method of `Array.prototype`, as libraries call it. In the live live, elements that it moves are copied. */
  #generic(at: unknown[], index: number): unknown {
    const before = [...at]
    const values = (most: number): unknown[] => Array.from({ length: this.#below(most) }, () => this.#value())
    const { splice, shift, pop, push, unshift, reverse, copyWithin, sort } = Array.prototype
    const calls: (() => unknown)[] = [
      () => splice.call(at, index, this.#below(4), ...values(4)),
      () => splice.call(at, index, this.#below(3)),
      () => shift.call(at),
      () => pop.call(at),
      () => push.call(at, ...values(3)),
      () => unshift.call(at, ...values(4)),
      () => reverse.call(at),
      () => copyWithin.call(at, this.#below(3), index),
      () => sort.call(at, (a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)),
    ]
    const returned = this.#pick(calls)()
    if (this.#put === putIn)
      for (const [i, element] of at.entries())
        if (isContainer(element) && element !== before[i]) at[i] = putIn(element)
    return returned
  }

  /** Leaves holes. Fills them, or ends the turn. */
  #leaveHoles(at: unknown[], index: number): void {
    const { length } = at
    const gap = 1 + this.#below(3)
    if (index < length) delete at[index]
    at[length + gap] = this.#value()
    this.seen.push(index in at, length in at, at.length, Object.keys(at), JSON.stringify(at))
    if (this.#below(4) === 0) {
      this.holed = at
      return
    }
    if (index < length) at[index] = this.#value()
    if (this.#below(2) === 0) at.push(this.#value())
    for (let i = length + gap - 1; i >= length; i--) at[i] = this.#value()
  }
}

const contains = (value: unknown, part: Container): boolean =>
  value === part || (isContainer(value) && Object.values(value).some((below) => contains(below, part)))

const structuredCloneOf = (value: unknown): unknown =>
  value === undefined ? undefined : JSON.parse(JSON.stringify(value))

function copyWithinOf(at: unknown[], to: number, from: number): void {
  const next = at.slice().copyWithin(to, from)
  const placed = new Set(next.filter((value, i) => value === at[i]))
  next.forEach((value, i) => {
    if (!isContainer(value) || value === at[i]) at[i] = value
    else if (placed.has(value)) at[i] = putIn(value)
    else {
      placed.add(value)
      at[i] = value
    }
  })
}

/** What a function returns for a key that gets no layer. */
const UNNAMED = '__proto__'

/** The layers of the random states: none, or patterns that run through objects of the states, and through some values that are none. */
const RULES: readonly (LayerRules | undefined)[] = [
  undefined,
  undefined,
  { 'a.*': (key) => (key < 'b' ? 'low' : 'high') },
  { 'a.b': 'red', c: null, items: 'list', 'b.*.a': (key) => `b:${key}` },
  { '*.b': (key) => key, '*.c.*': (one, other) => other + one, '*.items': null },
  {
    'a.*.a': (key) => key,
    'a.*.*.b': (key) => key,
    'b.c': 'red',
    'c.*': (key) => (key === '1' ? UNNAMED : key),
  },
  { '*': (key) => key },
]

const patternsOf = (rules: LayerRules): HiddenPattern[] =>
  Object.entries(rules).map(([pattern, rule]) => ({
    path: pattern.split('.'),
    layer: (...keys) => (typeof rule === 'function' ? rule(...keys) : rule),
  }))

/** Returns the paths of values that are no objects although a pattern runs through them, or whose layers have no name. */
function misfitsIn(
  state: unknown,
  patterns: readonly HiddenPattern[],
  path: readonly string[] = [],
): string[] {
  if (patterns.length === 0) return []
  if (!isContainer(state) || Array.isArray(state)) return [path.join('.')]
  return Object.entries(state).flatMap(([key, value]) => {
    const at = [...path, key]
    const matching = patterns.filter((one) => [key, '*'].includes(one.path[path.length]!))
    const end = matching.find((one) => one.path.length === at.length)
    if (!end) return misfitsIn(value, matching, at)
    return end.layer(...at.filter((_, i) => end.path[i] === '*')) === UNNAMED ? [at.join('.')] : []
  })
}

function thrownBy(run: () => void): string | undefined {
  try {
    run()
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/** What the members of a room have: the base, and each layer. */
class Copies {
  readonly #live: LiveState
  readonly #checksum = new Checksum()
  base: Json
  readonly layers = new Map<string, Json>()
  readonly deltas: { readonly delta: Delta; readonly text: string }[] = []

  constructor(live: LiveState) {
    this.#live = live
    this.base = structuredClone(live.base)
    for (const [layer, state] of Object.entries(live.hidden?.states ?? {}))
      this.layers.set(layer, structuredClone(state))
  }

  /** Applies a flush. Returns false if it has no changes. */
  flush(): boolean {
    const { checksum, hidden: layers } = this.#live
    const delta = this.#live.flush()
    const { changed, unseen } = layers?.flush() ?? { changed: [], unseen: undefined }
    if (delta) this.base = this.#applied(this.base, delta)
    else expect(this.#live.checksum).toBe(checksum)
    for (const { layer, change, checksum: sum } of changed) {
      expect(change instanceof Replace).toBe(!this.layers.has(layer))
      this.#put(layer, change)
      const state = this.layers.get(layer)
      expect(sum).toBe(state === undefined ? 0 : this.#checksum.of(state))
      expect(layers?.of(layer)?.state).toEqual(state)
    }
    if (unseen) this.#put(NOBODY, unseen)
    return delta !== undefined || changed.length > 0 || unseen !== undefined
  }

  #applied(state: Json, delta: Delta): Json {
    const operations = toOperations(delta)
    this.deltas.push({ delta, text: JSON.stringify(operations) })
    const applied = apply(state, delta)
    expect(applyOperations(state, operations)).toEqual(applied)
    return applied
  }

  #put(layer: string, change: Change): void {
    if (change === REMOVE) expect(this.layers.delete(layer)).toBe(true)
    else this.layers.set(layer, this.#applied(this.layers.get(layer) ?? {}, change))
  }
}

function history(seed: number): void {
  const random = new SeededRandom(seed)
  // Similar seeds have similar first numbers.
  random.bytes(16)
  const below = (n: number) => Math.floor(random.float() * n)
  let model: unknown = {
    a: { b: [1, { c: 2 }, [3]], items: [{ x: 1 }, { x: 2 }, { x: 3 }, { x: 4 }] },
    items: [],
    c: 'd',
  }
  if (below(6) === 0) model = [{ a: 1 }, { b: [] }, 'c']
  const rules = Array.isArray(model) ? undefined : RULES[seed % RULES.length]
  const live = new LiveState(model as Json, UNLIMITED, rules)
  const patterns = patternsOf(rules ?? {})
  const copies = new Copies(live)
  const expectFlushed = () => {
    const unseen = copies.layers.get(NOBODY)
    const named = new Map([...copies.layers].filter(([layer]) => layer !== NOBODY))
    const expected = layersOf(model as Json, patterns)
    expected.delete(UNNAMED)
    expect(copies.base).toEqual(visible(model as Json, patterns, () => false))
    expect(named).toEqual(expected)
    expect(merged(copies.base, copies.layers.values())).toEqual(model)
    expect(live.base).toEqual(copies.base)
    expect(live.hidden?.states ?? {}).toEqual(Object.fromEntries(copies.layers))
    expect(live.checksum).toBe(new Checksum().of(copies.base))
    if (live.hidden)
      expect(live.hidden.checksum).toBe(new Checksum().of(Object.fromEntries(copies.layers) as Json))
    expect(unseen === undefined || Object.keys(unseen as Obj).length > 0).toBe(true)
  }
  expectFlushed()
  for (let turn = 0; turn < 12; turn++) {
    const before = JSON.stringify(model)
    const [bytes, dirty] = [live.bytes, live.dirty]
    const turnSeed = below(2 ** 31)
    const plain = new Turn(model, turnSeed, putIn)
    const viewed = new Turn(live.begin(), turnSeed, asIs as typeof putIn)
    const thrown = [plain, viewed].map((one) => thrownBy(() => one.play()))
    expect(thrown[1]).toBe(thrown[0])
    if (thrown[0] === undefined && plain.holed && contains(model, plain.holed)) {
      expect(() => live.commit()).toThrow(/ hole /)
      thrown[0] = 'hole'
    }
    expect(viewed.seen).toEqual(plain.seen)
    if (thrown[0] === undefined && below(6) === 0) {
      const instead = { a: 1, items: [], ...(model as object) }
      const { root } = viewed
      live.replace({ a: 1, items: [], ...(root as object) })
      model = putIn(instead, model)
    }
    if (thrown[0] === undefined) {
      const misfits = misfitsIn(model, patterns)
      thrown[0] = thrownBy(() => live.commit())
      // Values that did not fit at the beginning may stay.
      if (thrown[0] === undefined)
        expect(misfitsIn(JSON.parse(before), patterns)).toEqual(expect.arrayContaining(misfits))
      else expect(misfits).not.toEqual([])
    }
    if (thrown[0] !== undefined) {
      live.undo()
      model = JSON.parse(before)
      expect([live.bytes, live.dirty]).toEqual([bytes, dirty])
      if (!dirty) expect(copies.flush()).toBe(false)
    }
    expect(JSON.stringify(live.plain())).toBe(JSON.stringify(model))
    if (below(3) === 0) {
      copies.flush()
      expectFlushed()
      expect(live.bytes).toBe(new LiveState(model, UNLIMITED).bytes)
      expect(live.dirty).toBe(false)
      expect(copies.flush()).toBe(false)
    }
  }
  for (const { delta, text } of copies.deltas) expect(JSON.stringify(toOperations(delta))).toBe(text)
}

describe('the live state', () => {
  it('compares with the patterns of layers only what is in the state when the turn ends', () => {
    const live = new LiveState({ hands: { ann: [1] } }, UNLIMITED, { 'hands.*.*': null })
    const state = live.begin() as { hands: Obj }
    expect(() => live.commit()).not.toThrow()
    live.begin()
    const { hands } = state
    hands.ann = 'no object'
    expect(() => live.commit()).toThrow('hands.ann is a string')
    state.hands = { ann: {} }
    hands.ann = 'no object'
    expect(() => live.commit()).not.toThrow()
  })

  it('equals a state of plain objects, split into base and layers, with deltas, checksums and size, after random histories', () => {
    for (let seed = 1; seed <= runLength(150, 3_000); seed++)
      try {
        history(seed)
      } catch (error) {
        throw new Error(`the history of seed ${seed}`, { cause: error })
      }
  })
})

type Card = { x: number }
const game = () => ({
  players: { ann: { x: 1, y: 2, bag: ['rope'] }, bob: { x: 3, y: 4, bag: [] } },
  deck: [{ x: 1 }, { x: 2 }, { x: 3 }] as Card[],
  hand: [] as Card[],
  n: 1,
})
type Game = ReturnType<typeof game>

/** A state of that game after these turns. */
function played(...turns: ((state: Game) => unknown)[]): { live: LiveState; state: Game } {
  const live = new LiveState(game(), UNLIMITED)
  for (const turn of turns) {
    turn(live.begin() as Game)
    live.commit()
  }
  return { live, state: live.plain() as Game }
}

describe('a view', () => {
  it('exists once for each container, and behaves as an array or object does', () => {
    played((state) => {
      expect(state.players).toBe(state.players)
      const [first] = state.deck
      expect([state.deck.includes(first!), state.deck.indexOf(first!), Array.isArray(state.deck)]).toEqual([
        true,
        0,
        true,
      ])
      expect({ ...state.players.ann, bag: [...state.players.ann.bag] }).toEqual(game().players.ann)
      expect(Object.entries(state.players.ann)).toHaveLength(3)
      expect(state.deck.map(({ x }) => x)).toEqual([1, 2, 3])
      expect(JSON.stringify(state)).toBe(JSON.stringify(game()))
      expect(Object.getOwnPropertyDescriptor(state, 'deck')?.value).toBe(state.deck)
      expect(() => structuredClone(state)).toThrow(/could not be cloned/)
    })
  })

  it.each<[what: string, write: (state: Game) => unknown, message: RegExp]>([
    ['undefined', (s) => Object.assign(s.players.ann, { x: undefined }), /\/players\/ann\/x is undefined/],
    ['NaN', (s) => Object.assign(s, { n: Number.NaN }), /\/n is NaN/],
    [
      'what is no JSON deep inside',
      (s) => s.deck.push({ x: [new Map()] } as never),
      /\/deck\/3\/x\/0 is a Map/,
    ],
    [
      'half a surrogate pair',
      (s) => s.players.ann.bag.push('\ud83c'),
      /\/players\/ann\/bag\/1 is a string with half/,
    ],
    ['a bad key', (s) => Object.assign(s, JSON.parse('{"a":{"__proto__":1}}')), /\/a has the key __proto__/],
    ['__proto__', (s) => Reflect.set(s, '__proto__', 1), /has the key __proto__/],
    ['a symbol as a key', (s) => Object.assign(s, { [Symbol('s')]: 1 }), /symbol as a key/],
    ['a far element', (s) => Object.assign(s.deck, { 20000: { x: 1 } }), /\/deck\/20000 would leave a hole/],
    ['a longer length', (s) => Object.assign(s.deck, { length: 9 }), /\/deck cannot have the length 9/],
    ['a name in an array', (s) => Object.assign(s.deck, { name: 1 }), /\/deck has the key name/],
    [
      'what contains itself',
      (s) => Object.assign(s, { a: cyclic }),
      /lies deeper than 64 levels, or contains itself/,
    ],
    ['a property that is defined', (s) => Object.defineProperty(s, 'a', { value: 1 }), /assign to them/],
    ['a freeze', (s) => Object.freeze(s), /cannot be frozen/],
    ['a prototype', (s) => Object.setPrototypeOf(s, null), /another prototype/],
  ])('rejects %s immediately, and the turn can continue', (_what, write, message) => {
    const { state } = played((draft) => {
      expect(() => write(draft)).toThrow(message)
      draft.n++
    })
    expect(state).toEqual({ ...game(), n: 2 })
  })
})

describe('a hole in an array', () => {
  it.each<[what: string, write: (state: Game) => unknown, message: RegExp]>([
    ['behind the end', (s) => Object.assign(s.deck, { 5: { x: 1 } }), /\/deck\/5 would leave a hole/],
    ['of a deleted element', (s) => delete s.deck[0], /\/deck would have a hole at 0/],
    [
      'in an array that moved since',
      (s) => delete s.players.ann.bag[0] && Object.assign(s, { players: { ...s.players } }),
      /\/players\/ann\/bag would have a hole at 0/,
    ],
  ])('%s fails the turn at its end, with the place of the write', (_what, write, message) => {
    const live = new LiveState(game(), UNLIMITED)
    write(live.begin() as Game)
    let thrown: unknown
    try {
      live.commit()
    } catch (error) {
      thrown = error
    }
    expect(String(thrown)).toMatch(message)
    expect((thrown as Error).stack).toMatch(/live-tree\.test\.ts/)
    live.undo()
    expect(live.plain()).toEqual(game())
  })

  it('is allowed until the end of the turn, and in an array that has left the state', () => {
    const { state } = played(
      (draft) => {
        Array.prototype.unshift.call(draft.deck, { x: 8 }, { x: 9 })
        expect(Array.prototype.splice.call(draft.deck, 1, 2)).toEqual([{ x: 9 }, { x: 1 }])
      },
      (draft) => {
        const { bag } = draft.players.ann
        draft.players.ann.bag = []
        delete bag[0]
      },
    )
    expect(state.deck).toEqual([{ x: 8 }, { x: 2 }, { x: 3 }])
  })

  it('is rejected immediately if it is the 10,001st of a turn behind the ends of arrays', () => {
    const live = new LiveState({ rows: [[], []] }, UNLIMITED)
    const write = (row: number, index: number) => () =>
      Object.assign((live.begin() as { rows: object[] }).rows[row]!, { [index]: 1 })
    write(0, 6000)()
    expect(write(1, 6000)).toThrow('/rows/1/6000 would leave a hole')
    expect(write(1, 4000)).not.toThrow()
    expect(write(0, 6002)).toThrow('/rows/0/6002 would leave a hole')
    live.undo()
    expect(write(1, 6000)).not.toThrow()
  })

  it('that was filled does not hide a later one, whose place the error names', () => {
    const live = new LiveState(game(), UNLIMITED)
    const { deck } = live.begin() as Game
    delete deck[0]
    deck[0] = { x: 7 }
    delete deck[1]
    expect(() => live.commit()).toThrow(/hole at 1/)
    live.undo()
  })
})

describe('a value that is changed after it was put into the state', () => {
  type Item = { x: number }
  type Bags = { deck: Item[]; bags: Record<string, { x: number; items: Item[] }>; log?: number[] }
  const ended = (turn: (state: Bags) => unknown): (() => Bags) => {
    const live = new LiveState({ deck: [{ x: 1 }, { x: 2 }], bags: { ann: { x: 0, items: [] } } }, UNLIMITED)
    turn(live.begin() as Bags)
    return () => {
      live.commit()
      return live.plain() as Bags
    }
  }
  const fresh = () => ({ x: 1, items: [] as Item[] })

  it.each<[what: string, turn: (state: Bags) => unknown, at: string]>([
    [
      'an array',
      (s) => {
        // biome-ignore lint/suspicious/noAssignInExpressions: this is the mistake.
        const log = (s.log ??= [])
        log.push(1)
      },
      'array at /log',
    ],
    [
      'an object',
      (s) => {
        const bag = fresh()
        s.bags.bob = bag
        s.bags.bob.items.push({ x: 3 })
        bag.x += 1
      },
      'object at /bags/bob',
    ],
    [
      'an array in it',
      (s) => {
        const bag = fresh()
        s.bags.bob = bag
        s.bags.bob.x = 2
        bag.items.push({ x: 3 })
      },
      'object at /bags/bob',
    ],
    [
      'an element',
      (s) => {
        const card = { x: 7 }
        s.deck.push(card)
        s.deck.shift()
        card.x = 8
      },
      'object at /deck/1',
    ],
  ])('fails the turn: %s', (_, turn, at) => {
    expect(ended(turn)).toThrow(`the ${at} was changed after it was put into the state`)
  })

  it('is allowed if the value is put in again, or if the last copy has left the state', () => {
    const state = ended((s) => {
      const card = { x: 7 }
      s.bags.bob = { ...s.bags.ann!, x: 3 }
      s.bags.ann!.items.push({ x: 5 })
      s.bags.bob.x = 4
      for (const bag of Object.values(s.bags)) {
        card.x += 1
        bag.items.push(card)
      }
      const gone = fresh()
      s.bags.eve = gone
      delete s.bags.eve
      gone.x = 2
      s.bags.zoe = gone
      gone.x = 3
      s.deck.push(gone)
      s.deck.pop()
    })()
    expect(state.bags).toEqual({
      ann: { x: 0, items: [{ x: 5 }, { x: 8 }] },
      bob: { x: 4, items: [{ x: 9 }] },
      zoe: { x: 2, items: [] },
    })
  })
})

const cyclic: { self?: object } = {}
cyclic.self = cyclic

describe('an array or object that was replaced', () => {
  const change = (state: Game) => {
    state.deck.at(-1)!.x = 9
    state.players.ann.x = 9
  }
  const replace = (state: Game): Game => {
    const { deck, players } = state
    state.deck = deck.slice(1)
    state.players = { ...players }
    return { ...state, deck, players }
  }
  const flushedAfter = ({ live }: { live: LiveState }): Json => {
    live.flush()
    change(live.begin() as Game)
    live.commit()
    live.flush()
    return live.base
  }
  /** A game whose parts were replaced, after another turn that has used the earlier parts and failed. */
  const undone = (turn: (old: Game, state: Game) => unknown) => {
    let old = {} as Game
    const { live } = played((state) => {
      old = replace(state)
    })
    turn(old, live.begin() as Game)
    live.undo()
    return { live }
  }
  const expected = (): Game => {
    const state = game()
    state.deck.shift()
    change(state)
    return state
  }

  it.each<[how: string, write: (old: Game) => unknown]>([
    ['reversed', ({ deck }) => deck.reverse()],
    ['sorted', ({ deck }) => deck.sort((a, b) => b.x - a.x)],
    ['moved in itself', ({ deck }) => deck.copyWithin(0, 1)],
    ['emptied', ({ deck }) => deck.splice(0)],
    ['overwritten', ({ deck, players }) => Object.assign(players, { ann: 1 }) && deck.fill({ x: 0 })],
  ])('does not take back the parts that its successor kept, when it is %s', (_, write) => {
    expect(flushedAfter(played((state) => write(replace(state))))).toEqual(expected())
    expect(flushedAfter(undone((old) => write(old)))).toEqual(expected())
  })

  it('does not take back a part that its successor lost in a turn that fails', () => {
    const turn = (old: Game, state: Game) => state.deck.pop() && old.deck.reverse()
    expect(flushedAfter(undone(turn))).toEqual(expected())
  })
})

describe('a flush', () => {
  it('omits writes to a view of a removed object, and contains all others', () => {
    const live = new LiveState({ a: { x: 0, y: 0 }, b: { x: 0, y: 0 } }, UNLIMITED)
    let out: Record<string, number> = {}
    const flushed = (turn: (state: Record<string, Record<string, number>>) => void) => {
      turn(live.begin() as Record<string, Record<string, number>>)
      live.commit()
      const delta = live.flush()
      return delta && toOperations(delta).map(({ op, path }) => `${op} ${path}`)
    }
    const first = flushed((state) => {
      out = state.a!
      out.x = 1
      delete state.a
    })
    expect(first).toEqual(['remove /a'])
    const second = flushed(({ b }) => {
      b!.x = 1
      out.x = 2
      b!.y = 1
      out.y = 2
    })
    expect(second).toEqual(['replace /b'])
    expect(flushed(() => (out.x = 3))).toBeUndefined()
  })

  it('replaces an object in JSON only if all its entries have changed, and at least two', () => {
    const live = new LiveState({ a: { x: 0, y: 0 }, b: { x: 0, y: 0, z: 0 }, c: { x: 0 } }, UNLIMITED)
    const flushed = (turn: (state: Record<string, Record<string, number>>) => void) => {
      turn(live.begin() as Record<string, Record<string, number>>)
      live.commit()
      return toOperations(live.flush()!).map(({ op, path, ...rest }) => [op, path, ...Object.values(rest)])
    }
    const move = (object: object, to: object) => void Object.assign(object, to)
    expect(
      flushed(({ a, b, c }) => [move(a!, { x: 1, y: 1 }), move(b!, { x: 1, y: 1 }), move(c!, { x: 1 })]),
    ).toEqual([
      ['replace', '/a', { x: 1, y: 1 }],
      ['replace', '/b/x', 1],
      ['replace', '/b/y', 1],
      ['replace', '/c/x', 1],
    ])
    expect(flushed(({ b }) => delete b!.z && move(b!, { x: 2, y: 2 }))).toEqual([
      ['remove', '/b/z'],
      ['replace', '/b/x', 2],
      ['replace', '/b/y', 2],
    ])
    expect(flushed(({ b }) => move(b!, { y: 3, x: 3 }))).toEqual([['replace', '/b', { y: 3, x: 3 }]])
    const all = flushed(({ a, b, c }) => [
      move(a!, { x: 4, y: 4 }),
      move(b!, { x: 4, y: 4 }),
      move(c!, { x: 4 }),
    ])
    expect(all).toEqual([['replace', '', { a: { x: 4, y: 4 }, b: { x: 4, y: 4 }, c: { x: 4 } }]])
  })

  it('contains the removal of filtered elements, and the changes of the others', () => {
    const { live } = played((state) => {
      state.deck = state.deck.filter(({ x }) => x !== 2)
      state.deck[1]!.x = 9
    })
    expect(toOperations(live.flush()!)).toEqual([
      { op: 'replace', path: '/deck/2/x', value: 9 },
      { op: 'remove', path: '/deck/1' },
    ])
  })

  it('contains the changes between an object and the one that replaces it', () => {
    const { live } = played((state) => {
      state.players.ann = { x: 1, y: 5, bag: ['rope'] }
    })
    expect(toOperations(live.flush()!)).toEqual([{ op: 'replace', path: '/players/ann/y', value: 5 }])
  })
})
