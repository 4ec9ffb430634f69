import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Code of every server under comparison: its settings, and the samples of its cost. */

/** The side of the square that players move in; they start in its middle. */
export const AREA = 1_000
export const FLUSHES_PER_SECOND = 20

export interface Settings {
  /** What moves in each room at 20 Hz without inputs: nothing, every player, every entity, or one entity along x. */
  readonly tick: 'none' | 'players' | 'entities' | 'entity'
  /** Number of entities in the state of each room, besides its players. */
  readonly entities: number
  /** Whether clients send inputs that change nothing, as MessagePack. */
  readonly nudges: boolean
  /** Rooms have 4 seats, and a row in a list that changes once a second. */
  readonly listed?: boolean
  /** For roomful: each flush is committed to Redis before it goes out. */
  readonly journal: boolean
  /** The Redis of several nodes, and roomful's store; absent: one node, in memory. */
  readonly redisUrl?: string
  /** For bare: which of several nodes this is. */
  readonly nodes?: { readonly index: number; readonly count: number }
  /** For direct nodes: the port of the address that roomful sends to clients. Absent: any port, and no `move`. */
  readonly port?: number
  /** For roomful: run compiled code from dist/, or the sources (for tests). */
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
  /** Inputs that game code has seen. */
  readonly inputs: number
  /** Ids of the rooms that this process owns. */
  readonly rooms: readonly string[]
}

/** A coordinate as every server and client has it. */
export const somewhere = (): number => Math.floor(Math.random() * AREA * 100) / 100
export const place = (x = somewhere()) => ({ x, y: somewhere() })

/** State that game code shares with the parent's questions. */
export interface Served {
  /** Inputs that game code has seen. */
  inputs: number
  readonly rooms: Set<string>
  /** Nothing moves without inputs. */
  frozen: boolean
}

/** Number of maps, over which listed rooms are spread. A list is searched by its map. */
const MAPS = 50
export const LISTED_SEATS = 4
/** The map of a room by its key, or by a number. */
export const mapOf = (key: string | number): string => `m${Number(String(key).replace('r', '')) % MAPS}`

/** A request for a `Sample`. `collect`: after a garbage collection; `freeze`: nothing moves from now on. */
export type Question = 'sample' | 'collect' | 'freeze'

/** Serves until the parent ends. Sends its addresses over the IPC channel, then answers each question. */
export async function serve(
  start: (settings: Settings, served: Served) => Promise<Listening>,
): Promise<void> {
  const served: Served = { inputs: 0, rooms: new Set(), frozen: false }
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  process.on('disconnect', () => process.exit(0))
  process.on('message', (question: Question) => {
    if (question === 'collect') collect()
    if (question === 'freeze') served.frozen = true
    const { user, system } = process.cpuUsage()
    const rssBytes = process.memoryUsage.rss()
    const sample: Sample = { cpuUs: user + system, rssBytes, inputs: served.inputs, rooms: [...served.rooms] }
    process.send?.(sample)
  })
  const settings: Settings = JSON.parse(process.argv[2] ?? '')
  process.send?.(await start(settings, served))
}

/** Moves what moves without inputs, once for each flush. */
export function tickOnce(
  { tick, entities }: Settings,
  { frozen }: Served,
  room: { movePlayers(): void; moveEntity(index: number): void },
): void {
  if (frozen) return
  if (tick === 'players') room.movePlayers()
  if (tick === 'entities') for (let i = 0; i < entities; i++) room.moveEntity(i)
  if (tick === 'entity') room.moveEntity(Math.floor(Math.random() * entities))
}

/** Calls `flush` at 20 Hz by absolute deadlines, because `setInterval` drifts under load. The phase is random: rooms take turns. */
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
