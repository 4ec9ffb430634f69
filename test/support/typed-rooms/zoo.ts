import { defineRoom } from 'roomful'
import * as v from 'valibot'
import * as z from 'zod-of-rooms'

/** A node of a tree. */
interface Tree {
  name: string
  children: Tree[]
}

const Tree: v.GenericSchema<Tree> = v.object({ name: v.string(), children: v.lazy(() => v.array(Tree)) })

const Animal = v.object({
  kind: v.picklist(['cat', 'dog']),
  weight: v.number(),
  secret: v.nullable(v.string()),
  'fur-color': v.optional(v.string()),
})

/** Has each kind of schema, for the tests of `roomful types`. */
export default defineRoom({
  type: '3d-zoo',
  state: v.object({
    open: v.boolean(),
    animals: v.record(v.string(), Animal),
    deck: v.array(v.tuple([v.string(), v.number()])),
    family: Tree,
  }),
  create: () => ({
    open: true,
    animals: {} as Record<string, v.InferInput<typeof Animal>>,
    deck: [] as [string, number][],
    family: { name: '', children: [] } as Tree,
  }),
  layers: { 'animals.*.secret': 'keepers', deck: null },
  options: v.object({ level: v.optional(v.picklist([1, 2, 2.5]), 1) }),
  listing: {
    data: v.object({ size: v.pipe(v.number(), v.transform(String)), name: v.pipe(v.string(), v.trim()) }),
    of: () => ({ size: 1, name: 'zoo' }),
  },
  messages: {
    feed: {
      data: v.variant('of', [
        v.object({ of: v.literal('hay'), kilos: v.pipe(v.number(), v.integer()) }),
        v.object({ of: v.literal('meat'), from: v.nullable(v.string()) }),
      ]),
      reply: z.object({ eaten: z.boolean(), by: z.array(z.string()).nullable() }),
      handle: (_state, _input, ctx) => ctx.reply({ eaten: true, by: null }),
    },
    close: { handle: () => undefined },
    odd: {
      data: v.object({ at: v.date(), either: v.union([v.string(), v.number()]) }),
      handle: () => undefined,
    },
    tag: {
      data: v.intersect([v.object({ a: v.string() }), v.object({ b: v.optional(v.number()) })]),
      handle: () => undefined,
    },
  },
  events: { fed: v.object({ at: v.pipe(v.number(), v.integer()), loud: v.optional(v.boolean(), false) }) },
})
