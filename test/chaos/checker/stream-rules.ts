import type { Excuses } from './excuses.ts'
import type { ClientRecord, History } from './history.ts'
import type { Ownerships } from './ownership.ts'
import type { Violation, ViolationName } from './violation.ts'

type Frame = Extract<ClientRecord, { kind: 'frame' }>

/** What members saw, by the rules of docs/protocol.md §5: epochs, seqs, checksums, and that nobody saw anything else. */
export function checkStreams(history: History, ownerships: Ownerships, excuses: Excuses): Violation[] {
  const members = new Map<string, MemberStream>()
  const found: Violation[] = []
  const of = ({ client, room, member }: { client: string; room: string; member: string }) => {
    const key = `${room} ${member}`
    let stream = members.get(key)
    if (!stream) {
      stream = new MemberStream(client, room, member, excuses, found)
      members.set(key, stream)
    }
    return stream
  }
  for (const record of history.clients) {
    if (record.kind === 'frame') of(record).take(record)
    else if (record.kind === 'lost') of(record).over = true
    else if (record.kind === 'welcome')
      for (const { room, resumed } of record.rooms ?? [])
        for (const stream of members.values())
          if (stream.client === record.client && stream.room === room && !stream.over) stream.resume(resumed)
  }
  for (const stream of members.values()) stream.end(history.end.at)
  return [...found, ...divergences(history, ownerships)]
}

/** One member's way through its room's flushes. */
class MemberStream {
  readonly client: string
  readonly room: string
  /** The seat is gone: what did not come any more is nobody's fault. */
  over = false
  readonly #member: string
  readonly #excuses: Excuses
  readonly #found: Violation[]
  #known: Frame | undefined
  #gap: Frame | undefined
  #waiting = false
  #owed = false

  constructor(client: string, room: string, member: string, excuses: Excuses, found: Violation[]) {
    this.client = client
    this.room = room
    this.#member = member
    this.#excuses = excuses
    this.#found = found
  }

  /** `complete`: what was missed follows, frame by frame; otherwise a whole state. */
  resume(complete: boolean): void {
    this.#waiting = !complete
    this.#owed = !complete
    if (complete) this.#gap = undefined
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
      this.#report('seq_gap', { ...this.#gap, at }, `nothing healed the gap before seq ${this.#gap.seq}`)
    else if (this.#owed && !this.over) this.#report('state_owed', { at }, 'a state.resync was to follow')
  }

  #whole(frame: Frame): void {
    const known = this.#known
    if (known && frame.seq < known.seq && !this.#excuses.rollback(this.room, known.epoch, frame))
      this.#report(
        'rollback',
        frame,
        `${frame.t} at epoch ${frame.epoch}, seq ${frame.seq} after epoch ${known.epoch}, seq ${known.seq}`,
      )
    this.#known = frame
    this.#gap = undefined
    this.#waiting = false
    this.#owed = false
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

/** Under one epoch a seq has one state; in a journal it has one under all epochs. */
function divergences({ clients, rooms }: History, ownerships: Ownerships): Violation[] {
  const durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  const found: Violation[] = []
  const seen = new Map<string, Frame>()
  const losses = new Map([...durability.keys()].map((room) => [room, ownerships.losses(room)]))
  /** A room that was lost begins to count anew. */
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
