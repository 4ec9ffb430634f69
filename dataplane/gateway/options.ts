import { type Defaults, defaultConfig } from '../../shared/config.ts'
import type { Limits } from '../../shared/protocol/messages.ts'

/** How a gateway behaves: as the configuration of its node says, and in what no variable sets. */
export interface GatewayOptions extends Defaults<'dataplane'> {
  /** What clients are told and held to. */
  readonly limits: Limits
  /** How long a client may take to say `hello`, and to send a fresh token after a resume with an expired one. */
  readonly handshake_ms: number
  /** How long a resume waits for the rooms' answers before it says `welcome`; a question without an answer is asked again after it. */
  readonly attach_wait_ms: number
  /** How long a join may stay without an answer before it fails with `room_unavailable`. */
  readonly join_wait_ms: number
}

/** What is given, and the defaults of the variables for the rest. */
export function gatewayOptions(given: Partial<GatewayOptions> = {}): GatewayOptions {
  const config = { ...defaultConfig('dataplane'), ...given }
  return {
    limits: {
      max_message_bytes: config.max_message_bytes,
      messages_per_second: config.session_messages_per_second,
      message_burst: 2 * config.session_messages_per_second,
      max_rooms: config.max_rooms_per_session,
    },
    handshake_ms: 5000,
    attach_wait_ms: 2000,
    join_wait_ms: 10_000,
    ...config,
  }
}
