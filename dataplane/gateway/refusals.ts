import type { CloseName, ErrorCode } from '../../shared/protocol/error-codes.ts'

/** Reason for which a client is not admitted: close code and text. */
export interface Rejection {
  readonly close: CloseName
  readonly reason: string
}

export const reject = (close: CloseName, reason: string): Rejection => ({ close, reason })

/** Rejection of a client that can retry: the service cannot decide at the moment. */
export const tryAgain = (why: string): Rejection => reject('overloaded', `${why}: try again`)

/** An `error` for a client. */
export interface ErrorAnswer {
  readonly code: ErrorCode
  readonly message: string
}

/** A request that gets an `error`. */
export class Refused extends Error implements ErrorAnswer {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
