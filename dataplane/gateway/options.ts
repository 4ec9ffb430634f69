import { type Defaults, defaultConfig } from '../../shared/config.ts'
import type { Limits } from '../../shared/protocol/messages.ts'

/** How a gateway behaves: as the configuration of its node says, and in what no variable sets. */
export interface GatewayOptions extends Defaults<'dataplane'> {
  /** What clients are told and held to. */
  readonly limits: Limits
  /** How long a client may take to say `hello`, and to send a fresh token after a resume with an expired one. */
  readonly handshakeMs: number
  /** How long a resume waits for the rooms' answers before it says `welcome`; a question without an answer is asked again after it. */
  readonly attachWaitMs: number
  /** How long a join may stay without an answer before it fails with `room_unavailable`. */
  readonly joinWaitMs: number
}

/** What is given, and the defaults of the variables for the rest. */
export function gatewayOptions(given: Partial<GatewayOptions> = {}): GatewayOptions {
  const config = { ...defaultConfig('dataplane'), ...given }
  return {
    limits: {
      max_message_bytes: config.maxMessageBytes,
      messages_per_second: config.sessionMessagesPerSecond,
      message_burst: 2 * config.sessionMessagesPerSecond,
      max_rooms: config.maxRoomsPerSession,
    },
    handshakeMs: 5000,
    attachWaitMs: 2000,
    joinWaitMs: 10_000,
    ...config,
  }
}
