import { jsonCopy } from './failures.ts'
import { containerOf } from './live-object.ts'

/**
 * Returns a deep copy of a part of the state: ordinary objects and arrays, without prototypes of roomful. Use it where a library or a function
 * needs ordinary values, as in `structuredClone`, `isDeepStrictEqual(plain(state.board), board)` or a task, and for what has to be kept after
 * the handler. Also accepts values that contain parts of the state, such as `state.players.filter(isReady)`. Throws if a value is not JSON.
 *
 * @param part - Part of the state of a handler, of `admit` or of `listing.of`. A scalar or `undefined` is returned as it is.
 */
export function plain<T>(part: T): T {
  if (typeof part !== 'object' || part === null) return part
  return (containerOf(part)?.plain() ?? jsonCopy(part, 'the value for plain')) as T
}
