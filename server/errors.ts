import type { FieldError, ProblemCode } from '../shared/problem.ts'

/** Error codes of this package. */
export type LocalErrorCode =
  /** Control could not be reached, or did not answer in time. It may have carried out the request. */
  | 'unreachable'
  /** The answer is not one of roomful's control API. Check `url`. */
  | 'unexpected_answer'

/** All error codes: of the control API, and of this package. */
export type RoomfulErrorCode = ProblemCode | LocalErrorCode

/** Error that every call rejects with. */
export class RoomfulError extends Error {
  /** Always `RoomfulError`. */
  override readonly name = 'RoomfulError'
  /** Error code, for programs. `message` is for developers; of `room_logic_refused`, it is the text of the room. */
  readonly code: RoomfulErrorCode
  /** Status of the HTTP answer. Undefined: there was no answer. */
  readonly status: number | undefined
  /** Fields at fault of an `invalid_request`. */
  readonly errors: readonly FieldError[]
  /** True if the same call, with the same `id`, may succeed later. */
  readonly retryable: boolean

  constructor(
    code: RoomfulErrorCode,
    message: string,
    more: {
      readonly status?: number
      readonly errors?: readonly FieldError[]
      readonly retryable?: boolean
      readonly cause?: unknown
    } = {},
  ) {
    super(message, 'cause' in more ? { cause: more.cause } : undefined)
    this.code = code
    this.status = more.status
    this.errors = more.errors ?? []
    this.retryable = more.retryable ?? false
  }
}
