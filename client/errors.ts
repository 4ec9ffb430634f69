import { CLOSE, type CloseName, closeName } from '../shared/protocol/close-codes.ts'
import type { ErrorCode } from '../shared/protocol/error-codes.ts'

/** What can go wrong without the server's doing. */
export type LocalErrorCode =
  /** No connection could be made. */
  | 'connection_failed'
  /** The connection broke. */
  | 'connection_lost'
  /** `getToken` failed. */
  | 'token_unavailable'
  /** `client.close()` was called, or the signal given to `connect` fired. */
  | 'client_closed'
  /** Too many reliable messages wait for their ack. */
  | 'queue_full'
  /** What `resume: 'tab'` is to keep finds no room in the storage of the tab. */
  | 'storage_full'
  /** A request was applied, and its message type has no reply. */
  | 'no_reply'

/** Codes of the server's `error` messages and of the connection's end, as docs/protocol.md lists them, and the client's own. */
export type RoomfulErrorCode = ErrorCode | CloseName | LocalErrorCode

/** Every failure the SDK reports. */
export class RoomfulError extends Error {
  /** Always this. */
  override readonly name = 'RoomfulError'
  /** What went wrong, for programs; the message is for people. */
  readonly code: RoomfulErrorCode
  /** Whether the same call may succeed later. */
  readonly retryable: boolean

  constructor(
    code: RoomfulErrorCode,
    message: string,
    options: { retryable?: boolean; cause?: unknown } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.retryable = options.retryable ?? false
  }
}

/** Why a connection ended, from its close code and the server's words. */
export function closeError(code: number, reason: string): RoomfulError {
  const name = closeName(code)
  if (name === undefined)
    return new RoomfulError('connection_lost', `The connection broke (close code ${code}).`, {
      retryable: true,
    })
  const message = `The server closed the connection (${code}): ${(reason || name).replace(/\.$/, '')}.`
  return new RoomfulError(name, message, { retryable: CLOSE[name].retry !== 'never' })
}

/** The error for what still waits when `client.close()` is called. */
export const closedByCaller = (): RoomfulError =>
  new RoomfulError('client_closed', 'The client was closed by client.close() or its signal.')
