import { applyPatch } from 'rfc6902'
import { payloadsOf } from '../../../dataplane/frame.ts'
import type { Acknowledgement, Farewell, RepliedRef, StateFrames } from '../../../dataplane/traffic.ts'
import type { Json } from '../../../shared/json.ts'
import { LayerNumbers, ReadingCodec, type ReadMessage } from '../../../shared/protocol/codec.ts'
import { JsonCodec } from '../../../shared/protocol/json-codec.ts'
import type { MemberInfo, ServerMessage, Subprotocol } from '../../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { apply, type Operation, REMOVE } from '../../../shared/sync/delta.ts'

/** A frame with the state of the room. */
type StateMessage = Extract<ReadMessage | ServerMessage, { checksum: number }>

const CODECS = { 'roomful.v1.json': new JsonCodec(), 'roomful.v1.msgpack': new MsgpackCodec() }

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
  /** Numbers of its layers, as its edge gives them. */
  numbers = new LayerNumbers()
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

  /** Takes frames as its edge sends them. `whole`: the first one is a whole state. */
  frames({ patch, layers, rest }: StateFrames, room: string, whole = false): void {
    const payloads = [patch, rest].flatMap((frames) => {
      const bytes = frames?.[this.codec]
      if (frames && !bytes)
        throw new Error(`${this.memberId} speaks ${this.codec}, which the frames are not for`)
      if (!bytes) return []
      if (frames !== patch || !layers) return payloadsOf(bytes)
      if (whole) this.numbers.restart()
      return [new Uint8Array(Buffer.concat([bytes, CODECS[this.codec].ending(layers, this.numbers)]))]
    })
    const msgpack = this.#msgpack.get(room) ?? new ReadingCodec(new MsgpackClientCodec(room))
    this.#msgpack.set(room, msgpack)
    for (const payload of payloads) {
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
        this.layers.clear()
        this.#check(message)
        break
      case 'state.patch':
        if (message.epoch !== undefined && message.epoch < this.epoch) break
        this.epoch = message.epoch ?? this.epoch
        if (message.seq !== this.seq + 1) {
          this.faults.push(`patch ${message.seq} after ${this.seq}`)
          break
        }
        if ('ops' in message) this.state = patched(this.state, message.ops)
        else if (message.delta) this.state = apply(this.state, message.delta)
        this.seq = message.seq
        this.#check(message)
        break
      case 'event':
        this.heard.push(`${message.name} ${JSON.stringify(message.data)}`)
        break
      case 'member':
        this.#changed(message)
        break
      case 'spectators':
        this.spectators = message.count
        break
      default:
        throw new Error(`an unexpected ${message.t}`)
    }
  }

  #changed({ member_id: id, sub, connected, spectator }: Extract<ServerMessage, { t: 'member' }>): void {
    const known = this.members.find((member) => member.member_id === id)
    const entry = connected !== undefined && {
      member_id: id,
      sub,
      connected,
      ...(spectator && { spectator }),
    }
    if (!entry) this.members = this.members.filter((member) => member !== known)
    else if (known) this.members = this.members.map((member) => (member === known ? entry : member))
    else this.members.push(entry)
    this.heard.push(
      !entry
        ? `-${id}`
        : known?.connected !== false && !connected
          ? `away ${id}`
          : known?.connected === false && connected
            ? `back ${id}`
            : known
              ? `${spectator ? 'watches' : 'plays'} ${id}`
              : `+${id}`,
    )
  }

  /** Takes the layers of a frame, and compares all checksums. */
  #check(message: StateMessage): void {
    this.checksum = message.checksum
    if ('unread' in message) this.faults.push(`patch ${message.seq} cannot be read`)
    const changes = Array.isArray(message.layers)
      ? message.layers.map(({ layer, checksum, change }) => {
          const before = this.layers.get(layer) ?? null
          return { layer, checksum, state: change === REMOVE ? undefined : apply(before, change) }
        })
      : Object.entries(message.layers ?? {}).map(([layer, change]) => {
          const ops = change && 'ops' in change && change.ops
          const state = ops
            ? patched(this.layers.get(layer) ?? null, ops)
            : change && 'state' in change && change.state
          return { layer, checksum: change?.checksum, state: change ? (state as Json) : undefined }
        })
    for (const { layer, checksum, state } of changes)
      if (state === undefined) this.layers.delete(layer)
      else {
        this.layers.set(layer, state)
        this.#compare(`checksum of ${layer}`, state, checksum!)
      }
    this.#compare('checksum', this.state, message.checksum)
  }

  #compare(what: string, state: Json, checksum: number): void {
    const found = new Checksum().of(state)
    if (found !== checksum) this.faults.push(`${what} at ${this.seq}: ${found}, not ${checksum}`)
  }
}
