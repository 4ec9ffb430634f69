import type { Json } from '../../shared/json.ts'

/**
 * Returns a deep copy of a value for room code: ordinary objects and arrays, so that libraries know them. A client can choose the names in
 * it. `builtins.ts` closes the classes that names such as `constructor` lead to. Objects of other classes, which a schema may make, are not
 * copied.
 */
export const deepCopy = <T>(value: T): T => copyOf(value, new Map()) as T

function copyOf(value: unknown, copies: Map<object, object>): unknown {
  if (typeof value !== 'object' || value === null) return value
  const known = copies.get(value)
  if (known) return known
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Array.prototype) {
    const copy: unknown[] = []
    copies.set(value, copy)
    for (const part of value as unknown[]) copy.push(copyOf(part, copies))
    return copy
  }
  if (prototype !== Object.prototype && prototype !== null) return value
  const copy: { [key: string]: unknown } = {}
  copies.set(value, copy)
  for (const key of Object.keys(value)) {
    const part = copyOf((value as typeof copy)[key], copies)
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
