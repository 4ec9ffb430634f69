import { type Frame, payloadsOf } from '../../dataplane/frame.ts'
import { JournalFormat, type Update } from '../../dataplane/rooms/journal.ts'
import type { MembershipRecord } from '../../dataplane/rooms/memberships.ts'
import type { Frames, ToEdge } from '../../dataplane/traffic.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Fence, Lease, LeaseRenewal } from '../../shared/store/port.ts'
import { hash } from './explorer.ts'
import type { Operation } from './model-node.ts'

/** One visible update that the store has. */
interface Committed {
  readonly epoch: number
  readonly checksum: number
  /** Of everything in it but the epoch it was committed under; undefined: it stands as a part of a whole state only. */
  readonly content: string | undefined
}

/** Which promise is broken. */
export type Promised =
  /** One epoch at a time commits: a single chain without gaps, and no two contents under one seq. */
  | 'chain'
  /** Nothing leaves that the store has not committed. */
  | 'committed'
  /** Nothing leaves a node whose lease has run out. */
  | 'lease'
  /** A room that another node has taken stops. */
  | 'fenced'
  /** Every acked message is applied exactly once. */
  | 'applied'
  /** Every timer that was set is still to fire, or has fired exactly once. */
  | 'timers'
  /** Every seat that was reserved is still reserved. */
  | 'reservations'
  /** Members keep their seats, and are never taken back. */
  | 'members'
  /** Everyone is served once nothing goes wrong any more. */
  | 'rest'

/** What must never happen, and did. */
export interface Violation {
  readonly promised: Promised
  readonly text: string
}

const format = new JournalFormat()

/**
 * What the store was made to hold and what members were told, as seen from outside; notes whatever must never happen. Rooms are
 * durable (`journal`), and everything is about one room.
 */
export class Ledger {
  readonly violations: Violation[] = []
  readonly #committed = new Map<number, Committed>()
  /** The highest ref that the store says is applied, of each member. */
  readonly #refs = new Map<string, number>()
  readonly #trustedUntil = new Map<string, number>()
  /** The epochs that a process was told it has lost. */
  readonly #fenced = new Map<string, Set<number>>()
  #last: { seq: number; epoch: number } | undefined

  /** Whether a node was told that it has lost `epoch`. */
  wasFenced(process: string, epoch: number): boolean {
    return this.#fenced.get(process)?.has(epoch) ?? false
  }

  /** `text` must never happen. */
  violate(promised: Promised, text: string): void {
    this.violations.push({ promised, text })
  }

  /** Where the committed history ends. */
  get last(): { readonly seq: number; readonly epoch: number } | undefined {
    return this.#last
  }

  /** The store is empty: what was committed stands no more. */
  forget(): void {
    this.#last = undefined
  }

  /** An operation took place, and the store said `result`. */
  performed({ name, args }: Operation, result: unknown): void {
    if (result !== true) return
    const [, , bytes] = args as [string, Fence, Uint8Array]
    if (name === 'rooms.commit') this.#commit((args[1] as Fence).epoch, bytes)
    else if (name === 'rooms.snapshot') this.#snapshot((args[1] as Fence).epoch, bytes)
  }

  /** The answer of an operation has reached its process; `recordedEpoch` is the epoch of the room as the store has it now. */
  answered({ process, name, args, sentAt }: Operation, result: unknown, recordedEpoch: number): void {
    if (name === 'records.renewLease') {
      const { holder, ttlMs, listed } = args[0] as LeaseRenewal
      // Only leases of nodes are listed.
      if (!listed || (result as Lease).holder !== holder) return
      // The answer to an earlier renewal may come after that to a later one. It does not shorten the lease.
      const known = this.#trustedUntil.get(process) ?? Number.NEGATIVE_INFINITY
      this.#trustedUntil.set(process, Math.max(known, sentAt + ttlMs))
      return
    }
    if (result !== false || (name !== 'rooms.commit' && name !== 'rooms.snapshot')) return
    const { epoch } = args[1] as Fence
    if (epoch >= recordedEpoch) return
    const fenced = this.#fenced.get(process) ?? new Set()
    this.#fenced.set(process, fenced.add(epoch))
  }

