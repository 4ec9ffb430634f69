import type { Durability, History, StoreRecord } from './history.ts'
import type { Ownership, Ownerships } from './ownership.ts'
import type { Violation, ViolationName } from './violation.ts'

/** Facts of the store, room by room: at most one epoch commits, versions and seqs are gap-free, and the end is what was committed last. */
export function checkStore(history: History, ownerships: Ownerships): Violation[] {
  return history.rooms.flatMap(({ room, durability }) => checkRoom(history, ownerships, room, durability))
}

interface Life {
  readonly ownerships: Ownership[]
  /** Every write made under an epoch of this life. */
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
  for (const ownership of chain) {
    const { claim, previous, holder, anew } = ownership
    if (previous?.epoch === claim.epoch)
      report(
        'epoch_claimed_twice',
        claim.ended,
        `${previous.node} and ${claim.node} claimed epoch ${claim.epoch}`,
      )
    const byAnother = previous?.node !== claim.node && holder?.node !== claim.node
    if (anew && previous && byAnother && !ownerships.isLoss(ownership))
      report(
        'room_lost',
        claim.ended,
        `${claim.node} claimed the room as if it had never been, over epoch ${previous.epoch} of ${previous.node}`,
      )
  }
  for (const { kind, room: of, ok, node, ended } of history.store)
    if (kind === 'quarantine' && of === room && ok !== false)
      report('record_unreadable', ended, `${node} put what the store held in quarantine`)
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

/** A life ends where the store knew nothing of the room any more. */
function livesOf(chain: readonly Ownership[], writes: readonly StoreRecord[]): Life[] {
  const lives: Life[] = []
  for (const ownership of chain) {
    if (lives.length === 0 || ownership.anew) lives.push({ ownerships: [], writes: [] })
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
    if (other) report('split_commit', write.ended, `both ${describe(other)} and ${describe(write)} stand`)
    accepted.set(write.version, write)
    const later = ownerships.find(
      ({ claim }) =>
        claim.epoch > write.epoch && (write.version >= claim.version || claim.ended < write.began),
    )
    if (later)
      report(
        'stale_commit',
        write.ended,
        `${describe(write)} stands, but ${describe(later.claim)} was before it`,
      )
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
        `nothing was written at version ${version}, but ${describe(behind)} came behind it`,
      )
      return
    }
}

/** In a journal the seq runs on by one with each visible update, across epochs. */
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
    // What lies between two writes that do not follow each other has no certain answer.
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
      `the store has nothing of the room; ${describe(last)} was the last to stand`,
    )
    return
  }
  // A write without an answer may stand or not.
  const unsure = life.writes.filter(({ ok, version }) => ok === undefined && version > last.version)
  const { checksum } = last.content ?? record
  const stands = [last, ...unsure].some(
    ({ version, content }) =>
      record.version === version + 1 &&
      (!content || (record.seq === content.seq && record.checksum === content.checksum)),
  )
  if (!stands)
    report(
      'record_differs',
      end.at,
      `the store has version ${record.version}, seq ${record.seq}, checksum ${record.checksum}; the last to stand was ${describe(last)} with checksum ${checksum}`,
    )
}
