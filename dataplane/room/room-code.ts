import { AsyncLocalStorage } from 'node:async_hooks'
import { type Context, createContext, Script } from 'node:vm'
import type { Clock } from '../../shared/clock.ts'
import { Quiet } from '../../shared/log.ts'
import { roomNamed } from '../traffic.ts'
import { Overwrites } from './builtins.ts'
import type { RoomLog } from './definition-types.ts'
import { plainThrown, RoomLogicError } from './failures.ts'
import { fieldsOf, plainTurn, type Turn, type TurnHook, type TurnObserver, type TurnRoom } from './hooks.ts'
import type { RoomMetrics } from './metrics.ts'

/** A room whose state is written by room code. */
export interface CodeRoom extends TurnRoom {
  /** Absent: the room does not run. */
  readonly wants?: {
    /** A turn was cut off: the state in memory must not be used, and no other turn may start. Resolves when the next owner knows the turn. */
    cut: Promise<void> | undefined
  }
}

/** A call of the code of a room. */
export interface RoomTurn extends Turn {
  readonly room: CodeRoom
}

/** Returns a turn that no client, timer or task has caused. */
export const turnOf = (room: CodeRoom, hook: TurnHook): RoomTurn => ({
  room,
  hook,
  subject: '',
  ref: 0,
  type: '',
  principal: '',
})

/** A turn took too long and was cut off. Or its handler was not started, because it did so before. */
export class TurnCut extends RoomLogicError {
  override readonly name = 'TurnCut'
}

/** The suspects of a node, as far as room code needs them (`Suspects`). */
export interface KnownSuspects {
  /** Returns the milliseconds after which the turn is cut off. 0: it must not start. Undefined: no limit. */
  limitOf(turn: Turn): number | undefined
  /** Returns the place in the code at which an earlier turn of the handler did not end. Undefined: unknown. */
  placeOf(turn: Turn): string | undefined
  /** Records a turn that did not return and was cut off. Resolves when the next owner of its room knows it. Never rejects. */
  stuck(turn: Turn, mode: 'guard'): Promise<void>
  /** True if this turn did not return under an earlier owner of its room. `since`: epoch of the first owner that counts. Default: all. */
  hung(turn: Turn, since?: number): boolean
  /** Resolves when this node knows the turns that have ended other nodes. Never rejects. */
  current(): Promise<void>
}

/** Suspects of a node without a watchdog: none. */
export const noSuspects: KnownSuspects = {
  limitOf: () => undefined,
  placeOf: () => undefined,
  stuck: async () => {},
  hung: () => false,
  current: async () => {},
}

interface RoomCodeDeps {
  readonly clock: Clock
  readonly log: RoomLog
  readonly metrics: {
    readonly roomErrors: RoomMetrics['roomErrors']
    readonly slowTurns: RoomMetrics['slowTurns']
  }
  readonly observer: TurnObserver
  readonly suspects: KnownSuspects
}

/**
 * The turn that has started the running code. All nodes of a process share this object, which keeps nothing itself: on Node 20 and 22, each
 * one makes every promise of the process slower.
 */
const TURNS = new AsyncLocalStorage<RoomTurn>()
/** Errors of one kind are logged at most once in this time. */
const QUIET_MS = 10_000
/** Slow turns are logged at most once in this time. The metric counts each of them. */
const SLOW_QUIET_MS = 1000

/**
 * The only place that calls room code: every handler, validator and function of a room type, on one node. It reports the running turn to
 * the watchdog, attributes later work of the code (promises, timers, emitters) to its turn, and runs suspects inside a boundary that cuts
 * them off. Only room code runs in here. roomful handles the result outside.
 */
export class RoomCode {
  readonly #deps: RoomCodeDeps
  readonly #quiet: Quiet
  readonly #slow: Quiet
  /** Asynchronous calls in the order in which they started. The last one has not finished. */
  readonly #open: RoomTurn[] = []
  readonly #finished = new WeakSet<RoomTurn>()
  readonly #boundary = new Boundary()
  readonly #overwrites = new Overwrites()
  #last: RoomTurn | undefined
  /** Turn that was cut off last. */
  #lastCut: RoomTurn | undefined

