import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { makerOf } from '../place.ts'
import {
  type MatchPlayer,
  playerOf,
  type RequestAnswer,
  type RequestCode,
  type RequestMessage,
  type RoomAction,
  type RoomAddress,
  type RoomRequest,
  type Shown,
} from '../traffic.ts'
import { joinOptions } from './admission.ts'
import { askAdmit, type Verdict } from './admit.ts'
import type { Changes } from './changes.ts'
import type { ClaimedRoom, Wants } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomLog } from './definition-types.ts'
import { viewOf } from './describe.ts'
import { bounded } from './failures.ts'
import type { Limited } from './limits.ts'
import { memberFor } from './member.ts'
import type { Memberships } from './memberships.ts'
import { answerOf, CONFLICT, OUTCOME_MS, Outcomes } from './outcomes.ts'
import { reserve } from './places.ts'
import type { Replies } from './replies.ts'
import { type CodeRoom, type RoomCode, turnOf } from './room-code.ts'
import type { Scheduler, Timer } from './scheduler.ts'
import type { LiveState } from './state.ts'
import { hashOf, type Outcome, type Tables } from './table.ts'
import type { Turns } from './turn.ts'
import { flushedMembers } from './update.ts'

/** The room of the requests. */
interface AskedRoom extends CodeRoom {
  readonly roomId: string
  readonly address: RoomAddress
  readonly log: RoomLog
  readonly awaited: boolean
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
  readonly code: RoomCode
  readonly scheduler: Scheduler
}

/** Sender of a request. */
interface Asker {
  readonly edge: string
  /** `member_id` of the request. */
  readonly id: string
  /** The request is a `cancel`. */
  readonly cancels: boolean
}

type Reserve = Extract<RoomAction, { op: 'reserve' }>

/** A request for seats of a match that waits for the verdicts of `admit`. */
interface Asking {
  readonly hash: string
  /** Its senders: a repetition waits for the same answer. */
  readonly askers: Asker[]
  readonly timeout: Timer
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
  readonly #post: (run: () => void) => void
  readonly #outcomes: Outcomes
  /** `member_id` of the request that created the room. */
  readonly #maker: string | undefined
  /** By request id. A later owner asks again, because the requests are sent again. */
  readonly #asking = new Map<string, Asking>()
  /** Senders that wait for the commit of an outcome. */
  readonly #waiting = new Map<Outcome, Asker[]>()
  /** Answers to `describe` that wait for the commit of what they show. */
  readonly #describing: (() => void)[] = []
  /** Senders that get their answer when the room has ended. It is the stored outcome, as for later repetitions. */
  readonly #closing: { readonly asker: Asker; readonly answer: RequestAnswer }[] = []

  /** `post`: runs later work when the room can act. */
  constructor(
    { maker }: ClaimedRoom,
    room: AskedRoom,
    turns: Turns,
    replies: Replies,
    needs: RequestNeeds,
    post: (run: () => void) => void,
  ) {
    this.#room = room
    this.#turns = turns
    this.#replies = replies
    this.#needs = needs
    this.#post = post
    this.#outcomes = new Outcomes(room.definition.type, room.tables.outcomes, needs)
    this.#maker = maker
  }

  /** True while `admit` decides about the players of a match. */
  get asking(): boolean {
    return this.#asking.size > 0
  }

