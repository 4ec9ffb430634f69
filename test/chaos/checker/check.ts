import { isDeepStrictEqual } from 'node:util'
import { closeAdvice } from '../../../shared/protocol/error-codes.ts'
import { type ChaosState, visibleTo } from '../rooms.ts'
import { checkBackends } from './backend-rules.ts'
import type { ClientRecord, History, Violation, ViolationName } from './history.ts'
import { checkLobby } from './lobby-rules.ts'
import { checkFeatures, checkOps } from './op-rules.ts'
import {
  type ExcusedShare,
  Excuses,
  excusedShare,
  type Known,
  learn,
  NOTHING_KNOWN,
  type Ownership,
  Ownerships,
} from './ownership.ts'
import { checkQueue } from './queue-rules.ts'
import { CommitTimes, checkCommits, checkStore } from './store-rules.ts'

export interface Verdict {
  /** Violations, the earliest first. */
  readonly violations: readonly Violation[]
  /** Share of the history in which the checker would not have reported a loss. */
  readonly excused: ExcusedShare
}

/** Checks a history against all rules. */
export function check(history: History): Verdict {
  const ownerships = new Ownerships(history)
  const excuses = new Excuses(history, ownerships)
  const times = new CommitTimes(history, ownerships)
  const violations = [
    ...checkActivity(history),
    ...checkLeases(history),
    ...checkStore(history, ownerships),
    ...checkCommits(history, times),
    ...checkRollbacks(history, ownerships),
    ...checkStreams(history, ownerships, excuses),
    ...checkOps(history, excuses, times),
    ...checkFeatures(history, ownerships),
    ...checkLobby(history, ownerships),
    ...checkBackends(history),
    ...checkQueue(history, ownerships),
    ...checkClients(history, excuses),
    ...checkEnd(history),
  ].sort((a, b) => a.at - b.at)
  return { violations, excused: excusedShare(history, ownerships, excuses) }
}

/** A node calls handlers only while its lease is valid: after that, another node may have its rooms. */
const checkLeases = ({ late }: History): Violation[] =>
  late.map(({ node, room, hook, at }) => ({
    name: 'acted_without_lease',
    at,
    room,
    message: `${node} ran ${hook}`,
  }))

/** No client is disconnected for good or loses a seat, unless a fault explains it. */
function checkClients(history: History, excuses: Excuses): Violation[] {
  const found: Violation[] = []
  const known = new Map<string, Known>()
  for (const record of history.clients) {
    const { at, client, kind } = record
    const before = known.get(client) ?? NOTHING_KNOWN
    const { session, edge, seat } = before
    known.set(client, learn(before, record))
    if (kind === 'raced') {
      const message = `${record.winners} connections were welcome with one token, and stayed`
      found.push({ name: 'resumed_twice', at, client, message })
    } else if (kind === 'closed' && !record.asked) {
      const { code, reason, superseded = false } = record
      if (closeAdvice(code) === 'resume') continue
      // A client may receive the end of its session before the end of its seat.
      const seated = seat !== undefined && !excuses.seat(seat, { client, edge }, at)
      if (excuses.close({ code, client, session, seated, superseded }, at)) continue
      found.push({ name: 'closed_without_cause', at, client, message: `closed with ${code} (${reason})` })
    } else if (kind === 'lost' && record.why === 'seat') {
      const { room, member } = record
      if (excuses.seat({ ...(seat ?? NEVER_JOINED), room, member }, { client, edge }, at)) continue
      const message = 'the server no longer knows the seat of the member'
      found.push({ name: 'seat_lost', at, room, member, client, message })
    }
  }
  return found
}

const NEVER_JOINED = { joined_at: 0, epoch: 0 }

