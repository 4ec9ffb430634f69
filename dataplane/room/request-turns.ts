import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { RequestAnswer, RequestMessage, RoomAction, RoomRequest, Shown } from '../traffic.ts'
import type { Changes } from './changes.ts'
import type { ClaimedRoom, Wants } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import { viewOf } from './describe.ts'
import { bounded } from './failures.ts'
import type { Limited } from './limits.ts'
import type { Memberships } from './memberships.ts'
import { answerOf, OUTCOME_MS, Outcomes } from './outcomes.ts'
import type { Replies } from './replies.ts'
import type { LiveState } from './state.ts'
import { type Outcome, reserve, type Tables } from './table.ts'
import type { Turns } from './turn.ts'
import { flushedMembers } from './update.ts'

/** The room of the requests. */
interface AskedRoom {
  readonly roomId: string
  readonly createdAt: number
  readonly epoch: number
  readonly seq: number
  readonly definition: RoomDefinition
  readonly state: LiveState
  readonly tables: Tables
  readonly memberships: Memberships
  readonly changes: Changes
  readonly inFlight: object | undefined
  readonly wants: Wants
}

/** Dependencies of the requests of a room. */
export interface RequestNeeds extends Limited {
  readonly clock: Clock
}

/** Sender of a request. */
interface Asker {
  readonly edge: string
  /** `member_id` of the request. */
  readonly id: string
  /** The request is a `cancel`. */
  readonly cancels: boolean
}

/** Result of a request. `kept`: the room stores the answer. `kept: false`: the room does not accept the request. */
type Result = { readonly kept: boolean; readonly answer: RequestAnswer }

/**
 * Requests of backends, operators and queues to one room. Each is one turn, whose effects and outcome are in one commit. The answer is sent
 * after the commit. A repeated request gets the stored outcome.
 */
export class RequestTurns {
  readonly #room: AskedRoom
  readonly #turns: Turns
  readonly #replies: Replies
  readonly #needs: RequestNeeds
  readonly #outcomes: Outcomes
  /** `member_id` of the request that created the room. */
  readonly #maker: string | undefined
  /** Senders that wait for the commit of an outcome. */
  readonly #waiting = new Map<Outcome, Asker[]>()
  /** Answers to `describe` that wait for the commit of what they show. */
  readonly #describing: (() => void)[] = []
  /** Senders that get their answer when the room has ended. It is the stored outcome, as for later repetitions. */
  readonly #closing: { readonly asker: Asker; readonly answer: RequestAnswer }[] = []

  constructor({ maker }: ClaimedRoom, room: AskedRoom, turns: Turns, replies: Replies, needs: RequestNeeds) {
    this.#room = room
    this.#turns = turns
    this.#replies = replies
    this.#needs = needs
    this.#outcomes = new Outcomes(room.definition.type, room.tables.outcomes, needs)
    this.#maker = maker
  }

