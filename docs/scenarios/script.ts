import type { Json, JsonObject } from '../../shared/json.ts'
import { type LayerEncoder, LayerNumbers, type LayerPart, type Payload } from '../../shared/protocol/codec.ts'
import type {
  DepartureReason,
  LayerJson,
  Limits,
  MemberInfo,
  PlainMessage,
} from '../../shared/protocol/messages.ts'
import { MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { type Delta, toOperations } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/testing/diff.ts'

/** One step of a scenario; `FORMAT` describes its fields. */
export type Step = { readonly [field: string]: Json }

/** One scenario of docs/protocol-scenarios.json. `start`: name of the steps that precede its steps. */
export interface Scenario {
  readonly name: string
  readonly level: number
  readonly rule: string
  readonly start?: string
  readonly steps: readonly Step[]
}

/** A message of the server in both subprotocols. `room`: room of the message, which its MessagePack frame does not name. */
export interface Frame {
  readonly json: JsonObject
  readonly msgpack: Payload
  readonly room?: string
}

/** Configured address and other hosts of the client. */
export const ADDRESS = 'ws://server.test/'
export const HOSTS = ['node2.test'] as const
export const ARENA = 'arena:lobby'
export const EPOCH = 1_790_000_000_000

const ME: MemberInfo = { member_id: 'mem_me', sub: 'alice', connected: true }
const BOB: MemberInfo = { member_id: 'mem_bob', sub: 'bob', connected: true }
const STATE: JsonObject = {
  n: 1,
  players: { mem_me: { x: 0, y: 0 }, mem_bob: { x: 1.5, y: -2 } },
  log: ['start'],
}

const LIMITS: Limits = {
  max_message_bytes: 1024,
  messages_per_second: 100,
  message_burst: 1000,
  max_rooms: 16,
}

const codec = new MsgpackCodec()
export const checksumOf = (state: Json): number => new Checksum().of(state)

/** Encodes a message outside the state streams. */
export function frame(message: PlainMessage): Frame {
  const { t } = message
  const addressed = t === 'ack' || t === 'reply' || t === 'event' || t === 'member' || t === 'spectators'
  const json = plain(message)
  return { json, msgpack: codec.encode(message), ...(addressed && { room: message.room_id }) }
}

/** A MessagePack value: JSON, bytes, and maps with any keys. */
type Packed = Json | Uint8Array | ReadonlyMap<Packed, Packed> | readonly Packed[]

/** Encodes a frame that no encoder writes. */
export function pack(value: Packed): Payload {
  const to = new MsgpackWriter().begin()
  write(value, to)
  return to.take()
}

function write(value: Packed, to: MsgpackWriter): void {
  if (value instanceof Uint8Array) to.raw(value)
  else if (value instanceof Map) {
    to.map(value.size)
    for (const entry of value) for (const part of entry) write(part, to)
  } else if (Array.isArray(value)) {
    to.array(value.length)
    for (const element of value) write(element as Packed, to)
  } else to.value(value as Json)
}

/** Options of a frame that differs from the room's next flush. */
interface Odd {
  readonly epoch?: number
  readonly seq?: number
  readonly checksum?: number
}

/** States of this client's layers, by name. Null: it no longer has the layer. */
interface LayerStates {
  readonly [name: string]: Json
}

/** Options of a patch. */
interface OddPatch extends Omit<Odd, 'epoch'> {
  /** Undefined: the patch has none. */
  readonly epoch?: number | undefined
  /** Layers that change. */
  readonly layers?: LayerStates | undefined
  /** Layer with another checksum. */
  readonly wrong?: string | undefined
}

/** A room, encoded as by its owner. Each method returns a frame and advances the room. A frame that no step sends is lost. */
export class ScriptRoom {
  readonly id: string
  epoch = EPOCH
  seq = 10
  state: Json = STATE
  members: readonly MemberInfo[] = [ME, BOB]
  #encoder
  /** Epoch of the last patch. */
  #patched: number | undefined
  /** Undefined: the room has no layers. */
  readonly #layers: Map<string, { state: Json; encoder: LayerEncoder | undefined }> | undefined
  #numbers = new LayerNumbers()

  /** `layers`: those of this client, if the room has layers. */
  constructor(id: string = ARENA, state: Json = STATE, layers?: LayerStates) {
    this.id = id
    this.state = state
    this.#encoder = codec.roomEncoder(layers !== undefined)
    this.#layers =
      layers && new Map(Object.entries(layers).map(([name, of]) => [name, { state: of, encoder: undefined }]))
  }

  /** Moves the room to another node: a new owner with a higher epoch. */
  move(): void {
    this.epoch += 1
    this.#encoder = codec.roomEncoder()
  }

  /** The client has another connection: its layers have no numbers. */
  reconnect(): void {
    this.#numbers = new LayerNumbers()
  }

  snapshot(odd: Odd = {}): Frame {
    return this.#whole('state.snapshot', odd)
  }

  resync(odd: Odd = {}): Frame {
    return this.#whole('state.resync', odd)
  }

  #whole(t: 'state.snapshot' | 'state.resync', odd: Odd): Frame {
    const at = { ...this.#at(this.state), ...odd }
    const { state, members } = this
    this.#numbers.restart()
    const layers = Object.fromEntries([...(this.#layers ?? [])].map(([name, of]) => [name, of.state]))
    for (const of of this.#layers?.values() ?? []) of.encoder = undefined
    const payload = this.#encoder.whole(t, { ...at, state }, members)
    return this.#frame({ t, ...at, state, members }, payload, { layers })
  }

  /** Returns the next flush: the state becomes `next`. */
  patch(next: Json = this.state, odd: OddPatch = {}): Frame {
    const delta = diff(this.state, next)
    this.state = next
    return this.change(delta, odd)
  }

  /** Returns the next flush with this delta, which may not fit the state. */
  change(delta: Delta | undefined, { layers, wrong, ...odd }: OddPatch = {}): Frame {
    this.seq += 1
    const { epoch, ...rest } = { ...this.#at(this.state), ...odd }
    const at = { ...(epoch !== undefined && epoch !== this.#patched && { epoch }), ...rest }
    this.#patched = epoch
    const ops = delta ? toOperations(delta) : []
    const payload = this.#encoder.patch(at, delta)
    return this.#frame({ t: 'state.patch', ...at, ops }, payload, { layers, wrong })
  }

  event(name: string, data: Json): Frame {
    return frame({ t: 'event', room_id: this.id, name, data })
  }

  /** The present entry of a member. */
  member(entry: MemberInfo): Frame {
    return frame({ t: 'member', room_id: this.id, ...entry })
  }

  /** A member is no longer in the list. */
  gone({ member_id, sub }: Pick<MemberInfo, 'member_id' | 'sub'>): Frame {
    return frame({ t: 'member', room_id: this.id, member_id, sub })
  }

  /** The seat of this client has ended. */
  out(reason: DepartureReason, message?: string): Frame {
    return frame({ t: 'left', room_id: this.id, reason, ...(message !== undefined && { message }) })
  }

  ack(ref: number): Frame {
    return frame({ t: 'ack', room_id: this.id, ref })
  }

  reply(ref: number, data: Json): Frame {
    return frame({ t: 'reply', room_id: this.id, ref, data })
  }

  #at(state: Json) {
    const { id: room_id, epoch, seq } = this
    return { room_id, epoch, seq, checksum: checksumOf(state) }
  }

  #frame(
    json: object,
    payload: Payload,
    { layers = {}, wrong }: Pick<OddPatch, 'layers' | 'wrong'> = {},
  ): Frame {
    if (!this.#layers) return { json: plain(json), msgpack: payload.slice(), room: this.id }
    const inJson: { [name: string]: LayerJson | null } = {}
    const parts: LayerPart[] = []
    for (const [name, next] of Object.entries(layers)) {
      const [change, msgpack] = this.#layer(name, next, name === wrong)
      inJson[name] = change
      parts.push({ layer: name, change: msgpack && { [codec.subprotocol]: msgpack } })
    }
    const msgpack = Buffer.concat([payload, codec.ending(parts, this.#numbers)])
    return {
      json: plain(parts.length > 0 ? { ...json, layers: inJson } : json),
      msgpack: new Uint8Array(msgpack),
      room: this.id,
    }
  }

  /** Changes a layer. Returns its part of a frame in both subprotocols: whole if the client did not have the layer. */
  #layer(name: string, next: Json, isWrong: boolean): readonly [LayerJson | null, Payload | null] {
    const known = this.#layers!.get(name)
    if (next === null) {
      this.#layers!.delete(name)
      return [null, null]
    }
    const encoder = known?.encoder ?? codec.layerEncoder()
    this.#layers!.set(name, { state: next, encoder })
    const checksum = isWrong ? 1 : checksumOf(next)
    const delta = known?.encoder && diff(known.state, next)
    return delta
      ? [{ ops: toOperations(delta), checksum }, encoder.patch(checksum, delta)]
      : [{ state: next, checksum }, encoder.state({ state: next, checksum })]
  }
}

/** Returns an object as it is in JSON. */
const plain = (object: object): JsonObject => JSON.parse(JSON.stringify(object))

const isFrame = (message: PlainMessage | Frame): message is Frame => 'json' in message

/** Builds the steps of one scenario. */
export class Script {
  readonly steps: Step[] = []
  /** Number of the latest socket. */
  #socket = 0
  #welcomes = 0
  readonly #rooms = new Map<number, string>()

  /** The application calls the client. */
  do(call: string, options: JsonObject = {}): this {
    return this.#add({ do: call, ...options })
  }

  /** The application sends a message. `ref` false: an unreliable one. */
  send(as: string, data: Json = {}, options: JsonObject = {}): this {
    return this.do('send', { as, room_id: ARENA, type: 'move', data, ref: true, ...options })
  }

  /** The client opens its next socket. */
  open(options: { readonly url?: string; readonly refuse?: true } = {}): this {
    this.#socket += 1
    return this.#add({ open: this.#socket, ...options })
  }

  /** The client's next message has these fields. Null: there is none. */
  client(message: JsonObject | null, on?: number): this {
    return this.#add({ client: message, ...(on !== undefined && { on }) })
  }

  server(message: PlainMessage | Frame, on: number = this.#socket): this {
    const { json, msgpack, room } = isFrame(message) ? message : frame(message)
    const frames = [msgpack]
    if (room !== undefined && this.#rooms.get(on) !== room) frames.unshift(codec.address(room))
    if (room !== undefined) this.#rooms.set(on, room)
    return this.#add({ server: json, msgpack: frames.map(hex), ...(on !== this.#socket && { on }) })
  }

  /** The server sends frames that only MessagePack has. */
  raw(...frames: readonly Payload[]): this {
    return this.#add({ msgpack: frames.map(hex) })
  }

  /** The client has sent at most `count` more messages, which are passed over. */
  atMost(count: number): this {
    return this.#add({ at_most: count })
  }

  /** The client, whose next socket is open, leaves the one before. */
  changeOver(): this {
    const before = this.#socket - 1
    return this.client({ t: 'move' }, before).server({ t: 'moved' }, before)
  }

  close(code: number, on?: number): this {
    return this.#add({ close: code, ...(on !== undefined && { on }) })
  }

  closed(socket: number): this {
    return this.#add({ closed: socket })
  }

  wait(ms: number): this {
    return this.#add({ wait_ms: ms })
  }

  expect(what: JsonObject): this {
    return this.#add({ expect: what })
  }

  /** Returns members as the application sees them. */
  expectMembers(...members: readonly MemberInfo[]): this {
    return this.expect({ members: members.map((member) => ({ ...member })) })
  }

  /** Returns an `error` of the server. */
  error(
    code: string,
    about: { request_id?: number; room_id?: string; ref?: number },
    retryable = false,
  ): this {
    return this.server({ t: 'error', code, message: 'for people', retryable, ...about } as PlainMessage)
  }

  /** Returns a `welcome` for a new or resumed session. */
  welcome({ resumed = false, limits = {} as Partial<Limits> } = {}): this {
    this.#welcomes += 1
    return this.server({
      t: 'welcome',
      session_id: 'ses_1',
      resume_token: `resume-${this.#welcomes}`,
      resumed,
      resume_ttl_seconds: 60,
      heartbeat_seconds: 10,
      node_id: 'node-1',
      server_time: '2026-10-01T12:00:00.000Z',
      limits: { ...LIMITS, ...limits },
    })
  }

  /** The client connects and gets a session. */
  online(welcome: Parameters<Script['welcome']>[0] = {}): this {
    return this.do('connect')
      .open({ url: ADDRESS })
      .client({ t: 'hello', project_id: 'prj_1', token: 'token-1' })
      .welcome(welcome)
  }

  /** The client joins a room with the request `request`. */
  join(room: ScriptRoom, request = 1): this {
    const [room_type, key] = room.id.split(':') as [string, string]
    this.do('join', { as: room.id, room_type, options: { key } })
    this.client({ t: 'join', request_id: request, room_type, options: { key } })
    this.server({ t: 'joined', request_id: request, room_id: room.id, member_id: ME.member_id })
    return this.server(room.snapshot())
  }

  /** The connection is lost with `code`. The client opens another one and sends a hello with these fields of `resume`. */
  lose(code: number, resume: JsonObject = {}): this {
    return this.close(code).open({ url: ADDRESS }).client({ t: 'hello', project_id: 'prj_1', resume })
  }

  #add(step: { readonly [field: string]: Json | undefined }): this {
    this.steps.push(JSON.parse(JSON.stringify(step)) as Step)
    return this
  }
}

const hex = (bytes: Payload): string => Buffer.from(bytes).toString('hex')

/** Returns the position of a room in a `hello`. */
export const at = (
  { id: room_id, epoch, seq }: ScriptRoom,
  settled = 0,
  member_id = ME.member_id,
): JsonObject => ({
  room_id,
  member_id,
  epoch,
  seq,
  settled,
})

/** Starts that several scenarios share. */
export const STARTS = {
  online: () => ({ script: new Script().online(), room: new ScriptRoom() }),
  in_room: () => {
    const room = new ScriptRoom()
    return { script: new Script().online().join(room), room }
  },
  in_hidden_room: () => {
    const room = new ScriptRoom(ARENA, { turn: 1, hands: {} }, { mine: { hands: { mem_me: [7, 8] } } })
    return { script: new Script().online().join(room), room }
  },
} as const

type Write = (script: Script, room: ScriptRoom) => void
/** Scenarios of one level. */
export class Level {
  readonly scenarios: Scenario[] = []
  readonly #level: number
  readonly #start: keyof typeof STARTS

  constructor(level: number, start: keyof typeof STARTS = 'in_room') {
    this.#level = level
    this.#start = start
  }

  /** Adds a scenario with the level's usual start, or with another one. */
  add(
    rule: string,
    name: string,
    write: Write,
    { start = this.#start }: { start?: keyof typeof STARTS } = {},
  ): void {
    const { script, room } = STARTS[start]()
    const before = script.steps.length
    write(script, room)
    this.#push(rule, name, script.steps.slice(before), { start })
  }

  /** Adds a scenario without a start. */
  first(rule: string, name: string, write: (script: Script) => void): void {
    const script = new Script()
    write(script)
    this.#push(rule, name, script.steps, {})
  }

  #push(rule: string, name: string, steps: readonly Step[], more: Partial<Scenario>): void {
    this.scenarios.push({ name, level: this.#level, rule, ...more, steps })
  }
}

export { BOB, ME, STATE }
