import { applyPatch } from 'rfc6902'
import { type Frame, payloadsOf } from '../../../dataplane/frame.ts'
import type { Acknowledgement, Farewell, Frames, RepliedRef } from '../../../dataplane/traffic.ts'
import type { Json } from '../../../shared/json.ts'
import { ReadingCodec, type ReadMessage } from '../../../shared/protocol/codec.ts'
import type { MemberInfo, ServerMessage, Subprotocol } from '../../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../../shared/protocol/msgpack-client-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { apply, type Operation } from '../../../shared/sync/delta.ts'

/** A message about a hidden layer. */
type LayerMessage = Extract<ReadMessage | ServerMessage, { layer: string }>

const fromJson = (payload: Uint8Array): ServerMessage => JSON.parse(new TextDecoder().decode(payload))

/** Applies a JSON Patch with another library than the product's. */
function patched(state: Json, ops: readonly Operation[]): Json {
  const document = { state: structuredClone(state) }
  const problems = applyPatch(
    document,
    ops.map((op) => ({ ...op, path: `/state${op.path}` })),
  ).filter((problem) => problem !== null)
  if (problems.length > 0) throw problems[0]
  return document.state
}

/** A client in one room that follows the protocol. Its state comes only from frames. */
export class TestMember {
  readonly memberId: string
  readonly sessionId: string
  readonly codec: Subprotocol
  attached = true
  inRoom = false
  /** Name of its current or last room. */
  room = ''
  /** The state without hidden layers. */
  state: Json = null
  /** States of its hidden layers, by name. */
  readonly layers = new Map<string, Json>()
  epoch = 0
  seq = 0
  checksum = 0
  members: MemberInfo[] = []
  /** Number of spectators. Undefined: the room has not told it. */
  spectators: number | undefined
  acked = 0
  forgotten = 0
  /** Replies of the room, in order. */
  readonly replies: RepliedRef[] = []
  /** Payloads of all received frames, oldest first. */
  readonly received: Uint8Array[] = []
  /** Texts of all events and changes of members, in order. */
  readonly heard: string[] = []
  readonly errors: { code: string; message: string; ref?: number | undefined }[] = []
  /** Reasons for which a client would request a resync. */
  readonly faults: string[] = []
  resyncs = 0
  /** Epoch and seq of each layer's last state. */
  readonly #stated = new Map<string, { epoch: number; seq: number }>()
  /** Layer messages that wait for the patch or state of their flush. */
  #held: LayerMessage[] = []
  /** Codec of each room. An edge would name the room of each frame. */
  readonly #msgpack = new Map<string, ReadingCodec>()

  constructor(memberId: string, codec: Subprotocol, sessionId = `ses_of_${memberId}`) {
    this.memberId = memberId
    this.sessionId = sessionId
    this.codec = codec
  }

  /** Takes the outcomes of its messages. */
  takeOutcomes({ ack, outcomes = [], forgotten = 0 }: Acknowledgement): void {
    for (const outcome of outcomes)
      if ('reply' in outcome) this.replies.push(outcome)
      else this.errors.push(outcome)
    this.acked = ack
    this.forgotten = forgotten
  }

  frames(frames: Frames | undefined, room: string): void {
    if (!frames) return
    const msgpack = this.#msgpack.get(room) ?? new ReadingCodec(new MsgpackClientCodec(room))
    this.#msgpack.set(room, msgpack)
    const frame: Frame | undefined = frames[this.codec]
    if (!frame) throw new Error(`${this.memberId} speaks ${this.codec}, which the frames are not for`)
    for (const payload of payloadsOf(frame)) {
      this.received.push(payload)
      this.hear(this.codec === 'roomful.v1.json' ? fromJson(payload) : msgpack.decode(payload))
    }
  }

  /** Takes the end of its seat. */
  ended({ reason, message }: Farewell): void {
    this.members = this.members.filter((member) => member.member_id !== this.memberId)
    this.heard.push(`-${this.memberId} ${reason}${message ? `: ${message}` : ''}`)
  }