  /** A process says something to an edge. */
  emitted(process: string, message: ToEdge, now: number): void {
    const { kind, epoch } = message
    if (kind !== 'update' && kind !== 'attached' && kind !== 'state' && kind !== 'left') return
    const what = `${process} sends ${kind} of epoch ${epoch}`
    if (!(now < (this.#trustedUntil.get(process) ?? Number.NEGATIVE_INFINITY)))
      this.violate('lease', `${what} without a lease`)
    if (this.wasFenced(process, epoch)) this.violate('fenced', `${what} after it was fenced`)
    if (kind === 'left') return
    for (const told of messagesOf(message)) this.#told(what, epoch, told)
    const acks = kind === 'update' ? message.personal : kind === 'attached' ? [message] : []
    for (const { member_id: memberId, ack } of acks)
      if (ack !== undefined && ack > (this.#refs.get(memberId) ?? 0))
        this.violate('committed', `${what} with ack ${ack} for ${memberId}, which is not committed`)
  }

  #told(what: string, epoch: number, told: ServerMessage): void {
    if (!('seq' in told)) return
    const committed = this.#committed.get(told.seq)
    if (!committed) this.violate('committed', `${what} with seq ${told.seq}, which is not committed`)
    else if ('checksum' in told && told.checksum !== committed.checksum)
      this.violate('committed', `${what} with another seq ${told.seq} than the committed one`)
    else if (committed.epoch > epoch)
      this.violate('committed', `${what} with seq ${told.seq}, which epoch ${committed.epoch} has committed`)
  }

  #commit(epoch: number, bytes: Uint8Array): void {
    const update = format.readEntry(bytes)
    const { seq, visible } = update
    const follows = this.#last && seq === this.#last.seq + (visible ? 1 : 0)
    if (!follows)
      this.violate(
        'chain',
        `epoch ${epoch} commits seq ${seq} behind seq ${this.#last?.seq ?? 'of an empty record'}`,
      )
    if (this.#last && epoch < this.#last.epoch)
      this.violate('chain', `epoch ${epoch} commits after epoch ${this.#last.epoch} has`)
    if (visible) this.#add(epoch, update)
    this.#applied(update.joined, update.acks)
    this.#last = { seq, epoch }
  }

  #snapshot(epoch: number, bytes: Uint8Array): void {
    const { seq, checksum, memberships, updates } = format.readSnapshot(bytes)
    const last = this.#last
    if (last && (seq < last.seq || seq > last.seq + 1))
      this.violate('chain', `epoch ${epoch} saves seq ${seq} over seq ${last.seq}`)
    if (last && epoch < last.epoch)
      this.violate('chain', `epoch ${epoch} saves after epoch ${last.epoch} has`)
    for (const entry of updates) this.#add(epoch, format.readEntry(entry))
    const known = this.#committed.get(seq)
    if (known && known.checksum !== checksum)
      this.violate('chain', `epoch ${epoch} saves another seq ${seq} than epoch ${known.epoch} has committed`)
    if (!known) this.#committed.set(seq, { epoch, checksum, content: undefined })
    for (const { member, lastRef } of memberships) {
      if (lastRef < (this.#refs.get(member.id) ?? 0))
        this.violate(
          'chain',
          `epoch ${epoch} saves ${member.id} at ref ${lastRef}, behind what was committed`,
        )
    }
    this.#applied(memberships, [])
    this.#last = { seq, epoch }
  }

  #add(epoch: number, update: Update): void {
    const { seq, checksum } = update
    const content = contentOf(update)
    const known = this.#committed.get(seq)
    if (!known) this.#committed.set(seq, { epoch, checksum, content })
    else if (known.content === undefined ? known.checksum !== checksum : known.content !== content)
      this.violate('chain', `epoch ${epoch} commits another seq ${seq} than epoch ${known.epoch} has`)
  }

  #applied(seats: readonly MembershipRecord[], acks: Update['acks']): void {
    for (const { member, lastRef } of seats) this.#raise(member.id, lastRef)
    for (const { memberId, ref } of acks) this.#raise(memberId, ref)
  }

  #raise(memberId: string, ref: number): void {
    this.#refs.set(memberId, Math.max(ref, this.#refs.get(memberId) ?? 0))
  }
}

const contentOf = ({ epoch: _, ...content }: Update): string => hash(JSON.stringify(content))

const decoded = new WeakMap<Frame, readonly ServerMessage[]>()

/** The messages in JSON frames. */
export function decode(frames: Frames | undefined): readonly ServerMessage[] {
  const frame = frames?.['roomful.v1.json']
  if (!frame) return []
  let messages = decoded.get(frame)
  if (!messages) {
    messages = payloadsOf(frame).map(
      (payload) => JSON.parse(Buffer.from(payload).toString()) as ServerMessage,
    )
    decoded.set(frame, messages)
  }
  return messages
}

/** Everything that members get with a message. */
function messagesOf(message: ToEdge): readonly ServerMessage[] {
  if (message.kind === 'update')
    return [
      ...decode(message.patch),
      ...decode(message.rest),
      ...message.joined.flatMap(({ snapshot }) => decode(snapshot)),
    ]
  if (message.kind === 'attached') return message.frames.flatMap(decode)
  return message.kind === 'state' ? decode(message.state) : []
}
