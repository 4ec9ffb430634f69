import { readFileSync } from 'node:fs'
import type { Codec } from '../messages.ts'
import type { Said, SaidAs } from './frames.ts'

/** The judge's record of one connection. */
export class Line {
  readonly id: number
  readonly codec: Codec
  hello: SaidAs<'hello'> | undefined
  session: Session | undefined
  /** Time at which `welcome` was delivered. */
  welcomed_at: number | undefined
  /** Time of the client's last ping after `welcome`. */
  pinged_at: number | undefined
  /** True: the client has sent a message after `welcome`, so it has received `welcome`. */
  spoken = false
  /** The first `move` on this connection. */
  move: { readonly at: number; readonly in_ms: number; readonly url: string | undefined } | undefined
  /** True: the client has sent `move`. */
  left = false
  /** True: `moved` was delivered. */
  moved = false
  goodbye = false
  silent = false
  ended_at: number | undefined
  /** True: the client has closed the connection. */
  closed_itself = false
  /** Request ids that were sent on this connection. */
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
  /** Answered, and the snapshot of a join has arrived. */
  complete: boolean
}

/** The judge's record of one session, over all of its connections. */
export class Session {
  /** Empty before the first welcome. */
  id = ''
  /** Connection with the latest hello of the session. */
  line: Line
  readonly features: readonly string[]
  readonly tokens: { readonly token: string; readonly line: Line }[] = []
  readonly seats = new Map<string, Seat>()
  readonly requests = new Map<number, Request>()
  /** Unanswered `rooms` and `find`, without watches: a client may end a watch while it is not connected. */
  readonly questions = new Map<number, string>()
  heartbeat_ms = 0
  /** Reason of its end: goodbye, or a close code. */
  over:
    | { readonly code: 'goodbye'; readonly line: number }
    | { readonly code: number; readonly line: number }
    | undefined
  /** Number of tokens that the client has sent. */
  tokens_sent = 0
  /** Times of the resumes since the last welcome. */
  attempts: number[] = []

  constructor(line: Line, features: readonly string[]) {
    this.line = line
    this.features = features
  }

  /** Takes the answer to a request: an error (no room), or a seat in a room. */
  answer(id: number, roomId: string | undefined): void {
    const request = this.requests.get(id)
    if (!request) return
    request.answered = true
    if (roomId === undefined) request.complete = true
    else request.room_id = roomId
  }

  /** Takes the snapshot of a room, or the end of its seat. */
  complete(roomId: string): void {
    for (const request of this.requests.values())
      if (request.room_id === roomId && (request.answered || request.t === 'leave')) {
        request.answered = true
        request.complete = true
      }
  }
}

/** Maximum number of stored positions of a room. */
const MOST_POSITIONS = 20_000

type Reason = SaidAs<'state.resync'>['reason']

interface Position {
  readonly epoch: number
  readonly seq: number
}

/** The judge's record of one seat: the position of a correct client, and the client's messages. */
export class Seat implements Position {
  readonly room_id: string
  readonly member_id: string
  epoch = -1
  seq = -1
  /** Time at which the snapshot was delivered. */
  whole_at: number | undefined
  /** Reason for which a correct client requests a whole state. */
  gap: { readonly reason: Reason; readonly frame: string; asked: boolean } | undefined
  gone_at: number | undefined
  /** True after a request for a whole state, until one arrives: the client lists position 0. */
  private waits = false
  /** Content of the message of each ref. */
  readonly sent = new Map<number, string>()
  /** Highest `settled` of the client. */
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

  /** Takes a snapshot or a resync. For `patienceMs`, a request for it may still be in flight. */
  takeWhole({ epoch, seq }: Position, now: number, patienceMs: number): void {
    this.waits = false
    if (this.gap && !this.gap.asked) this.excusedUntil = now + patienceMs
    this.gap = undefined
    this.whole_at ??= now
    this.stand({ epoch, seq }, now)
  }

  /** Takes a patch like a correct client. Returns the reason to request a whole state, if this frame gives one. */
  take(
    { epoch = this.epoch, seq }: Partial<Position> & Pick<Position, 'seq'>,
    spoilt: boolean,
    now: number,
  ): Reason | undefined {
    if (this.whole_at === undefined || this.gap || this.epoch === 0) return undefined
    if (seq !== this.seq + 1) return 'sequence'
    if (spoilt) return 'checksum'
    this.stand({ epoch, seq }, now)
    return undefined
  }

  /** Takes a request for a whole state. Returns its mistake. */
  ask(reason: Reason, now: number): 'twice' | 'no cause' | 'wrong reason' | undefined {
    const { gap } = this
    if (!gap) {
      const excused = now <= this.excusedUntil
      this.excusedUntil = Number.NEGATIVE_INFINITY
      return excused ? undefined : 'no cause'
    }
    if (gap.asked) return 'twice'
    gap.asked = true
    this.waits = true
    return reason === gap.reason ? undefined : 'wrong reason'
  }

