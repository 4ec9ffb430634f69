import type { Codec } from '../messages.ts'
import type { Said, SaidAs } from './frames.ts'

/** What the judge remembers of a client. */

/** One connection. */
export class Line {
  readonly id: number
  readonly codec: Codec
  hello: SaidAs<'hello'> | undefined
  session: Session | undefined
  /** When `welcome` was delivered. */
  welcomed_at: number | undefined
  /** When the client sent its last ping behind the welcome. */
  pinged_at: number | undefined
  /** Whether the client has sent anything behind the welcome, so it has that. */
  spoken = false
  /** The first `move` on this connection. */
  move: { readonly at: number; readonly in_ms: number; readonly url: string | undefined } | undefined
  goodbye = false
  silent = false
  ended_at: number | undefined
  /** Whether the client has closed it. */
  closed_itself = false
  /** The request ids that were sent here. */
  readonly requests = new Set<number>()

  constructor(id: number, codec: Codec) {
    this.id = id
    this.codec = codec
  }
}

interface Request {
  readonly text: string
  readonly t: 'join' | 'leave'
  room_id?: string
  answered: boolean
  /** Answered, and of a join the snapshot is here. */
  complete: boolean
}

/** One session, over all of its connections. */
export class Session {
  /** Empty before the first welcome. */
  id = ''
  /** The connection with its latest hello. */
  line: Line
  readonly features: readonly string[]
  readonly tokens: { readonly token: string; readonly line: Line }[] = []
  readonly seats = new Map<string, Seat>()
  readonly requests = new Map<number, Request>()
  /** Unanswered `rooms` and `find`, but no watches: a client may end those while it is not connected. */
  readonly questions = new Map<number, string>()
  heartbeat_ms = 0
  /** What ended it for the client: goodbye, or a close code. */
  over:
    | { readonly code: 'goodbye'; readonly line: number }
    | { readonly code: number; readonly line: number }
    | undefined
  /** Tokens that the client has sent, and answers that have told a time. */
  tokens_sent = 0
  tokens_told = 0
  /** Times of the resumes since the last welcome. */
  attempts: number[] = []

  constructor(line: Line, features: readonly string[]) {
    this.line = line
    this.features = features
  }

  /** The answer to a request: an error, or a seat in a room. */
  answer(id: number, roomId: string | undefined): void {
    const request = this.requests.get(id)
    if (!request) return
    request.answered = true
    if (roomId === undefined) request.complete = true
    else request.room_id = roomId
  }

  /** The snapshot of a room has come, or its seat is gone. */
  complete(roomId: string): void {
    for (const request of this.requests.values())
      if (request.room_id === roomId && (request.answered || request.t === 'leave')) {
        request.answered = true
        request.complete = true
      }
  }
}

/** A pause after which a client may ask again for a whole state; R17 says 2 s. */
const AGAIN_MS = 1900
/** So many positions of a room are remembered. */
const MOST_POSITIONS = 20_000

type Reason = SaidAs<'state.resync'>['reason']

interface Position {
  readonly epoch: number
  readonly seq: number
}

/** One seat of a session: where a right client stands, and what the client has sent. */
export class Seat implements Position {
  readonly room_id: string
  readonly member_id: string
  epoch = -1
  seq = -1
  /** When the snapshot was delivered. */
  whole_at: number | undefined
  /** Why a right client asks for a whole state. */
  gap: { readonly reason: Reason; readonly frame: string; asked_at: number | undefined } | undefined
  /** The client has sent `leave`. */
  left = false
  gone_at: number | undefined
  /** What was sent with each ref. */
  readonly sent = new Map<number, string>()
  /** The highest `settled` that the client has sent. */
  settled = 0
  private last: { readonly line: Line; readonly ref: number } | undefined
  private acked = 0
  private readonly refused = new Set<number>()
  private readonly positions = new Set<string>()
  private trail: (Position & { readonly at: number })[] = []
  private outcomes: { readonly at: number; readonly known: number }[] = []
  private excusedUntil = Number.NEGATIVE_INFINITY

  constructor(roomId: string, memberId: string) {
    this.room_id = roomId
    this.member_id = memberId
  }

