import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Claim, Release } from '../../shared/store/port.ts'
import type { RequestAnswer, RequestMessage, RoomAction, RoomRequest, Shown } from '../traffic.ts'
import { viewOf } from './describe.ts'
import { bounded, validateInput } from './failures.ts'
import { handleOfCall, type Inputs } from './inputs.ts'
import { type JournalFormat, UnreadableRecord } from './journal.ts'
import { mayHave } from './limits.ts'
import type { Room } from './room.ts'
import { turnOf } from './room-code.ts'
import type { ClaimedRoom, RoomStream } from './stream.ts'
import { type Outcome, reserve, type Table } from './table.ts'

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
  readonly #stream: RoomStream
  readonly #inputs: Inputs
  readonly #room: Room
  readonly #outcomes: Outcomes
  /** `member_id` of the request that created the room. */
  readonly #maker: string | undefined
  /** Senders that wait for the commit of an outcome. */
  readonly #waiting = new Map<Outcome, Asker[]>()
  /** Answers to `describe` that wait for the commit of what they show. */
  readonly #describing: (() => void)[] = []
  /** Senders that get their answer when the room has ended. It is the stored outcome, as for later repetitions. */
  readonly #closing: { readonly asker: Asker; readonly answer: RequestAnswer }[] = []

  constructor({ maker }: ClaimedRoom, room: Room, inputs: Inputs) {
    this.#room = room
    this.#stream = room.stream
    this.#inputs = inputs
    this.#outcomes = new Outcomes(room.stream)
    this.#maker = maker
  }

  handle({ member_id: id, request }: RequestMessage, edge: string): void {
    const { op } = request.do
    if (request.do.op === 'describe') {
      const shown = request.do
      const answer = () => this.#answer({ edge, id, cancels: false }, this.#described(shown))
      if (this.#stream.committing) this.#describing.push(answer)
      else answer()
      return
    }
    const asker = { edge, id, cancels: op === 'cancel' }
    const known = this.#outcomes.get(request.id)
    // Expired outcomes are deleted with the next update.
    this.#stream.tables.commit()
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
    this.#room.close()
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
    const { failures, handlers } = this.#inputs
    const { definition } = handlers
    const spec = Object.hasOwn(definition.calls, name) ? definition.calls[name] : undefined
    if (!spec) {
      const names = Object.keys(definition.calls).join(', ') || 'none'
      const text = `${definition.type} has no call ${JSON.stringify(name.slice(0, 80))}: there are ${names}`
      return { kept: false, answer: refused('invalid_request', text) }
    }
    const turn = { ...turnOf(this.#stream, 'onCall'), subject: id, type: name }
    try {
      const outcome = this.#stream.environment.code.run(turn, () => {
        const valid = validateInput(spec.data, data)
        if (!valid.ok && valid.cause !== undefined) throw valid.cause
        if (!valid.ok) return valid
        const input = { data: valid.value, caller: { keyId: caller.key_id, callId: caller.call_id } }
        return handlers.call(name, spec, input)
      })
      if ('ok' in outcome) return { kept: false, answer: refused('invalid_request', outcome.message) }
      this.#inputs.takeOver(outcome)
      return this.#done(outcome.reply ?? null)
    } catch (error) {
      const { code, message } = failures.explain(handleOfCall(name), error)
      this.#stream.replies.countError(code)
      return { kept: true, answer: refused(code, message) }
    }
  }

  #reserve({ subs, seconds }: Extract<RoomAction, { op: 'reserve' }>): Result {
    const { definition } = this.#inputs.handlers
    const { durability, type } = definition
    if (durability === 'none')
      return {
        kept: false,
        answer: refused('conflict', `${type} has the durability 'none', which keeps no reservations`),
      }
    const due = Math.ceil(this.#stream.environment.clock.now() + seconds * 1000)
    const text = `${this.#stream.roomId} has too few free seats, or has banned one of the players`
    if (!reserve(subs, due, definition, this.#stream))
      return { kept: true, answer: refused('room_full', text) }
    this.#inputs.rowsChanged()
    return this.#done({ reserved: true })
  }

  #kick(sub: string, reason: string | undefined): number {
    const { memberships } = this.#stream
    const kicked = [...memberships].filter(({ member }) => member.sub === sub)
    const text = reason === undefined ? undefined : bounded(reason)
    // `onLeave` of one seat may end another.
    for (const membership of kicked)
      if (memberships.has(membership)) this.#inputs.part(membership, 'kicked', text)
    return kicked.length
  }

  /** Ends the reservations of the request with the same id, and refuses that request from now on. */
  #cancel(asker: Asker, request: RoomRequest, subs: readonly string[], known: Outcome | undefined): void {
    if (known && 'code' in known.answer && known.answer.code === 'cancelled') this.#repeat(asker, known)
    else if (!known && this.#outcomes.full) this.#answerFull(asker)
    else {
      if (known && 'reply' in known.answer) {
        for (const sub of subs) this.#stream.tables.reservations.delete(sub)
        this.#inputs.rowsChanged()
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
    const text = `${this.#stream.roomId} keeps the outcomes of as many requests as it may: try again in ${seconds} s`
    this.#answer(asker, { ...refused('rate_limited', text), retry_after_seconds: seconds })
  }

  /** False if an earlier room with this key has left the outcome. */
  #isOwn({ due }: Outcome): boolean {
    return due - OUTCOME_MS > this.#stream.createdAt
  }

  #repeat(asker: Asker, known: Outcome): void {
    const waiting = this.#waiting.get(known)
    if (waiting) waiting.push(asker)
    else this.#answer(asker, known.answer)
  }

  #keep(request: Pick<RoomRequest, 'id' | 'hash'>, answer: RequestAnswer, askers: Asker[]): void {
    const outcome = this.#outcomes.set(request, answer)
    this.#stream.tables.commit()
    this.#waiting.set(outcome, askers)
    this.#stream.flushSoon()
  }

  /** The room as of its last flush. */
  #described(shown: Shown): RequestAnswer {
    const { flushedMembers: members, state, tables } = this.#stream
    return this.#replied(viewOf({ members, reservations: tables.reservations.flushed, state }, shown))
  }

  #done(reply: Json): Result {
    return { kept: true, answer: this.#replied(reply) }
  }

  #replied(reply: Json): RequestAnswer {
    return { reply, epoch: this.#stream.epoch, seq: this.#stream.flushed.seq }
  }

  #answer({ edge, id, cancels }: Asker, answer: RequestAnswer): void {
    const isCancelled = cancels && 'code' in answer && answer.code === 'cancelled'
    this.#stream.replies.send(edge, {
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