  /**
   * Takes the position of a hello. The missed frames follow it; position 0 asks for a whole state. Returns false if a correct client never had this
   * position.
   */
  restart(at: Position, now: number): boolean {
    const isNowhere = at.epoch + at.seq === 0
    if (!isNowhere && (this.waits || !this.positions.has(`${at.epoch}/${at.seq}`))) return false
    this.waits = false
    this.gap = undefined
    this.trail = []
    this.stand(at, now)
    return true
  }

  /** Returns the last position that was delivered before `moment`. A client has at least this position. */
  deliveredBefore(moment: number): (Position & { readonly at: number }) | undefined {
    return this.trail.findLast(({ at }) => at <= moment)
  }

  /** Takes outcomes: `ack` for all refs up to `ref`, `answer` for this ref. */
  outcome(kind: 'ack' | 'answer', ref: number, now: number): void {
    if (kind === 'ack') this.acked = Math.max(this.acked, ref)
    else this.refused.add(ref)
    this.outcomes.push({ at: now, known: this.known })
  }

  /** Takes the end of the connection. Frames that were delivered after `moment` may be lost. */
  cutOff(moment: number): void {
    this.gap = undefined
    this.trail = this.trail.filter(({ at }) => at <= moment)
    this.outcomes = this.outcomes.filter(({ at }) => at <= moment)
  }

  /** Highest ref up to which the client can know all outcomes. */
  get known(): number {
    let known = this.acked
    while (this.refused.has(known + 1)) known += 1
    return Math.min(known, this.sent.size)
  }

  /** Returns the highest ref up to which the client knew all outcomes at `moment`. */
  knownBefore(moment: number): number {
    return this.outcomes.findLast(({ at }) => at <= moment)?.known ?? 0
  }

  /** Returns the last ref on this connection. 0: none. */
  lastOn(line: Line): number {
    return this.last?.line === line ? this.last.ref : 0
  }

  /** Returns the ref that is due on this connection instead of `ref`. Undefined: `ref` is correct. */
  dueInsteadOf(ref: number, line: Line): number | undefined {
    let due = Math.max(this.lastOn(line), Math.min(this.known, ref - 1)) + 1
    while (due < ref && this.refused.has(due)) due += 1
    return due < ref ? due : undefined
  }

  /** Takes a message with a ref. */
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

/** Returns the text of a message for the report, with shortened tokens. */
export const textOf = (said: Said | object): string =>
  JSON.stringify(said, (name, value) =>
    /^(token|resume_token)$/.test(name) && typeof value === 'string' ? `${value.slice(0, 12)}…` : value,
  )

/** An action that a client must take before a deadline. */
interface Debt {
  readonly due: number
  /** True until the client has acted. */
  readonly open: () => boolean
  readonly mistake: () => void
  /** True: the end of a run waits for the action. */
  readonly counts: boolean
}

/** Actions that clients must take before a deadline. Each missed deadline is a mistake. */
export class Debts {
  private readonly now: () => number
  private debts: Debt[] = []

  constructor(now: () => number) {
    this.now = now
  }

  /** Adds an action that is due in `withinMs`. */
  owe(withinMs: number, open: () => boolean, mistake: () => void, counts = true): void {
    this.debts.push({ due: this.now() + withinMs, open, mistake, counts })
  }

  /** Reports the missed deadlines. */
  look(): void {
    const now = this.now()
    const due = this.debts.filter((debt) => debt.due <= now)
    this.debts = this.debts.filter((debt) => debt.due > now && debt.open())
    for (const debt of due) if (debt.open()) debt.mistake()
  }

  /** True while an action with `counts` is due. */
  get waits(): boolean {
    return this.debts.some(({ counts, open }) => counts && open())
  }
}

/** A numbered rule of docs/protocol.md. */
export interface Rule {
  /** Level on the page. */
  readonly level: number
  /** Text on the page, with number and title. */
  readonly text: string
}

/** Returns the numbered rules of a page, by their titles. */
function rulesOf(page: string): ReadonlyMap<string, Rule> {
  const rules = new Map<string, Rule>()
  for (const part of page.split(/^## Level (?=\d)/m).slice(1)) {
    const level = Number.parseInt(part, 10)
    const found = part.matchAll(/^- \*\*(R\d+)\. ([^*]+)\*\*([^\n]*(?:\n {2}\S[^\n]*)*)/gm)
    for (const [, number, title = '', words] of found)
      rules.set(title.replace(/\.$/, ''), {
        level,
        text: `${number}. ${title}${words}`.replaceAll(/\s+/g, ' '),
      })
  }
  return rules
}

const RULES = rulesOf(readFileSync(new URL('../../../docs/protocol.md', import.meta.url), 'utf8'))

/** Returns the rule with this title. Throws if the page has none. */
export function ruleOf(title: string): Rule {
  const rule = RULES.get(title)
  if (!rule)
    throw new Error(`docs/protocol.md has no rule "${title}"; it has ${[...RULES.keys()].join(', ')}`)
  return rule
}
