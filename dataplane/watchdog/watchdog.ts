import { url as debuggerUrl } from 'node:inspector'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { type Clock, untilNext } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { sharedTurn, type Turns, TurnWriter } from './turns.ts'
import type { WatchdogSettings } from './worker.ts'

/** How often the thread is told that the event loop goes on and whether a debugger is attached, and how soon one that failed is started again. */
const BEAT_MS = 1000

const CODE = new URL(
  extname(import.meta.url) === '.ts' ? './worker-from-source.mjs' : './worker.js',
  import.meta.url,
)

/** A watchdog that watches. */
interface Watchdog {
  /** To be told of every turn of every room. */
  readonly turns: Turns
  close(): Promise<void>
}

/**
 * Watches the turns of this process' rooms from a thread of its own: one that takes longer than `limitMs` never ends, as far as
 * can be known, and this process does nothing else meanwhile. The thread writes a note into the room's record, so that the
 * next owner is not stuck on the same message, and ends the process. Where the event loop stands still outside of any turn, the thread
 * can only say so. Not while a debugger is attached.
 */
export function startWatchdog(
  settings: Omit<WatchdogSettings, 'turn' | 'beatMs'>,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
): Watchdog {
  const turn = sharedTurn()
  const turns = new TurnWriter(turn)
  let worker: Worker
  let cancel = () => {}
  let closed = false

  const start = (): void => {
    worker = new Worker(CODE, {
      workerData: { ...settings, turn, beatMs: BEAT_MS } satisfies WatchdogSettings,
      execArgv: [],
    })
    worker.unref()
    worker.on('error', (error) => log.error({ err: error }, 'the watchdog has failed, and is started again'))
    worker.on('exit', () => {
      if (!closed) clock.schedule(BEAT_MS, () => void (closed || start()))
    })
  }
  const beat = (): void => {
    turns.beat()
    turns.debugged = debuggerUrl() !== undefined
    cancel = clock.schedule(untilNext(clock, BEAT_MS), beat)
  }
  start()
  beat()
  return {
    turns,
    async close() {
      closed = true
      cancel()
      await worker.terminate()
    },
  }
}
