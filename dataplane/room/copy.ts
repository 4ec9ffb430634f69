import type { Json } from '../../shared/json.ts'

/**
 * Returns a deep copy of a value for room code: ordinary objects and arrays, so that libraries know them. A client can choose the names in
 * it. `builtins.ts` closes the classes that names such as `constructor` lead to. Objects of other classes, which a schema may make, are not
 * copied.
 */
export const deepCopy = <T>(value: T): T =>
  typeof value === 'object' && value !== null ? (copyOf(value, new Map()) as T) : value

function copyOf(value: object, copies: Map<object, object>): object {
  const known = copies.get(value)
  if (known) return known
  const prototype: unknown = Object.getPrototypeOf(value)
  const isArray = prototype === Array.prototype
  if (!isArray && prototype !== Object.prototype && prototype !== null) return value
  // Unlike assignments, a spread also copies the key `__proto__`, which values of tasks can have.
  const copy = (isArray ? [...(value as unknown[])] : { ...value }) as { [key: string]: unknown }
  copies.set(value, copy)
  for (const key of Object.keys(copy)) {
    const part = copy[key]
    if (typeof part === 'object' && part !== null) copy[key] = copyOf(part, copies)
  }
  return copy
}

/** Freezes a value with all that is in it, and returns it. */
export function frozen<T extends Json>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const part of Object.values(value)) frozen(part)
  return Object.freeze(value)
}
