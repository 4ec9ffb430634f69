import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Scenario } from '../scenarios.ts'

/** Code of every server under comparison: its settings, and the samples of its cost. */

/** Side of the square in which players move. They start in its middle. */
export const AREA = 1_000
export const FLUSHES_PER_SECOND = 20

/** Settings of one process. */
export interface Settings extends Scenario {
  /** Number of this node, from 0. */
  readonly index: number
  /** Redis of several nodes, and roomful's store. Absent: one node, in memory. */
  readonly redisUrl?: string
  /** For roomful: true runs compiled code from dist/, false the sources (for tests). */
  readonly built: boolean
}

/** Addresses of a server. */
export interface Listening {
  readonly port: number
  readonly controlUrl?: string
}

/** Totals of a server since its start. */
export interface Sample {
  /** CPU time of the whole process, user and system, microseconds. */
  readonly cpuUs: number
  readonly rssBytes: number
  /** Heap and memory outside of it that V8 knows of, buffers included. After `collect`: those in use. */
  readonly liveBytes: number
  /** Longest time between two turns of the event loop since the last `watch`, milliseconds. */
  readonly stallMs: number
  /** Inputs that game code has received. */
  readonly inputs: number
  /** Ids of the rooms that this process owns. */
  readonly rooms: readonly string[]
}

/** Returns a random coordinate, rounded to 0.01. */
export const somewhere = (): number => Math.floor(Math.random() * AREA * 100) / 100
export const place = (x = somewhere()) => ({ x, y: somewhere() })

/** Writes a player's place, as the documentation of roomful and of Colyseus recommends. */
export function moveTo(
  player: { x: number; y: number },
  { x, y }: { readonly x: number; readonly y: number },
): void {
  player.x = x
  player.y = y
}

/** State that game code shares with `serve`. */
export interface Served {
  /** Inputs that game code has received. */
  inputs: number
  readonly rooms: Set<string>
  /** True: only inputs change the rooms. */
  frozen: boolean
}

/** Stalls that are shorter cannot be seen. */
const STALL_RESOLUTION_MS = 10
/** Number of maps of the listed rooms. Clients search rooms of one map. */
const MAPS = 50
export const LISTED_SEATS = 4
/** Returns the map of a room's key or of a number. */
export const mapOf = (key: string | number): string => `m${Number(String(key).replace('r', '')) % MAPS}`

/** A request for a `Sample`. `collect`: collects garbage first. `freeze`: sets `Served.frozen`. `watch`: measures stalls from now on. */
export type Question = 'sample' | 'collect' | 'freeze' | 'watch'

/** Serves until the parent ends. Sends the addresses over the IPC channel, then answers each question. */
export async function serve(
  start: (settings: Settings, served: Served) => Promise<Listening>,
): Promise<void> {
  const served: Served = { inputs: 0, rooms: new Set(), frozen: false }
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  const delays = monitorEventLoopDelay({ resolution: STALL_RESOLUTION_MS })
  process.on('disconnect', () => process.exit(0))
  process.on('message', (question: Question) => {
    if (question === 'collect') for (let i = 0; i < 2; i++) collect()
    if (question === 'freeze') served.frozen = true
    if (question === 'watch') {
      delays.enable()
      delays.reset()
    }
    const { user, system } = process.cpuUsage()
    const { rss: rssBytes, heapUsed, external } = process.memoryUsage()
    const sample: Sample = {
      cpuUs: user + system,
      rssBytes,
      liveBytes: heapUsed + external,
      stallMs: delays.max / 1e6,
      inputs: served.inputs,
      rooms: [...served.rooms],
    }
    process.send?.(sample)
  })
  const settings: Settings = JSON.parse(process.argv[2] ?? '')
  process.send?.(await start(settings, served))
}

/** Makes the moves of one flush without inputs. */
export function tickOnce(
  { tick, entities }: Settings,
  { frozen }: Served,
  room: { movePlayers(): void; moveEntity(index: number): void; moveSecrets?(): void },
): void {
  if (frozen) return
  if (tick === 'players') room.movePlayers()
  if (tick === 'secrets') room.moveSecrets?.()
  if (tick === 'entities') for (let i = 0; i < entities; i++) room.moveEntity(i)
  if (tick === 'entity') room.moveEntity(Math.floor(Math.random() * entities))
}

/** Calls `flush` at 20 Hz by absolute deadlines, because `setInterval` drifts under load. The random phase spreads the rooms over time. */
export function everyFlush(flush: () => void): void {
  const interval = 1_000 / FLUSHES_PER_SECOND
  let due = performance.now() + Math.random() * interval
  const turn = (): void => {
    flush()
    due = Math.max(due + interval, performance.now() - interval)
    setTimeout(turn, due - performance.now())
  }
  setTimeout(turn, due - performance.now())
}
