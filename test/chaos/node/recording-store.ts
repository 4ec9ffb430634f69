import { writeSync } from 'node:fs'
import { decodeSession } from '../../../dataplane/gateway/session-record.ts'
import type { JournalFormat } from '../../../dataplane/rooms/journal.ts'
import type {
  Claim,
  Fence,
  Quarantine,
  Reservation,
  RoomOwner,
  RoomQuota,
  RoomRecords,
  Write,
} from '../../../shared/store/port.ts'
import type { Content, SessionWrite, StoreRecord, TaskBegin } from '../checker/history.ts'
import type { AppliedOp, ChaosState } from '../room-logic.ts'
import { machineNow, type Stall } from './clocks.ts'

/** A line of a node's history: a call of the store that begins, the answer to one, a time in which nothing got on, a session's record that was written, or a task that begins. */
type StoreLine =
  | ({ readonly call: number } & Omit<StoreRecord, 'ended' | 'ok'>)
  | { readonly stall: Stall }
  | SessionWrite
  | { readonly task: TaskBegin }
  | {
      readonly answer: number
      readonly ended: number
      /** Absent: the call was rejected. */
      readonly ok?: boolean
      /** What a claim gave. */
      readonly fence?: Fence
    }

/**
 * Room records that write down every claim, commit, snapshot and release, with its answer, as JSON lines into an open file. A line is
 * written before its call leaves, so that a killed node leaves nothing out.
 */
export class RecordingRooms implements RoomRecords {
  readonly #rooms: RoomRecords
  readonly #format: JournalFormat
  readonly #node: string
  readonly #file: number
  #calls = 0

  constructor(rooms: RoomRecords, format: JournalFormat, node: string, file: number) {
    this.#rooms = rooms
    this.#format = format
    this.#node = node
    this.#file = file
  }

  stalled(stall: Stall): void {
    this.#write({ stall })
  }

  /** The work of a task begins. */
  began(room: string, op: string): void {
    this.#write({ task: { room, op, at: machineNow() } })
  }

  /** These writes stand. */
  wrote(writes: readonly Write[]): void {
    for (const write of writes) {
      if (!('put' in write) || !write.put.startsWith('session:')) continue
      const record = decodeSession(write.value)
      if (!record) throw new Error(`what was written under ${write.put} is no record of a session`)
      this.#write({ session: record.session_id, turn: record.right.turn, at: machineNow() })
    }
  }

  inspect(room: string): Promise<RoomOwner | undefined> {
    return this.#rooms.inspect(room)
  }

  reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation> {
    return this.#rooms.reserve(room, principal, quota, ttlMs)
  }

  claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined> {
    return this.#record('claim', room, { epoch: 0, version: 0 }, undefined, () =>
      this.#rooms.claim(room, owner, expectedEpoch, ttlMs),
    )
  }

  recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean> {
    return this.#rooms.recall(room, owner, epoch, ttlMs)
  }

  noteStuck(room: string, epoch: number, note: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#rooms.noteStuck(room, epoch, note, ttlMs)
  }

  commit(room: string, fence: Fence, entry: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#record('commit', room, fence, this.#entry(entry), () =>
      this.#rooms.commit(room, fence, entry, ttlMs),
    )
  }

  snapshot(
    room: string,
    fence: Fence,
    snapshot: Uint8Array,
    ttlMs: number,
    stateVersion?: number,
  ): Promise<boolean> {
    return this.#record('snapshot', room, fence, this.#whole(snapshot), () =>
      this.#rooms.snapshot(room, fence, snapshot, ttlMs, stateVersion),
    )
  }

  release(room: string, fence: Fence, options: { forget: boolean; ttlMs: number }): Promise<boolean> {
    return this.#record('release', room, fence, undefined, () => this.#rooms.release(room, fence, options))
  }

  quarantine(room: string, fence: Fence, quarantine: Quarantine): Promise<boolean> {
    return this.#record('quarantine', room, fence, undefined, () =>
      this.#rooms.quarantine(room, fence, quarantine),
    )
  }

  refresh(room: string, fence: Fence, ttlMs: number): Promise<boolean> {
    return this.#rooms.refresh(room, fence, ttlMs)
  }

  #entry(entry: Uint8Array): Content {
    const { seq, checksum, visible, events } = this.#format.readEntry(entry)
    const ops = events.filter(({ name }) => name === 'applied').map(({ data }) => data as AppliedOp)
    return { seq, checksum, visible, applied: Object.fromEntries(ops.map(({ by, ref }) => [by, ref])) }
  }

  /** Undefined for the empty snapshot of a room that is kept nowhere. */
  #whole(snapshot: Uint8Array): Content | undefined {
    if (snapshot.length === 0) return undefined
    const { seq, layers, state } = this.#format.readSnapshot(snapshot)
    const checksum = layers?.checksum ?? 0
    const players = Object.entries((state as ChaosState).players)
    const applied = Object.fromEntries(players.map(([member, { lastRef }]) => [member, lastRef]))
    return { seq, checksum, visible: undefined, applied }
  }

  async #record<T extends boolean | Claim | undefined>(
    kind: StoreRecord['kind'],
    room: string,
    { epoch, version }: Fence,
    content: Content | undefined,
    work: () => Promise<T>,
  ): Promise<T> {
    this.#calls += 1
    const call = this.#calls
    const began = machineNow()
    this.#write({ call, kind, node: this.#node, room, began, epoch, version, ...(content && { content }) })
    try {
      const answer = await work()
      const fence = typeof answer === 'object' ? answer.fence : undefined
      const ok = answer !== undefined && answer !== false
      this.#write({ answer: call, ended: machineNow(), ok, ...(fence && { fence }) })
      return answer
    } catch (error) {
      this.#write({ answer: call, ended: machineNow() })
      throw error
    }
  }

  #write(line: StoreLine): void {
    writeSync(this.#file, `${JSON.stringify(line)}\n`)
  }
}

