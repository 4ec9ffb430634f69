/** Global classes of JavaScript, and `Buffer`. `RegExp` is left out: V8 matches about 20 times slower after any change of its prototype. */
const CLASSES = [
  ...['Object', 'Function', 'Array', 'String', 'Number', 'Boolean', 'Symbol', 'BigInt'],
  ...['Map', 'Set', 'WeakMap', 'WeakSet', 'WeakRef', 'FinalizationRegistry', 'Date', 'Promise', 'Iterator'],
  ...['ArrayBuffer', 'SharedArrayBuffer', 'DataView', 'Int8Array', 'Uint8Array', 'Uint8ClampedArray'],
  ...['Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array', 'Float16Array', 'Float32Array'],
  ...['Float64Array', 'BigInt64Array', 'BigUint64Array', 'Buffer'],
  ...['Error', 'AggregateError', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError'],
  ...['URIError', 'SuppressedError', 'DisposableStack', 'AsyncDisposableStack'],
]

/** Returns values of the classes that have no global name. */
const nameless = (): readonly object[] => [
  [].values(),
  new Map().values(),
  new Set().values(),
  ''[Symbol.iterator](),
  ''.matchAll(/a/g),
  function* () {},
  (function* () {})(),
  async () => {},
  async function* () {},
  (async function* () {})(),
  ...iteratorHelpers(),
]

/** Returns values of the iterator classes that Node 20 does not have: one that `Iterator.from` makes, and one of `map`. */
export function iteratorHelpers(): readonly object[] {
  const Iterators: { from(value: object): { map(mapped: () => unknown): object } } | undefined = Reflect.get(
    globalThis,
    'Iterator',
  )
  if (!Iterators) return []
  const wrapped = Iterators.from({ next: () => ({ done: true }) })
  return [wrapped, wrapped.map(() => 0)]
}

/** Returns, by class and prototype, its name for errors. These are all objects that property names can reach from a value of the language. */
function builtins(): Map<object, string> {
  const found = new Map<object, string>()
  const add = (owner: unknown): void => {
    if (owner === null || (typeof owner !== 'object' && typeof owner !== 'function') || found.has(owner))
      return
    found.set(owner, nameOf(owner))
    add(Object.getPrototypeOf(owner))
  }
  for (const name of CLASSES) {
    const builtin = Reflect.get(globalThis, name) as { readonly prototype: unknown } | undefined
    if (!builtin) continue
    add(builtin)
    add(builtin.prototype)
  }
  for (const value of nameless()) add(Object.getPrototypeOf(value))
  return found
}

function nameOf(owner: object): string {
  if (typeof owner === 'function' && owner !== Function.prototype) return owner.name
  const { constructor: owned } = owner
  const isClass = typeof owned === 'function' && owned.prototype === owner
  const name = isClass ? owned.name : Reflect.get(owner, Symbol.toStringTag)
  return `${String(name)}.prototype`
}

/** Names that other objects often assign although they inherit them, such as `error.name` and `votes.toString`. Undefined: all names. */
function assignedBelow(owner: object): readonly string[] | undefined {
  if (owner === Function.prototype) return ['constructor', 'toString', 'bind']
  // Fake timers of test tools.
  if (owner === Date) return ['now', 'parse', 'UTC']
  if (owner === Date.prototype) return ['toUTCString']
  return owner === Object.prototype || owner === Error.prototype || owner instanceof Error ? undefined : []
}

/**
 * Closes the classes of JavaScript: their properties cannot be changed, removed or added to. All rooms of the process share them, and room
 * code can be led to them by strings from a client: `Object.values(state.bags)[data.slot][data.item] = 1` with `__proto__` and `push`. Must
 * be called after everything is loaded: code that changes these classes later gets a TypeError. More calls have no effect.
 */
export function closeBuiltins(): void {
  const owners = builtins()
  for (const [owner, name] of owners) {
    if (!Object.isExtensible(owner)) continue
    for (const { value } of Object.values(Object.getOwnPropertyDescriptors(owner)))
      if (typeof value === 'function' && !owners.has(value)) Object.freeze(value)
    for (const key of assignedBelow(owner) ?? Object.getOwnPropertyNames(owner)) allowBelow(owner, key, name)
    if (owner === Error) readOnly(Error, ['captureStackTrace', 'isError'])
    else close(owner)
  }
}

/** Libraries set `stackTraceLimit` and `prepareStackTrace` of `Error` at any time. */
function readOnly(owner: object, names: readonly string[]): void {
  for (const name of names)
    if (Object.hasOwn(owner, name))
      Object.defineProperty(owner, name, { writable: false, configurable: false })
}

/**
 * Replaces a property by accessors that do the same, but let no assignment through to `owner`. A read-only property would also make the
 * assignment to an object that inherits it fail.
 */
function allowBelow(owner: object, key: string, name: string): void {
  const { value, writable } = Object.getOwnPropertyDescriptor(owner, key) ?? {}
  if (!writable) return
  Object.defineProperty(owner, key, {
    get: () => value,
    set(this: object, assigned: unknown) {
      if (assigned === value && this === owner) return
      if (this === owner) throw new TypeError(`Cannot assign to read only property '${key}' of ${name}`)
      const property = { value: assigned, writable: true, enumerable: true, configurable: true }
      if (!Reflect.defineProperty(this, key, property))
        throw new TypeError(`Cannot add property ${key}, object is not extensible`)
    },
    configurable: false,
  })
}

/** The class that all typed arrays extend. */
const TypedArray: { new (): object; readonly prototype: object } = Object.getPrototypeOf(Uint8Array)

/**
 * Freezes a class or prototype so that V8 stays as fast as before.
 *
 * - Below a frozen prototype, V8 stores elements (`bytes[i] = 1`, `list[i] = 1`) about 20 to 40 times slower, unless the prototype kept
 *   its properties in a dictionary while it was frozen. Methods in a dictionary are slow, too, so they do not stay there.
 * - Redefining `constructor` property by property would end the fast paths of `map`, `slice` and other methods. A freeze does not.
 */
function close(owner: object): void {
  const isAboveArrays =
    owner === Array.prototype || owner === TypedArray.prototype || owner instanceof TypedArray
  if (isAboveArrays) keepInDictionary(owner)
  if (owner === Object.prototype) {
    // All its properties are accessors now.
    for (const key of Object.getOwnPropertyNames(owner))
      Object.defineProperty(owner, key, { configurable: false })
    Object.preventExtensions(owner)
  } else Object.freeze(owner)
  if (isAboveArrays || assignedBelow(owner)?.length !== 0) leaveDictionary(owner)
}

/** Makes V8 keep the properties of an object outside of a dictionary again. It does so when they are read through an object that inherits them. */
function leaveDictionary(owner: object): void {
  void Object.create(owner).constructor
}

/** Makes V8 keep the properties of an object in a dictionary. */
function keepInDictionary(owner: object): void {
  const key = Symbol('temporary')
  Object.defineProperty(owner, key, { value: 0, configurable: true })
  Object.defineProperty(owner, key, { enumerable: true })
  Reflect.deleteProperty(owner, key)
}

/** Explains errors of code that tried to change a closed class. */
export class Overwrites {
  /** By the message of V8's error, the name of the property. */
  #names: ReadonlyMap<string, string> | undefined

  /** Returns what the author of the room type has to know about an error. Undefined: it is about something else. `thrown`: as `plainThrown` returns it. */
  explain(thrown: unknown): string | undefined {
    if (!(thrown instanceof Error) || !/^Cannot (?:assign|delete)/.test(thrown.message)) return undefined
    this.#names ??= refusals()
    const name = this.#names.get(thrown.message)
    return (
      name &&
      `room code tried to overwrite ${name}, which all rooms of the process share: check a name from a client with Object.hasOwn before you use it as an index, and give an object its own property of this name with Object.defineProperty`
    )
  }
}

/** Returns, by the messages of the errors for assignments and deletions, the name of the closed property. */
function refusals(): Map<string, string> {
  const names = new Map<string, string>()
  for (const [owner, name] of builtins())
    for (const key of Object.getOwnPropertyNames(owner)) {
      const { value, set, configurable } = Object.getOwnPropertyDescriptor(owner, key)!
      if (configurable || !(set || typeof value === 'function') || key === '__proto__') continue
      const values = owner as Record<string, unknown>
      for (const change of [() => (values[key] = undefined), () => delete values[key]])
        try {
          change()
        } catch (error) {
          const { message } = error as Error
          if (!names.has(message)) names.set(message, `${name}.${key}`)
        }
    }
  return names
}
