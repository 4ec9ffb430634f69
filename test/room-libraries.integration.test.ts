import { createRequire } from 'node:module'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { defineRoom } from '../dataplane/index.ts'
import { testRooms } from './kit/index.ts'

/** The name of zod is not its own: the production image would contain zod, which a dependency of roomful uses if it is there. */
const LIBRARIES = ['immer', 'lodash', 'fast-deep-equal', 'dequal', 'valibot', 'zod-of-rooms'] as const

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

const DATA = { name: 'ada', bag: { sword: 1, toString: 2 }, scores: [3, 1, 2] }

/** `fast-deep-equal` calls the `toString` of objects. */
const bagless = ({ name, scores }: typeof DATA) => ({ name, scores })

/** Uses a library as room code does. Returns what it made, as JSON. */
const USES: Record<Library, (library: Loaded, data: typeof DATA) => unknown> = {
  immer({ produce, enableMapSet }, data) {
    enableMapSet()
    // With immer, a draft cannot assign a name that Object.prototype has (decision 65).
    const base = { bag: { ...data.bag }, seen: new Map([['ada', new Set([1])]]), scores: [...data.scores] }
    const next = produce(base, (draft: typeof base) => {
      draft.bag.sword += 1
      draft.seen.get('ada')?.add(2)
      draft.scores.push(4)
      draft.scores.sort()
    })
    return { ...next, seen: [...next.seen.get('ada')], same: base.scores.length }
  },
  lodash(_, data) {
    const copy = _.cloneDeep(data)
    _.set(copy, 'bag.shield.level', 2)
    _.merge(copy, { bag: { constructor: 1 } })
    const { compiled } = { compiled: _.template('hello <%= name %>')(data) }
    const chained = _.chain(data.scores).sortBy().map(_.add.bind(undefined, 1)).value()
    return { copy, compiled, chained, equal: _.isEqual(copy, data), text: _.runInContext().toString([1, -0]) }
  },
  'fast-deep-equal': (equal, data) => [
    equal(bagless(data), structuredClone(bagless(data))),
    equal([new Date(1)], [new Date(2)]),
  ],
  dequal: ({ dequal }, data) => [
    dequal(new Map([[1, data]]), new Map([[1, { ...data }]])),
    dequal([/a/], [/b/]),
  ],
  valibot(valibot, data) {
    const schema = valibot.object({
      name: valibot.string(),
      bag: valibot.record(valibot.string(), valibot.number()),
    })
    return [valibot.parse(schema, data), valibot.safeParse(schema, { name: 1 }).issues.length]
  },
  'zod-of-rooms'({ z }, data) {
    const schema = z.object({
      name: z.string().trim(),
      bag: z.record(z.string(), z.number()),
      at: z.coerce.date().optional(),
    })
    const failed = schema.safeParse({ name: 1 })
    return [
      schema.parse(data),
      failed.error.name,
      failed.error.issues.length,
      String(failed.error).length > 0,
    ]
  },
}

const json = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

// Before any node runs, so that the classes of JavaScript are still open.
const before = LIBRARIES.map(
  (name) => [name, evaluate(name), json(USES[name](evaluate(name), DATA))] as const,
)

test.each(before)(
  '%s works in room code, loaded before the node started and after',
  async (name, loaded, made) => {
    const lab = defineRoom({
      type: 'lab',
      create: () => ({ made: null as unknown }),
      messages: { use: { data: v.picklist(['before', 'after']) } },
      onMessage(state, { data }) {
        const library = data === 'before' ? loaded : evaluate(name)
        state.made = json(USES[name](library, structuredClone(DATA)))
      },
    })
    const t = await testRooms([lab])
    const [room] = await t.join('lab')
    expect(Object.isFrozen(Array.prototype)).toBe(true)
    for (const when of ['before', 'after'] as const) {
      await room.send('use', when)
      expect(room.state).toEqual({ made })
    }
    await t.close()
  },
)
