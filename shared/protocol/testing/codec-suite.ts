import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { edit, edited, json } from '../../../test/support/json-arbitrary.ts'
import type { Json } from '../../json.ts'
import { Checksum } from '../../sync/checksum.ts'
import { apply } from '../../sync/delta.ts'
import { diff } from '../../sync/testing/diff.ts'
import {
  type ClientCodec,
  type Codec,
  type LayerEncoder,
  LayerNumbers,
  newTables,
  type Payload,
  ReadingCodec,
} from '../codec.ts'
import { InvalidMessage, ProtocolError } from '../error-codes.ts'
import { JsonCodec } from '../json-codec.ts'
import type { ClientMessage, PlainMessage } from '../messages.ts'
import { MsgpackCodec } from '../msgpack-codec.ts'
import { vectors } from './vectors.ts'

/** One subprotocol, with a way to write frames that no correct client sends: a message with any fields. */
export interface Subject {
  codec(): Codec
  client(): ClientCodec
  raw(fields: Record<string, unknown>): Payload
  /** A message of the server that this version does not know. */
  readonly later: Payload
}

const AT = { room_id: 'arena:lobby', epoch: 1_795_181_400_123, seq: 70_000, checksum: 0xfedcba98 }
const MEMBERS = [
  { member_id: 'mem_a', sub: 'anna', connected: true },
  { member_id: 'mem_b', sub: null, connected: false },
]

const messagesFrom = (side: 'client' | 'server') =>
  vectors.messages.filter(({ from }) => from === side).map(({ json }) => json as unknown)
const SERVER_MESSAGES = messagesFrom('server') as PlainMessage[]
/** Messages that the vectors do not contain. */
const MORE: ClientMessage[] = [
  { t: 'hello', project_id: 'prj_1', resume: { session_id: 'ses_1', resume_token: 'secret', rooms: [] } },
  { t: 'leave', request_id: Number.MAX_SAFE_INTEGER, room_id: 'arena:lobby' },
  { t: 'message', room_id: 'arena:lobby', type: 'wave', data: null, settled: 3 },
]
const CLIENT_MESSAGES = [...(messagesFrom('client') as ClientMessage[]), ...MORE]

const JOIN = { t: 'join', request_id: 7, room_type: 'arena', options: { key: 'lobby' } }
const MESSAGE = { t: 'message', room_id: 'arena:lobby', type: 'move', data: {}, ref: 7, settled: 6 }
const RESUME = { session_id: 'ses_1', resume_token: 'secret', rooms: [] as unknown }
const HELLO = { t: 'hello', project_id: 'prj_1', resume: RESUME }
/** Wrong fields, the field that the error must name, and the ref or request id that it must repeat. */
const WRONG: [fields: Record<string, unknown>, named: RegExp, answers?: number][] = [
  [{ ...JOIN, request_id: 0 }, /^request_id is 0; it must be an integer from 1/],
  [{ ...JOIN, request_id: 1.5 }, /^request_id is 1.5/],
  [{ ...JOIN, request_id: '7' }, /^request_id is a string of 1 characters/],
  [{ ...JOIN, room_type: '' }, /^room_type is an empty string/, 7],
  [{ ...JOIN, room_type: 'x'.repeat(65) }, /^room_type is a string of 65 characters; .* 1 to 64/, 7],
  [{ ...JOIN, options: [] }, /^options is an array; it must be an object/, 7],
  [{ ...JOIN, options: { key: '' } }, /^options.key is an empty string/, 7],
  [{ ...JOIN, options: { key: 5 } }, /^options.key is 5/, 7],
  [{ ...JOIN, options: { key: 'x'.repeat(129) } }, /^options.key .* 1 to 128/, 7],
  [{ ...MESSAGE, room_id: null }, /^room_id is null/, 7],
  [{ ...MESSAGE, type: true }, /^type is true/, 7],
  [{ ...MESSAGE, type: 'x'.repeat(65) }, /^type /, 7],
  [{ ...MESSAGE, ref: -1 }, /^ref is -1/],
  [
    { ...MESSAGE, settled: undefined },
    /^settled is missing; it must be an integer from 0 .* where there is a ref/,
    7,
  ],
  [{ ...MESSAGE, settled: -1 }, /^settled is -1; it must be an integer from 0/, 7],
  [{ t: 'leave', request_id: 7, room_id: {} }, /^room_id is an object/, 7],
  [{ t: 'state.resync', room_id: 'a:b', reason: 'boredom' }, /^reason .* "sequence" or "checksum"/],
  [{ t: 'ping', at: 'now' }, /^at is a string/],
  [{ t: 'token', token: '' }, /^token is an empty string/],
  [{ t: 'hello', project_id: 'prj_1' }, /neither token nor resume/],
  [{ t: 'hello', project_id: 5, token: 'x' }, /^project_id is 5/],
  [{ ...HELLO, features: 'reroute' }, /^features is a string/],
  [{ ...HELLO, features: [''] }, /^features\[0\] is an empty string/],
  [{ ...HELLO, features: Array.from({ length: 33 }, () => 'x') }, /^features .* at most 32/],
  [{ ...HELLO, resume: { ...RESUME, session_id: null } }, /^resume.session_id is null/],
  [{ ...HELLO, resume: { ...RESUME, rooms: 5 } }, /^resume.rooms is 5/],
  [{ ...HELLO, resume: { ...RESUME, rooms: [5] } }, /^resume.rooms\[0\] is 5/],
  [
    { ...HELLO, resume: { ...RESUME, rooms: [{ room_id: 'a:b', member_id: 'mem_a', epoch: -1, seq: 0 }] } },
    /^resume.rooms\[0\].epoch is -1/,
  ],
  [
    {
      ...HELLO,
      resume: { ...RESUME, rooms: [{ room_id: 'a:b', member_id: 'mem_a', epoch: 1, seq: 0, settled: 1.5 }] },
    },
    /^resume.rooms\[0\].settled is 1.5/,
  ],
]

