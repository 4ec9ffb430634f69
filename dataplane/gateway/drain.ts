import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import type { Connection } from './connection.ts'

/** How many waves clients are moved in. */
const WAVES = 20
/**
 * In this share of the time nobody is moved. A load balancer needs some checks to find out that this node is not ready; until then it would
 * send whoever leaves back here, to be refused and to wait.
 */
const NOTICE = 0.1
/** How much longer than told a client may stay: the time to come back elsewhere before its connection here ends. */
const GRACE_MS = 500

/** A drain under way. */
export interface Drain {
  /** Resolves when the last connection is closed. */
  readonly done: Promise<void>
  /** Closes nothing any more: nobody is left. */
  stop(): void
}

/**
 * Moves clients to other nodes: tells each when to reconnect, at a random moment within `withinMs` but not at once, and closes the
 * connection shortly after that moment, in waves; the last one at most `withinMs` + 0.5 s from now. A client that is not welcome yet
 * hears of it behind its `welcome`, or is closed in its wave.
 */
export function drainConnections(
  connections: readonly Pick<Connection, 'send' | 'close'>[],
  { clock, random, withinMs }: { readonly clock: Clock; readonly random: Random; readonly withinMs: number },
): Drain {
  const waves = Array.from({ length: WAVES }, (): Pick<Connection, 'close'>[] => [])
  for (const connection of connections) {
    const moment = NOTICE + (1 - NOTICE) * random.float()
    connection.send({ t: 'draining', reconnect_in_ms: Math.floor(moment * withinMs) })
    waves[Math.floor(moment * WAVES)]!.push(connection)
  }
  const cancels: (() => void)[] = []
  const moved = waves.map(
    (wave, index) =>
      new Promise<void>((resolve) => {
        if (wave.length === 0) return resolve()
        const close = (): void => {
          for (const connection of wave)
            connection.close('draining', 'this node is going away: resume on another')
          resolve()
        }
        cancels.push(clock.schedule(((index + 1) / WAVES) * withinMs + GRACE_MS, close))
      }),
  )
  return {
    done: Promise.all(moved).then(() => {}),
    stop: () => {
      for (const cancel of cancels) cancel()
    },
  }
}
