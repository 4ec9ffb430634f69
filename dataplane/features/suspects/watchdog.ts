import { url as debuggerUrl } from 'node:inspector'
import { extname } from 'node:path'
import { MessageChannel, Worker } from 'node:worker_threads'
import { type Clock, untilNext } from '../../../shared/clock.ts'
import type { Logger } from '../../../shared/log.ts'
import type { TurnObserver } from '../../room/hooks.ts'
import { WHERE } from './locate.ts'
import { sharedTurn, TurnWriter } from './turns.ts'
import type { WatchdogSettings } from './worker.ts'

/**
 * The watchdog of room code that does not return. `worker.ts` detects such a turn, in a thread. `suspect-record.ts` is the record that all nodes
 * share. `suspects.ts` decides which handlers a node does not start.
 */

/** Interval of the beats of the event loop, in milliseconds. */
const BEAT_MS = 100
/** Pause before a failed thread is restarted. */
const RESTART_MS = 500

/** Maximum time in milliseconds for the note about the reason of the end. */
const LAST_WORDS_MS = 500

const CODE = new URL(
  extname(import.meta.url) === '.ts' ? './worker-from-source.mjs' : './worker.js',
  import.meta.url,
)

/** A running watchdog. */
interface Watchdog {
  /** Observer of every turn of every room. */
  readonly turns: TurnObserver
  /** Sets the function that returns the position of this thread: `RoomCode.where`. */
  watch(where: () => string): void
  /** The process is about to end after a failure: notes the last turn as the reason if it has just ended. Blocks for half a second at most. */
  readonly lastWords: () => void
  close(): Promise<void>
}

/**
 * Watches the turns of this process' rooms from another thread. A long turn is noted in the record of suspects, so that no second node starts
 * it if it ends this process. The process ends if a turn takes longer than `limitMs`, or if room code blocks the event loop
 * after an `await`, because nothing else can stop them, or if the event loop does not turn for twice the lease. It does not end while a debugger
 * is attached.
 */
export function startWatchdog(
  settings: Omit<WatchdogSettings, 'turn' | 'places' | 'beatMs'>,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
): Watchdog {
  const turn = sharedTurn()
  const turns = new TurnWriter(turn)
  const shared = globalThis as { [WHERE]?: () => string }
  let worker: Worker
  let cancel = () => {}
  let closed = false

  const start = (): void => {
    const { port1, port2: places } = new MessageChannel()
    turns.places = port1
    worker = new Worker(CODE, {
      transferList: [places],
      workerData: { ...settings, turn, places, beatMs: BEAT_MS } satisfies WatchdogSettings,
      execArgv: [],
    })
    worker.unref()
    worker.on('error', (error) => log.error({ err: error }, 'the watchdog failed and is started again'))
    worker.on('exit', () => {
      if (!closed) clock.schedule(RESTART_MS, () => void (closed || start()))
    })
  }
  const beat = (): void => {
    turns.beat()
    turns.debugged = debuggerUrl() !== undefined
    cancel = clock.schedule(untilNext(clock, BEAT_MS), beat)
  }
  const lastWords = (): void => turns.lastWords(LAST_WORDS_MS)
  const onExit = (code: number): void => void (code === 0 || lastWords())
  process.on('exit', onExit)
  start()
  beat()
  return {
    turns,
    lastWords,
    watch(where) {
      shared[WHERE] = where
    },
    async close() {
      closed = true
      cancel()
      process.off('exit', onExit)
      delete shared[WHERE]
      await worker.terminate()
    },
  }
}