const nested = (levels: number): Json => {
  let value: Json = 1
  for (let i = 0; i < levels; i++) value = i % 2 ? { a: value } : [value]
  return value
}

/** False for a double that JSON writes as an integer above 2^53, which is invalid in messages of clients. */
const isSendable = (data: Json): boolean =>
  typeof data === 'number'
    ? !Number.isInteger(data) || Number.isSafeInteger(data) || Math.abs(data) >= 1e21
    : typeof data !== 'object' || data === null || Object.values(data).every(isSendable)

/** Tests of every subprotocol. */
export function codecSuite(name: string, { codec, client, raw, later }: Subject): void {
  describe(`${name}: messages of clients`, () => {
    test('isUnreliable recognizes a message without ref', () => {
      const [server, sender] = [codec(), client()]
      const unreliable = CLIENT_MESSAGES.filter((message) => server.isUnreliable(sender.encode(message)))
      expect(unreliable).toContainEqual({ t: 'message', room_id: 'arena:lobby', type: 'wave', data: null })
      for (const message of unreliable) expect([message.t, 'ref' in message]).toEqual(['message', false])
    })

    test.each(MORE)('$t is decoded as it was sent: %j', (message) => {
      expect(codec().decode(client().encode(message))).toEqual(message)
    })

    test('a join without a key, or without options, is for the default instance', () => {
      const joined = { ...JOIN, options: { key: 'default' } }
      expect(codec().decode(raw({ ...JOIN, options: {} }))).toEqual(joined)
      expect(codec().decode(raw({ ...JOIN, options: undefined }))).toEqual(joined)
    })

    test('a list that was encoded for another request has the bytes of the whole message', () => {
      const row = { room_id: 'arena:é', players: 1, reserved: 0, created_at: '2026-01-01T00:00:00.000Z' }
      const rows = [
        { ...row, data: { map: 'desert', level: 1.5 } },
        { ...row, max_players: 4, data: null },
      ]
      const lists = [{ rooms: [] }, { rooms: rows }, { gone: [2], set: rows, at: [0, 1] }]
      const server = codec()
      const encoded = (list: (typeof lists)[number], id: number) =>
        Buffer.from(server.encode({ t: 'rooms', request_id: id, ...list }))
      for (const list of lists)
        for (const id of [1, 200, 70_000, 2 ** 40])
          expect(Buffer.from(server.listFor(id, encoded(list, 1)))).toEqual(encoded(list, id))
    })

    test('any JSON value is unchanged as data', () => {
      fc.assert(
        fc.property(json().filter(isSendable), (data) => {
          const message: ClientMessage = { t: 'message', room_id: 'a:b', type: 'x', data, ref: 1, settled: 0 }
          expect(codec().decode(client().encode(message))).toEqual(message)
        }),
        { numRuns: 500 },
      )
    })

    test.each(WRONG)('%j is refused, and the error names the field', (fields, named, answers) => {
      const refusal = refusalOf(() => codec().decode(raw(fields)))
      expect(refusal).toBeInstanceOf(InvalidMessage)
      expect(refusal.message).toMatch(named)
      const { ref, request_id: requestId } = refusal as InvalidMessage
      expect(ref ?? requestId).toBe(answers)
    })

    test('a message may have 64 levels, and no more', () => {
      const deep = (levels: number) => raw({ ...MESSAGE, data: nested(levels) })
      expect(codec().decode(deep(64))).toMatchObject({ data: nested(64) })
      expect(refusalOf(() => codec().decode(deep(65)))).toMatchObject({ name: 'InvalidMessage', ref: 7 })
    })

    test('the key __proto__ is refused everywhere, and changes no prototype', () => {
      const data = JSON.parse('{"a":{"__proto__":{"polluted":true}}}')
      const refusal = refusalOf(() => codec().decode(raw({ ...MESSAGE, data })))
      expect(refusal).toBeInstanceOf(InvalidMessage)
      expect(refusal.message).toMatch(/^data: .*__proto__/)
      expect(({} as Record<string, unknown>).polluted).toBeUndefined()
    })

    test('keys that objects inherit are ordinary keys', () => {
      const data = { constructor: 1, toString: { valueOf: 2 }, hasOwnProperty: null }
      expect(codec().decode(raw({ ...MESSAGE, data }))).toMatchObject({ data })
    })

    test('random bytes give only a message, an InvalidMessage or a ProtocolError', () => {
      const subject = codec()
      const proper = CLIENT_MESSAGES.map((message) => client().encode(message))
      fc.assert(
        fc.property(fc.oneof(fc.uint8Array({ maxLength: 64 }), damaged(proper)), (bytes) => {
          try {
            expect(typeof subject.decode(bytes).t).toBe('string')
          } catch (error) {
            if (!(error instanceof ProtocolError || error instanceof InvalidMessage)) throw error
          }
        }),
        { numRuns: 2_000 },
      )
    })
  })

  describe(`${name}: messages of the server`, () => {
    /** Returns a client that has received a room frame. */
    const inRoom = () => {
      const member = client()
      const address = codec().address(AT.room_id)
      if (address) expect(member.decode(address)).toEqual({ t: 'room', room_id: AT.room_id })
      return member
    }

    test('a message of a later version is unknown, and the messages after it are read', () => {
      const member = inRoom()
      const known = new Set<string>(SERVER_MESSAGES.map(({ t }) => t))
      expect(known).not.toContain(member.decode(later).t)
      const [message] = SERVER_MESSAGES
      expect(member.decode(codec().encode(message!))).toEqual(message)
    })

    test('a returned frame is not changed later', () => {
      const subject = codec()
      const room = subject.roomEncoder()
      const frames = SERVER_MESSAGES.map((message) => subject.encode(message))
      frames.push(room.patch({ ...AT, seq: 1 }, diff({ a: 1 }, { a: 2 })))
      const copies = frames.map((bytes) => bytes.slice())
      for (const message of [...SERVER_MESSAGES].reverse()) subject.encode(message)
      room.patch({ ...AT, seq: 2 }, diff({ a: 2 }, { a: 'x'.repeat(1000) }))
      expect(frames).toEqual(copies)
    })

    test('a client that applies every patch has the state of the room, whenever it joined', () => {
      fc.assert(
        fc.property(json(), fc.array(fc.tuple(edit(), fc.nat(9)), { maxLength: 12 }), (first, edits) => {
          const room = codec().roomEncoder()
          const sums = new Checksum()
          const early = follower(inRoom())
          const late = follower(inRoom())
          let state = first
          let at = { ...AT, seq: 0, checksum: sums.of(state) }
          early.take(room.whole('state.snapshot', { ...at, state }, MEMBERS))
          for (const [change, chance] of edits) {
            const next = edited(state, change)
            const delta = diff(state, next)
            if (delta) at = { ...at, checksum: sums.after(state, next, delta) }
            at = { ...at, seq: at.seq + 1 }
            state = next
            const frame = chance === 0 ? room.replay(at, delta) : room.patch(at, delta)
            early.take(frame)
            if (late.seq >= 0) late.take(frame)
            if (chance === 1 || late.seq < 0) late.take(room.whole('state.resync', { ...at, state }, MEMBERS))
            for (const one of [early, late]) expect([one.seq, one.state]).toEqual([at.seq, state])
          }
        }),
        { numRuns: 400 },
      )
    })

    test('a large unchanged state is encoded once, for any number of requests', () => {
      const room = codec().roomEncoder()
      const state = { text: 'a'.repeat(20_000) }
      let encoded = 0
      const counted = (): Json =>
        new Proxy(state, {
          ownKeys: (whole) => {
            encoded += 1
            return Reflect.ownKeys(whole)
          },
        })
      const first = counted()
      const at = (seq: number) => ({ ...AT, seq })
      const decoded = (bytes: Uint8Array) => new ReadingCodec(inRoom()).decode(bytes)
      expect(decoded(room.whole('state.snapshot', { ...at(1), state: first }, MEMBERS))).toMatchObject({
        ...at(1),
        state,
      })
      room.patch(at(2), undefined)
      expect(decoded(room.whole('state.snapshot', { ...at(2), state: first }, MEMBERS))).toMatchObject({
        ...at(2),
        state,
      })
      const resync = decoded(room.whole('state.resync', { ...at(2), state: first }, MEMBERS))
      expect(resync).toEqual({ t: 'state.resync', ...at(2), state, members: MEMBERS, layers: [] })
      expect(encoded).toBe(1)
      room.patch(at(3), diff({ text: 'b' }, { text: 'a' }))
      expect(decoded(room.whole('state.snapshot', { ...at(3), state: counted() }, MEMBERS))).toMatchObject({
        ...at(3),
        state,
      })
      expect(encoded).toBe(2)
    })

    test('a client that reads only the patches that it applies has the state again after a resync, whatever was lost', () => {
      const step = fc.record({
        change: edit(),
        fate: fc.constantFrom('taken', 'lost', 'late'),
        resync: fc.nat(3),
      })
      fc.assert(
        fc.property(json(), fc.array(step, { maxLength: 16 }), (first, steps) => {
          const room = codec().roomEncoder()
          const member = follower(inRoom())
          const late: Payload[] = []
          let state = first
          let seq = 1
          member.take(room.whole('state.snapshot', { ...AT, seq, state }, MEMBERS))
          for (const { change, fate, resync } of steps) {
            const next = edited(state, change)
            seq += 1
            const frame = room.patch({ ...AT, seq }, diff(state, next))
            state = next
            if (fate === 'taken') member.take(frame)
            else if (fate === 'late') late.push(frame)
            if (resync > 0) continue
            member.take(room.whole('state.resync', { ...AT, seq, state }, MEMBERS))
            for (const old of late.splice(0)) member.take(old)
            expect([member.seq, member.state]).toEqual([seq, state])
          }
          if (member.seq === seq) expect(member.state).toEqual(state)
        }),
        { numRuns: 400 },
      )
    })

    test('frames belong to the room of the last room frame', () => {
      const subject = codec()
      const member = client()
      const reading = new ReadingCodec(member)
      const rooms = ['arena:one', 'arena:two'].map((roomId) => ({ roomId, encoder: subject.roomEncoder() }))
      for (const { roomId, encoder } of [...rooms, ...rooms]) {
        const address = subject.address(roomId)
        if (address) member.decode(address)
        const at = { ...AT, room_id: roomId }
        expect(
          reading.decode(encoder.whole('state.snapshot', { ...at, state: roomId }, MEMBERS)),
        ).toMatchObject({
          room_id: roomId,
          state: roomId,
        })
        expect(member.decode(subject.encode({ t: 'ack', room_id: roomId, ref: 3 }))).toEqual({
          t: 'ack',
          room_id: roomId,
          ref: 3,
        })
      }
    })

    test('a patch has its epoch, or omits it', () => {
      const { epoch, ...at } = AT
      const delta = diff({ a: 1 }, { a: 2 })
      for (const change of [delta, undefined]) {
        const room = codec().roomEncoder()
        expect(inRoom().decode(room.patch({ ...at, epoch }, change))).toMatchObject(AT)
        const omits = inRoom().decode(room.patch(at, change))
        expect(omits).toMatchObject(at)
        expect('epoch' in omits).toBe(false)
      }
    })

    test('a new owner continues under a higher epoch with a new encoder', () => {
      const member = follower(inRoom())
      const [before, after] = [codec().roomEncoder(), codec().roomEncoder()]
      member.take(before.whole('state.snapshot', { ...AT, seq: 1, state: { a: { x: 1 }, b: 0 } }, MEMBERS))
      const step = (room: typeof before, epoch: number, seq: number, next: Json, replay = false) => {
        const at = { ...AT, epoch, seq, checksum: 0 }
        const delta = diff(member.state, next)
        member.take(replay ? room.replay(at, delta) : room.patch(at, delta))
        expect(member.state).toEqual(next)
      }
      step(before, AT.epoch, 2, { a: { x: 2 }, b: 1 })
      const late = before.patch({ ...AT, seq: 3 }, diff(member.state, { lost: 1 }))
      // First updates that the old owner committed but did not send, then those of the new owner.
      step(after, AT.epoch + 1, 3, { a: { x: 3 }, b: 1 }, true)
      step(after, AT.epoch + 1, 4, { a: { x: 3 }, b: 2 })
      member.take(late)
      step(after, AT.epoch + 1, 5, { a: { x: 4, y: 0 }, b: 3 })
    })

    test('damaged frames give only a message or a ProtocolError', () => {
      const room = codec().roomEncoder()
      const state = { players: { anna: { hp: 3 } }, log: [1, { a: 2 }] }
      const proper = [
        room.patch({ ...AT, seq: 1 }, diff({ players: {}, log: [1, { a: 1 }] }, state)),
        room.whole('state.snapshot', { ...AT, seq: 1, state }, MEMBERS),
        room.whole('state.resync', { ...AT, seq: 1, state }, MEMBERS),
        room.patch({ ...AT, seq: 2 }, diff(state, { ...state, log: [{ a: 2 }, null] })),
        Buffer.concat([
          codec()
            .roomEncoder(true)
            .patch({ ...AT, seq: 1 }, undefined),
          codec().ending(
            [
              { layer: 'deck', change: inEvery((layer) => layer.patch(1, diff({}, state)!)) },
              { layer: 'hand', change: inEvery((layer) => layer.state({ state, checksum: 1 })) },
              { layer: 'gone', change: null },
            ],
            new LayerNumbers(),
          ),
        ]),
        ...SERVER_MESSAGES.map((message) => codec().encode(message)),
      ]
      const subject = inRoom()
      fc.assert(
        fc.property(damaged(proper), (bytes) => {
          try {
            expect(typeof new ReadingCodec(subject).decode(bytes).t).toBe('string')
          } catch (error) {
            if (!(error instanceof ProtocolError)) throw error
          }
        }),
        { numRuns: 1_000 },
      )
    })

    test('invalid bytes are a ProtocolError', () => {
      for (const bytes of [[], [0xc1], [0x7b], [0x91, 0xa1, 0x63], [0x22, 0x61, 0x22]])
        expect(refusalOf(() => inRoom().decode(Uint8Array.from(bytes)))).toBeInstanceOf(ProtocolError)
    })
  })
}

