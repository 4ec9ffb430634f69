import { decodeNotice } from '../../../dataplane/features/notices/notice.ts'
import { decodeSession } from '../../../dataplane/gateway/session-store.ts'
import { noObserver, type TurnHook, type TurnObserver } from '../../../dataplane/room/hooks.ts'
import { JournalFormat } from '../../../dataplane/room/journal.ts'
import { type Clock, sleep, systemClock } from '../../../shared/clock.ts'
import { NODES } from '../../../shared/node-registry.ts'
import type {
  Claim,
  Fence,
  Records,
  RoomOwner,
  RoomRecords,
  Store,
  StoredRecord,
  Write,
} from '../../../shared/store/port.ts'
import type {
  Content,
  Fault,
  History,
  LateCall,
  SessionWrite,
  StoreRecord,
  TaskBegin,
} from '../checker/history.ts'
import type { AppliedOp, BankState, ChaosState } from '../rooms.ts'
import type { Stall } from './clocks.ts'

/**
 * A line of a node's history: the start of a store call, its answer, a stall, a written session record, the start of a task, or a handler
 * call without a lease.
 */
export type StoreLine =
  | ({ readonly call: number } & Omit<StoreRecord, 'ended' | 'ok'>)
  | { readonly stall: Stall }
  | SessionWrite
  | { readonly task: TaskBegin }
  | { readonly late: LateCall }
  | {
      readonly answer: number
      readonly ended: number
      /** Absent: the call was rejected. */
      readonly ok?: boolean
      /** Fence that a claim returned. */
      readonly fence?: Fence
    }

/** Returns `base` with some properties replaced by `changes`. */
export function overriding<T extends object>(base: T, changes: Partial<T>): T {
  return new Proxy(base, {
    get(_, name) {
      const source = name in changes ? changes : base
      const value: unknown = Reflect.get(source, name)
      return typeof value === 'function' ? value.bind(source) : value
    },
  })
}

const noticed = (notices: readonly Uint8Array[] = []): Pick<StoreRecord, 'notices'> =>
  notices.length > 0 ? { notices: notices.map(decodeNotice) } : {}

/** Handlers that need a lease. A task, the check of its result, `load` and `save` may run without a lease. */
const CHANGING: ReadonlySet<TurnHook> = new Set([
  'onJoin',
  'onMessage',
  'onDisconnect',
  'onReconnect',
  'onLeave',
  'onTick',
  'onTimer',
])

/** Records a node's use of its store. Each line is written before its call is sent, so that the history of a killed node is complete. */
export class StoreRecorder {
  readonly #format = new JournalFormat()
  readonly #node: string
  readonly #now: () => number
  readonly #write: (line: StoreLine) => void
  readonly #readAt: () => number
  #calls = 0
  /** Earliest time at which the store may end the node's lease. */
  #leasedUntil = Number.POSITIVE_INFINITY

  /** `now`: time of the history, in ms. `readAt`: time at which the node last read its clock. */
  constructor(node: string, now: () => number, write: (line: StoreLine) => void, readAt = now) {
    this.#node = node
    this.#now = now
    this.#write = write
    this.#readAt = readAt
  }

  stalled(stall: Stall): void {
    this.#write({ stall })
  }

  /** Records the start of a task. */
  began(room: string, op: string): void {
    this.#write({ task: { room, op, at: this.#now() } })
  }

  /** Returns `store`, and records its use. */
  store(store: Store): Store {
    return overriding(store, { rooms: this.rooms(store.rooms), records: this.records(store.records) })
  }

  /** Returns `records`. Records written sessions, and keeps the end of the node's lease from each renewal. */
  records(records: Records): Records {
    return overriding(records, {
      write: async (writes) => {
        const written = await records.write(writes)
        if (written) this.#wrote(writes)
        return written
      },
      renewLease: async (renewal) => {
        const lease = await records.renewLease(renewal)
        const isNodeLease = renewal.listed !== undefined
        if (isNodeLease && lease.holder === renewal.holder) this.#leasedUntil = this.#now() + renewal.ttlMs
        return lease
      },
    })
  }

  /** Observer that records handler calls without a lease. */
  get calls(): TurnObserver {
    return {
      ...noObserver,
      begin: ({ room: { name: room }, hook }) => {
        // The last clock read counts, not the present time: a node may be suspended between the check of its lease and the call.
        // Only the fence protects against that.
        const at = this.#readAt()
        if (CHANGING.has(hook) && at > this.#leasedUntil)
          this.#write({ late: { node: this.#node, room, hook, at } })
      },
    }
  }

  #wrote(writes: readonly Write[]): void {
    for (const write of writes) {
      if (!('put' in write) || !write.put.startsWith('session:')) continue
      const record = decodeSession(write.value)
      if (!record) throw new Error(`the value of ${write.put} is not a session record`)
      this.#write({ session: record.session_id, turn: record.right.turn, at: this.#now() })
    }
  }

