import type { Json } from '../shared/json.ts'
import { cloneJson, NotJson } from '../shared/sync/check.ts'
import { RoomfulError, type RoomfulErrorCode } from './errors.ts'

/** A copy of what a caller handed over, so that later changes of it do no harm. Throws a RoomfulError with `code` when it is not JSON. */
export function toJson(value: unknown, code: RoomfulErrorCode, what: string): Json {
  try {
    return cloneJson(value)
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw new RoomfulError(code, `${what} cannot be sent: ${error.message}.`, { cause: error })
  }
}
