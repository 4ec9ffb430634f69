import { decodeSession } from '../../../dataplane/gateway/session.ts'
import { decodeNotice } from '../../../dataplane/notices/notice.ts'
import { JournalFormat } from '../../../dataplane/rooms/journal.ts'
import { noObserver, type TurnHook, type TurnObserver } from '../../../dataplane/watchdog/turns.ts'
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
import type { AppliedOp, ChaosState } from '../room-logic.ts'
import type { BankState } from '../rooms.ts'
import type { Stall } from './clocks.ts'

/**
 * A line of a node's history: a call of the store that begins, the answer to one, a time in which nothing got on, a session's record that was
 * written, a task that begins, or a handler call without a lease.
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
      /** What a claim gave. */
      readonly fence?: Fence
    }

/** `base`, but for what `own` has. */
export function overriding<T extends object>(base: T, own: Partial<T>): T {
  return new Proxy(base, {
    get(_, name) {
      const of = name in own ? own : base
      const value: unknown = Reflect.get(of, name)
      return typeof value === 'function' ? value.bind(of) : value
    },
  })
}

const noticed = (notices: readonly Uint8Array[] = []): Pick<StoreRecord, 'notices'> =>
  notices.length > 0 ? { notices: notices.map(decodeNotice) } : {}

/** Others may run without a lease: a task and the check of its result, `load`, `save`. */
const CHANGING: ReadonlySet<TurnHook> = new Set([
  'onJoin',
  'onMessage',
  'onDisconnect',
  'onReconnect',
  'onLeave',
  'onTick',
  'onTimer',
])

/** Writes down what a node does with its store. A line is written before its call leaves, so that a killed node leaves nothing out. */
export class StoreRecorder {
  readonly #format = new JournalFormat()
  readonly #node: string
  readonly #now: () => number
  readonly #write: (line: StoreLine) => void
  readonly #readAt: () => number
  #calls = 0
  /** When the store lets the lease of the node run out, at the earliest. */
  #leasedUntil = Number.POSITIVE_INFINITY

  /** `now`: milliseconds on the clock of the history. `readAt`: when the node last read its clock. */
  constructor(node: string, now: () => number, write: (line: StoreLine) => void, readAt = now) {
    this.#node = node
    this.#now = now
    this.#write = write
    this.#readAt = readAt
  }

  stalled(stall: Stall): void {
    this.#write({ stall })
  }

  /** The work of a task begins. */
  began(room: string, op: string): void {
    this.#write({ task: { room, op, at: this.#now() } })
  }

  /** Records of which every renewal of the node's lease is watched. */
  records(records: Records): Records {
    return overriding(records, {
      renewLease: async (renewal) => {
        const lease = await records.renewLease(renewal)
        const isNodeLease = renewal.listed !== undefined
        if (isNodeLease && lease.holder === renewal.holder) this.#leasedUntil = this.#now() + renewal.ttlMs
        return lease
      },
    })
  }

  /** Observes the calls of handlers that change the state. */
  get calls(): TurnObserver {
    return {
      ...noObserver,
      begin: ({ room: { name: room }, hook }) => {
        // A node may be suspended between the check of its lease and the call. Only the fence helps against that.
        const at = this.#readAt()
        if (CHANGING.has(hook) && at > this.#leasedUntil)
          this.#write({ late: { node: this.#node, room, hook, at } })
      },
    }
  }

  /** These writes stand. */
  wrote(writes: readonly Write[]): void {
    for (const write of writes) {
      if (!('put' in write) || !write.put.startsWith('session:')) continue
      const record = decodeSession(write.value)
      if (!record) throw new Error(`what was written under ${write.put} is no record of a session`)
      this.#write({ session: record.session_id, turn: record.right.turn, at: this.#now() })
    }
  }

  /** Room records of which every claim, commit, snapshot, release and quarantine is written down, with its answer. */
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

  /** Undefined for the empty snapshot of a room that is kept nowhere. */
  #whole(snapshot: Uint8Array): Content | undefined {
    if (snapshot.length === 0) return undefined
    const { seq, layers, state, tables } = this.#format.readSnapshot(snapshot)
    const checksum = layers?.checksum ?? 0
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

/** What a node's file tells. */
export interface StoreHistory {
  readonly calls: StoreRecord[]
  readonly stalls: Stall[]
  readonly sessions: SessionWrite[]
  readonly tasks: TaskBegin[]
  readonly late: LateCall[]
}

/** A node's lines as they are in its file: one of JSON each. The last may be cut off. */
export const storeLinesIn = (text: string): StoreLine[] =>
  text
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line) as StoreLine)

/** A call without an answer ended when the node did: `end`. */
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

/** What all nodes' lives did, as the checker reads it: rooms without their project. */
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

/** Keys and indexes that nodes read, or write. */
const isShared = (key: string): boolean =>
  key.startsWith(NODES) || /^\{control\}:(player|bans|player-data):/.test(key)

const keyOf = (write: Write): string =>
  'put' in write ? write.put : 'remove' in write ? write.remove : write.index

const isMemory = (key: string): boolean => key.startsWith('{control}:idempotency:')

/** Store of control in a run: projects and keys are in its own store, which is never broken, and records of players are with the nodes. */
export function controlStore(own: Store, shared: Store): Store {
  const records = overriding(own.records, {
    // A change of a player is one write with its idempotency key, which is then with the nodes.
    read: async (keys) => {
      const parts = keys.some(isShared) ? [shared] : keys.some(isMemory) ? [own, shared] : [own]
      const found = await Promise.all(parts.map((part) => part.records.read(keys)))
      return keys.map((_, i): StoredRecord | undefined => found.find((records) => records[i])?.[i])
    },
    page: (index, request) => (isShared(index) ? shared : own).records.page(index, request),
    write: (writes) => (writes.some((write) => isShared(keyOf(write))) ? shared : own).records.write(writes),
  })
  return overriding(own, { bus: shared.bus, records })
}

const ASK_AGAIN_MS = 50
/** As long as any fault between a node and its store lasts. */
const ATTEMPTS = 400

/**
 * Room records without the fence, to see chaos find out: each writer is given the fence that stands, as soon as the store says which
 * that is, so that a node that has lost its room writes on as if it still had it.
 */
export function unfenced(rooms: RoomRecords, clock: Clock = systemClock): RoomRecords {
  const standing = async (room: string): Promise<RoomOwner | undefined> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await rooms.inspect(room)
      } catch (error) {
        if (attempt === ATTEMPTS) throw error
        await sleep(clock, ASK_AGAIN_MS)
      }
    }
  }
  const write = async (room: string, fence: Fence, work: (standing: Fence) => Promise<boolean>) => {
    const once = async () => {
      const found = await standing(room)
      return work(found ? { epoch: found.epoch, version: found.version } : fence)
    }
    // A write that was on its way while another one came before it was fenced: it is made again.
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
