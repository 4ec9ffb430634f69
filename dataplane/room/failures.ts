import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { Quiet } from '../../shared/log.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Match } from '../../shared/protocol/messages.ts'
import { cloneJson, NotJson, type Weigh } from '../../shared/sync/check.ts'
import { deepCopy } from './copy.ts'
import type { RoomLog } from './definition-types.ts'

/** Room logic did something that it may not do. The text names it, and what would be right. */
export class RoomLogicError extends Error {
  override readonly name: string = 'RoomLogicError'
  readonly #own = true

  /** True for errors of roomful. Unlike instanceof, it throws for no value, and runs no code of the value. */
  static is(thrown: unknown): thrown is RoomLogicError {
    return typeof thrown === 'object' && thrown !== null && #own in thrown
  }
}

/** Room logic has called `ctx.refuse`, which is no failure. The text is for the player. An Error without a stack. */
export class RoomLogicRefused implements Error {
  readonly name = 'RoomLogicRefused'
  readonly message: string
  readonly code: ErrorCode
  readonly match: Match | undefined
  readonly #refused = true

  /** Only room types of roomful itself give `code` and `match`. */
  constructor(message: string, code: ErrorCode = 'room_logic_refused', match?: Match) {
    this.message = message
    this.code = code
    this.match = match
  }

  /** True if a refusal was thrown. Unlike instanceof, it throws for no value. */
  static is(thrown: unknown): thrown is RoomLogicRefused {
    return typeof thrown === 'object' && thrown !== null && #refused in thrown
  }
}
// The constructor of Error would capture a stack that is never read. That costs more than the rest of a refusal.
Object.setPrototypeOf(RoomLogicRefused.prototype, Error.prototype)

/** The value that a validator returned, or its error. */
type Validated = { readonly ok: true; readonly value: unknown } | Invalid

/** A value that a validator rejected. */
interface Invalid {
  readonly ok: false
  readonly message: string
  /** Error that the validator threw: a failure of the room type, not of the player who sent the value. */
  readonly cause?: unknown
}

const SHOWN_ISSUES = 3
/** Text for players about a failure, unless failures are revealed. */
export const FAILED = "the room's logic failed"
/** Maximum bytes of the JSON text of a reply, in UTF-8. */
export const MAX_REPLY_BYTES = 4096
/** Texts that come from room logic and validators are cut to this many characters before they are sent. */
const MAX_TEXT = 300

/** Returns a copy of `value` as JSON. Undefined becomes null. Throws a RoomLogicError that calls the value `what`, or what `weigh` throws. */
export function jsonCopy(value: unknown, what: string, weigh?: Weigh): Json {
  try {
    return cloneJson(value === undefined ? null : value, weigh)
  } catch (error) {
    if (error instanceof NotJson) throw new RoomLogicError(`${what} is not JSON: ${error.message}`)
    throw error
  }
}

/** Runs a Standard Schema validator. A validator that returns a promise fails, because rooms validate within the turn. */
export function validate(schema: StandardSchemaV1, value: unknown): Validated {
  try {
    const result = schema['~standard'].validate(value)
    if (result instanceof Promise) {
      result.catch(() => {})
      return { ok: false, message: 'the validator is asynchronous; rooms need a synchronous one' }
    }
    return result.issues
      ? { ok: false, message: issuesText(result.issues) }
      : { ok: true, value: result.value }
  } catch (error) {
    return { ok: false, message: 'the validator failed', cause: plainThrown(error) }
  }
}

/** As `validate`, but the returned value is a copy for room code. */
export function validateInput(schema: StandardSchemaV1, value: unknown): Validated {
  const valid = validate(schema, value)
  return valid.ok ? { ok: true, value: deepCopy(valid.value) } : valid
}

/** Returns join options as the room type's schema returns them, or their error. */
export const parseOptions = (schema: StandardSchemaV1 | undefined, options: Json): Validated =>
  schema ? validateInput(schema, options) : { ok: true, value: deepCopy(options) }

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
 * Returns the message of a value that room logic threw, of bounded length. Never throws, although any value can be thrown, such as an Error
 * whose message is not a text, or whose properties throw when they are read.
 */
export function errorText(error: unknown): string {
  try {
    if (error instanceof Error) return bounded(String(error.message))
  } catch {
    return 'the room logic threw something that cannot be read'
  }
  return 'the room logic threw something that is no Error'
}

