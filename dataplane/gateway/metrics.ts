import type { CloseName } from '../../shared/protocol/close-codes.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'

import type { KeyStatusFault } from './key-status.ts'

/** How a handshake ended: with a session, a resumed session, or a close code. */
export type HandshakeResult = 'welcome' | 'resumed' | CloseName

/** What the gateway counts; ops/ turns it into metrics. Called on the hot path: implementations must be cheap and must not throw. */
export interface GatewayMetrics {
  /** A handshake ended; `seconds` from the accepted socket to the answer. */
  handshake(result: HandshakeResult, seconds: number): void
  /** A join was answered; `seconds` from the request. */
  join(result: 'joined' | ErrorCode, seconds: number): void
  /** A room of a resuming session: its missed frames were sent, a whole state was, or the seat was gone. */
  roomResumed(result: 'frames' | 'resync' | 'lost'): void
  /** A reliable message was acked; `seconds` from its arrival. A sample: at most one at a time per seat. */
  acked(seconds: number): void
  /** An `error` was sent to a client. */
  error(code: ErrorCode): void
  /** A connection ended: by us with a code of the table, by the client's goodbye (`normal`), or otherwise (`lost`). */
  closed(name: CloseName | 'lost'): void
  /** A message was not forwarded, a ping or pong of the websocket ignored, or a token not accepted, because the session, or the player, sends too many. */
  rateLimited(by: 'session' | 'control_frame' | 'hello'): void
  /** Nothing more was read of a connection until its session is within its rate again, or until the others had their turn. */
  readingPaused(reason: 'rate' | 'turn'): void
  /** A join, a resume or a resync has to wait, since its player had as many bytes of whole states as may come at once. */
  stateDelayed(): void
  /** A session without a connection was ended, since its player or token began another. */
  sessionEvicted(): void
  /** A socket was ended before it had a session: the node has as many as it takes, or as many that are `pending`, or the address has, or opens them too fast (`rate`). */
  connectionDropped(reason: 'node' | 'pending' | 'address' | 'rate'): void
  /** A reliable message was turned away, since too many of its seat, or too large ones, wait for their owner. */
  unackedFull(): void
  /** A room's patches stopped for a client that reads too slowly. */
  stalled(): void
  messageIn(type: ClientMessage['t'], bytes: number): void
  /** All writes of one turn: how many sockets were written to, and how many bytes. */
  written(bytes: number, writes: number): void
  /** Control was asked about a key, or was not since this node asks too much already (`busy`). */
  keyCheck(result: 'ok' | KeyStatusFault): void
  /** A resume with a used token was refused, since there is no waiting for what becomes of the later one. */
  resumeWaitRefused(): void
}

/** Counts nothing. */
export const noMetrics: GatewayMetrics = {
  handshake() {},
  join() {},
  roomResumed() {},
  acked() {},
  error() {},
  closed() {},
  rateLimited() {},
  readingPaused() {},
  stateDelayed() {},
  sessionEvicted() {},
  connectionDropped() {},
  unackedFull() {},
  stalled() {},
  messageIn() {},
  written() {},
  keyCheck() {},
  resumeWaitRefused() {},
}
