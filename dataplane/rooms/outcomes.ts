import type { Clock } from '../../shared/clock.ts'
import type { Claim, Release } from '../../shared/store/port.ts'
import type { RequestAnswer, RoomRequest } from '../traffic.ts'
import { type JournalFormat, UnreadableRecord } from './journal.ts'
import type { Outcome, Table } from './table.ts'

/** How long a room keeps the outcome of a request, in milliseconds. */
export const OUTCOME_MS = 600_000
/** Maximum number of outcomes of a room. */
const MAX_OUTCOMES = 2000
/** Maximum size of a room's outcomes, as bytes of JSON. */
const MAX_OUTCOME_BYTES = 1024 * 1024

const bytesOf = ({ id, hash, answer }: Outcome): number =>
  id.length + hash.length + Buffer.byteLength(JSON.stringify(answer))

/** Bounds and expiry of a room's outcomes. */
export class Outcomes {
  readonly #table: Table<Outcome>
  readonly #clock: Pick<Clock, 'now'>
  #bytes = 0

  constructor(table: Table<Outcome>, clock: Pick<Clock, 'now'>) {
    this.#table = table
    this.#clock = clock
    for (const row of table.rows) this.#bytes += bytesOf(row)
  }

  /** Outcome of an id. Outcomes that have expired are deleted first. */
  get(id: string): Outcome | undefined {
    const now = this.#clock.now()
    for (let { next } = this.#table; next && next.due <= now; { next } = this.#table) {
      this.#table.delete(next.id)
      this.#bytes -= bytesOf(next)
    }
    return this.#table.get(id)
  }

  /** Time in milliseconds until the oldest outcome expires, if the room may not store another one before; else 0. */
  get fullForMs(): number {
    const isFull = this.#table.size >= MAX_OUTCOMES || this.#bytes >= MAX_OUTCOME_BYTES
    return isFull ? this.#table.next!.due - this.#clock.now() : 0
  }

  /** Stores the outcome of a request for 10 minutes, in place of an earlier one. */
  set({ id, hash }: Pick<Outcome, 'id' | 'hash'>, answer: RequestAnswer): Outcome {
    const before = this.#table.get(id)
    if (before) this.#bytes -= bytesOf(before)
    const outcome = { id, hash, due: this.#clock.now() + OUTCOME_MS, answer }
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

/** Returns the outcomes that an earlier room of this name has left and that have not expired; none if they are damaged. Throws NewerRecord. */
export function outcomesLeft(
  { outcomes }: Pick<Claim, 'outcomes'>,
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

/** Returns the answer to a request whose id has `outcome`. */
export const answerOf = ({ hash }: RoomRequest, outcome: Outcome): RequestAnswer =>
  outcome.hash === hash
    ? outcome.answer
    : { code: 'conflict', message: 'the same idempotency key was used for another request' }

/** As `answerOf`, where an earlier room has left the outcome. The reservations of that room have ended with it. */
export function answerLeft(request: RoomRequest, outcome: Outcome): RequestAnswer {
  if (request.do.op !== 'cancel') return answerOf(request, outcome)
  const { epoch, seq } = 'reply' in outcome.answer ? outcome.answer : { epoch: 0, seq: 0 }
  return { reply: { cancelled: true }, epoch, seq }
}