  hear(message: ReadMessage | ServerMessage): void {
    switch (message.t) {
      case 'state.snapshot':
      case 'state.resync':
        if (message.t === 'state.resync') this.resyncs++
        this.members = [...message.members]
        this.state = message.state
        this.epoch = message.epoch
        this.seq = message.seq
        this.checksum = message.checksum
        for (const [layer, at] of this.#stated)
          if (at.epoch !== message.epoch || at.seq !== message.seq) this.layers.delete(layer)
        this.#release()
        this.#check()
        break
      case 'state.patch':
        if (message.epoch < this.epoch) break
        this.epoch = message.epoch
        if (message.seq !== this.seq + 1) {
          this.faults.push(`patch ${message.seq} after ${this.seq}`)
          break
        }
        if ('ops' in message) this.state = patched(this.state, message.ops)
        else if (message.delta) this.state = apply(this.state, message.delta)
        this.seq = message.seq
        this.checksum = message.checksum
        this.#release()
        this.#check()
        break
      case 'layer.state':
      case 'layer.patch':
        if (message.epoch >= this.epoch) this.#held.push(message)
        if (message.seq === this.seq && message.t !== 'layer.patch') this.#release()
        break
      case 'event':
        this.#flushed(message)
        this.heard.push(`${message.name} ${JSON.stringify(message.data)}`)
        break
      case 'member':
        this.#flushed(message)
        this.#changed(message)
        break
      case 'spectators':
        this.spectators = message.count
        break
      default:
        throw new Error(`an unexpected ${message.t}`)
    }
  }

  #changed({ member_id: id, sub, status, reason, spectator }: Extract<ServerMessage, { t: 'member' }>): void {
    const connected = status !== 'disconnected'
    const role = spectator ? { spectator } : {}
    if (status === 'joined') {
      this.members.push({ member_id: id, sub, connected, ...role })
      this.heard.push(`+${id}`)
    } else if (status === 'seated' || status === 'unseated') {
      // A spectator that members do not see is in no list.
      const others = this.members.filter((member) => member.member_id !== id)
      const isListed = status === 'seated' || spectator
      this.members = isListed ? [...others, { member_id: id, sub, connected, ...role }] : others
      this.heard.push(`${status} ${id}`)
    } else if (status === 'left') {
      this.members = this.members.filter((member) => member.member_id !== id)
      this.heard.push(`-${id} ${reason}`)
    } else {
      this.members = this.members.map((member) =>
        member.member_id === id ? { ...member, connected } : member,
      )
      this.heard.push(`${connected ? 'back' : 'away'} ${id}`)
    }
  }

  #flushed({ epoch, seq }: { epoch: number; seq: number }): void {
    if (seq > this.seq + 1) this.faults.push(`news of ${seq} after ${this.seq}`)
    if (seq > this.seq) this.seq = seq
    this.epoch = Math.max(this.epoch, epoch)
  }

  /** Applies the layer messages of the current flush. */
  #release(): void {
    const held = this.#held
    this.#held = []
    for (const message of held) {
      const { layer, epoch, seq } = message
      if (seq !== this.seq) this.faults.push(`${message.t} of ${seq} at ${this.seq}`)
      if (message.t === 'layer.state' && message.state === undefined) {
        this.layers.delete(layer)
        continue
      }
      if (message.t === 'layer.state') this.#stated.set(layer, { epoch, seq })
      let state: Json = message.t === 'layer.state' ? message.state! : (this.layers.get(layer) ?? {})
      if (message.t === 'layer.patch') {
        if ('ops' in message) state = patched(state, message.ops)
        else if (message.delta) state = apply(state, message.delta)
      }
      this.layers.set(layer, state)
      const found = new Checksum().of(state)
      if (found !== message.checksum)
        this.faults.push(`checksum ${found} of ${layer} at ${seq}, not ${message.checksum}`)
    }
  }

  #check(): void {
    const found = new Checksum().of(this.state)
    if (found !== this.checksum) this.faults.push(`checksum ${found} at ${this.seq}, not ${this.checksum}`)
  }
}
