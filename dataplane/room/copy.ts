import type { Json } from '../../shared/json.ts'

/**
 * Returns a deep copy of a value for room code: ordinary objects and arrays, so that libraries know them. A client can choose the names in
 * it. `builtins.ts` closes the classes that names such as `constructor` lead to. Objects of other classes, which a schema may make, are not
 * copied.
 */
export const deepCopy = <T>(value: T): T => (isObject(value) ? (copyOf(value) as T) : value)

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

/** `before`: copies that were made before. Undefined: none, as in most messages, which contain no objects. */
function copyOf(value: object, before?: Map<object, object>): object {
  const known = before?.get(value)
  if (known) return known
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Array.prototype) {
    const copy: unknown[] = []
    let copies = before?.set(value, copy)
    for (const part of value as unknown[]) {
      if (isObject(part)) copies ??= new Map([[value, copy]])
      copy.push(isObject(part) ? copyOf(part, copies) : part)
    }
    return copy
  }
  if (prototype !== Object.prototype && prototype !== null) return value
  const copy: { [key: string]: unknown } = {}
  let copies = before?.set(value, copy)
  for (const key of Object.keys(value)) {
    const { [key]: given } = value as typeof copy
    if (isObject(given)) copies ??= new Map([[value, copy]])
    const part = isObject(given) ? copyOf(given, copies) : given
    // Values of tasks can have this key. An assignment would replace the prototype.
    if (key === '__proto__')
      Object.defineProperty(copy, key, { value: part, writable: true, enumerable: true, configurable: true })
    else copy[key] = part
  }
  return copy
}

/** Freezes a value with all that is in it, and returns it. */
export function frozen<T extends Json>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const part of Object.values(value)) frozen(part)
  return Object.freeze(value)
}