  /** Returns `rooms`, and records each claim, commit, snapshot, release and quarantine with its answer. */
  rooms(rooms: RoomRecords): RoomRecords {
    return overriding(rooms, {
      claim: (room, ...rest) =>
        this.#record('claim', room, { epoch: 0, version: 0 }, {}, () => rooms.claim(room, ...rest)),
      open: (room, ...rest) =>
        this.#record('claim', room, { epoch: 0, version: 0 }, {}, () => rooms.open(room, ...rest)),
      commit: (room, fence, entry, ttlMs, notices) =>
        this.#record('commit', room, fence, { content: this.#entry(entry), ...noticed(notices) }, () =>
          rooms.commit(room, fence, entry, ttlMs, notices),
        ),
      snapshot: (room, fence, snapshot, ttlMs, stateVersion, notices) => {
        const content = this.#whole(snapshot)
        return this.#record(
          'snapshot',
          room,
          fence,
          { ...(content && { content }), ...noticed(notices) },
          () => rooms.snapshot(room, fence, snapshot, ttlMs, stateVersion, notices),
        )
      },
      release: (room, fence, options) => {
        const { forget, notices } = options
        return this.#record('release', room, fence, { ...(forget && { forget }), ...noticed(notices) }, () =>
          rooms.release(room, fence, options),
        )
      },
      quarantine: (room, fence, quarantine) =>
        this.#record('quarantine', room, fence, {}, () => rooms.quarantine(room, fence, quarantine)),
    })
  }

  #entry(entry: Uint8Array): Content {
    const { seq, checksum, visible, events, tables } = this.#format.readEntry(entry)
    const ops = events.filter(({ name }) => name === 'applied').map(({ data }) => data as AppliedOp)
    const calls = events.filter(({ name }) => name === 'granted').map(({ data }) => data as string)
    const applied = Object.fromEntries(ops.map(({ by, ref }) => [by, ref]))
    const reserved = reservedBy(tables?.reservations?.set)
    return { seq, checksum, visible, applied, ...reserved, ...(calls.length > 0 && { calls }) }
  }

  /** Undefined: the room has durability `none`, whose snapshots are empty. */
  #whole(snapshot: Uint8Array): Content | undefined {
    if (snapshot.length === 0) return undefined
    const { checksum, seq, state, tables } = this.#format.readSnapshot(snapshot)
    const players = Object.entries((state as Partial<ChaosState>).players ?? {})
    const applied = Object.fromEntries(players.map(([member, { lastRef }]) => [member, lastRef]))
    const { effects } = state as Partial<BankState>
    const reserved = reservedBy(tables.reservations)
    const calls = effects && { calls: Object.keys(effects) }
    return { seq, checksum, visible: undefined, applied, ...reserved, ...calls }
  }

  async #record<T extends boolean | Claim | RoomOwner | undefined>(
    kind: StoreRecord['kind'],
    room: string,
    { epoch, version }: Fence,
    details: Pick<StoreRecord, 'content' | 'notices' | 'forget'>,
    work: () => Promise<T>,
  ): Promise<T> {
    this.#calls += 1
    const call = this.#calls
    const began = this.#now()
    this.#write({ call, kind, node: this.#node, room, began, epoch, version, ...details })
    try {
      const answer = await work()
      const fence = typeof answer === 'object' && 'fence' in answer ? answer.fence : undefined
      const ok = answer === true || fence !== undefined
      this.#write({ answer: call, ended: this.#now(), ok, ...(fence && { fence }) })
      return answer
    } catch (error) {
      this.#write({ answer: call, ended: this.#now() })
      throw error
    }
  }
}

const reservedBy = (rows: readonly { readonly id: string }[] = []): Pick<Content, 'reserved'> =>
  rows.length > 0 ? { reserved: rows.map(({ id }) => id) } : {}

/** Content of a node's history file. */
export interface StoreHistory {
  readonly calls: StoreRecord[]
  readonly stalls: Stall[]
  readonly sessions: SessionWrite[]
  readonly tasks: TaskBegin[]
  readonly late: LateCall[]
}

/** Parses a node's history file, one JSON value a line. Ignores a last line that is cut off. */
export const storeLinesIn = (text: string): StoreLine[] =>
  text
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line) as StoreLine)