/** Limits of the texts of a plain error, in characters, and of its chain of causes. */
const MAX_NAME = 100
const MAX_STACK = 8192
const MAX_CAUSES = 3

/** What room code threw, as plain data. It is an Error that captures no stack. */
class Thrown implements Error {
  readonly name: string
  readonly message: string
  declare readonly stack?: string
  declare readonly code?: string | number
  declare readonly cause?: unknown
  readonly #plain = true

  static is(thrown: unknown): thrown is Thrown {
    return typeof thrown === 'object' && thrown !== null && #plain in thrown
  }

  constructor(thrown: object, causes: number) {
    const read = (key: string): unknown => {
      try {
        return (thrown as Record<string, unknown>)[key]
      } catch {
        return undefined
      }
    }
    const [name, stack, code, cause] = [read('name'), read('stack'), read('code'), read('cause')]
    this.message = errorText(thrown)
    this.name = typeof name === 'string' ? cut(name, MAX_NAME) : 'Error'
    // As values, because the log must not find a getter again.
    if (typeof stack === 'string') this.stack = cut(stack, MAX_STACK)
    if (typeof code === 'number') this.code = code
    if (typeof code === 'string') this.code = cut(code, MAX_NAME)
    if (cause !== undefined && causes > 0) this.cause = plainThrown(cause, causes - 1)
  }
}
Object.setPrototypeOf(Thrown.prototype, Error.prototype)

/**
 * Returns a value that room code threw as an Error with short, plain properties. To be called inside of the turn, because reading a property
 * may run code that throws or never returns. Errors of roomful stay as they are.
 */
export function plainThrown(thrown: unknown, causes = MAX_CAUSES): Error {
  if (RoomLogicRefused.is(thrown) || RoomLogicError.is(thrown) || Thrown.is(thrown)) return thrown
  return new Thrown(
    typeof thrown === 'object' && thrown !== null ? thrown : new Error(errorText(thrown)),
    causes,
  )
}

/**
 * Returns the kind of a value that a hook returned, for an error. Texts and values of entries are left out, because they may contain what
 * players wrote.
 */
export function kindOf(value: unknown): string {
  if (typeof value === 'string') return 'a text'
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  if (Array.isArray(value)) return 'an array'
  return bounded(`an object with the keys ${Object.keys(value).join(', ') || 'none'}`)
}

/** Cuts a text of room logic or of a validator to the length that may be sent. */
export const bounded = (text: string): string => cut(text, MAX_TEXT)

const cut = (text: string, length: number): string =>
  text.length <= length ? text : `${text.slice(0, length - 1)}…`

const QUIET_MS = 10_000
/** The interval during development: the next edit may fail in the same handler. */
const DEVELOPMENT_QUIET_MS = 1000

/** Answer to a player for a turn that did not take place. */
export interface Refused {
  readonly code: ErrorCode
  readonly message: string
  readonly match?: Match | undefined
}

/**
 * Distinguishes refusals of room logic from failures. Logs failures, each kind at most once in 10 seconds: a room that throws at every tick
 * must not fill the disk.
 */
export class FailureLog {
  readonly #quiet: Quiet
  readonly #log: RoomLog
  readonly #reveal: boolean

  /** `reveal`: players see what was thrown. Otherwise they do not, because it may contain private data. */
  constructor(clock: Clock, log: RoomLog, reveal: boolean) {
    this.#quiet = new Quiet(clock, reveal ? DEVELOPMENT_QUIET_MS : QUIET_MS)
    this.#log = log
    this.#reveal = reveal
  }

  /**
   * Returns the answer for the player after room logic threw, and logs a failure. `kind`: name of the call, such as `onTick`. `room`: `project/type:key`,
   * if the log does not add the room.
   */
  explain(kind: string, error: unknown, room?: string): Refused {
    if (RoomLogicRefused.is(error)) return { code: error.code, message: error.message, match: error.match }
    this.#add(kind, error, room)
    return { code: 'room_logic_failed', message: this.#reveal ? errorText(error) : FAILED }
  }

  #add(kind: string, error: unknown, room?: string): void {
    const suppressed = this.#quiet.pass(kind)
    if (suppressed !== undefined)
      this.#log.warn({ failed: kind, room, suppressed, err: error }, 'the room logic failed')
  }
}
