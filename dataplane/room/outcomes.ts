import type { Clock } from '../../shared/clock.ts'
import type { Claim, Release } from '../../shared/store/port.ts'
import type { RequestAnswer, RoomRequest } from '../traffic.ts'
import { type JournalFormat, UnreadableRecord } from './journal.ts'
import { type Limited, mayHave } from './limits.ts'
import type { Outcome, Table } from './table.ts'

/** How long a room keeps the outcome of a request, in milliseconds. */
export const OUTCOME_MS = 600_000

/** Bytes that count as one outcome, so that the bytes of all are limited too: 2,000 outcomes have 1 MiB. */
const OUTCOME_BYTES = (1024 * 1024) / 2000

/** Bytes of an outcome in a record, with its answer as JSON. */
const bytesOf = ({ id, hash, answer }: Outcome): number =>
  id.length + hash.length + Buffer.byteLength(JSON.stringify(answer))

interface OutcomeNeeds extends Limited {
  readonly clock: Clock
}

/** The request of an outcome. */
interface Answered {
  readonly id: string
  readonly hash: string
}

/** Number and expiry of a room's outcomes. */
export class Outcomes {
  readonly #roomType: string
  readonly #table: Table<Outcome>
  readonly #needs: OutcomeNeeds
  #bytes = 0

  constructor(roomType: string, table: Table<Outcome>, needs: OutcomeNeeds) {
    this.#roomType = roomType
    this.#table = table
    this.#needs = needs
    for (const row of this.#table.rows) this.#bytes += bytesOf(row)
  }

  /** Outcome of an id. Outcomes that have expired are deleted first. */
  get(id: string): Outcome | undefined {
    const now = this.#needs.clock.now()
    for (let { next } = this.#table; next && next.due <= now; { next } = this.#table) {
      this.#table.delete(next.id)
      this.#bytes -= bytesOf(next)
    }
    return this.#table.get(id)
  }

  /** True if the room can store no other outcome before the oldest one expires. */
  get full(): boolean {
    const number = Math.max(this.#table.size, Math.floor(this.#bytes / OUTCOME_BYTES))
    return !mayHave(this.#needs, this.#roomType, 'outcomes', number + 1)
  }

  /** Milliseconds until the oldest outcome expires. */
  get nextEndMs(): number {
    return this.#table.next!.due - this.#needs.clock.now()
  }

  /** Stores the outcome of a request for 10 minutes, in place of an earlier one. */
  set({ id, hash }: Answered, answer: RequestAnswer): Outcome {
    const before = this.#table.get(id)
    if (before) this.#bytes -= bytesOf(before)
    const outcome = { id, hash, due: this.#needs.clock.now() + OUTCOME_MS, answer }
    this.#table.set(outcome)
    this.#bytes += bytesOf(outcome)
    return outcome
  }
}

/** Returns the outcomes that a room leaves for later rooms of its name when it ends. Undefined: none. */
export function outcomesToLeave(
  outcomes: readonly Outcome[],
  format: JournalFormat,
  now: number,
): Release['outcomes'] {
  const left = outcomes.filter(({ due }) => due > now)
  if (left.length === 0) return undefined
  return { value: format.outcomes(left), ttlMs: Math.ceil(Math.max(...left.map(({ due }) => due)) - now) }
}

/**
 * Returns the outcomes that an earlier room of this name has left and that have not expired. None if they are damaged. Throws NewerRecord.
 */
export function outcomesLeft(
  { outcomes }: { readonly outcomes?: Claim['outcomes'] },
  format: JournalFormat,
  now: number,
): readonly Outcome[] {
  if (!outcomes) return []
  try {
    return format.readOutcomes(outcomes).filter(({ due }) => due > now)
  } catch (error) {
    if (error instanceof UnreadableRecord) return []
    throw error
  }
}

/** Answer to a request whose id another request has. */
export const CONFLICT: RequestAnswer = {
  code: 'conflict',
  message: 'the same idempotency key was used for another request',
}

/** Returns the answer to a request whose id has `outcome`. */
export const answerOf = ({ hash }: RoomRequest, outcome: Outcome): RequestAnswer =>
  outcome.hash === hash ? outcome.answer : CONFLICT

/** As `answerOf`, for an outcome that an earlier room has left. The reservations of that room have ended with it. */
export function answerLeft(request: RoomRequest, outcome: Outcome): RequestAnswer {
  if (request.do.op !== 'cancel') return answerOf(request, outcome)
  const { epoch, seq } = 'reply' in outcome.answer ? outcome.answer : { epoch: 0, seq: 0 }
  return { reply: { cancelled: true }, epoch, seq }
}
