import { inspect, isDeepStrictEqual } from 'node:util'
import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { closeBuiltins } from './builtins.ts'
import { defineRoom } from './definition.ts'
import { readOnlyView } from './guarded.ts'

// In this process, as in a node.
closeBuiltins()

/** Every name that clients can send and that objects, arrays and functions of JavaScript have. */
const NAMES = [
  ...new Set(
    [Object, Array, Function].flatMap(({ prototype }) => [
      ...Object.getOwnPropertyNames(prototype),
      ...Object.getOwnPropertyNames(prototype.constructor),
    ]),
  ),
  '__proto__',
]

/** Objects that the whole process shares, with their functions, and every property of each. */
function sharedProperties(): Map<object, PropertyDescriptorMap> {
  const found = new Map<object, PropertyDescriptorMap>()
  const visit = (value: unknown): void => {
    if ((typeof value !== 'object' && typeof value !== 'function') || value === null || found.has(value))
      return
    found.set(value, Object.getOwnPropertyDescriptors(value))
    for (const { value: part, get, set } of Object.values(found.get(value)!)) {
      visit(part)
      visit(get)
      visit(set)
    }
    visit(Object.getPrototypeOf(value))
  }
  for (const root of [Object, Array, Function]) visit(root)
  return found
}

/** Returns the names of added, removed and changed properties. */
function changesSince(before: Map<object, PropertyDescriptorMap>): string[] {
  const changed: string[] = []
  for (const [object, properties] of before) {
    for (const name of new Set([...Reflect.ownKeys(object), ...Reflect.ownKeys(properties)])) {
      const was = properties[name as string]
      const is = Object.getOwnPropertyDescriptor(object, name)
      if (was && is && (['value', 'get', 'set'] as const).every((part) => was[part] === is[part])) continue
      changed.push(String(name))
    }
  }
  return changed
}

/** Indexes a value by names from clients, as room code may do. Each failure is caught separately. */
function misuse(value: unknown, [first, second]: readonly [string, string]): unknown[] {
  // biome-ignore lint/suspicious/noExplicitAny: as in a room without types
  const root = value as any
  // Strings and numbers have their usual properties.
  const part = () => (Object(root[first]) === root[first] ? root[first] : undefined)
  const misuses = [
    () => root[first],
    () => part()[second],
    () => `${root[first]}`,
    () => (root[first] ?? 0) + 1,
    () => first in root && part()[second],
    () => root[first](second),
    () => root[first](() => second),
    () => {
      root[first] = (root[first] ?? 0) + 1
    },
    () => {
      part().x = 1
    },
    () => {
      part()[second] = 1
    },
    () => {
      part()[second] = { x: 1 }
    },
    () => {
      part()[second].x = 1
    },
    () => {
      part()[second][first] = { x: 1 }
    },
    () => {
      // biome-ignore lint/suspicious/noExplicitAny: as in a room without types
      ;(Object.values(root) as any)[first][second] = 1
    },
    () => Object.assign(part(), { x: 1 }),
    () => Reflect.set(Object.getPrototypeOf(root), first, 1),
    () => Reflect.set(Object.getPrototypeOf(root)[first], second, 1),
    () => Reflect.deleteProperty(root, first),
    () => Reflect.deleteProperty(part(), second),
    () => Reflect.deleteProperty(Object.getPrototypeOf(root), first),
  ]
  return misuses.map((run) => {
    try {
      return run()
    } catch {
      return undefined
    }
  })
}

const JSON_VALUE = v.record(v.string(), v.any())
const data = (): { [key: string]: Json } => ({ name: 'ann', box: { key: 1 }, list: [{ n: 1 }, 2], bags: {} })

/** Every place where room code gets values to index, by name. Calls `look` with each of them. */
function roomWith(look: (place: string, value: unknown) => void) {
  const each = (place: string, value: unknown) => {
    look(place, value)
    // A look may have replaced some of them.
    const { box, list } = (value ?? {}) as { [name: string]: unknown }
    if (typeof box === 'object') look(`${place}.box`, box)
    if (typeof list === 'object') look(`${place}.list`, list)
    if (Array.isArray(list) && place === 'state') lookAtMade(place, list)
  }
  // Arrays that methods of arrays of the state return.
  const lookAtMade = (place: string, list: unknown[]): void => {
    const made = {
      concat: list.concat([1]),
      filter: list.filter(() => true),
      flat: list.flat(),
      map: list.map((n) => ({ n })),
      slice: list.slice(),
      splice: list.splice(0, 0),
      toSorted: list.toSorted(),
    }
    for (const [method, array] of Object.entries(made)) look(`${place}.list.${method}`, array)
  }
  return defineRoom({
    type: 'indexed',
    options: JSON_VALUE,
    create: (options) => {
      each('options of create', options)
      return data()
    },
    admit(member, options, ctx) {
      each('member.data of admit', member.data)
      each('options of admit', options)
      each('state of admit', ctx.state)
    },
    onJoin(state, member, ctx, options) {
      each('state', state)
      each('member.data', member.data)
      each('options', options)
      look('member', member)
      look('ctx.members', ctx.members)
      ctx.task(async () => data(), 'work')
      ctx.after(0, 'bell', data())
    },
    messages: {
      look: {
        data: JSON_VALUE,
        handle: (state, input) => {
          each('state', state)
          each('input.data', input.data)
        },
      },
    },
    timers: { bell: { data: JSON_VALUE, handle: (_, timer) => each('data of a timer', timer.data) } },
    tasks: {
      work: {
        result: JSON_VALUE,
        handle: (_, outcome) => each('value of a task', outcome.ok && outcome.value),
      },
    },
  })
}

