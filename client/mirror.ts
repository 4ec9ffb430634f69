import type { Clock } from '../shared/clock.ts'
import type { Json } from '../shared/json.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ClientMessage, MemberInfo, ResyncReason } from '../shared/protocol/messages.ts'
import { Listeners, type Report } from './listeners.ts'
import { type Member, Replica, type Verdict } from './replica.ts'
import type { Counters } from './stats.ts'

/** A resync that has not come after this long is asked for again. */
const RESYNC_WAIT_MS = 2000

/** The frames that keep a copy of a room up to date. */
export type RoomFrame = Extract<
  DecodedMessage,
  { t: 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'room.joined' | 'room.left' }
>
type Frame<T extends RoomFrame['t']> = Extract<RoomFrame, { t: T }>

export interface MirrorParts {
  readonly roomId: string
  readonly clock: Clock
  readonly counters: Counters
  readonly decodeStates: boolean
  readonly report: Report
  readonly send: (message: ClientMessage) => void
}

/** What a client sees of a room: keeps the replica in step, asks for a resync when it is not, and tells the subscribers. */
export class Mirror {
  readonly onState: Listeners<[state: Json, previous: Json]>
  readonly onMembers: Listeners<[members: readonly Member[], previous: readonly Member[]]>
  readonly #events = new Map<string, Listeners<[data: Json]>>()
  readonly #parts: MirrorParts
  readonly #replica: Replica
  #cancelRetry = () => {}

  constructor(parts: MirrorParts) {
    this.#parts = parts
    this.#replica = new Replica(parts.decodeStates)
    this.onState = new Listeners(parts.report)
    this.onMembers = new Listeners(parts.report)
  }

  get state(): Json {
    return this.#replica.state
  }

  get members(): readonly Member[] {
    return this.#replica.members
  }

  /** The last flush applied; undefined before the first snapshot of a seat. */
  get position(): { readonly epoch: number; readonly seq: number } | undefined {
    return this.#replica.position
  }

  /** The subscribers to one event. */
  onEvent(name: string): Listeners<[data: Json]> {
    const known = this.#events.get(name)
    if (known) return known
    const fresh = new Listeners<[data: Json]>(this.#parts.report)
    this.#events.set(name, fresh)
    return fresh
  }

  /** A seat was given; its snapshot comes next. */
  restart(members: readonly MemberInfo[]): void {
    const previous = this.#replica.members
    this.#cancelRetry()
    this.#replica.restart(members)
    this.onMembers.call(this.#replica.members, previous)
  }

  /** The connection is gone, and whatever was asked for with it: after a resume the server sends what is missing of its own accord. */
  pause(): void {
    this.#cancelRetry()
    this.#replica.goOn()
  }

  receive(frame: RoomFrame): void {
    switch (frame.t) {
      case 'state.patch':
        this.#patch(frame)
        break
      case 'event':
        this.#event(frame)
        break
      case 'room.joined':
      case 'room.left':
        this.#presence(frame)
        break
      case 'state.snapshot':
        this.#whole(frame)
        break
      case 'state.resync':
        if (!this.#replica.resyncing) this.#parts.counters.resyncs.unasked += 1
        this.#whole(frame, frame.members)
    }
  }

  #whole(frame: Frame<'state.snapshot' | 'state.resync'>, members?: readonly MemberInfo[]): void {
    const { state, members: membersBefore } = this.#replica
    const verdict = this.#replica.replace(frame, members)
    if (verdict === 'drop') return
    this.#cancelRetry()
    if (verdict !== 'take') {
      // Another resync at once would most likely bring the same.
      this.#parts.counters.resyncs[verdict] += 1
      this.#askLater(verdict)
    }
    this.onState.call(this.#replica.state, state)
    if (members) this.onMembers.call(this.#replica.members, membersBefore)
  }

  #patch(frame: Frame<'state.patch'>): void {
    const before = this.#replica.state
    const verdict = this.#replica.patch(frame)
    if (verdict === 'sequence' || verdict === 'checksum') this.#ask(verdict)
    if (verdict !== 'take') return
    this.#parts.counters.patches += 1
    if (this.#replica.state !== before) this.onState.call(this.#replica.state, before)
  }

  #event(frame: Frame<'event'>): void {
    if (this.#follow(frame)) this.#events.get(frame.name)?.call(frame.data)
  }

  #presence(frame: Frame<'room.joined' | 'room.left'>): void {
    if (!this.#follow(frame)) return
    const before = this.#replica.members
    if (this.#replica.meet(frame)) this.onMembers.call(this.#replica.members, before)
  }

  /** Whether the frame counts. One that shows a gap does: nothing else would bring what it says. */
  #follow(frame: Frame<'event' | 'room.joined' | 'room.left'>): boolean {
    const verdict: Verdict = this.#replica.follow(frame)
    if (verdict === 'sequence' || verdict === 'checksum') this.#ask(verdict)
    return verdict !== 'drop'
  }

  #ask(reason: ResyncReason): void {
    this.#parts.counters.resyncs[reason] += 1
    this.#replica.awaitResync()
    this.#sendAsk(reason)
  }

  #sendAsk(reason: ResyncReason): void {
    const haveSeq = this.#replica.position?.seq ?? 0
    this.#parts.send({ t: 'state.resync', room_id: this.#parts.roomId, have_seq: haveSeq, reason })
    this.#askLater(reason)
  }

  #askLater(reason: ResyncReason): void {
    this.#cancelRetry = this.#parts.clock.schedule(RESYNC_WAIT_MS, () => this.#sendAsk(reason))
  }
}