/** At the end, every client is in its room, every room has one owner, and the members and the store have the state of the owner. */
function checkEnd({ run, clients, end, rooms }: History): Violation[] {
  const found: Violation[] = []
  const { at } = end
  if (end.members.length < run.clients) {
    const here = new Set(end.members.map(({ client }) => client))
    const out = new Set(clients.map(({ client }) => client).filter((client) => !here.has(client)))
    for (const client of out) found.push({ name: 'left_out', at, client, message: `${client} is in no room` })
  }
  const durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  for (const { room, message } of end.unreadable) found.push({ name: 'record_unreadable', at, room, message })
  for (const { room } of rooms) {
    const owners = end.owners.filter((owner) => owner.room === room)
    if (owners.length > 1)
      found.push({
        name: 'two_owners',
        at,
        room,
        message: `${owners.map(({ node }) => node).join(' and ')} run it`,
      })
    const owner = owners.toSorted((a, b) => b.epoch - a.epoch)[0]
    const members = end.members.filter((member) => member.room === room)
    if (!owner) {
      if (members.length > 0)
        found.push({ name: 'no_owner', at, room, message: `${members.length} members have no owner` })
      continue
    }
    for (const stand of members) {
      const { member, client } = stand
      // Client libraries do not expose all fields.
      const wrong = (['epoch', 'seq'] as const).filter(
        (field) => stand[field] !== undefined && stand[field] !== owner[field],
      )
      const same = isDeepStrictEqual(stand.state, visibleTo(member, owner.state as ChaosState))
      if (wrong.length === 0 && same) continue
      const differences = wrong.map(
        (field) => `${field} is ${stand[field]}, and ${owner[field]} at the owner`,
      )
      if (!same) differences.push('the state differs')
      found.push({ name: 'final_mismatch', at, room, member, client, message: differences.join('; ') })
    }
    const record = end.records.find((candidate) => candidate.room === room)
    if (durability.get(room) === 'none' || !record) continue
    if (record.seq !== owner.seq || !isDeepStrictEqual(record.state, owner.state))
      found.push({
        name: 'record_differs',
        at,
        room,
        message: `the store restores seq ${record.seq}, the owner had ${owner.seq}`,
      })
  }
  return found
}

/** Minimum activity. It is far below that of a run in which something is broken half of the time. */
const LEAST = {
  /** For each client and second of the run. */
  frames: 2,
  ops: 0.5,
  acks: 0.25,
  /** For each journal room and second. */
  commits: 1,
  /** For each snapshot room and second. */
  saves: 0.1,
  /** For each op. */
  refusals: 0.02,
  replies: 0.1,
  marks: 0.5,
  tasks: 0.02,
  /** For each op in the final states. A room that has restarted with an empty store has forgotten its ops and its timers. */
  timers: 0.01,
  /** For each second. */
  faults: 0.1,
  /** For each planned fault. A node that still drains or is down gets no further fault, and a drain can take half of a run of 20 s. */
  planned: 0.5,
}

/** A run in which little happened proves nothing. */
function checkActivity(history: History): Violation[] {
  const { run, rooms, clients, store, faults } = history
  const seconds = (run.ended - run.began) / 1000
  const count = (kind: ClientRecord['kind']) => clients.filter((record) => record.kind === kind).length
  const standing = (kind: 'commit' | 'snapshot', durability: 'journal' | 'snapshot') => {
    const names = rooms.filter((room) => room.durability === durability).map(({ room }) => room)
    const writes = store.filter((call) => call.kind === kind && call.ok === true && names.includes(call.room))
    return { found: writes.length, rooms: names.length }
  }
  const named = (kind: 'joined' | 'ack') =>
    new Set(clients.filter((record) => record.kind === kind).map(({ client }) => client)).size
  const ops = clients.filter((record) => record.kind === 'sent' && !record.again).length
  const commits = standing('commit', 'journal')
  const saves = standing('snapshot', 'snapshot')
  const done = faults.filter(({ kind }) => kind !== 'stall').length
  const states = history.end.owners.map(({ state }) => state as ChaosState)
  const sum = (field: 'fired' | 'total') => states.reduce((total, state) => total + state[field], 0)
  const players = Math.max(1, run.clients)
  const least: [what: string, found: number, wanted: number][] = [
    ['clients that joined', named('joined'), players],
    ['clients with an ack', named('ack'), players],
    ['frames', count('frame'), LEAST.frames * players * seconds],
    ['ops', ops, LEAST.ops * players * seconds],
    ['acks', count('ack'), LEAST.acks * players * seconds],
    ['refusals', count('refused'), LEAST.refusals * ops],
    ['replies', count('reply'), LEAST.replies * ops],
    ['frames of layers', count('marks'), LEAST.marks * ops],
    ['tasks', history.tasks.length, LEAST.tasks * ops],
    ['timers that fired', sum('fired'), LEAST.timers * sum('total')],
    ['commits', commits.found, LEAST.commits * commits.rooms * seconds],
    ['saves', saves.found, LEAST.saves * saves.rooms * seconds],
    ['faults', done, Math.max(LEAST.faults * seconds, LEAST.planned * run.faults)],
  ]
  return least
    .filter(([, found, wanted]) => found < Math.floor(wanted))
    .map(([what, found, wanted]) => ({
      name: 'too_little',
      at: history.end.at,
      message: `${found} ${what} in ${seconds.toFixed(1)} s; at least ${Math.floor(wanted)} would prove something`,
    }))
}

