import { fileURLToPath } from 'node:url'
import type { Clock } from './clock.ts'
import { type Logger, Quiet } from './log.ts'

const QUIET_MS = 10_000
/** Folders of this program's code. */
const OWN = ['control', 'dataplane', 'shared', 'deploy'].map((folder) =>
  fileURLToPath(new URL(`../${folder}/`, import.meta.url)),
)

interface UnhandledDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly log: Pick<Logger, 'error'>
  /** Counts an error without a known cause. */
  readonly count: (kind: 'rejection' | 'exception') => void
  /** Returns true if room code caused the error. Then its node has handled it. */
  readonly roomCode: (error: unknown) => boolean
}

/** Handles uncaught rejections and exceptions. */
export class UnhandledErrors {
  readonly #deps: UnhandledDeps
  readonly #quiet: Quiet

  constructor(deps: UnhandledDeps) {
    this.#deps = deps
    this.#quiet = new Quiet(deps.clock, QUIET_MS)
  }

  /** A rejection never ends the process, because it has interrupted no code. */
  rejection(reason: unknown): void {
    if (!this.#deps.roomCode(reason))
      this.#report('rejection', reason, 'a promise was rejected and not handled')
  }

  /** Returns false if an exception has interrupted code of this program. The process must then end. */
  exception(error: unknown): boolean {
    if (this.#deps.roomCode(error)) return true
    if (isOwn(error)) return false
    this.#report('exception', error, 'an error was thrown and not caught')
    return true
  }

  #report(kind: 'rejection' | 'exception', error: unknown, message: string): void {
    this.#deps.count(kind)
    const suppressed = this.#quiet.pass(`${kind} ${textOf(error)}`)
    if (suppressed !== undefined) this.#deps.log.error({ err: readable(error), suppressed }, message)
  }
}

/**
 * Returns true if, by its stack, an exception comes from this program's code. Room code, and the packages that it uses, may have thrown it
 * if a frame belongs neither to Node nor to this program, or if all frames belong to Node: an `error` event without a listener.
 */
export function isOwn(error: unknown): boolean {
  const stack = stackOf(error)
  const frames = stack.split('\n').filter((line) => /^\s+at /.test(line))
  const places = frames.map((line) =>
    decoded(/\(?((?:file:\/\/|data:|node:|\/)[^)]*)\)?$/.exec(line)?.[1] ?? ''),
  )
  const own = places.filter((place) => OWN.some((folder) => place.replace('file://', '').startsWith(folder)))
  const foreign = places.filter((place) => place !== '' && !place.startsWith('node:') && !own.includes(place))
  return own.length > 0 && foreign.length === 0
}

/** Returns the file path of a stack frame. */
function decoded(place: string): string {
  try {
    return decodeURI(place)
  } catch {
    return place // A `%` that is part of the name.
  }
}

// Any value can be thrown, and reading it may throw.

function stackOf(error: unknown): string {
  try {
    return error instanceof Error && typeof error.stack === 'string' ? error.stack : ''
  } catch {
    return ''
  }
}

function textOf(error: unknown): string {
  try {
    return String((error as Error | undefined)?.message ?? error)
  } catch {
    return 'something that cannot be read'
  }
}

const readable = (error: unknown): unknown =>
  error instanceof Error && stackOf(error) !== '' ? error : new Error(textOf(error))