/** What a node's file tells. */
export interface StoreHistory {
  readonly calls: StoreRecord[]
  readonly stalls: Stall[]
  readonly sessions: SessionWrite[]
  readonly tasks: TaskBegin[]
}

/** A call without an answer ended when the node did: `end`. */
export function readStoreLines(text: string, end: number): StoreHistory {
  const sessions: SessionWrite[] = []
  const tasks: TaskBegin[] = []
  const calls = new Map<number, StoreRecord>()
  const stalls: Stall[] = []
  for (const line of text.split('\n')) {
    if (!line.endsWith('}')) continue
    const parsed = JSON.parse(line) as StoreLine
    if ('stall' in parsed) stalls.push(parsed.stall)
    else if ('session' in parsed) sessions.push(parsed)
    else if ('task' in parsed) tasks.push(parsed.task)
    else if ('call' in parsed) {
      const { call, ...record } = parsed
      calls.set(call, { ...record, ended: end, ok: undefined })
    } else {
      const { answer, ended, ok, fence } = parsed
      const record = calls.get(answer)
      if (record) calls.set(answer, { ...record, ...fence, ended, ok })
    }
  }
  return { calls: [...calls.values()], stalls, sessions, tasks }
}

const ASK_AGAIN_MS = 50
/** As long as any fault between a node and its store lasts. */
const ATTEMPTS = 400

/**
 * Room records without the fence, to see chaos find out: each writer is given the fence that stands, as soon as the store says which
 * that is, so that a node that has lost its room writes on as if it still had it.
 */
export class UnfencedRooms implements RoomRecords {
  readonly #rooms: RoomRecords

  constructor(rooms: RoomRecords) {
    this.#rooms = rooms
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    return this.#rooms.inspect(room)
  }

  reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation> {
    return this.#rooms.reserve(room, principal, quota, ttlMs)
  }

  claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined> {
    return this.#rooms.claim(room, owner, expectedEpoch, ttlMs)
  }

  noteStuck(room: string, epoch: number, note: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#rooms.noteStuck(room, epoch, note, ttlMs)
  }

  recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean> {
    return this.#rooms.recall(room, owner, epoch, ttlMs)
  }

  commit(room: string, fence: Fence, entry: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.commit(room, standing, entry, ttlMs))
  }

  snapshot(
    room: string,
    fence: Fence,
    snapshot: Uint8Array,
    ttlMs: number,
    stateVersion?: number,
  ): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) =>
      this.#rooms.snapshot(room, standing, snapshot, ttlMs, stateVersion),
    )
  }

  release(room: string, fence: Fence, options: { forget: boolean; ttlMs: number }): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.release(room, standing, options))
  }

  quarantine(room: string, fence: Fence, quarantine: Quarantine): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.quarantine(room, standing, quarantine))
  }

  refresh(room: string, fence: Fence, ttlMs: number): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.refresh(room, standing, ttlMs))
  }

  async #unfenced(
    room: string,
    fence: Fence,
    write: (standing: Fence) => Promise<boolean>,
  ): Promise<boolean> {
    const once = async () => {
      const found = await this.#standing(room)
      return write(found ? { epoch: found.epoch, version: found.version } : fence)
    }
    // A write that was on its way while another one came before it was fenced: it is made again.
    return (await once()) || (await once())
  }

  async #standing(room: string): Promise<RoomOwner | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#rooms.inspect(room)
      } catch (error) {
        if (attempt === ATTEMPTS) throw error
        await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
      }
    }
  }
}
