import { createRequire } from 'node:module'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { defineRoom, plain } from '../dataplane/index.ts'
import { testRooms } from './kit/index.ts'

/** The name of zod is not its own: the production image would contain zod, which a dependency of roomful uses if it is there. */
const LIBRARIES = [
  'node:util',
  'immer',
  'lodash',
  'fast-deep-equal',
  'dequal',
  'valibot',
  'zod-of-rooms',
  'nanoid',
] as const

type Library = (typeof LIBRARIES)[number]
// biome-ignore lint/suspicious/noExplicitAny: the libraries are loaded by name, twice
type Loaded = any

const require = createRequire(import.meta.url)

/** Evaluates a library, even if it was loaded before. */
function evaluate(name: Library): Loaded {
  for (const path of Object.keys(require.cache))
    if (path.includes(`/node_modules/${name}/`)) delete require.cache[path]
  return require(name)
}

const made = () => ({
  name: 'ada',
  bag: { sword: 1, toString: 2 },
  scores: [3, 1, 2],
  pairs: [{ n: 1 }, { n: 2 }],
})
type Data = ReturnType<typeof made>

/** `fast-deep-equal` calls the `toString` of objects. */
const bagless = ({ name, scores, pairs }: Data) => ({ name, scores, pairs })

/**
 * Uses a library as room code does: with data of a message, and with a part of the state as docs/rooms.md says. Returns what it made. It is the
 * same for plain objects.
 */
const USES: Record<Library, (library: Loaded, data: Data, part: Data) => unknown> = {
  'node:util': ({ isDeepStrictEqual }, data, part) => [
    isDeepStrictEqual(data, made()),
    isDeepStrictEqual(plain(part), made()),
    isDeepStrictEqual(part.scores.toSorted(), [1, 2, 3]),
    structuredClone(data),
    plain(part),
  ],
  immer({ produce, enableMapSet }, data, part) {
    enableMapSet()
    // With immer, a draft cannot assign a name that Object.prototype has (decision 65).
    const base = { bag: { ...data.bag }, seen: new Map([['ada', new Set([1])]]), scores: [...data.scores] }
    const next = produce(base, (draft: typeof base) => {
      draft.bag.sword += 1
      draft.seen.get('ada')?.add(2)
      draft.scores.push(4)
      draft.scores.sort()
    })
    const change = (draft: Data) => {
      draft.pairs[0]!.n += 1
      draft.scores.shift()
    }
    Object.assign(part, produce(plain(part), change))
    return [
      { ...next, seen: [...next.seen.get('ada')], same: base.scores.length },
      produce(data, change),
      part,
    ]
  },
  lodash(_, data, part) {
    const copy = _.cloneDeep(data)
    _.set(copy, 'bag.shield.level', 2)
    _.merge(copy, { bag: { constructor: 1 } })
    const { compiled } = { compiled: _.template('hello <%= name %>')(data) }
    const chained = _.chain(data.scores).sortBy().map(_.add.bind(undefined, 1)).value()
    const [first] = part.pairs
    const changes = [
      _.pull(part.scores, 1),
      _.remove(part.pairs, ({ n }: { n: number }) => n > 1),
      _.pullAt(part.scores, [0]),
      _.pull(part.pairs, first),
      _.isEqual(part, data),
      _.isEqual(part.bag, data.bag),
      _.cloneDeep(plain(part)),
      _.sortBy(part.scores),
    ]
    _.set(part, 'bag.shield.level', 2)
    _.merge(part, { bag: { constructor: 1 } })
    const text = _.runInContext().toString([1, -0])
    return { copy, compiled, chained, equal: _.isEqual(data, made()), text, changes, part }
  },
  'fast-deep-equal': (equal, data, part) => [
    equal(bagless(data), bagless(made())),
    equal(bagless(plain(part)), bagless(made())),
    equal([new Date(1)], [new Date(2)]),
  ],
  dequal: ({ dequal }, data, part) => [
    dequal(data, made()),
    dequal(plain(part), made()),
    dequal(new Map([[1, data]]), new Map([[1, { ...data }]])),
    dequal([/a/], [/b/]),
  ],
  valibot(valibot, data, part) {
    const schema = valibot.object({
      name: valibot.string(),
      bag: valibot.record(valibot.string(), valibot.number()),
      scores: valibot.array(valibot.number()),
    })
    return [
      valibot.parse(schema, data),
      valibot.parse(schema, part),
      valibot.safeParse(schema, { name: 1 }).issues.length,
    ]
  },
  'zod-of-rooms'({ z }, data, part) {
    const schema = z.object({
      name: z.string().trim(),
      bag: z.record(z.string(), z.number()),
      scores: z.array(z.number()),
      at: z.coerce.date().optional(),
    })
    const failed = schema.safeParse({ name: 1 })
    return [
      schema.parse(data),
      schema.parse(part),
      failed.error.name,
      failed.error.issues.length,
      String(failed.error).length > 0,
    ]
  },
  nanoid: ({ nanoid }) => /^[\w-]{21}$/.test(nanoid()),
}

const json = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

// Before any node runs, so that the classes of JavaScript are still open.
const before = LIBRARIES.map(
  (name) => [name, evaluate(name), json(USES[name](evaluate(name), made(), made()))] as const,
)

test.each(before)(
  '%s works on data and on parts of the state, loaded before the node started and after',
  async (name, loaded, expected) => {
    const lab = defineRoom({
      type: 'lab',
      create: () => ({ part: made(), result: null as unknown }),
      messages: {
        use: {
          data: v.object({ when: v.picklist(['before', 'after']), data: v.custom<Data>(() => true) }),
          handle(state, { data: { when, data } }) {
            state.part = made()
            const library = when === 'before' ? loaded : evaluate(name)
            state.result = json(USES[name](library, data, state.part))
          },
        },
      },
    })
    const t = await testRooms([lab])
    const [room] = await t.join('lab')
    expect(Object.isFrozen(Array.prototype)).toBe(true)
    for (const when of ['before', 'after'] as const) {
      await room.send('use', { when, data: made() })
      expect(room.state.result).toEqual(expected)
    }
    await t.close()
  },
)
