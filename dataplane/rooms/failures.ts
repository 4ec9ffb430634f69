import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Claim } from '../../shared/store/port.ts'
import { decodeNote, type TurnCause } from '../watchdog/turns.ts'
import type { RoomDefinition, RoomLog } from './definition.ts'

/** Room logic did what it may not; the text says what, and what would be right. */
export class RoomLogicError extends Error {
  override readonly name = 'RoomLogicError'
}

/** Room logic said no with `ctx.refuse`: no failure. The text is for the player who asked. An Error without a stack. */
export class RoomLogicRefused implements Error {
  readonly name = 'RoomLogicRefused'
  readonly message: string
  readonly #refused = true

  constructor(message: string) {
    this.message = message
  }

  /** Whether that was thrown. Unlike instanceof it never throws itself, for any value. */
  static is(thrown: unknown): thrown is RoomLogicRefused {
    return typeof thrown === 'object' && thrown !== null && #refused in thrown
  }
}
// The constructor of Error would capture a stack that no one reads, which costs more than the rest of a refusal.
Object.setPrototypeOf(RoomLogicRefused.prototype, Error.prototype)

/** What a validator made of a value, or what is wrong with it, in words. */
type Validated = { readonly ok: true; readonly value: unknown } | Invalid

/** A value that a validator did not accept. */
interface Invalid {
  readonly ok: false
  readonly message: string
  /** What the validator threw: a failure of the room type, not of the player who sent the value. */
  readonly cause?: unknown
}

const SHOWN_ISSUES = 3
/** What a player reads of a failure, unless failures are revealed. */
export const FAILED = "the room's logic failed"
/** Of the JSON text of a reply, in UTF-8. */
export const MAX_REPLY_BYTES = 4096
/** Texts that come from room logic and validators are cut to this many characters before they are sent. */
const MAX_TEXT = 300

/** Runs a Standard Schema validator. One that answers with a promise fails: rooms validate within the turn. */
export function validate(schema: StandardSchemaV1, value: unknown): Validated {
  try {
    const result = schema['~standard'].validate(value)
    if (result instanceof Promise) {
      result.catch(() => {})
      return { ok: false, message: 'the validator is asynchronous; rooms need one that answers at once' }
    }
    return result.issues
      ? { ok: false, message: issuesText(result.issues) }
      : { ok: true, value: result.value }
  } catch (error) {
    return { ok: false, message: 'the validator failed', cause: error ?? new Error('it threw nothing') }
  }
}

/** Join options as the definition wants them, or what is wrong with them. */
export const parseOptions = (definition: RoomDefinition, options: Json) =>
  definition.options ? validate(definition.options, options) : ({ ok: true, value: options } as const)

function issuesText(issues: readonly StandardSchemaV1.Issue[]): string {
  const shown = issues.slice(0, SHOWN_ISSUES).map(issueText)
  const more = issues.length - shown.length
  return bounded(shown.join('; ') + (more > 0 ? `; and ${more} more` : ''))
}

function issueText({ message, path }: StandardSchemaV1.Issue): string {
  if (!path || path.length === 0) return message
  const keys = path.map((part) => String(typeof part === 'object' ? part.key : part))
  return `${keys.join('.')}: ${message}`
}

/**
 * The message of something that room logic threw, of bounded length. Never throws, though anything can be thrown: an Error whose message is
 * no text, or whose very reading throws.
 */
export function errorText(error: unknown): string {
  try {
    if (error instanceof Error) return bounded(String(error.message))
  } catch {
    return 'the room logic threw something that cannot be read'
  }
  return 'the room logic threw something that is no Error'
}