/** How long a room keeps the outcome of a request, in milliseconds. */
export const OUTCOME_MS = 600_000

/** Bytes that count as one outcome, so that the bytes of all are limited too: 2,000 outcomes have 1 MiB. */
const OUTCOME_BYTES = (1024 * 1024) / 2000

/** Bytes of an outcome in a record, with its answer as JSON. */
const bytesOf = ({ id, hash, answer }: Outcome): number =>
  id.length + hash.length + Buffer.byteLength(JSON.stringify(answer))

/** Number and expiry of a room's outcomes. */
class Outcomes {
  readonly #stream: RoomStream
  readonly #table: Table<Outcome>
  readonly #clock: Pick<Clock, 'now'>
  #bytes = 0

  constructor(stream: RoomStream) {
    this.#stream = stream
    this.#table = stream.tables.outcomes
    this.#clock = stream.environment.clock
    for (const row of this.#table.rows) this.#bytes += bytesOf(row)
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

  /** True if the room can store no other outcome before the oldest one expires. */
  get full(): boolean {
    const { address, environment } = this.#stream
    const number = Math.max(this.#table.size, Math.floor(this.#bytes / OUTCOME_BYTES))
    return !mayHave(environment, address.roomType, 'outcomes', number + 1)
  }

  /** Milliseconds until the oldest outcome expires. */
  get nextEndMs(): number {
    return this.#table.next!.due - this.#clock.now()
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

/**
 * Returns the outcomes that an earlier room of this name has left and that have not expired. None if they are damaged. Throws NewerRecord.
 */
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
const answerOf = ({ hash }: RoomRequest, outcome: Outcome): RequestAnswer =>
  outcome.hash === hash
    ? outcome.answer
    : { code: 'conflict', message: 'the same idempotency key was used for another request' }

/** As `answerOf`, for an outcome that an earlier room has left. The reservations of that room have ended with it. */
export function answerLeft(request: RoomRequest, outcome: Outcome): RequestAnswer {
  if (request.do.op !== 'cancel') return answerOf(request, outcome)
  const { epoch, seq } = 'reply' in outcome.answer ? outcome.answer : { epoch: 0, seq: 0 }
  return { reply: { cancelled: true }, epoch, seq }
}
