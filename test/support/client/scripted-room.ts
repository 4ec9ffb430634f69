import type { Json } from '../../../shared/json.ts'
import type { Payload, RoomEncoder } from '../../../shared/protocol/codec.ts'
import type { MemberInfo } from '../../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { diff } from '../../../shared/sync/diff.ts'

/** A room as its owner encodes it, one frame at a time and in any order a test likes. */
export class ScriptedRoom {
  readonly roomId: string
  epoch = 1000
  seq = 7
  state: Json
  members: MemberInfo[] = [{ member_id: 'mem_bob', sub: 'bob' }]
  readonly #codec = new MsgpackCodec()
  readonly #encoder: RoomEncoder = this.#codec.roomEncoder()

  constructor(roomId: string, state: Json) {
    this.roomId = roomId
    this.state = state
  }

  /** The next flush: the state becomes `next`. */
  patch(next: Json): Payload {
    const delta = diff(this.state, next)
    this.state = next
    this.seq += 1
    return this.#encoder.patch(this.#at(), delta)
  }

  /** The next flush, whose checksum is another than that of the state. */
  wrongPatch(next: Json): Payload {
    const delta = diff(this.state, next)
    this.state = next
    this.seq += 1
    return this.#encoder.patch({ ...this.#at(), checksum: this.#at().checksum ^ 1 }, delta)
  }

  snapshot(): Payload {
    return this.#encoder.snapshot({ ...this.#at(), state: this.state })
  }

  resync(): Payload {
    return this.#encoder.resync({ ...this.#at(), state: this.state }, this.members)
  }

  wrongResync(): Payload {
    return this.#encoder.resync({ ...this.#at(), checksum: 1, state: this.state }, this.members)
  }

  /** An event of the flush `seq`, by default the last one. */
  event(name: string, data: Json, seq = this.seq): Payload {
    return this.#codec.encode({ t: 'event', room_id: this.roomId, epoch: this.epoch, seq, name, data })
  }

  /** An event that is a flush of its own. */
  eventFlush(name: string, data: Json): Payload {
    this.seq += 1
    return this.event(name, data)
  }

  came(memberId: string, sub: string | null, seq = this.seq): Payload {
    this.members = [...this.members, { member_id: memberId, sub }]
    return this.#codec.encode({
      t: 'room.joined',
      room_id: this.roomId,
      epoch: this.epoch,
      seq,
      member_id: memberId,
      sub,
    })
  }

  went(memberId: string, reason: 'left' | 'kicked' | 'closed' = 'left', seq = this.seq): Payload {
    this.members = this.members.filter((member) => member.member_id !== memberId)
    const { roomId, epoch } = this
    return this.#codec.encode({
      t: 'room.left',
      room_id: roomId,
      epoch,
      seq,
      member_id: memberId,
      sub: null,
      reason,
    })
  }

  #at() {
    const { roomId, epoch, seq } = this
    return { room_id: roomId, epoch, seq, checksum: new Checksum().of(this.state) }
  }
}
