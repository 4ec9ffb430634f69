/** What a client should do when the socket closes with a code. */
type CloseRetry =
  /** Do not reconnect: the same attempt would end the same way. */
  | 'never'
  /** Reconnect with backoff and resume the session. */
  | 'resume'
  /** Only with a fresh token: resume and send it (4002), or start a new session with it (4009). */
  | 'fresh'

interface CloseCode {
  readonly code: number
  readonly retry: CloseRetry
  /** Whether the session ends with the socket (its members leave at once) instead of waiting to be resumed. */
  readonly endsSession: boolean
  readonly meaning: string
}

/** Every websocket close code roomful sends, with its meaning for reconnecting. No other file has a bare number. */
export const CLOSE = {
  normal: { code: 1000, retry: 'never', endsSession: true, meaning: 'the client said goodbye' },
  overloaded: {
    code: 1013,
    retry: 'resume',
    endsSession: false,
    meaning: 'the service has no room for more',
  },
  protocol_error: { code: 4000, retry: 'never', endsSession: false, meaning: 'a frame broke the protocol' },
  unauthenticated: { code: 4001, retry: 'never', endsSession: true, meaning: 'the token was not accepted' },
  token_expired: { code: 4002, retry: 'fresh', endsSession: false, meaning: 'the token has expired' },
  key_revoked: {
    code: 4003,
    retry: 'never',
    endsSession: true,
    meaning: 'the key of the token, or the tokens of its player, were revoked',
  },
  handshake_timeout: { code: 4004, retry: 'never', endsSession: true, meaning: 'no hello arrived in time' },
  session_taken_over: {
    code: 4005,
    retry: 'never',
    endsSession: false,
    meaning: 'a newer connection resumed this session',
  },
  rate_limited: {
    code: 4006,
    retry: 'never',
    endsSession: false,
    meaning: 'far too many messages, or too many sessions of one player',
  },
  slow_consumer: {
    code: 4007,
    retry: 'never',
    endsSession: false,
    meaning: 'the client read too slowly for too long',
  },
  payload_too_large: {
    code: 4008,
    retry: 'never',
    endsSession: false,
    meaning: 'a frame was larger than limits.max_message_bytes',
  },
  resume_failed: {
    code: 4009,
    retry: 'fresh',
    endsSession: false,
    meaning: 'the session cannot be resumed',
  },
  draining: {
    code: 4100,
    retry: 'resume',
    endsSession: false,
    meaning: 'the node is going away: resume on another',
  },
  room_unavailable: {
    code: 4101,
    retry: 'resume',
    endsSession: false,
    meaning: 'the room cannot be reached at the moment',
  },
} as const satisfies Record<string, CloseCode>

export type CloseName = keyof typeof CLOSE

/** The table row of a close code, or undefined for codes that roomful does not send (1006 and the like: resume). */
export function closeName(code: number): CloseName | undefined {
  return (Object.keys(CLOSE) as CloseName[]).find((name) => CLOSE[name].code === code)
}
