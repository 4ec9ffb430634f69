import { type CloseName, closeAdvice, closeName, type ErrorCode } from '../shared/protocol/error-codes.ts'

/** Error codes of the client. */
export type LocalErrorCode =
  /** The server could not be reached within `connectTimeoutMs`. */
  | 'connection_failed'
  /** The connection was lost. */
  | 'connection_lost'
  /** `getToken` failed. */
  | 'token_unavailable'
  /** `client.close()` was called, or the signal given to `connect` fired. */
  | 'client_closed'
  /** With `resume: 'tab'`: the tab's storage is full. */
  | 'storage_full'
  /** A request was applied, but its message type has no reply. */
  | 'no_reply'
  /** The ticket was cancelled. */
  | 'cancelled'
  /** The client was disconnected for too long, and has lost its ticket; or the seat of an earlier page has ended. */
  | 'seat_lost'

/** All error codes: of the client, of the server, and names of close codes. docs/protocol.md lists the codes of the server. */
export type RoomfulErrorCode = ErrorCode | CloseName | LocalErrorCode

/** Error that the SDK throws, rejects with, or passes to callbacks. */
export class RoomfulError extends Error {
  /** Always `RoomfulError`. */
  override readonly name = 'RoomfulError'
  /** Error code, for programs. `message` is for developers. */
  readonly code: RoomfulErrorCode
  /** True if the same call may succeed later. */
  readonly retryable: boolean

  constructor(
    code: RoomfulErrorCode,
    message: string,
    options: { retryable?: boolean; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
  }
}

/** Error codes for unknown close codes, which a later version may send, by their advice. */
const LATER: { readonly [advice: string]: CloseName } = { refresh: 'token_expired', restart: 'resume_failed' }

/** Returns the error for a close code and the server's reason text. */
export function closeError(code: number, reason: string): RoomfulError {
  const advice = closeAdvice(code)
  const retryable = advice !== 'end'
  const [, banned] = /^banned: (.+)/s.exec(reason) ?? []
  if (banned !== undefined) return new RoomfulError('banned', banned)
  const name = closeName(code) ?? LATER[advice]
  if (name === undefined && retryable)
    return new RoomfulError('connection_lost', `The connection broke (${code}).`, { retryable })
  const message = `The server closed the connection (${code}): ${reason || name}`
  return new RoomfulError(name ?? 'connection_lost', message, { retryable })
}

/** Returns the error of promises that are pending when `client.close()` is called. */
export const closedByCaller = (): RoomfulError => new RoomfulError('client_closed', 'The client was closed.')
