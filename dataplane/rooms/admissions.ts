import type { Clock } from '../../shared/clock.ts'
import type { ToOwner } from '../traffic.ts'
import type { Turns } from '../watchdog/turns.ts'
import type { AdmitContext, Member, RoomDefinition } from './definition.ts'

export type JoinRequest = Extract<ToOwner, { kind: 'join' }>

/** What became of a join that was to be admitted. */
export type Verdict =
  | { readonly admitted: true }
  | { readonly admitted: false; readonly why: string }
  | { readonly admitted: false; readonly failure: unknown }

/** A join whose `admit` is running. */
interface Running {
  readonly request: JoinRequest
  /** What came for this member meanwhile, in order: of each kind the last. */
  readonly waiting: Map<string, () => void>
  readonly cancelTimeout: () => void
}

const ADMITTED: Verdict = { admitted: true }

/** The joins of one room that are being admitted. Each holds a place, so that a full room stays a full room. */
export class Admissions {
  readonly #clock: Clock
  readonly #timeout_ms: number
  readonly #turns: Pick<Turns, 'awaits'>
  readonly #running = new Map<string, Running>()

  constructor(clock: Clock, timeout_ms: number, turns: Pick<Turns, 'awaits'>) {
    this.#clock = clock
    this.#timeout_ms = timeout_ms
    this.#turns = turns
  }

  get size(): number {
    return this.#running.size
  }

  /** The running join of a session. */
  ofSession(session_id: string): JoinRequest | undefined {
    for (const { request } of this.#running.values()) if (request.session_id === session_id) return request
    return undefined
  }

  /** Whether the join of this member is running. */
  has(member_id: string): boolean {
    return this.#running.has(member_id)
  }

  /** Asks `admit`; `settled` is called once, in this turn when there is nothing to wait for, and never after `cancel`. */
  ask(
    definition: RoomDefinition,
    request: JoinRequest,
    member: Member,
    options: unknown,
    ctx: AdmitContext,
    settled: (verdict: Verdict) => void,
  ): void {
    const answer = answerOf(definition, member, options, ctx)
    if (!(answer instanceof Promise)) {
      settled(answer)
      return
    }
    const settle = (verdict: Verdict) => {
      if (this.#running.get(request.member_id) !== running) return
      this.#running.delete(request.member_id)
      running.cancelTimeout()
      settled(verdict)
      for (const wait of running.waiting.values()) wait()
    }
    const running: Running = {
      request,
      waiting: new Map(),
      cancelTimeout: this.#clock.schedule(this.#timeout_ms, () =>
        settle(refused(`the room did not decide within ${this.#timeout_ms / 1000} seconds: try again`)),
      ),
    }
    this.#running.set(request.member_id, running)
    this.#turns.awaits(definition.type, 1)
    answer.then((verdict) => {
      this.#turns.awaits(definition.type, -1)
      settle(verdict)
    })
  }

  /** Makes something of this member wait for its join, in the place of an earlier one of its kind; false when no join is running. */
  wait(member_id: string, kind: 'attach' | 'detach', then: () => void): boolean {
    const running = this.#running.get(member_id)
    running?.waiting.delete(kind)
    running?.waiting.set(kind, then)
    return running !== undefined
  }

  /** The join is not wanted any more; false when none is running. */
  cancel(member_id: string): JoinRequest | undefined {
    const running = this.#running.get(member_id)
    running?.cancelTimeout()
    this.#running.delete(member_id)
    return running?.request
  }

  /** Ends all of them without a verdict. */
  cancelAll(): readonly JoinRequest[] {
    return [...this.#running.keys()].flatMap((member_id) => this.cancel(member_id) ?? [])
  }
}

/** What `admit` says, now or later. Neither throws nor rejects. */
function answerOf(
  definition: RoomDefinition,
  member: Member,
  options: unknown,
  ctx: AdmitContext,
): Verdict | Promise<Verdict> {
  try {
    const answer: unknown = definition.admit?.(member, options, ctx)
    return isPromise(answer) ? Promise.resolve(answer).then(verdictOf, failed) : verdictOf(answer)
  } catch (error) {
    return failed(error)
  }
}

const refused = (why: string): Verdict => ({ admitted: false, why })

const verdictOf = (answer: unknown): Verdict =>
  typeof answer === 'string' ? refused(answer.slice(0, 300) || 'the room refused the join') : ADMITTED

const failed = (failure: unknown): Verdict => ({ admitted: false, failure })

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function'
