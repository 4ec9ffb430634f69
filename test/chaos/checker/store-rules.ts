import type {
  ClientRecord,
  Content,
  Durability,
  History,
  StoreRecord,
  Violation,
  ViolationName,
} from './history.ts'
import type { Ownership, Ownerships } from './ownership.ts'

/** In each room, one epoch commits at a time, versions and seqs have no gaps, and the final record is the last commit. */
export function checkStore(history: History, ownerships: Ownerships): Violation[] {
  return history.rooms.flatMap(({ room, durability }) => checkRoom(history, ownerships, room, durability))
}

interface Life {
  readonly ownerships: Ownership[]
  /** All writes under an epoch of this life. */
  readonly writes: StoreRecord[]
}

function checkRoom(
  history: History,
  ownerships: Ownerships,
  room: string,
  durability: Durability,
): Violation[] {
  const found: Violation[] = []
  const report = (name: ViolationName, at: number, message: string) => found.push({ name, at, room, message })
  const chain = ownerships.of(room)
  const ends = history.store.filter(({ room: of, forget, ok }) => of === room && forget && ok !== false)
  const ended = new Set(ends.map(({ epoch }) => epoch))
  for (const ownership of chain) {
    const { claim, previous, holder, startedOver } = ownership
    if (previous?.epoch === claim.epoch)
      report(
        'epoch_claimed_twice',
        claim.ended,
        `${previous.node} and ${claim.node} claimed epoch ${claim.epoch}`,
      )
    const byAnother = previous?.node !== claim.node && holder?.node !== claim.node
    // A room that is kept nowhere is gone when its last owner has ended it.
    const isGone = durability === 'none' && previous && ended.has(previous.epoch)
    if (startedOver && previous && byAnother && !isGone && !ownerships.isLoss(ownership))
      report(
        'room_lost',
        claim.ended,
        `${claim.node} claimed the room without its record, after epoch ${previous.epoch} of ${previous.node}`,
      )
  }
  for (const { kind, room: of, ok, node, ended } of history.store)
    if (kind === 'quarantine' && of === room && ok !== false)
      report('record_unreadable', ended, `${node} put the record in quarantine`)
  const writes = history.store.filter(
    (record) => record.room === room && (record.kind === 'commit' || record.kind === 'snapshot'),
  )
  const lives = livesOf(chain, writes)
  for (const life of lives) {
    checkVersions(life, report)
    if (durability === 'journal') checkSeqs(life, report)
  }
  const last = lives.at(-1)
  if (last && durability !== 'none') checkRecord(history, room, last, report)
  return found
}

/** Splits the writes of a room into lives. A new life begins when the store no longer knew the room. */
function livesOf(chain: readonly Ownership[], writes: readonly StoreRecord[]): Life[] {
  const lives: Life[] = []
  for (const ownership of chain) {
    if (lives.length === 0 || ownership.startedOver) lives.push({ ownerships: [], writes: [] })
    lives.at(-1)!.ownerships.push(ownership)
  }
  const ofEpoch = new Map(
    lives.flatMap((life) => life.ownerships.map(({ claim }) => [claim.epoch, life] as const)),
  )
  for (const write of writes) ofEpoch.get(write.epoch)?.writes.push(write)
  for (const life of lives) life.writes.sort((a, b) => a.version - b.version || a.epoch - b.epoch)
  return lives
}

type Report = (name: ViolationName, at: number, message: string) => void

const describe = ({ kind, node, epoch, version, content }: StoreRecord): string =>
  `${kind} of ${node} (epoch ${epoch}, version ${version}${content ? `, seq ${content.seq}` : ''})`

function checkVersions({ ownerships, writes }: Life, report: Report): void {
  const accepted = new Map<number, StoreRecord>()
  for (const write of writes.filter(({ ok }) => ok === true)) {
    const other = accepted.get(write.version)
    if (other)
      report('split_commit', write.ended, `both ${describe(other)} and ${describe(write)} took effect`)
    accepted.set(write.version, write)
    const later = ownerships.find(
      ({ claim }) =>
        claim.epoch > write.epoch && (write.version >= claim.version || claim.ended < write.began),
    )
    if (later)
      report('stale_commit', write.ended, `${describe(write)} took effect after ${describe(later.claim)}`)
  }
  const unsure = new Set(writes.filter(({ ok }) => ok === undefined).map(({ version }) => version))
  const seen = [...accepted.keys(), ...ownerships.map(({ claim }) => claim.version - 1)]
  const top = Math.max(-1, ...seen)
  for (let version = 0; version <= top; version++)
    if (!accepted.has(version) && !unsure.has(version)) {
      const behind = writes.find((write) => write.ok && write.version > version) ?? ownerships.at(-1)!.claim
      report(
        'version_gap',
        behind.ended,
        `version ${version} has no write, but ${describe(behind)} follows it`,
      )
      return
    }
}

/** In a journal, each visible update increases the seq by one, across epochs. */
function checkSeqs({ writes }: Life, report: Report): void {
  const committed = new Map<number, StoreRecord>()
  let before: StoreRecord | undefined
  for (const write of writes) {
    if (write.ok !== true || !write.content) continue
    const { seq, checksum, visible } = write.content
    const other = committed.get(seq)
    if (other && other.content!.checksum !== checksum)
      report('split_commit', write.ended, `${describe(other)} and ${describe(write)} hold different states`)
    committed.set(seq, write)
    // A write between these two may have no answer.
    if (before?.content && before.version + 1 === write.version) {
      const step = seq - before.content.seq
      const right = visible === undefined ? step === 0 || step === 1 : step === (visible ? 1 : 0)
      if (!right) report('version_gap', write.ended, `${describe(write)} follows ${describe(before)}`)
    }
    before = write
  }
}

