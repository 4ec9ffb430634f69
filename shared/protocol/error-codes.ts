/**
 * All websocket close codes that roomful sends. Other files use these names instead of numbers. From 4000 on, the hundreds of a code tell
 * the client what to do (`closeAdvice`).
 */
export const CLOSE = {
  normal: 1000,
  overloaded: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  revoked: 4003,
  banned: 4003,
  session_taken_over: 4005,
  rate_limited: 4006,
  payload_too_large: 4008,
  draining: 4101,
  room_unavailable: 4102,
  slow_consumer: 4103,
  handshake_timeout: 4104,
  token_expired: 4200,
  resume_failed: 4300,
} as const

export type CloseName = keyof typeof CLOSE

/** Meanings of the codes, for close reasons and the documentation. Separate from `CLOSE`, so that web pages do not load them. */
export const CLOSE_MEANINGS: Readonly<Record<CloseName, string>> = {
  normal: 'the client sent goodbye',
  overloaded: 'the node cannot serve the client now',
  protocol_error: 'a frame was invalid or not allowed',
  unauthenticated: 'the token is invalid',
  revoked: 'key or tokens revoked, project disabled, or session ended by an operator',
  banned: 'the player is banned. The close reason is `banned: ` with a text',
  session_taken_over: 'a newer connection resumed this session',
  rate_limited: 'far too many messages, or too many sessions of one player',
  payload_too_large: 'a frame was larger than limits.max_message_bytes',
  draining: 'the node stops: resume on another node',
  room_unavailable: 'reserved: no node sends it',
  slow_consumer: 'the client read too slowly for too long',
  handshake_timeout: 'the client sent no hello in time',
  token_expired: 'the token has expired',
  resume_failed: 'the session cannot be resumed',
}

/** Action of a client after its connection was closed. */
type CloseAdvice =
  /** None: the next attempt would end in the same way. */
  | 'end'
  /** Reconnect with backoff, and resume. */
  | 'resume'
  /** Reconnect and resume with a new token. */
  | 'refresh'
  /** Start a new session. */
  | 'restart'

const ADVICE: { readonly [hundred: number]: CloseAdvice } = { 40: 'end', 42: 'refresh', 43: 'restart' }

/** Returns the action of a client after a close with this code. It is also defined for codes of later versions. */
export const closeAdvice = (code: number): CloseAdvice => ADVICE[Math.floor(code / 100)] ?? 'resume'

/** Returns the name of a close code. Undefined for codes that roomful does not send, such as 1006. */
export const closeName = (code: number): CloseName | undefined =>
  (Object.keys(CLOSE) as CloseName[]).find((name) => CLOSE[name] === code)

/** All values of `code` in `error` messages of the websocket. `retryable`: the same request may succeed later. docs/errors.ts describes them. */
export const ERRORS = {
  invalid_message: { retryable: false },
  forbidden: { retryable: false },
  unknown_room_type: { retryable: false },
  invalid_options: { retryable: false },
  join_refused: { retryable: false },
  ticket_refused: { retryable: false },
  already_queued: { retryable: false },
  party_full: { retryable: false },
  party_refused: { retryable: false },
  party_timeout: { retryable: false },
  match_failed: { retryable: false },
  gave_up: { retryable: false },
  matched: { retryable: false },
  banned: { retryable: false },
  client_outdated: { retryable: false },
  room_full: { retryable: true },
  room_not_found: { retryable: false },
  queue_full: { retryable: true },
  room_unavailable: { retryable: true },
  overloaded: { retryable: true },
  project_full: { retryable: true },
  too_many_rooms: { retryable: false },
  already_joined: { retryable: false },
  replaced: { retryable: true },
  not_in_room: { retryable: false },
  unknown_type: { retryable: false },
  not_a_player: { retryable: false },
  invalid_payload: { retryable: false },
  rate_limited: { retryable: true },
  too_many_requests: { retryable: true },
  room_logic_refused: { retryable: false },
  room_logic_failed: { retryable: false },
  outcome_unknown: { retryable: false },
  invalid_token: { retryable: false },
} as const satisfies Record<string, { retryable: boolean }>

export type ErrorCode = keyof typeof ERRORS

/** Error of a frame that is not a message of the protocol. The text says what was wrong and what would be right. Closes with 4000. */
export class ProtocolError extends Error {
  override readonly name: string = 'ProtocolError'
}

/** Error of an integer that a double cannot represent exactly. From a client, it makes the message invalid, not the frame. */
export class UnsafeInteger extends ProtocolError {
  /** `about`: the integer, rounded. */
  constructor(about: number) {
    super(`an integer beyond 2^53 - 1 (about ${about}); send it as a string`)
  }
}

/**
 * Error of a well-formed message with wrong fields. It is answered with `error` `invalid_message`, which repeats `ref` and `request_id` if
 * they are readable. `t` and `room_id` are the other readable fields.
 */
export class InvalidMessage extends Error {
  override readonly name = 'InvalidMessage'
  readonly t: string | undefined
  readonly ref: number | undefined
  readonly request_id: number | undefined
  readonly room_id: string | undefined

  constructor(
    message: string,
    about: { t?: string; ref?: number; requestId?: number; roomId?: string } = {},
  ) {
    super(message)
    this.t = about.t
    this.ref = about.ref
    this.request_id = about.requestId
    this.room_id = about.roomId
  }
}
