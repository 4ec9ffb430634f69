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
import { encodeNote, StandstillDetector, type StuckTurn, TurnReader } from './turns.ts'

/** What the thread is given. */
export interface WatchdogSettings extends StoreConfig, LogConfig {
  readonly turn: SharedArrayBuffer
  readonly limitMs: number
  /** How often the event loop says that it goes on. */
  readonly beatMs: number
  readonly nodeId: string
  /** How long a note is kept: for as long as a client may send again what it is about. */
  readonly noteTtlMs: number
  /** A store that does not take the note is not waited for longer than this: by then others take over. */
  readonly noteTimeoutMs: number
}

/** How many times it looks within the limit: a stuck turn is found a quarter late at most, and each look of an idle node wakes a thread. */
const LOOKS = 4
const RETRY_MS = 50

/** Writes before it returns, past the thread of the rooms, which writes nothing any more. */
const STDERR = {
  isTTY: isatty(2),
  write(line: string): void {
    try {
      writeSync(2, line)
    } catch {
      // No one reads fast enough, or at all.
    }
  },
}

const settings = workerData as WatchdogSettings
const log = createLog(settings, { node_id: settings.nodeId }, STDERR)
const store = settings.redisUrl === undefined ? undefined : keepOpen()
const turns = new TurnReader(settings.turn)
const tickMs = settings.limitMs / LOOKS
const stuckTurn = new StandstillDetector(settings.limitMs, tickMs)
const stillMs = settings.beatMs + settings.limitMs
const stillLoop = new StandstillDetector(stillMs, tickMs)

const watch = setInterval(() => {
  const stuck = stuckTurn.tick(turns.running)
  if (stillLoop.tick(turns.beats)) tellStandstill()
  if (!stuck) return
  clearInterval(watch)
  void end(turns.turn)
}, tickMs)

/** What runs after an `await` belongs to no turn: it may end by itself, and there is nothing to tell a next owner of it. */
function tellStandstill(): void {
  const awaiting = turns.awaiting
  log.error(
    { limit_ms: stillMs, ...(awaiting !== '' && { room_types: awaiting }) },
    'the event loop stands still, and not in one turn of a room: code after an await of admit or of a task' +
      `${awaiting === '' ? '' : ` (of a room of type ${awaiting})`}, or something outside of room logic`,
  )
}

/** Ends the process, once the next owner of the room can know why. */
async function end(stuck: StuckTurn): Promise<void> {
  const noted = store ? await Promise.race([note(stuck), sleep(settings.noteTimeoutMs)]) : undefined
  const { roomType, key, projectId } = roomNamed(stuck.room.name)
  const fields = {
    project_id: projectId,
    room_id: `${roomType}:${key}`,
    room_type: roomType,
    epoch: stuck.room.epoch,
    hook: stuck.hook,
    ...(stuck.type !== '' && { message_type: stuck.type }),
    limit_ms: settings.limitMs,
    ...(store && { noted: noted === true }),
  }
  const rooms = store
    ? 'its rooms go on elsewhere'
    : 'and its rooms with it, since they are in memory; REDIS_URL keeps them'
  const text = `room logic of type ${roomType} did not return from ${stuck.hook}: the process ends, ${rooms}`
  log.fatal(fields, text)
  process.kill(process.pid, 'SIGKILL')
}

/** Resolves once the store has taken the note, or has said that the room is another node's. */
async function note(stuck: StuckTurn): Promise<boolean> {
  const { name, epoch } = stuck.room
  for (;;) {
    try {
      const { rooms } = await store!
      return await rooms.noteStuck(name, epoch, encodeNote(stuck), settings.noteTtlMs)
    } catch (error) {
      log.warn({ err: error }, 'the store did not take the note of a stuck turn')
      await sleep(RETRY_MS)
    }
  }
}

/** A connection of this thread's own, opened before it is needed. What it would log the process' other one logs, too. */
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
