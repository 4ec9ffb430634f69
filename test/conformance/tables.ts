/** The tables of docs/protocol.md §11 and §12, transcribed. */

/** Error code → retryable. */
export const ERROR_CODES: Readonly<Record<string, boolean>> = {
  invalid_message: false,
  forbidden: false,
  unknown_room_type: false,
  invalid_options: false,
  join_refused: false,
  room_full: true,
  room_unavailable: true,
  project_full: true,
  too_many_rooms: false,
  already_joined: false,
  not_in_room: false,
  unknown_type: false,
  invalid_payload: false,
  rate_limited: true,
  room_logic_refused: false,
  room_logic_failed: false,
  invalid_token: false,
}

/** The codes a connection may be closed with, by a name that says why. */
export const CLOSE = {
  goodbye: 1000,
  no_room_for_more: 1013,
  protocol_error: 4000,
  unauthenticated: 4001,
  token_expired: 4002,
  key_revoked: 4003,
  hello_timeout: 4004,
  taken_over: 4005,
  rate_limited: 4006,
  slow_reader: 4007,
  too_large: 4008,
  resume_failed: 4009,
  draining: 4100,
  room_unavailable: 4101,
} as const
