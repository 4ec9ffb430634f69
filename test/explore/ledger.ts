import { type Frame, payloadsOf } from '../../dataplane/frame.ts'
import { JournalFormat, type Update } from '../../dataplane/room/journal.ts'
import type { MembershipRecord } from '../../dataplane/room/member.ts'
import type { Frames, StateFrames, ToEdge } from '../../dataplane/traffic.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Fence, Lease, LeaseRenewal } from '../../shared/store/port.ts'
import { hash } from './history.ts'
import type { Operation } from './model-node.ts'

/** One visible update that the store has. */
interface Committed {
  readonly epoch: number
  readonly checksum: number
  /** Hash of all fields except the epoch. Undefined: the update is only part of a snapshot. */
  readonly content: string | undefined
}

/** Guarantees that the explorer checks. */
export type Guarantee =
  /** One epoch at a time commits. The commits form one chain without gaps, and no seq has two contents. */
  | 'chain'
  /** A node sends only updates that the store has committed. */
  | 'committed'
  /** A node sends nothing after its lease has expired. */
  | 'lease'
  /** A room stops when another node has claimed it. */
  | 'fenced'
  /** Each acked message is applied exactly once. */
  | 'applied'
  /** Each timer that was set is pending or has fired exactly once. */
  | 'timers'
  /** Each reserved seat stays reserved. */
  | 'reservations'
  /** Members keep their seats, and never receive an earlier state. */
  | 'members'
  /** After the last fault, each member is served again. */
  | 'rest'

/** A broken guarantee. */
export interface Violation {
  readonly guarantee: Guarantee
  readonly text: string
}

const format = new JournalFormat()

/**
 * Record of all commits of one room and all messages to its members, as seen from outside. Checks each of them. The room has durability
 * `journal`.
 */
export class Ledger {
  readonly violations: Violation[] = []
  readonly #committed = new Map<number, Committed>()
  /** By member, the highest applied ref in the store. */
  readonly #refs = new Map<string, number>()
  /** By process, the end of its lease as it knows it. */
  readonly #leasedUntil = new Map<string, number>()
  /** By process, epochs for which the store has rejected a write. */
  readonly #fenced = new Map<string, Set<number>>()
  #last: { seq: number; epoch: number } | undefined

  /** True if the store has rejected a write of the process under `epoch`. */
  wasFenced(process: string, epoch: number): boolean {
    return this.#fenced.get(process)?.has(epoch) ?? false
  }

  /** Records a violation. */
  violate(guarantee: Guarantee, text: string): void {
    this.violations.push({ guarantee, text })
  }

  /** Last commit. */
  get last(): { readonly seq: number; readonly epoch: number } | undefined {
    return this.#last
  }

  /** To be called when the store has lost its data. */
  forget(): void {
    this.#last = undefined
  }

  /** Records an operation that the store has executed with `result`. */
  performed({ name, args }: Operation, result: unknown): void {
    if (result !== true) return
    const [, , bytes] = args as [string, Fence, Uint8Array]
    if (name === 'rooms.commit') this.#commit((args[1] as Fence).epoch, bytes)
    else if (name === 'rooms.snapshot') this.#snapshot((args[1] as Fence).epoch, bytes)
  }

  /** Records an answer that has reached its process. `recordedEpoch`: present epoch of the room in the store. */
  answered({ process, name, args, sentAt }: Operation, result: unknown, recordedEpoch: number): void {
    if (name === 'records.renewLease') {
      const { holder, ttlMs, listed } = args[0] as LeaseRenewal
      // Only leases of nodes are listed.
      if (!listed || (result as Lease).holder !== holder) return
      // The answer to an earlier renewal may arrive after the answer to a later one. It does not shorten the lease.
      const known = this.#leasedUntil.get(process) ?? Number.NEGATIVE_INFINITY
      this.#leasedUntil.set(process, Math.max(known, sentAt + ttlMs))
      return
    }
    if (result !== false || (name !== 'rooms.commit' && name !== 'rooms.snapshot')) return
    const { epoch } = args[1] as Fence
    if (epoch >= recordedEpoch) return
    const fenced = this.#fenced.get(process) ?? new Set()
    this.#fenced.set(process, fenced.add(epoch))
  }

  /** Checks a message of a process to an edge. */
  emitted(process: string, message: ToEdge, now: number): void {
    const { kind, epoch } = message
    if (kind !== 'update' && kind !== 'attached' && kind !== 'state' && kind !== 'left') return
    const what = `${process} sends ${kind} of epoch ${epoch}`
    if (!(now < (this.#leasedUntil.get(process) ?? Number.NEGATIVE_INFINITY)))
      this.violate('lease', `${what} without a lease`)
    if (this.wasFenced(process, epoch)) this.violate('fenced', `${what} after it was fenced`)
    if (kind === 'left') return
    for (const sent of messagesOf(message)) this.#checkSent(what, epoch, sent)
    const acks = kind === 'update' ? message.personal : kind === 'attached' ? [message] : []
    for (const { member_id: memberId, ack } of acks)
      if (ack !== undefined && ack > (this.#refs.get(memberId) ?? 0))
        this.violate('committed', `${what} with ack ${ack} for ${memberId}, which is not committed`)
  }

  #checkSent(what: string, epoch: number, sent: ServerMessage): void {
    if (!('seq' in sent)) return
    const { seq } = sent
    const committed = this.#committed.get(seq)
    if (!committed) this.violate('committed', `${what} with seq ${seq}, which is not committed`)
    else if ('checksum' in sent && sent.checksum !== committed.checksum)
      this.violate('committed', `${what} with a seq ${seq} that differs from the committed one`)
    else if (committed.epoch > epoch)
      this.violate('committed', `${what} with seq ${seq}, which epoch ${committed.epoch} has committed`)
  }

  #commit(epoch: number, bytes: Uint8Array): void {
    const update = format.readEntry(bytes)
    const { seq, visible } = update
    const follows = this.#last && seq === this.#last.seq + (visible ? 1 : 0)
    if (!follows)
      this.violate(
        'chain',
        `epoch ${epoch} commits seq ${seq} after seq ${this.#last?.seq ?? 'of an empty record'}`,
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
          `epoch ${epoch} saves ${member.id} at ref ${lastRef}, which is lower than committed`,
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

/** Returns the messages in JSON frames. */
function decode(frames: Frames | undefined): readonly ServerMessage[] {
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

/** Returns the messages in the frames for one member. The room has no layers. */
export const messagesIn = ({
  patch,
  rest,
}: Pick<StateFrames, 'patch' | 'rest'>): readonly ServerMessage[] => [...decode(patch), ...decode(rest)]

/** Returns all messages that members receive through a message to their edge. */
function messagesOf(message: ToEdge): readonly ServerMessage[] {
  if (message.kind === 'update')
    return [...messagesIn(message), ...message.joined.flatMap(({ snapshot }) => messagesIn(snapshot))]
  if (message.kind === 'attached') return message.frames.flatMap(messagesIn)
  return message.kind === 'state' ? messagesIn(message.state) : []
}
