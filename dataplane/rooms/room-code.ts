import { AsyncLocalStorage } from 'node:async_hooks'
import { type Context, createContext, Script } from 'node:vm'
import type { Clock } from '../../shared/clock.ts'
import { Quiet } from '../../shared/log.ts'
import { roomNamed } from '../traffic.ts'
import { fieldsOf, type Suspects } from '../watchdog/suspects.ts'
import { plainTurn, type Turn, type TurnObserver, type TurnRoom } from '../watchdog/turns.ts'
import type { RoomLog } from './definition-types.ts'
import { logFailure, RoomLogicError } from './failures.ts'
import type { RoomMetrics } from './metrics.ts'

/** A room whose state room code writes to. */
export interface CodeRoom extends TurnRoom {
  /** A turn was cut off: what it has left of the state in memory must not be used. */
  cutOff?(turn: RoomTurn): void
  /** Whether a turn was cut off: no other one starts. */
  readonly wasCutOff?: boolean
}

/** A call of the code of a room. */
export interface RoomTurn extends Turn {
  readonly room: CodeRoom
}

/** A turn took too long and was cut off, or its handler did so before and was not started. */
export class TurnCut extends RoomLogicError {
  override readonly name = 'TurnCut'
}

/** What room code needs to know of the suspects. */
type KnownSuspects = Pick<Suspects, 'limitOf' | 'stuck'>

/** Without a watchdog there are none. */
export const noSuspects: KnownSuspects = { limitOf: () => undefined, stuck: async () => {} }

interface RoomCodeDeps {
  readonly clock: Clock
  readonly log: RoomLog
  readonly metrics: Pick<RoomMetrics, 'roomErrors'>
  readonly observer: TurnObserver
  readonly suspects: KnownSuspects
}

/**
 * The turn in which the code that runs was started. One for all nodes of a process, as it holds nothing itself: on Node 20 and 22 each of
 * them makes every promise of the process slower.
 */
const TURNS = new AsyncLocalStorage<RoomTurn>()
/** An error of a kind is logged at most so often. */
const QUIET_MS = 10_000

/**
 * The one place that calls room code: every handler, validator and function of a room type, on one node. It tells the watchdog which turn
 * runs, attributes what the code leaves behind (promises, timers, emitters) to its turn, and runs suspects inside a boundary that cuts
 * them off. Only room code runs in here; what roomful does with the result happens outside.
 */
export class RoomCode {
  readonly #deps: RoomCodeDeps
  readonly #quiet: Quiet
  /** Asynchronous calls in the order in which they started. The last one has not finished. */
  readonly #open: RoomTurn[] = []
  readonly #finished = new WeakSet<RoomTurn>()
  readonly #boundary = new Boundary()
  #last: RoomTurn | undefined

  constructor(deps: RoomCodeDeps) {
    this.#deps = deps
    this.#quiet = new Quiet(deps.clock, QUIET_MS)
  }

  /**
   * Runs code of a room. Throws what it throws, or a TurnCut: the code took too long as a suspect, in which case its room has been told
   * (`cutOff`), or it was not started.
   */
  run<T>(turn: RoomTurn, code: () => T): T {
    const { observer, suspects } = this.#deps
    const limitMs = suspects.limitOf(turn)
    if (turn.room.wasCutOff)
      throw new TurnCut(`${turn.hook} was not started: another turn of the room was cut off`)
    if (limitMs === 0) throw new TurnCut(`${turn.hook} was not started: it did not return before`)
    this.#last = turn
    observer.begin(turn, limitMs !== undefined)
    try {
      if (limitMs === undefined) return TURNS.run(turn, code)
      return TURNS.run(turn, () => this.#guard(turn, code, limitMs))
    } catch (error) {
      if (error instanceof TurnCut && limitMs !== undefined) this.#cut(turn, limitMs)
      throw error
    } finally {
      observer.end()
    }
  }

  /**
   * Runs code of a room that may go on after it has returned a promise. Throws and rejects as `run` does. The boundary does not reach code
   * after an `await`.
   */
  start<T>(turn: RoomTurn, code: () => T | PromiseLike<T>): T | Promise<T> {
    // A promise that is lazy, such as a query of a database library, runs at each `then`: it gets one, which belongs to the turn.
    const returned = this.run(turn, () => {
      const value = code()
      return isPromise(value) ? Promise.resolve(value as PromiseLike<T>) : value
    })
    if (returned instanceof Promise) {
      this.#open.push(turn)
      this.#deps.observer.open(turn)
      const done = () => this.#done(turn)
      returned.then(done, done)
    }
    return returned
  }

  /** The turn that ran last. */
  get last(): RoomTurn | undefined {
    return this.#last
  }

  /** The turn in which the code that runs at this moment was started, however long ago; undefined: it is no room code. */
  get current(): RoomTurn | undefined {
    return TURNS.getStore()
  }

  /** Where this thread is, for the watchdog, which asks while the thread is paused. JSON. */
  where(): string {
    const turn = this.current
    return JSON.stringify({ turn: turn && plainTurn(turn), stack: new Error('where').stack })
  }

  /**
   * To be called for a rejection or an exception that no one has handled. True: code of a room caused it; it is logged and counted, and
   * harms nothing else.
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
      logFailure(log, error, 'room code failed outside of its turn', { ...fieldsOf(turn), suppressed })
    return true
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
    const { log, suspects } = this.#deps
    log.error({ ...fieldsOf(turn), limit_ms: limitMs }, 'a turn did not return and was cut off')
    turn.room.cutOff?.(turn)
    void suspects.stuck(turn, 'guard')
  }
}

export const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function'

/** Code did not return in time and was cut off. */
export class Overrun extends Error {
  override readonly name = 'Overrun'
}

/** Runs a function of this realm; only a script can be run with a timeout. */
const CALL = new Script('run()')

/** Cuts off synchronous code that takes too long: V8 ends it past every `catch` and `finally`. A call costs about 0.1 ms. */
export class Boundary {
  #context: Context | undefined

  /**
   * Returns what `code` returns and throws what it throws, or an Overrun after `limitMs` milliseconds. What it has done until then remains.
   * Code after an `await`, and native calls that block, are not reached.
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

/** Maximum number of writes of one guarded turn to standard output that are kept. */
const MAX_HELD = 1000

/**
 * Keeps what is written to standard output and standard error until the returned function is called: a write that is cut off half way would
 * leave the stream waiting for ever, and the log with it.
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
