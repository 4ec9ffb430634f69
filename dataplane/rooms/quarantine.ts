import type { Quarantine } from '../../shared/store/port.ts'
import type { QuarantineCause } from './metrics.ts'

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
export const quarantineOf = ({ cause, text }: QuarantineReason, ttl_ms: number): Quarantine => ({
  reason: `${cause}: ${text}`.slice(0, MOST_TEXT),
  ttl_ms,
  refuse_ms: REFUSE_MS[cause],
})