  handle({ member_id: id, request }: RequestMessage, edge: string): void {
    const { op } = request.do
    if (request.do.op === 'describe') {
      const shown = request.do
      const answer = () => this.#answer({ edge, id, cancels: false }, this.#described(shown))
      if (this.#room.inFlight) this.#describing.push(answer)
      else answer()
      return
    }
    const asker = { edge, id, cancels: op === 'cancel' }
    const known = this.#outcomes.get(request.id)
    // Expired outcomes are deleted with the next update.
    this.#room.tables.commit()
    if (op === 'cancel') this.#cancel(asker, request, request.do.subs, known)
    else if (known?.hash === request.hash && op === 'close' && this.#isOwn(known))
      this.#close(asker, known.answer)
    else if (known?.hash === request.hash) this.#repeat(asker, known)
    else if (known) this.#answer(asker, answerOf(request, known))
    else if (op !== 'close' && this.#outcomes.full) this.#answerFull(asker)
    else {
      const { kept, answer } = this.#run(request, id)
      if (!kept) this.#answer(asker, answer)
      else if (op !== 'close') this.#keep(request, answer, [asker])
      else {
        this.#keep(request, answer, [])
        this.#close(asker, answer)
      }
    }
  }

  /** A flush is delivered: sends the answers that show the flushed room. */
  delivered(): void {
    for (const answer of this.#describing.splice(0)) answer()
  }

  /** The update with these outcomes is committed: sends them. */
  committed(outcomes: readonly Outcome[]): void {
    for (const outcome of outcomes) {
      for (const asker of this.#waiting.get(outcome) ?? []) this.#answer(asker, outcome.answer)
      this.#waiting.delete(outcome)
    }
  }

  /** The room has ended: answers the requests to close it. */
  ended(): void {
    for (const { asker, answer } of this.#closing) this.#answer(asker, answer)
  }

  #close(asker: Asker, answer: RequestAnswer): void {
    this.#closing.push({ asker, answer })
    this.#room.wants.close = true
  }

  #run({ id, do: action }: RoomRequest, attempt: string): Result {
    switch (action.op) {
      case 'call':
        return this.#call(id, action)
      case 'reserve':
        return this.#reserve(action)
      case 'kick':
        return this.#done({ kicked: this.#kick(action.sub, action.reason) })
      case 'close':
        return this.#done({ ended: true })
      case 'open':
        return this.#done({ created: attempt === this.#maker })
      case 'cancel':
      case 'describe':
        throw new Error(`${action.op} has no outcome`)
    }
  }

  #call(id: string, { name, data, caller }: Extract<RoomAction, { op: 'call' }>): Result {
    const outcome = this.#turns.call(id, name, data, caller)
    if ('reply' in outcome) return this.#done(outcome.reply ?? null)
    const { code, message } = outcome
    if (code === 'invalid_request') return { kept: false, answer: refused(code, message) }
    return { kept: true, answer: refused(code, message) }
  }

  #reserve({ subs, seconds }: Extract<RoomAction, { op: 'reserve' }>): Result {
    const { durability, type } = this.#room.definition
    if (durability === 'none')
      return {
        kept: false,
        answer: refused('conflict', `${type} has the durability 'none', which keeps no reservations`),
      }
    const due = Math.ceil(this.#needs.clock.now() + seconds * 1000)
    const text = `${this.#room.roomId} has too few free seats, or has banned one of the players`
    if (!reserve(subs, due, this.#room.definition, this.#room, this.#needs))
      return { kept: true, answer: refused('room_full', text) }
    this.#turns.rowsChanged()
    return this.#done({ reserved: true })
  }

  #kick(sub: string, reason: string | undefined): number {
    const { memberships } = this.#room
    const kicked = [...memberships].filter(({ member }) => member.sub === sub)
    const text = reason === undefined ? undefined : bounded(reason)
    // `onLeave` of one seat may end another, or the room.
    for (const membership of kicked)
      if (memberships.has(membership) && !this.#room.wants.close) this.#turns.part(membership, 'kicked', text)
    return kicked.length
  }

  /** Ends the reservations of the request with the same id, and refuses that request from now on. */
  #cancel(asker: Asker, request: RoomRequest, subs: readonly string[], known: Outcome | undefined): void {
    if (known && 'code' in known.answer && known.answer.code === 'cancelled') this.#repeat(asker, known)
    else if (!known && this.#outcomes.full) this.#answerFull(asker)
    else {
      if (known && 'reply' in known.answer) {
        for (const sub of subs) this.#room.tables.reservations.delete(sub)
        this.#turns.rowsChanged()
      }
      const askers = known ? this.#waiting.get(known) : undefined
      if (known) this.#waiting.delete(known)
      this.#keep(known ?? request, refused('cancelled', 'the request was cancelled'), [
        asker,
        ...(askers ?? []),
      ])
    }
  }

  #answerFull(asker: Asker): void {
    const seconds = Math.ceil(this.#outcomes.nextEndMs / 1000)
    const text = `${this.#room.roomId} keeps the outcomes of as many requests as it may: try again in ${seconds} s`
    this.#answer(asker, { ...refused('rate_limited', text), retry_after_seconds: seconds })
  }

  /** False if an earlier room with this key has left the outcome. */
  #isOwn({ due }: Outcome): boolean {
    return due - OUTCOME_MS > this.#room.createdAt
  }

  #repeat(asker: Asker, known: Outcome): void {
    const waiting = this.#waiting.get(known)
    if (waiting) waiting.push(asker)
    else this.#answer(asker, known.answer)
  }

  #keep(
    request: { readonly id: string; readonly hash: string },
    answer: RequestAnswer,
    askers: Asker[],
  ): void {
    const outcome = this.#outcomes.set(request, answer)
    this.#room.tables.commit()
    this.#waiting.set(outcome, askers)
    this.#room.wants.flush = 'soon'
  }

  /** The room as of its last flush. */
  #described(shown: Shown): RequestAnswer {
    const { state, tables } = this.#room
    return this.#replied(
      viewOf(
        { members: flushedMembers(this.#room), reservations: tables.reservations.flushed, state },
        shown,
      ),
    )
  }

  #done(reply: Json): Result {
    return { kept: true, answer: this.#replied(reply) }
  }

  #replied(reply: Json): RequestAnswer {
    return { reply, epoch: this.#room.epoch, seq: this.#room.seq }
  }

  #answer({ edge, id, cancels }: Asker, answer: RequestAnswer): void {
    const isCancelled = cancels && 'code' in answer && answer.code === 'cancelled'
    this.#replies.send(edge, {
      kind: 'answer',
      member_id: id,
      answer: isCancelled ? this.#replied({ cancelled: true }) : answer,
    })
  }
}

const refused = (
  code: Extract<RequestAnswer, { message: string }>['code'],
  message: string,
): RequestAnswer => ({ code, message })
