import { ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'

/** An `error`, as a client gets it. */
export type ErrorMessage = Extract<ServerMessage, { t: 'error' }>

/** What an error is about, where that is known. */
export interface ErrorSubject {
  readonly ref?: number | undefined
  readonly room_id?: string
}

/** The `error` message of a code, with a sentence for people. */
export function errorMessage(
  code: ErrorCode,
  message: string,
  { ref, room_id }: ErrorSubject = {},
): ErrorMessage {
  return {
    t: 'error',
    code,
    message,
    retryable: ERRORS[code].retryable,
    ...(ref === undefined ? {} : { ref }),
    ...(room_id === undefined ? {} : { room_id }),
  }
}
