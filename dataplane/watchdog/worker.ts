import { writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { workerData } from 'node:worker_threads'
import { systemClock } from '../../shared/clock.ts'
import type { LogConfig, StoreConfig } from '../../shared/config.ts'
import { createLog } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { Store } from '../../shared/store/port.ts'
import { roomNamed } from '../traffic.ts'
import { endRoomCode, type Location, locate } from './locate.ts'
import { fieldsOf, type Mode, SuspectRecord, withoutRunning, withRunning, withStuck } from './suspects.ts'
import { countedMs, encodeNote, StandstillMeter, type Turn, TurnReader } from './turns.ts'

/** Settings of the thread. */
export interface WatchdogSettings extends StoreConfig, LogConfig {
  readonly turn: SharedArrayBuffer
  readonly limitMs: number
  /** Share of the time without CPU time that counts towards the limits: 0–1. */
  readonly idleShare: number
  /**
   * In development, every turn is cut off after so many milliseconds, and one that takes longer than `limitMs` is only logged. Absent: it ends
   * the process.
   */
  readonly cutOffMs?: number
  /** Milliseconds between two beats of the event loop. */
  readonly beatMs: number
  readonly nodeId: string
  /** Hashes of the code of the room types, by type. */
  readonly codeHashes: Readonly<Record<string, string | undefined>>
  /** How long a note is kept: for as long as a client may send again what it is about. */
  readonly noteTtlMs: number
  /** The thread waits for a store that does not take a note for so long: by then others take over. */
  readonly noteTimeoutMs: number
}

/** Each look of an idle node wakes a thread. */
const TICK_MS = 50
/** A turn that runs for so long is noted. */
const NOTE_AFTER_MS = 100
const RETRY_MS = 50
/** For how long the thread waits for the main thread to reach JavaScript: on a busy machine that takes some hundred milliseconds. */
const LOCATE_MS = 800
/** A turn that runs for so long after it was to be cut off is cut off again. */
const CUT_AGAIN_MS = 250

/** Writes before it returns, and not by way of the thread of the rooms, which does nothing any more. */
const STDERR = {
  isTTY: isatty(2),
  write(line: string): void {
    try {
      writeSync(2, line)
    } catch {
      // Nothing reads fast enough, or at all.
    }
  },
}

const settings = workerData as WatchdogSettings
const { limitMs, cutOffMs } = settings
const ends = cutOffMs === undefined
const hashes = (roomType: string): string | undefined => settings.codeHashes[roomType]
const log = createLog(settings, { node_id: settings.nodeId }, STDERR)
const store = settings.redisUrl === undefined ? undefined : keepOpen()
const turns = new TurnReader(settings.turn)
const tickMs = Math.min(TICK_MS, limitMs / 4)
const turnMeter = new StandstillMeter()
const loopMeter = new StandstillMeter()
/** CPU time of the process at the last tick, milliseconds. */
let cpuMs = 0
/** The loop of a process that has much to do is late as well. */
const loopLimitMs = settings.beatMs + 2 * limitMs
/** The turn that is noted, and its number. */
let noted: { readonly sequence: number; readonly turn: Turn } | undefined
/** Position of the turn that has reached half of the limit. */
let looking: Promise<Location | undefined> = Promise.resolve(undefined)
/** Whether a turn is being cut off again. */
let cutting = false
/** Writes of the store, one after the other. */
let writing: Promise<unknown> = Promise.resolve()

const watch = setInterval(() => {
  const { running } = turns
  const { user, system } = process.cpuUsage()
  const cpuBefore = cpuMs
  cpuMs = (user + system) / 1000
  const ms = countedMs(tickMs, cpuMs - cpuBefore, settings.idleShare)
  const turn = turnMeter.tick(running, ms)
  const loop = loopMeter.tick(turns.beats, ms)
  if (noted && noted.sequence !== running) returned(noted.turn)
  if (ends && running !== undefined && turn.exceeds(NOTE_AFTER_MS) && !noted) overruns(running)
  // Once, and early: to find out where it is takes time.
  if (turn.reaches(limitMs / 2)) looking = look()
  if (turn.reaches(limitMs)) void longTurn()
  if (cutOffMs !== undefined && turn.exceeds(cutOffMs + CUT_AGAIN_MS) && !cutting) void cutAgain()
  if (loop.reaches(loopLimitMs)) void stuckLoop()
}, tickMs)

/** The turn that runs may not end: the next owner has to know of it, whatever ends this process. */
function overruns(sequence: number): void {
  const { turn } = turns
  // The thread of the rooms cuts it off and notes it. To remove the note of its return here could remove that one.
  if (turn.guarded) return
  noted = { sequence, turn }
  void inOrder(async (store) => {
    const { rooms } = store
    await rooms.noteStuck(turn.room.name, turn.room.epoch, encodeNote(turn), settings.noteTtlMs)
    await new SuspectRecord(store).change((shared) => withRunning(shared, turn, hashes, Date.now()))
  })
}

/** The turn that was noted has returned. */
function returned(turn: Turn): void {
  noted = undefined
  void inOrder(async (store) => {
    const { rooms } = store
    await rooms.removeNote(turn.room.name, turn.room.epoch, encodeNote(turn), settings.noteTtlMs)
    await new SuspectRecord(store).change((shared) => withoutRunning(shared, turn, hashes))
  })
}

/**
 * Returns the position of the turn. A pause of the debugger can swallow the end of a guarded turn. If its boundary does not end a turn, the turn
 * blocks in a native call.
 */
const look = async (): Promise<Location | undefined> =>
  turns.turn.guarded && ends ? undefined : locate(LOCATE_MS)

/** A turn has reached the limit. */
async function longTurn(): Promise<void> {
  const { turn } = turns
  const sequence = turns.running
  const at = await looking
  // It has returned, or its boundary has cut it off.
  if (turns.running !== sequence) return
  if (ends) await end(turn, at ? 'guard' : 'refuse', at)
  else report(turn, at)
}

/** The boundary has not cut off a turn in time. */
async function cutAgain(): Promise<void> {
  cutting = true
  await endRoomCode(LOCATE_MS)
  cutting = false
}

/** The event loop does not run. A turn that does not return is found as such. */
async function stuckLoop(): Promise<void> {
  const { beats } = turns
  if (turns.running !== undefined) return
  const at = await locate(LOCATE_MS)
  await sleep(limitMs / 2)
  // It was late, and runs again.
  if (turns.beats !== beats || turns.running !== undefined) return
  const turn = at ? at.turn : blocking(turns.open)
  if (turn && ends) await end(turn, 'refuse', at)
  else if (turn) report(turn, at)
  else
    log.error(
      { limit_ms: loopLimitMs, ...(at?.frame && { at: at.frame }) },
      'the event loop stands still, and no room code is known to run',
    )
}

/** The call that may block the loop in native code: the one that started last. Saves are too many to be blamed for that. */
const blocking = (open: Turn | undefined): Turn | undefined => (open?.hook === 'save' ? undefined : open)

function report(turn: Turn, at: Location | undefined): void {
  log.error(about(turn, at), `${nameOf(turn)} does not return`)
}

/** Ends the process, once the next owner of the room and all nodes can know why. */
async function end(turn: Turn, mode: Mode, at: Location | undefined): Promise<void> {
  clearInterval(watch)
  const { name, epoch } = turn.room
  const now = Date.now()
  const write = inOrder(async (store) => {
    const { rooms } = store
    const note = await rooms.noteStuck(name, epoch, encodeNote(turn), settings.noteTtlMs)
    await new SuspectRecord(store).change((shared) => withStuck(shared, turn, hashes, { mode, now }))
    return note
  })
  const written = await Promise.race([write, sleep(settings.noteTimeoutMs)])
  const rooms = store
    ? 'its rooms continue elsewhere'
    : 'and its rooms with it, since they are in memory; REDIS_URL keeps them'
  log.fatal(
    { ...about(turn, at), ...(store && { noted: written === true }) },
    `${nameOf(turn)} did not return: the process ends, ${rooms}`,
  )
  process.kill(process.pid, 'SIGKILL')
}

const nameOf = ({ room, hook }: Turn): string =>
  `room logic of type ${roomNamed(room.name).roomType}, ${hook},`

const about = (turn: Turn, at: Location | undefined) => ({
  ...fieldsOf(turn),
  limit_ms: limitMs,
  at: at ? at.frame : 'a native call',
})

/** Does `write` after the earlier writes, until the store takes it. Undefined: there is no store. */
function inOrder<T>(write: (store: Store) => Promise<T>): Promise<T | undefined> {
  if (!store) return Promise.resolve(undefined)
  const done = writing.then(async () => {
    for (;;) {
      try {
        return await write(await store)
      } catch (error) {
        log.warn({ err: error }, 'the store did not take the note of a turn')
        await sleep(RETRY_MS)
      }
    }
  })
  writing = done
  return done
}

/** A connection of this thread, opened before it is needed. The connection of the process logs the same troubles. */
async function keepOpen(): Promise<Store> {
  const silent = createLog({ ...settings, logLevel: 'silent' })
  for (;;) {
    try {
      return await openStore({ ...settings, log: silent, clock: systemClock, random: systemRandom })
    } catch (error) {
      log.warn({ err: error }, 'the watchdog has no connection to the store yet')
      await sleep(1000)
    }
  }
}

function sleep(ms: number): Promise<undefined> {
  return new Promise((resolve) => setTimeout(() => resolve(undefined), ms))
}