function checkRecord({ end }: History, room: string, life: Life, report: Report): void {
  const record = end.records.find((candidate) => candidate.room === room)
  const last = life.writes.filter(({ ok }) => ok === true).at(-1)
  if (!last) return
  if (end.unreadable.some((unreadable) => unreadable.room === room)) return
  if (!record) {
    report(
      'record_differs',
      end.at,
      `the store has no record of the room; the last write was ${describe(last)}`,
    )
    return
  }
  // A write without an answer may have taken effect or not.
  const unsure = life.writes.filter(({ ok, version }) => ok === undefined && version > last.version)
  const { checksum } = last.content ?? record
  const isLast = [last, ...unsure].some(
    ({ version, content }) =>
      record.version === version + 1 &&
      (!content || (record.seq === content.seq && record.checksum === content.checksum)),
  )
  if (!isLast)
    report(
      'record_differs',
      end.at,
      `the store has version ${record.version}, seq ${record.seq}, checksum ${record.checksum}; the last write was ${describe(last)} with checksum ${checksum}`,
    )
}

/** Tolerance for rounding: all processes of a run read one monotonic clock, and record the store's answer before they act on it. */
export const CLOCK_TOLERANCE_MS = 1

/** Members of a journal room see only committed updates, and not before their commit is certain. */
export function checkCommits({ clients, rooms }: History, times: CommitTimes): Violation[] {
  const journals = new Set(rooms.filter(({ durability }) => durability === 'journal').map(({ room }) => room))
  return clients.flatMap((record) =>
    record.kind === 'frame' && journals.has(record.room) ? checkFrame(record, times) : [],
  )
}

function checkFrame(frame: Extract<ClientRecord, { kind: 'frame' }>, times: CommitTimes): Violation[] {
  const { room, member, client, at, seq, checksum, op, t } = frame
  const report = (name: ViolationName, message: string): Violation[] => [
    { name, at, room, member, client, message },
  ]
  if (checksum === undefined && !op) return []
  const what =
    checksum === undefined
      ? `the event of ref ${op?.ref} of ${op?.by}`
      : `${t} ${seq} with checksum ${checksum}`
  const from =
    checksum === undefined ? times.ofOp(room, op!.by, op!.ref) : times.ofUpdate(room, { seq, checksum })
  if (from === undefined) return report('uncommitted_update', `${what} is in no commit`)
  if (from <= at + CLOCK_TOLERANCE_MS) return []
  return report('shown_early', `${what} came ${Math.ceil(from - at)} ms before its commit was certain`)
}

interface AppliedRef {
  readonly ref: number
  /** Time from which it is certain that the ops up to `ref` are committed. */
  readonly from: number
}

/** Times from which it is certain that updates and ops are committed. No observation may be earlier. */
export class CommitTimes {
  readonly #updates = new Map<string, number>()
  readonly #members = new Map<string, AppliedRef[]>()

  constructor({ store, rooms }: History, ownerships: Ownerships) {
    for (const { room } of rooms) {
      const writes = store.filter(
        ({ kind, room: of, ok }) => of === room && ok !== false && (kind === 'commit' || kind === 'snapshot'),
      )
      for (const write of writes)
        if (write.content) this.#add(room, write.content, certainFrom(write, ownerships))
    }
    for (const applied of this.#members.values()) {
      applied.sort((a, b) => b.ref - a.ref)
      // The commit of an op includes all earlier ops of the member.
      let from = Number.POSITIVE_INFINITY
      applied.forEach((entry, i) => {
        from = Math.min(from, entry.from)
        applied[i] = { ref: entry.ref, from }
      })
    }
  }

  /** Returns the time for an update or a whole state. Undefined: it was never written. */
  ofUpdate(room: string, { seq, checksum }: { seq: number; checksum: number }): number | undefined {
    return this.#updates.get(`${room} ${seq} ${checksum}`)
  }

  /** Returns the time for an op of a member. Undefined: it was never written. */
  ofOp(room: string, member: string, ref: number): number | undefined {
    // Later refs come first.
    return this.#members.get(`${room} ${member}`)?.findLast((entry) => entry.ref >= ref)?.from
  }

  #add(room: string, { seq, checksum, applied }: Content, from: number): void {
    const update = `${room} ${seq} ${checksum}`
    this.#updates.set(update, Math.min(from, this.#updates.get(update) ?? Number.POSITIVE_INFINITY))
    for (const [member, ref] of Object.entries(applied)) {
      const key = `${room} ${member}`
      const ofMember = this.#members.get(key)
      if (ofMember) ofMember.push({ ref, from })
      else this.#members.set(key, [{ ref, from }])
    }
  }
}

/** Returns the time from which a write is certain: its writer has the answer or has read the result, or another owner has found it. */
export function certainFrom({ room, epoch, version, ended }: StoreRecord, ownerships: Ownerships): number {
  const found = ownerships
    .of(room)
    .filter(({ claim }) => claim.epoch > epoch && claim.version > version)
    .map(({ claim }) => claim.ended)
  return Math.min(ended, ...found)
}