  /** Takes a snapshot or a resync. A request for it may still be under way, for `patienceMs`. */
  takeWhole({ epoch, seq }: Position, now: number, patienceMs: number): void {
    if (epoch < this.epoch) return
    if (this.gap && (this.gap.asked_at ?? Number.NEGATIVE_INFINITY) < now - AGAIN_MS)
      this.excusedUntil = now + patienceMs
    this.gap = undefined
    this.whole_at ??= now
    this.stand({ epoch, seq }, now)
  }

  /** Takes a patch, event or member as a right client does. Returns the reason to ask for a whole state, if this frame is one. */
  take(
    t: 'state.patch' | 'event' | 'member',
    at: Position,
    spoilt: boolean,
    now: number,
  ): Reason | undefined {
    if (this.whole_at === undefined || at.epoch < this.epoch) return undefined
    if (this.gap || at.seq <= this.seq) return undefined
    if (at.seq > this.seq + 1) return 'sequence'
    if (t === 'state.patch' && spoilt) return 'checksum'
    this.stand(at, now)
    return undefined
  }

  /** The client asks for a whole state. Returns what is wrong with that. */
  ask(reason: Reason, now: number): 'twice' | 'no cause' | 'wrong reason' | undefined {
    const { gap } = this
    if (!gap) {
      const excused = now <= this.excusedUntil
      this.excusedUntil = Number.NEGATIVE_INFINITY
      return excused ? undefined : 'no cause'
    }
    const before = gap.asked_at
    gap.asked_at = now
    if (before !== undefined && now - before < AGAIN_MS) return 'twice'
    return reason === gap.reason ? undefined : 'wrong reason'
  }

  /** A hello has named this position: the missed frames follow it. Returns false if a right client has never stood there. */
  restart(at: Position, now: number): boolean {
    if (!this.positions.has(`${at.epoch}/${at.seq}`)) return false
    this.gap = undefined
    this.trail = []
    this.stand(at, now)
    return true
  }

  /** The position that was delivered last before `moment`: a client has at least this. */
  deliveredBefore(moment: number): (Position & { readonly at: number }) | undefined {
    return this.trail.findLast(({ at }) => at <= moment)
  }

  /** Takes an outcome: of all refs up to `ref`, or of this one. */
  outcome(kind: 'ack' | 'answer', ref: number, now: number): void {
    if (kind === 'ack') this.acked = Math.max(this.acked, ref)
    else this.refused.add(ref)
    this.outcomes.push({ at: now, known: this.known })
  }

  /** The connection has ended: what was delivered behind `moment` may be lost. */
  cutOff(moment: number): void {
    this.gap = undefined
    this.trail = this.trail.filter(({ at }) => at <= moment)
    this.outcomes = this.outcomes.filter(({ at }) => at <= moment)
  }

  /** The client can know the outcomes of all refs up to this one. */
  get known(): number {
    let known = this.acked
    while (this.refused.has(known + 1)) known += 1
    return Math.min(known, this.sent.size)
  }

  /** The client knew these outcomes at `moment` at least. */
  knownBefore(moment: number): number {
    return this.outcomes.findLast(({ at }) => at <= moment)?.known ?? 0
  }

  /** The last ref that was sent on this connection; 0: none. */
  lastOn(line: Line): number {
    return this.last?.line === line ? this.last.ref : 0
  }

  /** The ref that is due on this connection instead of `ref`; undefined: `ref` may come. */
  dueInsteadOf(ref: number, line: Line): number | undefined {
    let due = Math.max(this.lastOn(line), Math.min(this.known, ref - 1)) + 1
    while (due < ref && this.refused.has(due)) due += 1
    return due < ref ? due : undefined
  }

  /** Takes note of a message with a ref. */
  send(ref: number, text: string, line: Line): void {
    this.last = { line, ref }
    if (!this.sent.has(ref)) this.sent.set(ref, text)
  }

  private stand({ epoch, seq }: Position, now: number): void {
    this.epoch = epoch
    this.seq = seq
    this.positions.add(`${epoch}/${seq}`)
    this.trail.push({ epoch, seq, at: now })
    if (this.trail.length > MOST_POSITIONS) this.trail.splice(0, MOST_POSITIONS / 2)
  }
}

/** A message as the report shows it. */
export const textOf = (said: Said | object): string =>
  JSON.stringify(said, (name, value) =>
    /^(token|resume_token)$/.test(name) && typeof value === 'string' ? `${value.slice(0, 12)}…` : value,
  )
