import { inspect } from 'node:util'
import type { Json } from '../../shared/json.ts'

/**
 * Prototypes of the objects and arrays that room code gets: parts of the state, data of messages, options, data of members. Room code
 * indexes them by strings that clients choose, such as `state.players[data.target]`. With the prototypes of JavaScript, `constructor` and
 * `__proto__` would lead to objects that all rooms of the process share. Here inherited names are `undefined`, except methods, and the
 * methods are frozen functions without a prototype.
 */

// biome-ignore lint/suspicious/noExplicitAny: methods of objects and of arrays, which ask for their own `this`
type Method = (this: any, ...given: never[]) => unknown
type Methods = { readonly [name: string]: Method; readonly [name: symbol]: Method }

/**
 * Returns the function without anything that could be written to or reached from it. It must be a method, because functions with a
 * `prototype` cannot be sealed so.
 */
const sealed = (method: Method): Method => Object.freeze(Object.setPrototypeOf(method, null))

/** Returns functions that do the same as these methods of `prototype`. Arrays that they return are guarded. */
function methodsOf(prototype: object, names: readonly (string | symbol)[]): Methods {
  const methods: { [name: string | symbol]: Method } = {}
  for (const name of names) {
    const method = (prototype as Methods)[name as string]!
    Object.assign(methods, {
      [name](...given: never[]) {
        return guardedArray(Reflect.apply(method, this, given))
      },
    })
  }
  return methods
}

/** Gives an ordinary array the methods of guarded ones, and returns it. Other values are returned as they are. */
export function guardedArray<T>(value: T): T {
  if (Array.isArray(value) && Object.getPrototypeOf(value) === Array.prototype)
    Object.setPrototypeOf(value, Elements.prototype)
  return value
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

class Elements extends Array<unknown> {}
replaceMethods(Elements.prototype, {
  ...methodsOf(Object.prototype, OBJECT_METHODS),
  ...methodsOf(Array.prototype, ARRAY_METHODS),
  [inspect.custom](this: unknown[]) {
    return Array.from(this)
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

/**
 * Returns a copy of a value for room code, whose objects and arrays inherit nothing that can be written to. Objects of other classes, which
 * a schema may make, are not copied.
 */
export const guarded = <T>(value: T): T =>
  typeof value === 'object' && value !== null ? (copyOf(value, new Map()) as T) : value

function copyOf(value: object, copies: Map<object, object>): object {
  const known = copies.get(value)
  if (known) return known
  const prototype: unknown = Object.getPrototypeOf(value)
  const isArray = prototype === Array.prototype
  if (!isArray && prototype !== Object.prototype && prototype !== null) return value
  const copy = isArray ? new Elements() : new Entries()
  copies.set(value, copy)
  for (const key of Object.keys(value)) {
    const part = (value as Entries)[key]
    ;(copy as Entries)[key] = typeof part === 'object' && part !== null ? copyOf(part, copies) : part
  }
  return copy
}

/**
 * Returns a read-only view of JSON for room code, and a function that ends it. Its objects and arrays inherit what guarded copies do. A
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
    Array.isArray(target) ? Elements.prototype : Entries.prototype
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

/** Freezes a value with all that is in it, and returns it. */
export function frozen<T extends Json>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const part of Object.values(value)) frozen(part)
  return Object.freeze(value)
}
