import { applyPatch } from 'rfc6902'
import { type Frame, payloadsOf } from '../../../dataplane/frame.ts'
import type { Frames } from '../../../dataplane/traffic.ts'
import type { Json } from '../../../shared/json.ts'
import type { DecodedMessage } from '../../../shared/protocol/codec.ts'
import type { MemberInfo, ServerMessage, Subprotocol } from '../../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../../shared/protocol/msgpack-client-codec.ts'
import { apply } from '../../../shared/sync/apply.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import type { Operation } from '../../../shared/sync/operations.ts'

const fromJson = (payload: Uint8Array): ServerMessage => JSON.parse(new TextDecoder().decode(payload))

/** What somebody else's JSON Patch makes of a state. */
function patched(state: Json, ops: readonly Operation[]): Json {
  const document = { state: structuredClone(state) }
  const problems = applyPatch(
    document,
    ops.map((op) => ({ ...op, path: `/state${op.path}` })),
  ).filter((problem) => problem !== null)
  if (problems.length > 0) throw problems[0]
  return document.state
}

/** A client in one room, as the protocol tells clients to behave: what it holds comes from frames alone. */
export class TestMember {
  readonly memberId: string
  readonly sessionId: string
  readonly codec: Subprotocol
  attached = true
  inRoom = false
  /** The room it is, or was last, in. */
  room = ''
  state: Json = null
  epoch = 0
  seq = 0
  checksum = 0
  members: MemberInfo[] = []
  acked = 0
  /** Everything that was told besides states, in order. */
  readonly heard: string[] = []
  readonly errors: { code: string; message: string; ref?: number | undefined }[] = []
  /** What would have made the client ask for a resync. */
  readonly faults: string[] = []
  resyncs = 0
  readonly #msgpack = new MsgpackClientCodec()

  constructor(memberId: string, codec: Subprotocol) {
    this.memberId = memberId
    this.sessionId = `ses_of_${memberId}`
    this.codec = codec
  }

  frames(frames: Frames | undefined): void {
    if (!frames) return
    const frame: Frame | undefined = frames[this.codec]
    if (!frame) throw new Error(`${this.memberId} speaks ${this.codec}, which the frames are not for`)
    for (const payload of payloadsOf(frame))
      this.hear(this.codec === 'roomful.v1.json' ? fromJson(payload) : this.#msgpack.decode(payload))
  }

  hear(message: DecodedMessage | ServerMessage): void {
    switch (message.t) {
      case 'state.snapshot':
      case 'state.resync':
        if (message.t === 'state.resync') {
          this.resyncs++
          this.members = [...message.members]
        }
        this.state = message.state
        this.epoch = message.epoch
        this.seq = message.seq
        this.checksum = message.checksum
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
        this.#check()
        break
      case 'event':
        this.#flushed(message)
        this.heard.push(`${message.name} ${JSON.stringify(message.data)}`)
        break
      case 'room.joined':
        this.#flushed(message)
        this.members.push({ member_id: message.member_id, sub: message.sub })
        this.heard.push(`+${message.member_id}`)
        break
      case 'room.left':
        this.#flushed(message)
        this.members = this.members.filter(({ member_id: memberId }) => memberId !== message.member_id)
        this.heard.push(`-${message.member_id} ${message.reason}`)
        break
      default:
        throw new Error(`an unexpected ${message.t}`)
    }
  }

  #flushed({ epoch, seq }: { epoch: number; seq: number }): void {
    if (seq > this.seq + 1) this.faults.push(`news of ${seq} after ${this.seq}`)
    if (seq > this.seq) this.seq = seq
    this.epoch = Math.max(this.epoch, epoch)
  }

  #check(): void {
    const found = new Checksum().of(this.state)
    if (found !== this.checksum) this.faults.push(`checksum ${found} at ${this.seq}, not ${this.checksum}`)
  }
}
