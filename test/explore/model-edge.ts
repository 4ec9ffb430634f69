import type { Acknowledgement, RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import { hash, textOf } from './history.ts'
import { messagesIn } from './ledger.ts'
import type { SimClock } from './model-node.ts'

/** Without an answer for this time, an edge asks the other node. */
const PATIENCE_MS = 700
/** Delay before an edge follows a room that has moved. */
const FOLLOW_MS = 20

/** Dependencies of a `ModelEdge`. */
interface ModelEdgeParts {
  readonly name: string
  readonly room: RoomAddress
  readonly memberId: string
  /** Nodes that the edge asks, in this order. */
  readonly nodes: readonly string[]
  readonly clock: SimClock
  readonly send: (node: string, message: ToOwner) => void
  /** Records a violation. */
  readonly violate: (text: string) => void
}

type Body<T = ToOwner> = T extends ToOwner ? Omit<T, 'room' | 'member_id'> : never
type Answer = Extract<ToEdge, { kind: 'attached' }>

/**
 * An edge with one member, in place of the gateway. It keeps unacknowledged messages and sends them again, to either node, until they are
 * acknowledged. It has no faults.
 */
export class ModelEdge {
  readonly #parts: ModelEdgeParts
  /** Number of changes of the node. */
  #asked = 0
  /** Number of the last attach. */
  #attachAsk = 0
  #wanted = false
  #seated = false
  /** True when the owner has answered the last attach. */
  #attached = false
  #position = { epoch: 0, seq: 0 }
  #unacked: number[] = []
  /** Refs of the messages that the room must refuse. */
  readonly #bad = new Set<number>()
  #lastRef = 0
  #acked = 0
  #patience: (() => void) | undefined
  #history = ''

  constructor(parts: ModelEdgeParts) {
    this.#parts = parts
  }

  /** Equal for edges with the same history. */
  get digest(): string {
    return this.#history
  }

  /** True if the member has its seat and all its messages are answered. */
  get answered(): boolean {
    return this.#seated === this.#wanted && this.#attached === this.#seated && this.#unacked.length === 0
  }

  get memberId(): string {
    return this.#parts.memberId
  }

  /** Epoch and seq of the member's state. */
  get position(): { readonly epoch: number; readonly seq: number } {
    return this.#position
  }

  get clock(): SimClock {
    return this.#parts.clock
  }

  /** Joins the room. */
  join(): void {
    this.#lived('join')
    this.#wanted = true
    this.#ask()
  }

  /** Refs of the messages that the room must have applied. */
  get said(): readonly number[] {
    return Array.from({ length: this.#lastRef }, (_, i) => i + 1).filter((ref) => !this.#bad.has(ref))
  }

  /** Sends the member's next reliable message. The room must refuse a `bad` one. */
  say(bad = false): void {
    const ref = ++this.#lastRef
    if (bad) this.#bad.add(ref)
    this.#lived(`say ${ref}`)
    this.#unacked.push(ref)
    if (this.#attached) this.#message(ref)
    this.#wait()
  }

  /** Attaches the member through the other node. */
  move(): void {
    this.#lived('move')
    this.#asked++
    this.#ask()
  }

  /** Runs the next timer. */
  fire(): void {
    this.#lived('waited')
    this.#parts.clock.fire()
  }

  /** To be called when a message of the owner was lost. */
  missed(): void {
    this.#lived('missed')
    if (this.#attached) this.#attach()
  }

  receive(message: ToEdge): void {
    this.#lived(textOf(message))
    const { kind, epoch } = message
    if (kind === 'redirect') this.#redirected(message.owner)
    else if (kind === 'resend') this.#follow()
    else if (kind === 'refused') this.#refused(message.code)
    else if (kind === 'error') this.#refused(message.code)
    else if (kind === 'no_seat') this.#noSeat()
    else if (kind === 'left') this.#parts.violate(`${this.memberId} was sent away`)
    // Messages of an earlier owner are outdated.
    else if (epoch < this.#position.epoch) return
    else if (kind === 'attached') this.#onAttached(message)
    else if (kind === 'update') this.#update(message)
  }

  get #node(): string {
    const { nodes } = this.#parts
    return nodes[this.#asked % nodes.length]!
  }

  #ask(): void {
    if (this.#seated) this.#attach()
    else
      this.#send({
        kind: 'join',
        request_id: 1,
        edge: this.#parts.name,
        turn: 0,
        codec: 'roomful.v1.json',
        session_id: `ses_${this.memberId}`,
        sub: null,
        principal: 'token',
        options: {},
      })
    this.#wait()
  }

  #attach(): void {
    this.#attached = false
    const { epoch, seq } = this.#position
    this.#send({
      kind: 'attach',
      ask: ++this.#attachAsk,
      edge: this.#parts.name,
      turn: 0,
      codec: 'roomful.v1.json',
      session_id: `ses_${this.memberId}`,
      epoch,
      seq,
      settled: 0,
      through: this.#acked,
    })
  }

  #message(ref: number): void {
    const type = this.#bad.has(ref) ? 'nonsense' : 'add'
    this.#send({ kind: 'message', type, data: `${this.memberId}:${ref}`, ref, settled: 0 })
  }

  #onAttached({ epoch, seq, ask, frames, ...answers }: Answer): void {
    if (ask !== this.#attachAsk || this.#attached) return
    if (seq < this.#position.seq)
      this.#parts.violate(`${this.memberId} goes back from seq ${this.#position.seq} to ${seq}`)
    for (const message of frames.flatMap(messagesIn))
      if ('seq' in message && message.seq > seq)
        this.#parts.violate(`${this.memberId} receives seq ${message.seq} at seq ${seq}`)
    this.#position = { epoch, seq }
    this.#attached = true
    this.#acknowledge(answers)
    for (const ref of this.#unacked) this.#message(ref)
    this.#wait()
  }

  #update({ epoch, seq, patch, personal, joined }: Extract<ToEdge, { kind: 'update' }>): void {
    const seat = joined.find(({ member_id: memberId }) => memberId === this.memberId)
    if (seat) {
      this.#seated = true
      this.#attached = true
      if (seq >= this.#position.seq) this.#position = { epoch, seq }
    } else if (!this.#attached) return
    else if (epoch !== this.#position.epoch || (patch && seq > this.#position.seq + 1)) {
      // A message of the owner was lost.
      this.#attach()
      return
    } else this.#position = { epoch, seq: Math.max(seq, this.#position.seq) }
    for (const { member_id: memberId, ack, ...answers } of personal)
      if (memberId === this.memberId && ack !== undefined) this.#acknowledge({ ack, ...answers })
    this.#wait()
  }

  /** Processes the owner's answers to messages. */
  #acknowledge({ ack: ref, outcomes = [], forgotten = 0 }: Acknowledgement): void {
    if (forgotten > 0) this.#parts.violate(`the owner has no outcome of ref ${forgotten} of ${this.memberId}`)
    for (const outcome of outcomes)
      if ('code' in outcome && this.#unacked.includes(outcome.ref))
        this.#messageRefused(outcome.code, outcome.ref)
    if (ref > this.#lastRef)
      this.#parts.violate(`${this.memberId} receives ack ${ref}, but sent ${this.#lastRef}`)
    const refused = this.#unacked.find((unacked) => unacked <= ref && this.#bad.has(unacked))
    if (refused) this.#parts.violate(`${this.memberId} receives ack ${ref}, but no refusal of ${refused}`)
    this.#acked = Math.max(ref, this.#acked)
    this.#unacked = this.#unacked.filter((unacked) => unacked > ref)
  }

  #refused(code: string): void {
    if (code !== 'room_unavailable' && code !== 'overloaded')
      this.#parts.violate(`${this.memberId} is refused: ${code}`)
  }

  /** Processes the refusal of a message. */
  #messageRefused(code: string, ref: number): void {
    if (!this.#bad.has(ref)) this.#refused(code)
    else this.#unacked = this.#unacked.filter((unacked) => unacked !== ref)
    this.#wait()
  }

  #noSeat(): void {
    if (this.#seated) this.#parts.violate(`${this.memberId} has lost its seat`)
  }

  /** Follows the room to `owner`. Null: the node does not know the owner. */
  #redirected(owner: string | null): void {
    const { nodes } = this.#parts
    const at = nodes.findIndex((node) => owner === `node_${node}`)
    this.#asked = at < 0 ? this.#asked + 1 : at
    this.#follow()
  }

  #follow(): void {
    this.#attached = false
    if (this.#wanted) this.#askIn(FOLLOW_MS, false)
  }

  /** Restarts the timeout after which the edge asks the other node. */
  #wait(): void {
    this.#patience?.()
    this.#patience = undefined
    if (!this.answered) this.#askIn(PATIENCE_MS, true)
  }

  #askIn(delayMs: number, elsewhere: boolean): void {
    this.#patience?.()
    this.#patience = this.#parts.clock.schedule(delayMs, () => {
      if (elsewhere) this.#asked++
      this.#ask()
    })
  }

  #send(body: Body): void {
    this.#parts.send(this.#node, { room: this.#parts.room, member_id: this.memberId, ...body } as ToOwner)
  }

  #lived(what: string): void {
    this.#history = hash(`${this.#history}${what}@${this.#parts.clock.monotonic()}`)
  }
}