/** A change is saved within 1 s after members see it. The rest is for a busy machine. */
export const SAVED_WITHIN_MS = 1500
/** Maximum time from the first to the last update that a crash takes back: 1 s without a save, the lease in which the owner may continue, and the rest for a busy machine. */
const MOST_LOST_MS = 3000

/** A crash takes a snapshot room back at most to its state about 1 s before the first fault that led to the crash. */
function checkRollbacks(history: History, ownerships: Ownerships): Violation[] {
  const frames = new Map<string, Frame[]>()
  for (const record of history.clients)
    if (record.kind === 'frame') {
      const ofRoom = frames.get(record.room)
      if (ofRoom) ofRoom.push(record)
      else frames.set(record.room, [record])
    }
  return history.rooms
    .filter(({ durability }) => durability === 'snapshot')
    .flatMap(({ room }) =>
      ownerships.crashes(room).flatMap((crash) => checkCrash(crash, ownerships, frames.get(room) ?? [])),
    )
}

type Frame = Extract<ClientRecord, { kind: 'frame' }>

function checkCrash(
  { claim, previous, base, outage }: Ownership,
  ownerships: Ownerships,
  frames: readonly Frame[],
): Violation[] {
  const saved = base?.content?.seq ?? 0
  const lost = frames.filter(({ epoch, seq }) => epoch === previous?.epoch && seq > saved)
  if (lost.length === 0 || outage === undefined || !previous) return []
  const { room } = claim
  // Time at which each update was seen first.
  const firstSeen = new Map<number, number>()
  for (const { seq, at } of lost) firstSeen.set(seq, Math.min(at, firstSeen.get(seq) ?? at))
  const from = Math.min(...firstSeen.values())
  const to = Math.max(...firstSeen.values())
  const report = (message: string): Violation[] => [
    { name: 'rollback_too_far', at: claim.ended, room, message },
  ]
  const what = `epoch ${claim.epoch} continues from seq ${saved}; members saw lost updates`
  if (from < outage - SAVED_WITHIN_MS)
    return report(
      `${what} from ${Math.round(outage - from)} ms before any fault; at most ${SAVED_WITHIN_MS} ms may be lost`,
    )
  const moving = to - from - ownerships.frozen(previous.node, from, to)
  if (moving <= MOST_LOST_MS) return []
  return report(`${what} for ${Math.round(moving)} ms of activity; at most ${MOST_LOST_MS} ms may be lost`)
}

/** The frames of all members follow the rules of docs/protocol.md for epochs, seqs and checksums, and all members saw the same states. */
function checkStreams(history: History, ownerships: Ownerships, excuses: Excuses): Violation[] {
  const members = new Map<string, MemberStream>()
  const found: Violation[] = []
  /** Time without a fault before `to`. */
  const calm = (from: number, to: number): number =>
    to -
    history.faults.reduce(
      (last, { at, until }) => (at < to ? Math.max(last, Math.min(until, to)) : last),
      from,
    )
  const of = ({ client, room, member }: { client: string; room: string; member: string }) => {
    const key = `${room} ${member}`
    let stream = members.get(key)
    if (!stream) {
      stream = new MemberStream(client, room, member, { excuses, calm }, found)
      members.set(key, stream)
    }
    return stream
  }
  for (const record of history.clients) {
    if (record.kind === 'frame') of(record).take(record)
    else if (record.kind === 'lost') of(record).over = true
    else if (record.kind === 'welcome')
      for (const stream of members.values())
        if (stream.client === record.client && !stream.over) stream.resume()
  }
  for (const stream of members.values()) stream.end(history.end.at)
  return [...found, ...divergences(history, ownerships)]
}

/** Longest time without a fault until a member has the whole state that it asked for: that of a takeover. */
const HEALED_WITHIN_MS = 3500

interface StreamContext {
  readonly excuses: Excuses
  /** Returns the time without a fault before `to`. */
  readonly calm: (from: number, to: number) => number
}

