/**
 * Every websocket close code that roomful sends. No other file has a bare number. From 4000 on, the hundred of a code tells the client what to
 * do (`closeAdvice`).
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

/** Meanings of the codes, for close reasons and the documentation. Separate from `CLOSE`, so that pages do not load them. */
export const CLOSE_MEANINGS: Readonly<Record<CloseName, string>> = {
  normal: 'the client said goodbye',
  overloaded: 'the service has no room for more',
  protocol_error: 'a frame broke the protocol',
  unauthenticated: 'the token was not accepted',
  revoked: 'the key or the tokens of the player were revoked',
  banned: 'the player is banned: the close reason begins with banned',
  session_taken_over: 'a newer connection resumed this session',
  rate_limited: 'far too many messages, or too many sessions of one player',
  payload_too_large: 'a frame was larger than limits.max_message_bytes',
  draining: 'the node is going away: resume on another',
  room_unavailable: 'the room cannot be reached at the moment',
  slow_consumer: 'the client read too slowly for too long',
  handshake_timeout: 'no hello arrived in time',
  token_expired: 'the token has expired',
  resume_failed: 'the session cannot be resumed',
}

/** What a client does after its connection was closed. */
type CloseAdvice =
  /** Nothing: the same attempt would end the same way. */
  | 'end'
  /** Connect again with backoff, and resume. */
  | 'resume'
  /** The same with a fresh token. */
  | 'refresh'
  /** Start a new session. */
  | 'restart'

const ADVICE: { readonly [hundred: number]: CloseAdvice } = { 40: 'end', 42: 'refresh', 43: 'restart' }

/** What a client does after a close with this code. The answer also holds for codes of later versions. */
export const closeAdvice = (code: number): CloseAdvice => ADVICE[Math.floor(code / 100)] ?? 'resume'

/** The name of a close code. Undefined for codes that roomful does not send, such as 1006. */
export const closeName = (code: number): CloseName | undefined =>
  (Object.keys(CLOSE) as CloseName[]).find((name) => CLOSE[name] === code)
