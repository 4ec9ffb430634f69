/** What a client should do when the socket closes with a code. */
type CloseRetry =
  /** Do not reconnect: the same attempt would end the same way. */
  | 'never'
  /** Reconnect with backoff and resume the session. */
  | 'resume'
  /** Only with a fresh token: resume and send it (4002), or start a new session with it (4009). */
  | 'fresh'

/** Every websocket close code roomful sends, with its meaning for reconnecting. No other file has a bare number. */
export const CLOSE = {
  normal: { code: 1000, retry: 'never' },
  overloaded: { code: 1013, retry: 'resume' },
  protocol_error: { code: 4000, retry: 'never' },
  unauthenticated: { code: 4001, retry: 'never' },
  token_expired: { code: 4002, retry: 'fresh' },
  key_revoked: { code: 4003, retry: 'never' },
  handshake_timeout: { code: 4004, retry: 'never' },
  session_taken_over: { code: 4005, retry: 'never' },
  rate_limited: { code: 4006, retry: 'never' },
  slow_consumer: { code: 4007, retry: 'never' },
  payload_too_large: { code: 4008, retry: 'never' },
  resume_failed: { code: 4009, retry: 'fresh' },
  draining: { code: 4100, retry: 'resume' },
  room_unavailable: { code: 4101, retry: 'resume' },
} as const satisfies Record<string, { readonly code: number; readonly retry: CloseRetry }>

export type CloseName = keyof typeof CLOSE

/** Details of each code for servers and the documentation. Separate from `CLOSE`, so that pages do not load them. */
export const CLOSE_DETAILS: Readonly<
  Record<
    CloseName,
    {
      /** True if the session ends with the socket and its members leave immediately. False: the client may resume it. */
      readonly endsSession: boolean
      readonly meaning: string
    }
  >
> = {
  normal: { endsSession: true, meaning: 'the client said goodbye' },
  overloaded: { endsSession: false, meaning: 'the service has no room for more' },
  protocol_error: { endsSession: false, meaning: 'a frame broke the protocol' },
  unauthenticated: { endsSession: true, meaning: 'the token was not accepted' },
  token_expired: { endsSession: false, meaning: 'the token has expired' },
  key_revoked: {
    endsSession: true,
    meaning: 'the key of the token, or the tokens of its player, were revoked',
  },
  handshake_timeout: { endsSession: true, meaning: 'no hello arrived in time' },
  session_taken_over: { endsSession: false, meaning: 'a newer connection resumed this session' },
  rate_limited: { endsSession: false, meaning: 'far too many messages, or too many sessions of one player' },
  slow_consumer: { endsSession: false, meaning: 'the client read too slowly for too long' },
  payload_too_large: { endsSession: false, meaning: 'a frame was larger than limits.max_message_bytes' },
  resume_failed: { endsSession: false, meaning: 'the session cannot be resumed' },
  draining: { endsSession: false, meaning: 'the node is going away: resume on another' },
  room_unavailable: { endsSession: false, meaning: 'the room cannot be reached at the moment' },
}

/** The table row of a close code, or undefined for codes that roomful does not send (1006 and the like: resume). */
export function closeName(code: number): CloseName | undefined {
  return (Object.keys(CLOSE) as CloseName[]).find((name) => CLOSE[name].code === code)
}
