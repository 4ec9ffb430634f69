import { createHash } from 'node:crypto'
import { canonicalJson, type Json } from '../../shared/json.ts'
import type { RequestAnswer } from '../traffic.ts'
import type { RoomTask, RoomTimer } from './timers-and-tasks.ts'

/** The rows that a room stores in addition to its state and members, with the undo of a turn. `ROWS` in `journal.ts` has the format of each row. */

/** A row of a table. */
export interface Row {
  /** Key of the row in its table. */
  readonly id: string
  /** Time at which the room acts on the row, in milliseconds since 1970. Undefined: never. */
  readonly due?: number | undefined
}

/** Changes of a table since the update before. */
export interface TableChanges<R extends Row> {
  /** New rows, also those that replace a row with the same id. In the order they were set. */
  readonly set: readonly R[]
  /** Ids of the removed rows. */
  readonly removed: readonly string[]
}

/** Writes to the tables of a room. */
interface WriteLog {
  /** Steps that undo the turn, the oldest write first. */
  readonly undo: Undo[]
  /** True if something was written since the last flush. */
  changed: boolean
}

/** The entry that a table had before a write. Undefined: none. */
interface Undo {
  readonly table: Table<Row>
  readonly id: string
  readonly was: Entry<Row> | undefined
}

interface Entry<R extends Row> {
  readonly row: R
  /** Counts the writes of the table. Rows are in this order, also after a rollback. */
  readonly order: number
}

/** Rows of one kind that a room keeps besides its state, as of its last turn and as of its last flush. */
export class Table<R extends Row> {
  readonly #log: WriteLog
  readonly #entries = new Map<string, Entry<R>>()
  /** Entries as of the last flush, of the ids that were written since. */
  #before: Map<string, Entry<R> | undefined> | undefined
  /** Entries with a due time. The entry that is due next is the last. */
  readonly #queue: Entry<R>[] = []
  #writes = 0

  constructor(log: WriteLog) {
    this.#log = log
  }

  get size(): number {
    return this.#entries.size
  }

  /** The row that is due next. Of two that are due at the same time, the one that was set first. */
  get next(): R | undefined {
    return this.#queue.at(-1)?.row
  }