/** Frames of one member. */
class MemberStream {
  readonly client: string
  readonly room: string
  /** The seat has ended. Missing frames after that are right. */
  over = false
  readonly #member: string
  readonly #context: StreamContext
  readonly #found: Violation[]
  #known: Frame | undefined
  #gap: Frame | undefined
  #waiting = false

  constructor(client: string, room: string, member: string, context: StreamContext, found: Violation[]) {
    this.client = client
    this.room = room
    this.#member = member
    this.#context = context
    this.#found = found
  }

  /** The missed frames follow, or a whole state. */
  resume(): void {
    this.#waiting = false
    this.#gap = undefined
  }

  take(frame: Frame): void {
    const known = this.#known
    if (known && frame.epoch < known.epoch) {
      this.#report('epoch_down', frame, `${frame.t} of epoch ${frame.epoch} after epoch ${known.epoch}`)
      return
    }
    if (frame.checksum !== undefined && frame.actual !== undefined && frame.checksum !== frame.actual)
      this.#report(
        'checksum_mismatch',
        frame,
        `${frame.t} ${frame.seq} says ${frame.checksum} and led to ${frame.actual}`,
      )
    if (frame.t === 'state.snapshot' || frame.t === 'state.resync') this.#whole(frame)
    else if (frame.t === 'state.patch') this.#patch(frame)
    else this.#follow(frame)
  }

  end(at: number): void {
    if (this.#gap && !this.over)
      this.#report('seq_gap', { ...this.#gap, at }, `no resync healed the gap before seq ${this.#gap.seq}`)
  }

  #whole(frame: Frame): void {
    const known = this.#known
    const gap = this.#gap
    const waited = gap ? Math.round(this.#context.calm(gap.at, frame.at)) : 0
    if (waited > HEALED_WITHIN_MS)
      this.#report(
        'seq_gap',
        frame,
        `the gap before seq ${gap?.seq} was healed only ${waited} ms after any fault`,
      )
    if (known && frame.seq < known.seq && !this.#context.excuses.rollback(this.room, known.epoch, frame))
      this.#report(
        'rollback',
        frame,
        `${frame.t} at epoch ${frame.epoch}, seq ${frame.seq} after epoch ${known.epoch}, seq ${known.seq}`,
      )
    this.#known = frame
    this.#gap = undefined
    this.#waiting = false
  }

  #patch(frame: Frame): void {
    const known = this.#known
    if (this.#waiting || !known) return
    if (frame.seq === known.seq + 1) this.#known = frame
    else if (frame.seq > known.seq) this.#miss(frame)
    else this.#report('seq_repeated', frame, `patch ${frame.seq} came when ${known.seq + 1} was due`)
  }

  #follow(frame: Frame): void {
    const known = this.#known
    if (this.#waiting || !known || frame.seq <= known.seq) return
    if (frame.seq === known.seq + 1) this.#known = frame
    else this.#miss(frame)
  }

  #miss(frame: Frame): void {
    this.#gap = frame
    this.#waiting = true
  }

  #report(name: ViolationName, { at }: { at: number }, message: string): void {
    this.#found.push({ name, at, room: this.room, member: this.#member, client: this.client, message })
  }
}

/** A seq has one state in one epoch. In a journal room, it has one state in all epochs. */
function divergences({ clients, rooms }: History, ownerships: Ownerships): Violation[] {
  const durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  const found: Violation[] = []
  const seen = new Map<string, Frame>()
  const losses = new Map([...durability.keys()].map((room) => [room, ownerships.losses(room)]))
  /** Number of losses of the room before the frame: after each, the seqs start again. */
  const lifeOf = ({ room, epoch }: Frame) =>
    losses.get(room)?.filter(({ claim }) => claim.epoch <= epoch).length ?? 0
  for (const record of clients) {
    if (record.kind !== 'frame' || record.checksum === undefined) continue
    const { room, epoch, seq, checksum, at, member, client } = record
    const key =
      durability.get(room) === 'journal' ? `${room} ${lifeOf(record)} ${seq}` : `${room} ${epoch} ${seq}`
    const other = seen.get(key)
    if (!other) seen.set(key, record)
    else if (other.checksum !== checksum)
      found.push({
        name: 'divergence',
        at,
        room,
        member,
        client,
        message: `seq ${seq} has checksum ${checksum} under epoch ${epoch}, and ${other.checksum} at ${other.member} under epoch ${other.epoch}`,
      })
  }
  return found
}
