import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Claim, Quarantine } from '../../shared/store/port.ts'
import type { TraceContext } from '../../shared/tracing/tracer.ts'
import type { Backlog } from '../backlog.ts'
import { traceOf } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { QuarantineCause } from './metrics.ts'

/** The room is nowhere, and may not be made: for the client who asked for it. */
export interface RefusedRoom {
  readonly refused: Extract<ErrorCode, 'rate_limited' | 'project_full'>
  readonly message: string
}

/** What came of asking for a room: it is this node's (`from`: taken from a dead one), a living node owns it, there is none (and none was to be made), no one may have it for now, or the store is silent. */
export type ClaimResult =
  | (Claim & { readonly from?: string })
  | { readonly elsewhere: string }
  | RefusedRoom
  | 'absent'
  | 'quarantined'
  | 'unavailable'

/** How a room is asked for. */
export interface ClaimOptions {
  /** Also when it is nowhere yet, on the account of this principal (`Session.principal`); undefined: only when it is somewhere. */
  readonly creator: string | undefined
  /** Its owner is dead when its lease has run out, and not before. */
  readonly byLease: boolean
  /** The span of the join that may make the room, where that is recorded. */
  readonly madeFor: TraceContext | undefined
  /** The spans of whoever waits for the room by now. */
  readonly askedBy: () => readonly string[]
}

/** Asks for the ownership of a room (`project/type:key`). */
export type ClaimRoom = (room: string, options: ClaimOptions) => Promise<ClaimResult>

/** How to ask for a room on behalf of those who wait for it; more may come while it is asked for. */
export function claimOptions({ durability }: RoomDefinition, waiting: Backlog): ClaimOptions {
  const join = waiting.waiting.map(({ message }) => message).find((message) => message.kind === 'join')
  return {
    creator: join?.principal,
    // Taking what is kept nowhere from an owner that lives would end it.
    byLease: durability === 'none',
    madeFor: join?.traceparent === undefined ? undefined : join,
    askedBy: () => waiting.waiting.flatMap(({ message }) => traceOf(message) ?? []),
  }
}

/** Why the record of a room is put aside. */
export interface QuarantineReason {
  readonly cause: QuarantineCause
  /** For the log, and for an operator who looks at the record: no state, no payload. */
  readonly text: string
}

/** What is damaged harms no one once it is out of the way; what loops would take down one node after the other if players came back at once. */
const REFUSE_MS: Record<QuarantineCause, number> = { damaged: 0, looping: 60_000 }
const MOST_TEXT = 300

/** What the store is told. */
export const quarantineOf = ({ cause, text }: QuarantineReason, ttlMs: number): Quarantine => ({
  reason: `${cause}: ${text}`.slice(0, MOST_TEXT),
  ttlMs,
  refuseMs: REFUSE_MS[cause],
})
