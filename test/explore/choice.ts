import type { Process } from './process.ts'

/** One thing that may happen next, and how far it is from the ordinary. */
export interface Choice {
  readonly label: string
  /** 0: ordinary, or a free choice; 1: a deviation. */
  readonly cost: number
  readonly take: () => void | Promise<void>
}

/** What more than one process has to do with: the record of the room, the leases, what edges know. */
export type Subject = 'room' | 'leases' | 'edges'

/** What is next in one of the world's queues, and what may happen in its stead. */
export interface Item extends Choice {
  /** Ordinarily the lowest is first, and among equals the lowest order. */
  readonly rank: number
  readonly order: number
  /** The process it happens to. */
  readonly process: Process | undefined
  /** What it looks at or changes, apart from that process. */
  readonly about?: Subject
  readonly instead: readonly Choice[]
}

/** What waits in queues comes first, then what ends by itself, timers, and what members do. */
export const RANK = { hurried: -1, queued: 0, ending: 1, timer: 2, act: 3 } as const

/** Something ordinary that waits in a queue. */
export const ordinary = (
  label: string,
  order: number,
  process: Process | undefined,
  take: Choice['take'],
): Item => ({ label, cost: 0, take, rank: RANK.queued, order, process, instead: [] })

/** What may go wrong. */
export const FAULTS = [
  /** A call of the store takes place, and its answer is lost. */
  'lost',
  /** A call of the store does not take place. */
  'refused',
  /** A call of the store takes place after the caller was told that the store is silent. */
  'late',
  /** A call of the store, or the answer to it, takes long. */
  'slow',
  /** A node stands still for longer than its lease, or less. */
  'pause',
  /** A node is gone for good, with or without what it was about to send. */
  'crash',
  /** A node is gone, and back under the same id. */
  'restart',
  /** A node stands still, and another process is started under its id meanwhile. */
  'replace',
  /** A node cannot reach the store for longer than its lease. */
  'cut',
  /** Nobody can reach the store for longer than a lease. */
  'outage',
  /** A message between a node and an edge is lost. */
  'drop',
  /** Something happens before its turn. */
  'reorder',
  /** Nobody hears a node for a moment, though it lives and reaches the store. */
  'deaf',
] as const
export type Fault = (typeof FAULTS)[number]
