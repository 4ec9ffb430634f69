import type { Acknowledgement, RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import { hash, textOf } from './explorer.ts'
import { decode } from './ledger.ts'
import type { SimClock } from './model-node.ts'

/** How long an edge waits for news before it asks the other node. */
const PATIENCE_MS = 700
/** How long it waits before it follows a room that has moved. */
const FOLLOW_MS = 20

/** What an edge is made of. */
interface ModelEdgeParts {
  readonly name: string
  readonly room: RoomAddress
  readonly memberId: string
  /** The names of the nodes it may ask; the first is asked first. */
  readonly nodes: readonly string[]
  readonly clock: SimClock
  readonly send: (node: string, message: ToOwner) => void
  /** Something happened that a member must never see. */
  readonly violate: (text: string) => void
}

type Body<T = ToOwner> = T extends ToOwner ? Omit<T, 'room' | 'member_id'> : never
type Answer = Extract<ToEdge, { kind: 'attached' }>

/**
 * The reliable side: an edge with one member, which keeps what is not acked and asks again, here or there, until it is. It stands in
 * for the gateway, and is never at fault itself.
 */
export class ModelEdge {
  readonly #parts: ModelEdgeParts
  #asked = 0
  /** The attach whose answer is open. */
  #attachAsk = 0
  #wanted = false
  #seated = false
  /** The owner it talks to has answered. */
  #attached = false
  #position = { epoch: 0, seq: 0 }
  #unacked: number[] = []
  /** Those that the room must refuse. */
  readonly #bad = new Set<number>()
  #lastRef = 0
  #acked = 0
  #patience: (() => void) | undefined
  #history = ''

  constructor(parts: ModelEdgeParts) {
    this.#parts = parts
  }

  /** Equal for edges that lived through the same. */
  get digest(): string {
    return this.#history
  }

  /** Whether everything asked for is done. */
  get settled(): boolean {
    return this.#seated === this.#wanted && this.#attached === this.#seated && this.#unacked.length === 0
  }

  get memberId(): string {
    return this.#parts.memberId
  }

  /** What the member has seen last. */
  get position(): { readonly epoch: number; readonly seq: number } {
    return this.#position
  }

  get clock(): SimClock {
    return this.#parts.clock
  }

  /** The member asks for its seat. */
  join(): void {
    this.#lived('join')
    this.#wanted = true
    this.#ask()
  }

  /** What the member has sent, and the room must have applied. */
  get said(): readonly number[] {
    return Array.from({ length: this.#lastRef }, (_, i) => i + 1).filter((ref) => !this.#bad.has(ref))
  }

  /** The member sends its next reliable message; a `bad` one is for the room to refuse. */
  say(bad = false): void {
    const ref = ++this.#lastRef
    if (bad) this.#bad.add(ref)
    this.#lived(`say ${ref}`)
    this.#unacked.push(ref)
    if (this.#attached) this.#message(ref)
    this.#wait()
  }

  /** The member comes back by way of the other node. */
  move(): void {
    this.#lived('move')
    this.#asked++
    this.#ask()
  }

  /** A timer of this edge is due. */
  fire(): void {
    this.#lived('waited')
    this.#parts.clock.fire()
  }

  /** Something that the owner said was lost. */
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
    // The owner of before knows nothing new.
    else if (epoch < this.#position.epoch) return
    else if (kind === 'attached') this.#answered(message)
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

  #answered({ epoch, seq, ask, frames, ...settled }: Answer): void {
    if (ask !== this.#attachAsk || this.#attached) return
    if (seq < this.#position.seq)
      this.#parts.violate(`${this.memberId} is taken back from seq ${this.#position.seq} to ${seq}`)
    for (const message of frames.flatMap(decode))
      if ('seq' in message && message.seq > seq)
        this.#parts.violate(`${this.memberId} is told of seq ${message.seq} at seq ${seq}`)
    this.#position = { epoch, seq }
    this.#attached = true
    this.#settle(settled)
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
      // Something was lost on the way.
      this.#attach()
      return
    } else this.#position = { epoch, seq: Math.max(seq, this.#position.seq) }
    for (const { member_id: memberId, ack, ...settled } of personal)
      if (memberId === this.memberId && ack !== undefined) this.#settle({ ack, ...settled })
    this.#wait()
  }

  /** What the owner says became of messages. */
  #settle({ ack: ref, outcomes = [], forgotten = 0 }: Acknowledgement): void {
    if (forgotten > 0) this.#parts.violate(`${this.memberId} hears that ${forgotten} is forgotten`)
    for (const outcome of outcomes)
      if ('code' in outcome && this.#unacked.includes(outcome.ref))
        this.#toldRefused(outcome.code, outcome.ref)
    if (ref > this.#lastRef) this.#parts.violate(`${this.memberId} gets ack ${ref}, and never sent it`)
    const refused = this.#unacked.find((unacked) => unacked <= ref && this.#bad.has(unacked))
    if (refused)
      this.#parts.violate(`${this.memberId} gets ack ${ref}, and never heard that ${refused} was refused`)
    this.#acked = Math.max(ref, this.#acked)
    this.#unacked = this.#unacked.filter((unacked) => unacked > ref)
  }

  #refused(code: string): void {
    if (code !== 'room_unavailable' && code !== 'overloaded')
      this.#parts.violate(`${this.memberId} is refused: ${code}`)
  }

  /** A message of the member was refused. */
  #toldRefused(code: string, ref: number): void {
    if (!this.#bad.has(ref)) this.#refused(code)
    else this.#unacked = this.#unacked.filter((unacked) => unacked !== ref)
    this.#wait()
  }

  #noSeat(): void {
    if (this.#seated) this.#parts.violate(`${this.memberId} has lost its seat`)
  }

  /** The room is at `owner`, or no one knows where. */
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

  /** Asks the other node when nothing is heard for a while of what is open. */
  #wait(): void {
    this.#patience?.()
    this.#patience = undefined
    if (!this.settled) this.#askIn(PATIENCE_MS, true)
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