/** Sorts the lines of a node by their kind. A call without an answer gets `end`, the end of the node, as its end. */
export function readStoreLines(lines: readonly StoreLine[], end: number): StoreHistory {
  const sessions: SessionWrite[] = []
  const tasks: TaskBegin[] = []
  const late: LateCall[] = []
  const calls = new Map<number, StoreRecord>()
  const stalls: Stall[] = []
  for (const parsed of lines) {
    if ('stall' in parsed) stalls.push(parsed.stall)
    else if ('session' in parsed) sessions.push(parsed)
    else if ('task' in parsed) tasks.push(parsed.task)
    else if ('late' in parsed) late.push(parsed.late)
    else if ('call' in parsed) {
      const { call, ...record } = parsed
      calls.set(call, { ...record, ended: end, ok: undefined })
    } else {
      const { answer, ended, ok, fence } = parsed
      const record = calls.get(answer)
      if (record) calls.set(answer, { ...record, ...fence, ended, ok })
    }
  }
  return { calls: [...calls.values()], stalls, sessions, tasks, late }
}

/** Merges the histories of all nodes for the checker. Room names lose their project. */
export const historyOf = (
  lives: readonly ({ readonly node: string } & StoreHistory)[],
): Pick<History, 'store' | 'sessions' | 'tasks' | 'late'> & { readonly stalls: readonly Fault[] } => ({
  store: lives
    .flatMap(({ calls }) => calls.map(withoutProject))
    .sort((one, other) => one.ended - other.ended),
  late: lives.flatMap(({ late }) => late.map(withoutProject)),
  sessions: lives.flatMap(({ sessions }) => sessions),
  tasks: lives.flatMap(({ tasks }) => tasks).sort((one, other) => one.at - other.at),
  stalls: lives.flatMap(({ node, stalls }) => stalls.map((stall) => ({ kind: 'stall', node, ...stall }))),
})

const withoutProject = <T extends { readonly room: string }>(record: T): T => ({
  ...record,
  room: record.room.slice(record.room.indexOf('/') + 1),
})

/** True for keys and indexes that nodes also use. */
const isShared = (key: string): boolean =>
  key.startsWith(NODES) || /^\{control\}:(player|bans|player-data):/.test(key)

const keyOf = (write: Write): string =>
  'put' in write ? write.put : 'remove' in write ? write.remove : write.index

const isIdempotency = (key: string): boolean => key.startsWith('{control}:idempotency:')

/** Store of control in a run. Projects and keys are in `own`, which has no faults. Records of players are in `shared`, the store of the nodes. */
export function controlStore(own: Store, shared: Store): Store {
  const records = overriding(own.records, {
    // A change of a player and its idempotency key are one write, to `shared`. All other idempotency keys are in `own`.
    read: async (keys) => {
      const parts = keys.some(isShared) ? [shared] : keys.some(isIdempotency) ? [own, shared] : [own]
      const found = await Promise.all(parts.map((part) => part.records.read(keys)))
      return keys.map((_, i): StoredRecord | undefined => found.find((records) => records[i])?.[i])
    },
    page: (index, request) => (isShared(index) ? shared : own).records.page(index, request),
    write: (writes) => (writes.some((write) => isShared(keyOf(write))) ? shared : own).records.write(writes),
  })
  return overriding(own, { bus: shared.bus, records })
}

const RETRY_MS = 50
/** With the pauses 20 s: longer than any fault between a node and its store. */
const ATTEMPTS = 400

/**
 * Room records without a fence, to test that the checker finds the violation. Each writer uses the present owner's fence, which it reads
 * first. So an earlier owner continues to write.
 */
export function unfenced(rooms: RoomRecords, clock: Clock = systemClock): RoomRecords {
  const ownerOf = async (room: string): Promise<RoomOwner | undefined> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await rooms.inspect(room)
      } catch (error) {
        if (attempt === ATTEMPTS) throw error
        await sleep(clock, RETRY_MS)
      }
    }
  }
  const write = async (room: string, fence: Fence, work: (present: Fence) => Promise<boolean>) => {
    const once = async () => {
      const found = await ownerOf(room)
      return work(found ? { epoch: found.epoch, version: found.version } : fence)
    }
    // Another write may have come between the read and this write, which the store then rejected.
    return (await once()) || (await once())
  }
  return overriding(rooms, {
    commit: (room, fence, ...rest) => write(room, fence, (now) => rooms.commit(room, now, ...rest)),
    snapshot: (room, fence, ...rest) => write(room, fence, (now) => rooms.snapshot(room, now, ...rest)),
    release: (room, fence, options) => write(room, fence, (now) => rooms.release(room, now, options)),
    quarantine: (room, fence, what) => write(room, fence, (now) => rooms.quarantine(room, now, what)),
    refresh: (room, fence, ...rest) => write(room, fence, (now) => rooms.refresh(room, now, ...rest)),
  })
}
