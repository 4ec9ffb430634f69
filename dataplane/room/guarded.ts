import { inspect } from 'node:util'
import type { Json } from '../../shared/json.ts'

/**
 * Prototypes of the objects and arrays of a room's state, as room code gets it. Room code indexes them by strings that clients choose, such
 * as `state.players[data.target]`. With the prototypes of JavaScript, `constructor` and `__proto__` would lead to objects that all rooms of
 * the process share. Here inherited names are `undefined`, except methods, and the methods are frozen functions without a prototype.
 */

// biome-ignore lint/suspicious/noExplicitAny: methods of objects and of arrays, which ask for their own `this`
type Method = (this: any, ...given: never[]) => unknown
type Methods = { readonly [name: string]: Method; readonly [name: symbol]: Method }

/**
 * Returns the function without anything that could be written to or reached from it. It must be a method, because functions with a
 * `prototype` cannot be sealed so.
 */
const sealed = (method: Method): Method => Object.freeze(Object.setPrototypeOf(method, null))

/** Returns functions that do the same as these methods of `prototype`. */
function methodsOf(prototype: object, names: readonly (string | symbol)[]): Methods {
  const methods: { [name: string | symbol]: Method } = {}
  for (const name of names) {
    const method = (prototype as Methods)[name as string]!
    Object.assign(methods, {
      [name](...given: never[]) {
        return Reflect.apply(method, this, given)
      },
    })
  }
  return methods
}

/**
 * Makes `prototype` inherit nothing, and have these methods only. They are accessors: a read-only property would make the assignment
 * `votes.toString = 1` throw.
 */
function replaceMethods(prototype: object, methods: Methods): void {
  Object.setPrototypeOf(prototype, null)
  Reflect.deleteProperty(prototype, 'constructor')
  for (const name of Reflect.ownKeys(methods)) {
    const method = sealed(methods[name as string]!)
    const accessors = {
      get: () => method,
      set(this: object, value: unknown) {
        Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true })
      },
    }
    for (const accessor of Object.values(accessors)) sealed(accessor)
    Object.defineProperty(prototype, name, accessors)
  }
  Object.freeze(prototype)
}

const OBJECT_METHODS = [
  'hasOwnProperty',
  'isPrototypeOf',
  'propertyIsEnumerable',
  'toLocaleString',
  'toString',
  'valueOf',
]
const ARRAY_METHODS = Reflect.ownKeys(Array.prototype).filter(
  (name) => name !== 'constructor' && typeof Array.prototype[name as never] === 'function',
)

/** An object without entries. As a class, its instances are as fast as object literals; those of `Object.create(null)` are not. */
export class Entries {
  [key: string]: unknown
}
replaceMethods(Entries.prototype, {
  ...methodsOf(Object.prototype, OBJECT_METHODS),
  [inspect.custom](this: object) {
    return { ...this }
  },
})

/** Returns the prototype of arrays of the state: the methods of arrays, some of them replaced by `own`. */
export function arrayPrototype(own: Methods): Methods {
  const methods: Methods = Object.assign(
    Object.create(null),
    methodsOf(Object.prototype, OBJECT_METHODS),
    methodsOf(Array.prototype, ARRAY_METHODS),
    own,
  )
  for (const name of Reflect.ownKeys(methods)) sealed(methods[name as string]!)
  return Object.freeze(methods)
}

const READ_ONLY_ARRAY = arrayPrototype({})

/**
 * Returns a read-only view of a state for room code, and a function that ends it. Its objects and arrays inherit what those of the state do. A
 * view of a large state costs as much as what is read of it. A read after the end throws, since the state may be another then.
 */
export function readOnlyView(json: Json): { readonly view: Json; readonly end: () => void } {
  const views = new Map<object, object>()
  let ended = false
  const viewOf = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null) return value
    const view = views.get(value) ?? new Proxy(value, handler)
    views.set(value, view)
    return view
  }
  const prototypeOf = (target: object): object =>
    Array.isArray(target) ? READ_ONLY_ARRAY : Entries.prototype
  const refuse = (): never => {
    throw new TypeError('the state is read-only here: change it in a handler')
  }
  const handler: ProxyHandler<object> = {
    get(target, key, receiver) {
      if (ended) throw new TypeError('the state was read after the call that got it: read it in the call')
      return viewOf(Reflect.get(Object.hasOwn(target, key) ? target : prototypeOf(target), key, receiver))
    },
    has: (target, key) => Object.hasOwn(target, key) || key in prototypeOf(target),
    getOwnPropertyDescriptor(target, key) {
      const found = Reflect.getOwnPropertyDescriptor(target, key)
      return found && { ...found, value: viewOf(found.value) }
    },
    getPrototypeOf: prototypeOf,
    set: refuse,
    defineProperty: refuse,
    deleteProperty: refuse,
    setPrototypeOf: refuse,
    preventExtensions: refuse,
  }
  return {
    view: viewOf(json) as Json,
    end: () => {
      ended = true
    },
  }
}