/** Returns what an encoder of a layer writes, in the subprotocol of any codec. */
const inEvery = (write: (layer: LayerEncoder) => Payload) => ({
  'roomful.v1.json': write(new JsonCodec().layerEncoder()),
  'roomful.v1.msgpack': write(new MsgpackCodec().layerEncoder()),
})

/** Minimal client: it replaces its state with complete states, applies the next patch, and reads no other. */
function follower(codec: ClientCodec) {
  return {
    state: null as Json,
    epoch: 0,
    seq: -1,
    tables: newTables(),
    take(payload: Payload) {
      const message = codec.decode(payload)
      if (message.t !== 'state.patch' && message.t !== 'state.snapshot' && message.t !== 'state.resync')
        return
      const { epoch = this.epoch } = message
      if (epoch < this.epoch) return
      if (message.t !== 'state.patch') {
        this.tables = newTables()
        this.state = message.read(this.tables).state
      } else if (message.seq !== this.seq + 1) return
      else {
        const { delta } = message.read(this.tables)
        if (delta) this.state = apply(this.state, delta)
      }
      this.epoch = epoch
      this.seq = message.seq
    },
  }
}

function refusalOf(run: () => unknown): Error {
  try {
    run()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was refused')
}

/** Frames with up to four changed bytes, the last of them with up to three bytes missing. */
const damaged = (frames: readonly Payload[]): fc.Arbitrary<Uint8Array> =>
  fc
    .tuple(
      fc.constantFrom(...frames),
      fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { maxLength: 4 }),
      fc.nat(3),
    )
    .map(([bytes, changes, cut]) => {
      const copy = Uint8Array.from(bytes.subarray(0, bytes.length - cut))
      for (const [at, value] of changes) if (copy.length > 0) copy[at % copy.length] = value
      return copy
    })