  constructor(deps: RoomCodeDeps) {
    this.#deps = deps
    this.#quiet = new Quiet(deps.clock, QUIET_MS)
    this.#slow = new Quiet(deps.clock, SLOW_QUIET_MS)
  }

  get suspects(): KnownSuspects {
    return this.#deps.suspects
  }

  /**
   * Runs code of a room with these arguments. Throws what the code throws, or a TurnCut: a suspect took too long, and `cut` of its room is set, or the code was
   * not started.
   */
  run<T, Given extends unknown[]>(turn: RoomTurn, code: (...given: Given) => T, ...given: Given): T {
    const { observer, suspects } = this.#deps
    const limitMs = suspects.limitOf(turn)
    if (turn.room.wants?.cut)
      throw new TurnCut(`${turn.hook} was not started: another turn of the room was cut off`)
    if (limitMs === 0) throw new TurnCut(`${turn.hook} was not started: it did not return before`)
    this.#last = turn
    observer.begin(turn, limitMs !== undefined)
    try {
      if (limitMs === undefined) return TURNS.run(turn, plainly<T, Given>, code, ...given)
      return TURNS.run(turn, () => this.#guard(turn, () => plainly(code, ...given), limitMs))
    } catch (error) {
      if (error instanceof TurnCut && limitMs !== undefined) this.#cut(turn, limitMs)
      throw this.#explained(error)
    } finally {
      observer.end()
    }
  }

  /**
   * Runs code of a room that may continue after it has returned a promise. Throws and rejects as `run` does. The boundary does not cut off
   * code after an `await`.
   */
  start<T>(turn: RoomTurn, code: () => T | PromiseLike<T>): T | Promise<T> {
    // A lazy promise, such as a query of a database library, runs at each `then`. It gets one here, which belongs to the turn.
    const returned = this.run(turn, () => {
      const value = code()
      return isPromise(value) ? Promise.resolve(value as PromiseLike<T>) : value
    })
    if (!(returned instanceof Promise)) return returned
    this.#open.push(turn)
    this.#deps.observer.open(turn)
    const done = () => this.#done(turn)
    returned.then(done, done)
    return returned.catch((thrown: unknown) => {
      throw this.#plain(turn, thrown)
    })
  }

  /** The last turn took `ms` milliseconds, which is too long: counts it, and logs its room at most once a second. */
  wasSlow(ms: number): void {
    if (!this.#last) return
    const { log, metrics } = this.#deps
    const { hook, room } = this.#last
    const { roomType } = roomNamed(room.name)
    metrics.slowTurns.inc({ room_type: roomType, hook })
    // The log has its cut-off.
    if (this.#last === this.#lastCut || this.#slow.pass('') === undefined) return
    log.warn({ ...fieldsOf(this.#last), ms: Math.round(ms) }, 'a turn of room code was slow')
  }

  /** The turn that has started the running code, however long ago. Undefined: the running code is not room code. */
  get current(): RoomTurn | undefined {
    return TURNS.getStore()
  }

  /** Returns the present position of this thread as JSON. The watchdog calls it while the thread is paused. */
  where(): string {
    const turn = this.current
    return JSON.stringify({ turn: turn && plainTurn(turn), stack: new Error('where').stack })
  }

  /**
   * Called for a rejection or an exception that was not handled. Returns true if room code caused it. The error is logged and counted then,
   * and harms nothing else.
   */
  unhandled(error: unknown): boolean {
    const turn = this.current
    if (!turn) return false
    const { log, metrics } = this.#deps
    const { room, hook, type } = turn
    const { roomType } = roomNamed(room.name)
    metrics.roomErrors.inc({ room_type: roomType, code: 'room_logic_failed' })
    const suppressed = this.#quiet.pass(`${roomType} ${hook} ${type}`)
    if (suppressed !== undefined)
      log.warn(
        { ...fieldsOf(turn), suppressed, err: this.#plain(turn, error) },
        'room code failed outside of its turn',
      )
    return true
  }

  #explained(thrown: unknown): unknown {
    const text = this.#overwrites.explain(thrown)
    return text === undefined ? thrown : new RoomLogicError(text, { cause: thrown })
  }

  /** Reads a value that was thrown outside of its turn, in another turn, because that may run code of the room. */
  #plain(turn: RoomTurn, thrown: unknown): unknown {
    try {
      return this.#explained(this.run(turn, () => plainThrown(thrown)))
    } catch (cut) {
      return cut
    }
  }

  #done(turn: RoomTurn): void {
    this.#finished.add(turn)
    if (turn !== this.#open.at(-1)) return
    for (let last: RoomTurn | undefined = turn; last && this.#finished.has(last); last = this.#open.at(-1))
      this.#open.pop()
    this.#deps.observer.open(this.#open.at(-1))
  }

  #guard<T>(turn: RoomTurn, code: () => T, limitMs: number): T {
    try {
      return this.#boundary.run(code, limitMs)
    } catch (error) {
      if (error instanceof Overrun)
        throw new TurnCut(`${turn.hook} did not return within ${limitMs} ms and was cut off`, {
          cause: error,
        })
      throw error
    }
  }

  #cut(turn: RoomTurn, limitMs: number | undefined): void {
    const { log, suspects, observer } = this.#deps
    // V8 does not say where it has cut code off.
    const at = observer.placeOf?.(turn) ?? suspects.placeOf(turn)
    this.#lastCut = turn
    log.error(
      { ...fieldsOf(turn), limit_ms: limitMs, ...(at !== undefined && { at }) },
      'a turn did not return and was cut off',
    )
    const noted = suspects.stuck(turn, 'guard')
    if (turn.room.wants) turn.room.wants.cut = noted
  }
}

/** Runs code whose errors become plain before the turn ends. */
function plainly<T, Given extends unknown[]>(code: (...given: Given) => T, ...given: Given): T {
  try {
    return code(...given)
  } catch (thrown) {
    throw plainThrown(thrown)
  }
}

export const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function'

/** Code did not return in time and was cut off. */
class Overrun extends Error {
  override readonly name = 'Overrun'
}

/** Calls a function of this realm. Only a script can run with a timeout. */
const CALL = new Script('run()')

/** Cuts off synchronous code that takes too long. V8 ends it without running any `catch` or `finally`. A call costs about 0.1 ms. */
export class Boundary {
  #context: Context | undefined

  /**
   * Returns what `code` returns and throws what it throws, or an Overrun after `limitMs` milliseconds. Its changes until then remain. Code
   * after an `await`, and native calls that block, are not cut off.
   */
  run<T>(code: () => T, limitMs: number): T {
    let result: { readonly value: T } | { readonly thrown: unknown } | undefined
    this.#context ??= createContext({ run: undefined })
    this.#context.run = () => {
      try {
        result = { value: code() }
      } catch (thrown) {
        result = { thrown }
      }
    }
    const release = holdOutput()
    try {
      CALL.runInContext(this.#context, { timeout: limitMs })
    } catch (error) {
      if (!result) throw new Overrun(`it did not return within ${limitMs} ms`, { cause: error })
    } finally {
      release()
    }
    if ('thrown' in result!) throw result.thrown
    return result!.value
  }
}

/** Maximum number of writes to standard output that are kept during one guarded turn. */
const MAX_HELD = 1000

/**
 * Keeps writes to standard output and standard error until the returned function is called. A write that is cut off half way would block
 * the stream for ever, and the log with it.
 */
function holdOutput(): () => void {
  const { stdout, stderr } = process
  const held: (() => void)[] = []
  const hold = (stream: NodeJS.WriteStream): (() => void) => {
    const { write } = stream
    const keep = (...written: unknown[]): boolean => {
      if (held.length < MAX_HELD) held.push(() => void Reflect.apply(write, stream, written))
      return true
    }
    stream.write = keep as typeof write
    return () => {
      stream.write = write
    }
  }
  const restore = [hold(stdout), hold(stderr)]
  return () => {
    for (const undo of restore) undo()
    for (const writing of held) writing()
  }
}
