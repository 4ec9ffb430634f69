import fc from 'fast-check'
import type { Json } from '../../shared/json.ts'

const text = fc.oneof(
  fc.constantFrom('', 'a', 'b', 'x', 'toString', 'valueOf', 'a/b', 'm~n', '~1', '0', '1', 'é', '🎲', 'name'),
  fc.string({ unit: 'grapheme', maxLength: 8 }),
)
// The library rfc6902 rejects the keys constructor and prototype. Separate tests cover them.
const key = text.filter((k) => !['__proto__', 'constructor', 'prototype'].includes(k))
const number = fc.oneof(
  fc.integer({ min: -3, max: 3 }),
  fc.integer(),
  fc.maxSafeInteger(),
  // Without -0: JSON writes it as 0.
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((n) => n + 0),
)

const array = <T>(element: fc.Arbitrary<T>, maxLength: number) =>
  fc.array(element, { maxLength, size: 'max' })
const object = <T>(value: fc.Arbitrary<T>, maxKeys: number) =>
  fc.dictionary(key, value, { maxKeys, size: 'max', noNullPrototype: true })

/** Any JSON value. Keys and values repeat often, so that an edit meets equal neighbours. */
export const json = (): fc.Arbitrary<Json> =>
  fc.letrec<{ value: Json; scalar: Json }>((tie) => ({
    scalar: fc.oneof(fc.constantFrom<Json>(null, true, false, 0, 1, '1', ''), number, text),
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      { weight: 3, arbitrary: tie('scalar') },
      { weight: 2, arbitrary: array(tie('value'), 6) },
      { weight: 2, arbitrary: object(tie('value'), 6) },
      { weight: 1, arbitrary: array(tie('scalar'), 20) },
      { weight: 1, arbitrary: object(tie('scalar'), 20) },
    ),
  })).value

type Edit = { at: number; kind: number; value: Json; key: string }
export const edit = (): fc.Arbitrary<Edit> =>
  fc.record({ at: fc.nat(1000), kind: fc.nat(8), value: json(), key })

/** Applies one random edit to a copy of the value. The copy shares all parts outside the path of the edit. */
export function edited(value: Json, { at, kind, value: fresh, key: name }: Edit): Json {
  if (Array.isArray(value)) {
    const i = value.length === 0 ? 0 : at % value.length
    const next = [...value]
    if (kind === 0) next.push(fresh)
    else if (kind === 1) next.unshift(fresh)
    else if (kind === 2) next.splice(i, 1)
    else if (kind === 3) next.splice(i, 1 + (at % 3), fresh, name)
    else if (kind === 4) next.push(...next.splice(0, 1))
    else if (next.length > 0) next[i] = edited(next[i]!, { at: at >> 1, kind, value: fresh, key: name })
    return next
  }
  if (typeof value === 'object' && value !== null) {
    const keys = Object.keys(value)
    const k = keys[at % (keys.length || 1)]
    if (k === undefined || kind === 0) return { ...value, [name]: fresh }
    if (kind > 2)
      return {
        ...value,
        [k]: edited((value as Record<string, Json>)[k]!, { at: at >> 1, kind, value: fresh, key: name }),
      }
    return Object.fromEntries(Object.entries(value).filter(([other]) => other !== k))
  }
  return fresh
}

/** Two values. The second is the first after some edits, or unrelated. */
export const statePair = (): fc.Arbitrary<[Json, Json]> =>
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc
        .tuple(
          json().filter((value) => typeof value === 'object'),
          fc.array(edit(), { minLength: 1, maxLength: 5 }),
        )
        .map(([first, edits]): [Json, Json] => [first, edits.reduce(edited, first)]),
    },
    { weight: 1, arbitrary: fc.tuple(json(), json()) },
  )
