import { RoomLogicError } from './failures.ts'
import { guardedArray } from './guarded.ts'
import type { LiveArray, Slot } from './live-tree.ts'

/** From what handlers hold to what an array of the state has, and back. */
interface Views {
  readonly arrayOf: (view: unknown) => LiveArray
  readonly viewOf: (slot: Slot | undefined) => unknown
  readonly slotOf: (value: unknown) => Slot
}

/** The methods of arrays that move elements: within an array these stay what they are, and keep their views. */
export const arrayMethods = ({ arrayOf, viewOf, slotOf }: Views) =>
  ({
    push(...values: unknown[]): number {
      const array = arrayOf(this)
      array.splice(array.target.length, 0, array.copies(values, array.target.length))
      return array.target.length
    },
    pop(): unknown {
      const array = arrayOf(this)
      return viewOf(array.splice(array.target.length - 1, Math.min(1, array.target.length), [])[0])
    },
    shift(): unknown {
      const array = arrayOf(this)
      return viewOf(array.splice(0, Math.min(1, array.target.length), [])[0])
    },
    unshift(...values: unknown[]): number {
      const array = arrayOf(this)
      array.splice(0, 0, array.copies(values, 0))
      return array.target.length
    },
    splice(...given: unknown[]): unknown[] {
      const array = arrayOf(this)
      const [start, count, ...values] = given
      const { length } = array.target
      const at = indexIn(length, start)
      const most = length - at
      const remove =
        given.length === 0 ? 0 : given.length === 1 ? most : Math.min(Math.max(toInteger(count), 0), most)
      return guardedArray(array.splice(at, remove, array.copies(values, at)).map(viewOf))
    },
    reverse(): unknown {
      const array = arrayOf(this)
      array.rearrange(array.target.toReversed())
      return this
    },
    sort(compare?: (a: unknown, b: unknown) => number): unknown {
      const array = arrayOf(this)
      const before = array.target.slice()
      const sorted = before.map(viewOf).sort(compare)
      if (before.some((slot, i) => slot !== array.target[i]) || before.length !== array.target.length)
        throw new RoomLogicError('an array of the state was changed while it was sorted')
      array.rearrange(sorted.map((value) => slotOf(value)))
      return this
    },
    copyWithin(...where: [number, number, number?]): unknown {
      const array = arrayOf(this)
      const { target } = array
      const next = target.slice().copyWithin(...where)
      const placed = new Set(next.filter((slot, i) => slot === target[i]))
      // What would be at two places is copied.
      array.rearrange(
        next.map((slot, i) => {
          if (typeof slot !== 'object' || slot === null || slot === target[i]) return slot
          if (placed.has(slot)) return array.copies([viewOf(slot)], i)[0]!
          placed.add(slot)
          return slot
        }),
      )
      return this
    },
    fill(value: unknown, ...[start, end]: [number?, number?]): unknown {
      const array = arrayOf(this)
      const { length } = array.target
      const from = indexIn(length, start)
      const to = Math.max(from, end === undefined ? length : indexIn(length, end))
      array.splice(from, to - from, array.copies(Array(to - from).fill(value), from))
      return this
    },
  }) as const satisfies { readonly [name: string]: (this: unknown, ...given: never[]) => unknown }

const toInteger = (value: unknown): number => Math.trunc(Number(value)) || 0

/** An index as the methods of arrays take it: from the end where it is negative. */
function indexIn(length: number, value: unknown): number {
  const index = toInteger(value)
  return index < 0 ? Math.max(0, length + index) : Math.min(index, length)
}