  /** All rows, in the order they were set. */
  get rows(): R[] {
    return rowsOf([...this.#entries.values()])
  }

  /** All rows as of the last flush, in the order they were set. */
  get flushed(): R[] {
    const before = this.#before
    if (!before) return this.rows
    const unchanged = [...this.#entries.values()].filter(({ row }) => !before.has(row.id))
    return rowsOf([...unchanged, ...[...before.values()].filter((entry) => entry !== undefined)])
  }

  get(id: string): R | undefined {
    return this.#entries.get(id)?.row
  }

  has(id: string): boolean {
    return this.#entries.has(id)
  }

  set(row: R): void {
    this.#write(row.id, { row, order: this.#writes++ })
  }

  /** Returns false if there is no such row. */
  delete(id: string): boolean {
    if (!this.#entries.has(id)) return false
    this.#write(id, undefined)
    return true
  }

  /** Returns the changes since the last flush. Undefined: none. */
  flush(): TableChanges<R> | undefined {
    const before = this.#before
    if (!before) return undefined
    this.#before = undefined
    const set: Entry<R>[] = []
    const removed: string[] = []
    for (const [id, was] of before) {
      const is = this.#entries.get(id)
      if (is && is !== was) set.push(is)
      else if (!is && was) removed.push(id)
    }
    return set.length + removed.length > 0 ? { set: rowsOf(set), removed } : undefined
  }

  #write(id: string, entry: Entry<R> | undefined): void {
    const was = this.#entries.get(id)
    this.#log.undo.push({ table: this as unknown as Table<Row>, id, was })
    this.#log.changed = true
    this.#before ??= new Map()
    if (!this.#before.has(id)) this.#before.set(id, was)
    this.put(id, entry)
  }

  /** For `Tables` only: puts an entry back, as in `Undo`. */
  put(id: string, entry: Entry<R> | undefined): void {
    const was = this.#entries.get(id)
    this.#entries.delete(id)
    if (was?.row.due !== undefined) this.#queue.splice(this.#indexOf(was), 1)
    if (!entry) return
    this.#entries.set(id, entry)
    if (entry.row.due !== undefined) this.#queue.splice(this.#indexOf(entry), 0, entry)
  }

  /** Returns the index of an entry in the queue, or the index at which to insert it. */
  #indexOf(entry: Entry<R>): number {
    let from = 0
    let to = this.#queue.length
    while (from < to) {
      const middle = (from + to) >> 1
      if (isBefore(entry, this.#queue[middle]!)) from = middle + 1
      else to = middle
    }
    return from
  }
}

const rowsOf = <R extends Row>(entries: Entry<R>[]): R[] =>
  entries.sort((one, other) => one.order - other.order).map(({ row }) => row)

function isBefore(one: Entry<Row>, other: Entry<Row>): boolean {
  const ms = one.row.due! - other.row.due!
  return ms < 0 || (ms === 0 && one.order < other.order)
}

/** A player that the room rejects. The id is its `sub`. */
export interface Ban {
  readonly id: string
  /** Text for the player. Absent: the ban has none. */
  readonly reason?: string | undefined
}

/** A seat that the room keeps for a player, whose `sub` is the id, until the player joins or the seat is due. */
export interface Reservation extends Row {
  readonly due: number
  /** Hash of the join options with which `admit` has allowed the player. Absent: `admit` was not asked. */
  readonly admitted?: string | undefined
}

/** Returns the hash of join options. */
export const hashOf = (options: Json): string =>
  createHash('sha256').update(canonicalJson(options)).digest('base64url')

/** Outcome of a request to a room. The request is not repeated while the room has it. */
export interface Outcome extends Row {
  /** Id of the request. */
  readonly id: string
  /** Hash of the request's content. */
  readonly hash: string
  /** Time from which on the id counts as new, in milliseconds since 1970. */
  readonly due: number
  readonly answer: RequestAnswer
}

/** The tables of a room. A new one also needs a line in `NAMES`, one in `Tables`, and its fields in `ROWS` of `journal.ts`. */
interface Rows {
  readonly timers: RoomTimer
  readonly tasks: RoomTask
  readonly bans: Ban
  readonly reservations: Reservation
  readonly outcomes: Outcome
}

const NAMES = [
  'timers',
  'tasks',
  'bans',
  'reservations',
  'outcomes',
] as const satisfies readonly (keyof Rows)[]

/** All rows of all tables of a room. */
export type TableRows = { readonly [Name in keyof Rows]: readonly Rows[Name][] }

/** Changes of the tables of a room since the update before. */
export type TablesChanges = { readonly [Name in keyof Rows]?: TableChanges<Rows[Name]> | undefined }

/** The rows that a room keeps besides its state and its members. Turns write immediately. If a turn fails, `rollback` undoes its writes. */
export class Tables {
  readonly #log: WriteLog = { undo: [], changed: false }
  readonly timers = new Table<RoomTimer>(this.#log)
  readonly tasks = new Table<RoomTask>(this.#log)
  readonly bans = new Table<Ban>(this.#log)
  readonly reservations = new Table<Reservation>(this.#log)
  readonly outcomes = new Table<Outcome>(this.#log)
  readonly #epoch: number
  #ids = 0
  /** As `due`, as of the last flush. */
  flushedDue: number | undefined

  /** `epoch`: epoch of the owner. It keeps the ids of different owners apart. */
  constructor(epoch: number, rows?: TableRows) {
    this.#epoch = epoch
    if (rows) this.#setAll((name) => rows[name])
  }

  /** Returns an id that no row of this room has had. */
  newId(prefix: string): string {
    return `${prefix}_${this.#epoch.toString(36)}_${(++this.#ids).toString(36)}`
  }

  /** Earlier writes cannot be undone any more. */
  commit(): void {
    if (this.written) this.#log.undo.length = 0
  }

  /** Undoes all writes since `commit`: a turn has failed. */
  rollback(): void {
    for (const { table, id, was } of this.#log.undo.splice(0).reverse()) table.put(id, was)
  }

  /** True if something was written since `commit`. */
  get written(): boolean {
    return this.#log.undo.length > 0
  }

  /** Time at which the room acts on the next row, in milliseconds since 1970. Undefined: on no row. */
  get due(): number | undefined {
    let due = Number.POSITIVE_INFINITY
    for (const name of NAMES) {
      // The next request deletes expired outcomes. The room does not stay awake for that.
      if (name === 'outcomes') continue
      const next: Row | undefined = this[name].next
      due = Math.min(due, next?.due ?? due)
    }
    return due < Number.POSITIVE_INFINITY ? due : undefined
  }

  /** Returns the changes since the last flush. Undefined: none. */
  flush(): TablesChanges | undefined {
    if (!this.#log.changed) return undefined
    this.commit()
    this.#log.changed = false
    this.flushedDue = this.due
    let changes: TablesChanges | undefined
    for (const name of NAMES) {
      const flushed = this[name].flush()
      if (flushed) changes = { ...changes, [name]: flushed }
    }
    return changes
  }

  /** All rows as of the last flush. */
  get flushed(): TableRows {
    return Object.fromEntries(NAMES.map((name) => [name, this[name].flushed])) as unknown as TableRows
  }

  /** Applies changes that an earlier owner has committed. */
  apply(changes: TablesChanges): void {
    for (const name of NAMES) for (const id of changes[name]?.removed ?? []) this[name].delete(id)
    this.#setAll((name) => changes[name]?.set ?? [])
  }

  #setAll(rowsOf: (name: keyof Rows) => readonly Row[]): void {
    for (const name of NAMES) for (const row of rowsOf(name)) this[name].set(row as never)
    this.flush()
  }
}

/** Name of a player in the reservations of a room: its `sub`. A token without `sub` counts by its session. */
export const seatName = (sub: string | null, sessionId: string): string => sub ?? `session:${sessionId}`