/** A text of room logic or of a validator, cut to what may be sent. */
export const bounded = (text: string): string =>
  text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT - 1)}…`

const QUIET_MS = 10_000
/** The same while rooms are developed: the next edit may fail in the same handler. */
const DEVELOPMENT_QUIET_MS = 1000

/** What a player is told of a turn that did not take place. */
export interface Refused {
  readonly code: 'room_logic_refused' | 'room_logic_failed'
  readonly message: string
}

/**
 * Tells refusals of room logic from its failures, and logs the latter, each kind at most once in ten seconds: a room that throws at every
 * tick must not fill the disk.
 */
export class FailureLog {
  readonly #clock: Clock
  readonly #log: RoomLog
  readonly #reveal: boolean
  readonly #kinds = new Map<string, { until: number; suppressed: number }>()

  /** `reveal`: players are told what was thrown; else nothing of it, since it may name what is not theirs to know. */
  constructor(clock: Clock, log: RoomLog, reveal: boolean) {
    this.#clock = clock
    this.#log = log
    this.#reveal = reveal
  }

  /** What the player is told of something that room logic threw; a failure is logged. `kind`: what it was, such as `onTick`. */
  explain(kind: string, error: unknown): Refused {
    if (RoomLogicRefused.is(error)) return { code: 'room_logic_refused', message: error.message }
    this.#add(kind, error)
    return { code: 'room_logic_failed', message: this.#reveal ? errorText(error) : FAILED }
  }

  #add(kind: string, error: unknown): void {
    const now = this.#clock.monotonic()
    const last = this.#kinds.get(kind)
    if (last && now < last.until) {
      last.suppressed++
      return
    }
    const quietMs = this.#reveal ? DEVELOPMENT_QUIET_MS : QUIET_MS
    this.#kinds.set(kind, { until: now + quietMs, suppressed: 0 })
    logFailure(this.#log, error, { failed: kind, suppressed: last?.suppressed ?? 0 })
  }
}

/** Logs something that room logic threw. Never throws: a log reads every property of an error, and the reading may throw. */
function logFailure(log: Pick<RoomLog, 'warn'>, error: unknown, fields: object): void {
  const text = 'the room logic failed'
  try {
    log.warn({ ...fields, err: error }, text)
  } catch {
    log.warn({ ...fields, err: new Error(errorText(error)) }, text)
  }
}

/** So many turns without an end, within so long, and the room is not run again for a while. */
const MAX_RECENT = 3
const WITHIN_MS = 60_000

/**
 * The turns of a room that its earlier owners did not come to the end of, and that the present one must not begin again. They are never
 * done with, since an owner may die before it has written anything: a ref that is settled is not asked for here any more.
 */
export class StuckTurns {
  readonly #causes: readonly TurnCause[]
  /** The one that ended the last owner, if it was that. */
  readonly last: TurnCause | undefined
  /** How many there were in the last minute. */
  readonly recent: number

  constructor({ stuck, over }: Pick<Claim, 'stuck' | 'over'>) {
    this.#causes = stuck.flatMap(({ note }) => decodeNote(note) ?? [])
    const last = stuck.findLast(({ epoch }) => epoch === over)
    this.last = last && decodeNote(last.note)
    this.recent = stuck.filter(({ ageMs }) => ageMs < WITHIN_MS).length
  }

  /** Whether the room is to be run no more, for a while. */
  get tooMany(): boolean {
    return this.recent >= MAX_RECENT
  }

  /** Whether a member's message is one. */
  hasMessage(memberId: string, ref: number): boolean {
    return this.#has('onMessage', memberId, ref)
  }

  /** Whether a session's join is one. */
  hasJoin(sessionId: string, ref: number): boolean {
    return (['options', 'load', 'create', 'admit', 'onJoin'] as const).some((hook) =>
      this.#has(hook, sessionId, ref),
    )
  }

  /** Whether what becomes of a member is one. */
  hasMember(hook: 'onDisconnect' | 'onReconnect' | 'onLeave', memberId: string): boolean {
    return this.#has(hook, memberId, 0)
  }

  /** Whether a timer that was due then is one. */
  hasTimer(id: string, due: number): boolean {
    return this.#has('onTimer', id, due)
  }

  /** Whether the outcome of a task is one. */
  hasTaskOutcome(id: string): boolean {
    return this.#has('onTask', id, 1)
  }

  #has(hook: TurnCause['hook'], subject: string, ref: number): boolean {
    return this.#causes.some((cause) => cause.hook === hook && cause.subject === subject && cause.ref === ref)
  }
}