/** Plays a room on two nodes. Throws what `look` throws, which a room would only log. */
async function play(look: (place: string, value: unknown) => void): Promise<RoomBench> {
  const failures: unknown[] = []
  const room = roomWith((place, value) => {
    try {
      look(place, value)
    } catch (error) {
      failures.push(error)
    }
  })
  const bench = new RoomBench([room])
  const ann = await bench.join('indexed', 'ann', { options: data(), data: data() })
  await bench.say('indexed', 'ann', 'look', data(), 1)
  await bench.advance(100)
  expect(ann.errors).toEqual([])
  const successor = bench.successor([ann])
  await bench.host.close()
  await successor.join('indexed', 'bob', { options: data(), data: data() })
  await successor.say('indexed', 'ann', 'look', data(), 2)
  expect(ann.errors).toEqual([])
  if (failures.length > 0) throw failures[0]
  return successor
}

/** True for parts of the state, which are not ordinary objects. */
const isState = (place: string): boolean => /^state(?: of admit)?(?:\.box|\.list)?$/.test(place)

describe('a value for room code', () => {
  it('lets names from clients change nothing that the process shares', async () => {
    // Thousands of errors are caught here. Their stacks would take most of the time.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    onTestFinished(() => {
      Error.stackTraceLimit = stackTraceLimit
    })
    const before = sharedProperties()
    const places = new Set<string>()
    const results: unknown[] = []
    for (let i = 0; i < NAMES.length; i += 8) {
      const some = NAMES.slice(i, i + 8)
      const bench = await play((place, value) => {
        places.add(place)
        for (const first of some)
          for (const second of ['constructor', '__proto__', 'name', NAMES[(i * 7 + 3) % NAMES.length]!]) {
            const found = misuse(value, [first, second])
            if (isState(place)) results.push(...found)
          }
      })
      expect(JSON.stringify(bench.describe('indexed')), some.join()).not.toContain('native code')
    }
    expect([...places].filter((place) => !place.includes('.box') && !place.includes('.list'))).toEqual([
      'options of create',
      'member.data of admit',
      'options of admit',
      'state of admit',
      'state',
      'member.data',
      'options',
      'member',
      'ctx.members',
      'value of a task',
      'input.data',
      'data of a timer',
    ])
    for (const result of results) if (typeof result === 'string') expect(result).not.toContain('native code')
    expect(changesSince(before)).toEqual([])
  })

  it('is an ordinary value, except parts of the state', async () => {
    await play((place, value) => {
      if (isState(place) || typeof value !== 'object' || value === null) return
      const prototype = Array.isArray(value) ? Array.prototype : Object.prototype
      expect(Object.getPrototypeOf(value), place).toBe(prototype)
      if ('list' in value) expect(isDeepStrictEqual(value, data()), place).toBe(true)
    })
  })

  it('inherits only methods, which cannot be written to, if it is a part of the state', async () => {
    await play((place, value) => {
      if (!isState(place) || typeof value !== 'object' || value === null) return
      for (const name of NAMES) {
        if (Object.hasOwn(value, name)) continue
        const found = (value as { readonly [name: string]: unknown })[name]
        if (found !== undefined) {
          expect(typeof found, `${place} ${name}`).toBe('function')
          expect(Object.isFrozen(found) && Object.getPrototypeOf(found) === null, `${place} ${name}`).toBe(
            true,
          )
          expect('prototype' in (found as object)).toBe(false)
        }
        expect(name in value, `${name} in ${place}`).toBe(found !== undefined)
      }
      expect(Object.isFrozen(Object.getPrototypeOf(value))).toBe(true)
      for (const name of ['constructor', '__proto__', '__defineGetter__', '__lookupSetter__'])
        expect((value as { readonly [name: string]: unknown })[name], `${place} ${name}`).toBeUndefined()
    })
  })

  it('behaves like its JSON', async () => {
    await play((place, value) => {
      if (place.includes('.') && !place.startsWith('member.data') && !place.startsWith('input.data')) return
      const given = value as ReturnType<typeof data> & { list: [{ n: number }, number] }
      if (given === null || !('list' in given)) return
      expect(Object.keys(given)).toEqual(Object.keys(data()))
      expect(JSON.parse(JSON.stringify(given))).toEqual(data())
      // biome-ignore lint/suspicious/noPrototypeBuiltins: code that does so goes on working
      expect([given.hasOwnProperty('box'), given.hasOwnProperty('constructor')]).toEqual([true, false])
      expect([`${given}`, `${given.list}`]).toEqual(['[object Object]', '[object Object],2'])
      expect(Array.isArray(given.list)).toBe(true)
      expect(given.list.map((entry) => typeof entry)).toEqual(['object', 'number'])
      expect([...given.list, ...given.list.concat([3] as never)]).toHaveLength(5)
      expect({ ...given }.name).toBe('ann')
      // Node 26 shows that arrays of the state are proxies.
      expect(
        inspect(given)
          .replace(/Proxy\((.*)\)/, '$1')
          .replace(/\s+/g, ' '),
      ).toBe(inspect(data()))
    })
  })

  it('can have entries with the names of methods', async () => {
    const room = defineRoom({
      type: 'named',
      create: (): { [name: string]: number } => ({}),
      messages: {
        vote: {
          data: v.custom<{ [name: string]: number }>(() => true),
          handle(state, { data }) {
            for (const name of Object.keys(data))
              state[name] = (Object.hasOwn(state, name) ? state[name]! : 0) + data[name]!
          },
        },
      },
    })
    const bench = new RoomBench([room])
    const ann = await bench.join('named', 'ann')
    const votes = Object.fromEntries(NAMES.filter((name) => name !== '__proto__').map((name) => [name, 1]))
    await bench.say('named', 'ann', 'vote', votes, 1)
    await bench.say('named', 'ann', 'vote', { toString: 1, constructor: 2 }, 2)
    await bench.advance(100)
    expect([ann.errors, ann.faults]).toEqual([[], []])
    expect(ann.state).toEqual({ ...votes, toString: 2, constructor: 3 })
  })
})

