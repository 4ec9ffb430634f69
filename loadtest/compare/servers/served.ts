import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** What every server under comparison has in common: how it is told what to serve, and how it tells what that costs. */

/** The side of the square that players move in; they start in its middle. */
export const AREA = 1_000
export const FLUSHES_PER_SECOND = 20

export interface Settings {
  /** What moves in each room at 20 Hz without anyone asking for it: nothing, every player, every entity of `entities`, or one of them along x. */
  readonly tick: 'none' | 'players' | 'entities' | 'entity'
  /** How many entities stand in the state of each room besides its players. */
  readonly entities: number
  /** Whether clients send inputs that change nothing, as MessagePack. */
  readonly nudges: boolean
  /** Of roomful: whether each flush is committed to Redis before it goes out. */
  readonly journal: boolean
  /** The Redis of several nodes, and roomful's store; absent: one node, in memory. */
  readonly redisUrl?: string
  /** Of bare: which of several nodes it is. */
  readonly nodes?: { readonly index: number; readonly count: number }
  /** Of roomful: the port that clients are told when their room is here; absent: any port, and no one is told. */
  readonly port?: number
  /** Of roomful: whether compiled code in dist/ runs (as in production), or the sources (for tests). */
  readonly built: boolean
}

/** What clients need to know of a server. */
export interface Listening {
  readonly port: number
  readonly controlUrl?: string
}

/** What a server has used and done since its start. */
export interface Sample {
  /** CPU time of the whole process, user and system, microseconds. */
  readonly cpuUs: number
  readonly rssBytes: number
  /** Inputs that game code has seen. */
  readonly inputs: number
  /** Of roomful: the rooms that this process is the owner of. */
  readonly rooms: readonly string[]
}

/** A coordinate as every server and client has it. */
export const somewhere = (): number => Math.floor(Math.random() * AREA * 100) / 100

/** What a server's game code and its parent share. */
export interface Served {
  /** Inputs that game code has seen. */
  inputs: number
  /** The rooms that someone has joined here. */
  readonly rooms: Set<string>
  /** Nothing moves any more without inputs. */
  frozen: boolean
}

/** What the parent asks: a `Sample`, once garbage was collected where it says so; `freeze` is for good. */
export interface Question {
  readonly collect?: boolean
  readonly freeze?: boolean
}

/** Serves over the parent's IPC channel: tells where it listens, and answers each question. Ends with its parent. */
export async function serve(
  start: (settings: Settings, served: Served) => Promise<Listening>,
): Promise<void> {
  const served: Served = { inputs: 0, rooms: new Set(), frozen: false }
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  process.on('disconnect', () => process.exit(0))
  process.on('message', (question: Question) => {
    if (question.collect) collect()
    served.frozen ||= question.freeze ?? false
    const { user, system } = process.cpuUsage()
    const rssBytes = process.memoryUsage.rss()
    const sample: Sample = { cpuUs: user + system, rssBytes, inputs: served.inputs, rooms: [...served.rooms] }
    process.send?.(sample)
  })
  const settings: Settings = JSON.parse(process.argv[2] ?? '')
  process.send?.(await start(settings, served))
}

/** Calls `flush` at 20 Hz from absolute deadlines: `setInterval` loses beats under load. The phase is random, so that rooms take turns. */
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
