import { writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { type MessagePort, workerData } from 'node:worker_threads'
import { systemClock } from '../../../shared/clock.ts'
import type { StoreConfig } from '../../../shared/config.ts'
import { createLog, type LogConfig, type Logger } from '../../../shared/log.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import type { Store } from '../../../shared/store/port.ts'
import { fieldsOf, type Turn } from '../../room/hooks.ts'
import { roomNamed } from '../../traffic.ts'
import { endRoomCode, type Location, locate } from './locate.ts'
import {
  type Mode,
  type SharedSuspects,
  SuspectRecord,
  withLast,
  withoutRunning,
  withRunning,
  withStuck,
} from './suspect-record.ts'
import { countedMs, type Place, StandstillMeter, TurnReader } from './turns.ts'

/** Settings of the thread. */
export interface WatchdogSettings extends StoreConfig, LogConfig {
  readonly turn: SharedArrayBuffer
  /** Gets a Place for each turn that reaches half of the limit. */
  readonly places: MessagePort
  readonly limitMs: number
  /** Share of the time without CPU time that counts towards the limits: 0–1. */
  readonly idleShare: number
  /**
   * In development, every turn is cut off after this time in milliseconds, and the log of that has its place. Absent: a turn that exceeds
   * `limitMs` ends the process.
   */
  readonly cutOffMs?: number
  /** Milliseconds between two beats of the event loop. */
  readonly beatMs: number
  readonly nodeId: string
  /** Hashes of the code of the room types, by type. */
  readonly codeHashes: Readonly<Record<string, string | undefined>>
  /** Time after which other nodes take the rooms over. The thread waits as long for the store to take a note. */
  readonly leaseMs: number
}

/** Interval of the checks. Each check of an idle node wakes a thread. */
const TICK_MS = 50
/** Duration after which a turn is noted. */
const NOTE_AFTER_MS = 100
const RETRY_MS = 50
/** Maximum time for the main thread to reach JavaScript. On a busy machine this takes some hundred milliseconds. */
const LOCATE_MS = 800
/** Maximum number of attempts to find the position of an event loop that stands still. */
const LOOP_LOOKS = 5
/** Time after the cut-off at which a turn that still runs is cut off again. */
const CUT_AGAIN_MS = 250
/** If the process or its event loop stops within this time after a turn, the turn is the reason. */
const AFTER_TURN_MS = 1000

/** Writes synchronously, and not through the thread of the rooms, which may be blocked. */
const STDERR = {
  isTTY: isatty(2),
  write(line: string): void {
    try {
      writeSync(2, line)
    } catch {
      // Its reader is too slow, or has gone.
    }
  },
}

/** Watches the turns, and the event loop, of the thread that runs the rooms. */
class TurnWatch {
  readonly #settings: WatchdogSettings
  /** True: a turn that exceeds the limit ends the process. */
  readonly #ends: boolean
  readonly #log: Logger
  readonly #store: Promise<Store> | undefined
  readonly #turns: TurnReader
  readonly #tickMs: number
  readonly #turnMeter = new StandstillMeter()
  readonly #loopMeter = new StandstillMeter()
  readonly #quietMeter = new StandstillMeter()
  readonly #stillMeter = new StandstillMeter()
  /** Time after which room code that blocks the event loop outside of its turn ends the process. */
  readonly #loopLimitMs: number
  /** The process ends if its event loop does not run for this time, whatever the reason is. */
  readonly #deadLimitMs: number
  readonly #ticks: NodeJS.Timeout
  /** CPU time of the process at the last tick, in milliseconds. */
  #cpuMs = 0
  /** The noted turn and its number. */
  #noted: { readonly sequence: number; readonly turn: Turn } | undefined
  /** Position of the turn that has reached half of the limit. */
  #looking: Promise<Location | undefined> = Promise.resolve(undefined)
  /** Time from the end of the latest turn to the stop of the event loop, in milliseconds. 0 or less: the event loop runs. */
  #quietMs = 0
  /** Time for which the event loop has not run, outside of turns, in milliseconds. */
  #stillMs = 0
  /** True while the reason for the end of the process is being noted. */
  #speaking = false
  /** True while a turn is being cut off again. */
  #cutting = false
  /** Resolves after all earlier writes to the store. */
  #writing: Promise<unknown> = Promise.resolve()

  constructor(settings: WatchdogSettings) {
    this.#settings = settings
    this.#ends = settings.cutOffMs === undefined
    this.#log = createLog(settings, { node_id: settings.nodeId }, STDERR)
    this.#store = settings.redisUrl === undefined ? undefined : this.#keepOpen()
    this.#turns = new TurnReader(settings.turn)
    this.#tickMs = Math.min(TICK_MS, settings.limitMs / 4)
    this.#loopLimitMs = settings.beatMs + settings.limitMs
    this.#deadLimitMs = settings.beatMs + 2 * settings.leaseMs
    this.#ticks = setInterval(() => this.#tick(), this.#tickMs)
  }

  #tick(): void {
    const { limitMs, cutOffMs, idleShare, beatMs } = this.#settings
    const { running, sequence, beats, ending } = this.#turns
    const { user, system } = process.cpuUsage()
    const cpuBefore = this.#cpuMs
    this.#cpuMs = (user + system) / 1000
    const ms = countedMs(this.#tickMs, this.#cpuMs - cpuBefore, idleShare)
    const turn = this.#turnMeter.tick(running, ms)
    const loop = this.#loopMeter.tick(beats, ms)
    // No turn starts or ends after the event loop has stopped.
    this.#quietMs = this.#quietMeter.tick(sequence, ms).ms - loop.ms
    // Both numbers only rise, so their sum changes with each of them.
    const progress = running === undefined && beats !== undefined ? beats + (sequence ?? 0) : undefined
    const still = this.#stillMeter.tick(progress, ms)
    this.#stillMs = still.ms
    if (ending && !this.#speaking) void this.#lastWords()
    if (this.#noted && this.#noted.sequence !== running) this.#returned(this.#noted.turn)
    if (this.#ends && running !== undefined && turn.exceeds(NOTE_AFTER_MS) && !this.#noted)
      this.#overruns(running)
    // Once, and early, because it takes time to find the position.
    if (turn.reaches(limitMs / 2)) this.#looking = this.#look()
    if (turn.reaches(limitMs)) void this.#longTurn()
    if (cutOffMs !== undefined && turn.exceeds(cutOffMs + CUT_AGAIN_MS) && !this.#cutting)
      void this.#cutAgain()
    if (still.reaches(beatMs + limitMs / 2)) void this.#stuckLoop()
    if (loop.reaches(this.#deadLimitMs)) void this.#deadLoop()
  }

  /** Notes the running turn. If it never ends, the room's next owner must know of it, whatever ends this process. */
  #overruns(sequence: number): void {
    const { turn } = this.#turns
    // The thread of the rooms cuts a guarded turn off and notes it. If this thread noted it too, it could remove the note of the other.
    if (turn.guarded) return
    this.#noted = { sequence, turn }
    void this.#change((shared) => withRunning(shared, turn, this.#hashOf, { now: Date.now() }))
  }

  /** The noted turn has returned: removes its note. */
  #returned(turn: Turn): void {
    this.#noted = undefined
    void this.#change((shared) => withoutRunning(shared, turn, this.#hashOf))
  }

  /**
   * Returns the position of the turn. A pause of the debugger can swallow the cut-off of a guarded turn, so that turn is not located: if its
   * boundary does not end it, it blocks in a native call.
   */
  async #look(): Promise<Location | undefined> {
    if (this.#turns.turn.guarded && this.#ends) return undefined
    const at = await locate(LOCATE_MS)
    if (at?.turn && at.frame !== undefined) {
      const { room, hook } = at.turn
      this.#settings.places.postMessage({ room: room.name, hook, frame: at.frame } satisfies Place)
    }
    return at
  }

  /** A turn has reached the limit. */
  async #longTurn(): Promise<void> {
    const { turn, running } = this.#turns
    const at = await this.#looking
    // It has returned, or its boundary has cut it off.
    if (this.#turns.running !== running) return
    if (this.#ends) await this.#end(turn, at ? 'guard' : 'refuse', at)
  }

  /** The boundary has not cut off a turn in time. */
  async #cutAgain(): Promise<void> {
    this.#cutting = true
    await endRoomCode(LOCATE_MS)
    this.#cutting = false
  }

  /**
   * The event loop does not run, outside of turns. Notes the room code that blocks it, because no boundary of another node can cut it off, and
   * ends the process at the limit.
   */
  async #stuckLoop(): Promise<void> {
    const { beats, sequence } = this.#turns
    const stands = (): boolean => this.#turns.beats === beats && this.#turns.sequence === sequence
    const found = await this.#blocking(stands)
    if (!found) return
    const { turn, at } = found
    if (this.#ends)
      void this.#change((shared) =>
        withRunning(shared, turn, this.#hashOf, { now: Date.now(), outside: true }),
      )
    while (stands() && this.#stillMs < this.#loopLimitMs) await sleep(this.#tickMs)
    if (!this.#ends) this.#report(turn, at)
    else if (stands()) await this.#end(turn, 'refuse', at)
    else void this.#change((shared) => withoutRunning(shared, turn, this.#hashOf))
  }

  /** Returns the room code that blocks the event loop while it `stands`. Undefined: there is none, or it was only late. */
  async #blocking(
    stands: () => boolean,
  ): Promise<{ readonly turn: Turn; readonly at: Location | undefined } | undefined> {
    // On a busy machine, the event loop may not stop in time, or stops where its position is unknown.
    for (let tries = 0; tries < LOOP_LOOKS; tries++) {
      const at = await locate(LOCATE_MS)
      await sleep(this.#tickMs)
      if (!stands()) return undefined
      const turn = at ? at.turn : blocking(this.#turns.open)
      if (turn) return { turn, at }
    }
    return undefined
  }

  /** The event loop has not run for so long that the other nodes have taken the rooms over. The process serves nobody, and cannot recover. */
  async #deadLoop(): Promise<void> {
    const { beats } = this.#turns
    const at = await locate(LOCATE_MS)
    if (this.#turns.beats !== beats) return
    const turn = at?.turn ?? this.#latest
    if (turn && this.#ends) await this.#end(turn, 'refuse', at)
    else if (this.#ends) this.#kill(at)
    else this.#log.error(this.#aboutLoop(at), 'the event loop does not turn')
  }

  /** The turn that ended within a second before the event loop stopped. Undefined: there is none. */
  get #latest(): Turn | undefined {
    return this.#turns.sequence !== 0 && this.#quietMs <= AFTER_TURN_MS ? this.#turns.turn : undefined
  }

  /** The process is about to end. If a turn is the reason, the next owner of its room must not start it. */
  async #lastWords(): Promise<void> {
    this.#speaking = true
    const turn = this.#latest
    const write = turn && this.#change((shared) => withLast(shared, turn, this.#hashOf, Date.now()))
    await Promise.race([write, sleep(this.#settings.leaseMs)])
    this.#turns.release()
    this.#speaking = false
  }

  #report(turn: Turn, at: Location | undefined): void {
    this.#log.error(this.#about(turn, at), 'a turn of room code does not return')
  }

  /** Ends the process, after the room's next owner and all nodes can know the reason. */
  async #end(turn: Turn, mode: Mode, at: Location | undefined): Promise<void> {
    clearInterval(this.#ticks)
    const now = Date.now()
    const write = this.#change((shared) =>
      withStuck(shared, turn, this.#hashOf, { mode, now, at: at?.frame }),
    )
    const written = await Promise.race([write, sleep(this.#settings.leaseMs)])
    const rooms = this.#store
      ? 'its rooms continue elsewhere'
      : 'and its rooms with it, since they are in memory; REDIS_URL keeps them'
    this.#log.fatal(
      { ...this.#about(turn, at), ...(this.#store && { noted: written !== undefined }) },
      `${nameOf(turn)} did not return: the process ends, ${rooms}`,
    )
    process.kill(process.pid, 'SIGKILL')
  }

  /** Ends the process without a turn to blame. */
  #kill(at: Location | undefined): void {
    this.#log.fatal(this.#aboutLoop(at), 'the event loop does not turn: the process ends')
    process.kill(process.pid, 'SIGKILL')
  }

  #aboutLoop(at: Location | undefined) {
    return { limit_ms: this.#deadLimitMs, at: at ? at.frame : 'a native call' }
  }

  readonly #hashOf = (roomType: string): string | undefined => this.#settings.codeHashes[roomType]

  #about(turn: Turn, at: Location | undefined) {
    return { ...fieldsOf(turn), limit_ms: this.#settings.limitMs, at: at ? at.frame : 'a native call' }
  }

  /** Changes the record after all earlier changes, as soon as the store takes it. Undefined: there is no store. */
  #change(change: (shared: SharedSuspects) => SharedSuspects): Promise<SharedSuspects | undefined> {
    const store = this.#store
    if (!store) return Promise.resolve(undefined)
    const done = this.#writing.then(async () => {
      for (;;) {
        try {
          return await new SuspectRecord(await store).change(change)
        } catch (error) {
          this.#log.warn({ err: error }, 'the store did not take the note of a turn')
          await sleep(RETRY_MS)
        }
      }
    })
    this.#writing = done
    return done
  }

  /** Opens the thread's connection to the store before it is needed. The process' own connection logs the same problems. */
  async #keepOpen(): Promise<Store> {
    const silent = createLog({ ...this.#settings, logLevel: 'silent' })
    for (;;) {
      try {
        return await openStore({ ...this.#settings, log: silent, clock: systemClock, random: systemRandom })
      } catch (error) {
        this.#log.warn({ err: error }, 'the watchdog has no connection to the store yet')
        await sleep(1000)
      }
    }
  }
}

/** Returns the call that may block the loop in native code: the one that started last. Saves are too many to be blamed for that. */
const blocking = (open: Turn | undefined): Turn | undefined => (open?.hook === 'save' ? undefined : open)

const nameOf = ({ room, hook }: Turn): string =>
  `room logic of type ${roomNamed(room.name).roomType}, ${hook},`

function sleep(ms: number): Promise<undefined> {
  return new Promise((resolve) => setTimeout(() => resolve(undefined), ms))
}

new TurnWatch(workerData as WatchdogSettings)