  /** The room is no longer here. */
  close(): void {
    for (const id of [...this.#asking.keys()]) this.#stopAsking(id)
  }

  handle(message: RequestMessage, edge: string): void {
    const { member_id: id, request } = message
    const { op } = request.do
    if (request.do.op === 'describe') {
      const shown = request.do
      const answer = () => this.#answer({ edge, id, cancels: false }, this.#described(shown))
      if (!this.#room.inFlight) answer()
      else {
        this.#describing.push(answer)
        this.#room.wants.delivery = true
      }
      return
    }
    const asker = { edge, id, cancels: op === 'cancel' }
    const known = this.#outcomes.get(request.id)
    // Expired outcomes are deleted with the next update.
    this.#room.tables.commit()
    const asking = this.#asking.get(request.id)
    if (op === 'cancel') this.#cancel(asker, request, request.do.subs, known)
    else if (known?.hash === request.hash && op === 'close' && this.#isOwn(known))
      this.#close(asker, known.answer)
    else if (known?.hash === request.hash) this.#repeat(asker, known)
    else if (known) this.#answer(asker, answerOf(request, known))
    else if (asking?.hash === request.hash) asking.askers.push(asker)
    else if (asking) this.#answer(asker, CONFLICT)
    else if (op !== 'close' && this.#outcomes.full) this.#answerFull(asker)
    else if (request.do.op === 'reserve' && request.do.players && this.#room.definition.admit)
      this.#ask(message, request.do, request.do.players, asker)
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

  /** Asks `admit` for all players of a match, side by side. Their verdicts decide the request. */
  #ask(message: RequestMessage, action: Reserve, players: readonly MatchPlayer[], asker: Asker): void {
    const { request } = message
    const { clock, code, limits, scheduler } = this.#needs
    const maker = makerOf(message)!
    const options = joinOptions(code, this.#room, this.#room.definition, maker)
    if (!options.ok) {
      const { failures } = this.#turns
      const { code: reason, message: text } =
        options.cause === undefined
          ? refused('invalid_options', options.message)
          : failures.explain('the validator of the options', options.cause)
      this.#keep(request, refused(reason, text), [asker])
      return
    }
    const verdicts: (Verdict | undefined)[] = players.map(() => undefined)
    const decide = () => this.#post(() => this.#decided(request, action, verdicts, hashOf(maker.options)))
    const timeout = scheduler.timer(decide)
    timeout.at(clock.monotonic() + limits.matchAdmitMs)
    this.#asking.set(request.id, { hash: request.hash, askers: [asker], timeout })
    this.#room.wants.idle = 'anew'
    const asked = players.map(async ({ sub, data }, i) => {
      const name = action.subs[i]!
      const turn = {
        ...turnOf(this.#room, 'admit'),
        subject: name,
        principal: sub === null ? name : playerOf(sub, name),
      }
      const member = memberFor({ id: name, sub, connected: true, spectator: false, data })
      verdicts[i] = await askAdmit(this.#room, member, options.value, turn, this.#needs)
    })
    void Promise.all(asked).then(decide)
  }

  /** Stops waiting for `admit`. Returns the senders of the request. Undefined: it does not wait. */
  #stopAsking(id: string): readonly Asker[] | undefined {
    const asking = this.#asking.get(id)
    if (!asking) return undefined
    asking.timeout.cancel()
    this.#asking.delete(id)
    this.#room.wants.idle ??= 'look'
    return asking.askers
  }

  /** All verdicts are here, or the time is over. A verdict that is missing is undefined. */
  #decided(
    request: RoomRequest,
    action: Reserve,
    verdicts: readonly (Verdict | undefined)[],
    admitted: string,
  ): void {
    const askers = this.#stopAsking(request.id)
    if (!askers) return
    const refusals: { [name: string]: string } = {}
    let failure: RequestAnswer | undefined
    for (const [i, verdict] of verdicts.entries()) {
      if (!verdict) {
        const seconds = this.#needs.limits.matchAdmitMs / 1000
        failure ??= refused('timeout', `admit of ${this.#room.roomId} has not answered within ${seconds} s`)
      } else if ('why' in verdict) refusals[action.subs[i]!] = verdict.why
      else if ('failure' in verdict) {
        const { code, message } = this.#turns.failures.explain('admit', verdict.failure)
        failure = refused(code, message)
      }
    }
    const answer =
      Object.keys(refusals).length > 0
        ? this.#replied({ refused: refusals })
        : (failure ?? this.#reserve(action, admitted).answer)
    this.#keep(request, answer, [...askers])
    this.#endUnused()
  }

  /** Ends the room of a match that is not played. */
  #endUnused(): void {
    const { awaited, memberships, tables, wants } = this.#room
    if (awaited && memberships.playerCount + tables.reservations.size === 0) wants.close = true
  }

  #reserve({ subs, seconds }: Reserve, admitted?: string): Result {
    const { durability, type } = this.#room.definition
    if (durability === 'none')
      return {
        kept: false,
        answer: refused('conflict', `${type} has the durability 'none', which keeps no reservations`),
      }
    const due = Math.ceil(this.#needs.clock.now() + seconds * 1000)
    const text = `${this.#room.roomId} has too few free seats, or has banned one of the players`
    if (!reserve(subs, due, this.#room.definition, this.#room, this.#needs, admitted))
      return { kept: true, answer: refused('room_full', text) }
    this.#turns.rowsChanged()
    return this.#done({ reserved: true })
  }

  #kick(sub: string, reason: string | undefined): number {
    const { memberships } = this.#room
    const kicked = [...memberships].filter(({ member }) => member.sub === sub)
    const end = reason === undefined ? {} : { message: bounded(reason) }
    // `onLeave` of one seat may end another, or the room.
    for (const membership of kicked)
      if (membership.present && !this.#room.wants.close) this.#turns.part(membership, 'kicked', end)
    return kicked.length
  }

  /** Ends the reservations of the request with the same id, or its asking, and refuses that request from now on. */
  #cancel(asker: Asker, request: RoomRequest, subs: readonly string[], known: Outcome | undefined): void {
    if (known && 'code' in known.answer && known.answer.code === 'cancelled') this.#repeat(asker, known)
    else if (!known && this.#outcomes.full) this.#answerFull(asker)
    else {
      if (known && 'reply' in known.answer) {
        for (const sub of subs) this.#room.tables.reservations.delete(sub)
        this.#turns.rowsChanged()
      }
      const askers = known ? this.#waiting.get(known) : this.#stopAsking(request.id)
      if (known) this.#waiting.delete(known)
      this.#keep(known ?? request, refused('cancelled', 'the request was cancelled'), [
        asker,
        ...(askers ?? []),
      ])
      this.#endUnused()
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

const refused = (code: RequestCode, message: string): { code: RequestCode; message: string } => ({
  code,
  message,
})