describe('a read-only view', () => {
  const json = () => ({ phase: 'open', players: { ann: { cards: [3, 1, 2] } }, tags: ['a'] })
  type State = ReturnType<typeof json>
  const viewed = (state: Json = json()) => readOnlyView(state) as unknown as { view: State; end: () => void }

  it('reads like the JSON that it shows', () => {
    const { view } = viewed()
    expect(JSON.parse(JSON.stringify(view))).toEqual(json())
    expect(Object.entries(view).map(([key]) => key)).toEqual(['phase', 'players', 'tags'])
    expect(view.players.ann.cards.map((card) => card * 2).filter((card) => card > 2)).toEqual([6, 4])
    expect([Array.isArray(view.tags), view.tags.length, 'phase' in view]).toEqual([true, 1, true])
    const { players } = view
    expect({ ...view }.phase).toBe('open')
    expect(view.players).toBe(players)
  })

  it('refuses every write, at every depth, and changes nothing', () => {
    const state = json()
    const { view } = viewed(state)
    const described = Object.getOwnPropertyDescriptor(view, 'players')!.value as State['players']
    const writes: (() => unknown)[] = [
      () => {
        view.phase = 'over'
      },
      () => {
        described.ann.cards[0] = 9
      },
      () => view.players.ann.cards.push(4),
      () => view.players.ann.cards.sort(),
      () => Reflect.deleteProperty(view.players, 'ann') || refused(),
      () => Object.defineProperty(view, 'phase', { value: 'over' }),
      () => Object.setPrototypeOf(view, {}),
      () => Object.freeze(view),
      () => Object.values(view.players)[0]!.cards.splice(0),
    ]
    for (const write of writes) expect(write, String(write)).toThrow(TypeError)
    expect(state).toEqual(json())
  })

  const refused = () => {
    throw new TypeError('refused')
  }

  it('gives names no access to what the process shares', () => {
    const before = sharedProperties()
    const { view } = viewed()
    for (const part of [view, view.players, view.tags] as unknown as Record<string, unknown>[])
      for (const name of NAMES) {
        const found = part[name]
        expect(['undefined', 'function', 'number'], name).toContain(typeof found)
        if (typeof found === 'function')
          expect([Object.isFrozen(found), Object.getPrototypeOf(found)], name).toEqual([true, null])
      }
    expect(changesSince(before)).toEqual([])
  })

  it('cannot be read after its end', () => {
    const { view, end } = viewed()
    const { cards } = view.players.ann
    end()
    expect(() => view.phase).toThrow('read it in the call')
    expect(() => cards[0]).toThrow('read it in the call')
  })
})
