import { deepStrictEqual } from 'node:assert/strict'
import { decode, encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { json } from '../../test/support/json-arbitrary.ts'
import type { Json } from '../json.ts'
import { apply } from '../sync/delta.ts'
import { diff } from '../sync/testing/diff.ts'
import { ReadingCodec } from './codec.ts'
import { ProtocolError } from './error-codes.ts'
import { MsgpackReader, MsgpackWriter } from './msgpack.ts'
import { MsgpackClientCodec } from './msgpack-client-codec.ts'
import { MsgpackCodec } from './msgpack-codec.ts'
import { parsePositional } from './schema.ts'
import { codecSuite } from './testing/codec-suite.ts'
import { decimals } from './testing/decimals.ts'

/** Fields of each client message in their order, written a second time. */
const ORDER: Record<string, [opcode: number, ...fields: string[]]> = {
  hello: [0, 'project_id', 'token', 'features'],
  join: [1, 'request_id', 'room_type', 'options', 'rejoin'],
  leave: [2, 'request_id', 'room_id'],
  message: [3, 'room_id', 'type', 'data', 'ref', 'settled'],
  'state.resync': [4, 'room_id', 'reason'],
  ping: [5, 'at'],
  token: [6, 'token'],
}

/** Encodes with another library, so that encoder and decoder cannot share an error. */
function raw(fields: Record<string, unknown>): Uint8Array {
  const [opcode, ...names] = ORDER[fields.t as string]!
  const values = names.map((name) => fields[name])
  const resume = fields.resume as { session_id: unknown; resume_token: unknown; rooms: unknown } | undefined
  if (resume) {
    const rooms = Array.isArray(resume.rooms)
      ? resume.rooms.map((room) =>
          typeof room === 'object'
            ? [room.room_id, room.member_id, room.epoch, room.seq, room.settled]
            : room,
        )
      : resume.rooms
    values[1] = [resume.session_id, resume.resume_token, rooms]
  }
  return encode([opcode, ...values], { maxDepth: 1000 })
}

codecSuite('roomful.v1.msgpack', {
  codec: () => new MsgpackCodec(),
  client: () => new MsgpackClientCodec(),
  raw,
  later: encode([99, 'arena:lobby', 1, { x: null }]),
})

test('a reason that is an object with a toString property is an invalid message', () => {
  const frame = raw({ t: 'state.resync', room_id: 'arena:lobby', reason: { toString: -354 } })
  expect(() => new MsgpackCodec().decode(frame)).toThrow(
    expect.objectContaining({ name: 'InvalidMessage', message: expect.stringContaining('reason') }),
  )
})

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex.replaceAll(' ', ''), 'hex'))
const message = (data: string) => bytes(`94 03 a3613a62 a178 ${data}`)

test.each([
  ['binary', 'c4 01 00'],
  ['an extension that is no decimal number', 'd4 40 00'],
  ['an extension of 8 bytes', 'd7 00 0000000000000001'],
  ['a timestamp extension', 'd6 ff 00000000'],
  ['NaN', 'cb 7ff8000000000000'],
  ['an infinity', 'ca 7f800000'],
  ['an integer key', '81 01 02'],
  ['a nil key', '81 c0 02'],
  ['an array as a key', '81 90 02'],
  ['the code that is never used', 'c1'],
  ['a string that is not UTF-8', 'a2 c328'],
  ['an overlong encoding', 'a2 c080'],
  ['half a surrogate pair', 'a3 eda080'],
  ['a string cut short', 'a5 6162'],
  ['an array cut short', '93 01'],
  ['bytes behind the message', '01 01'],
])('%s in data is a ProtocolError', (_what, data) => {
  expect(() => new MsgpackCodec().decode(message(data))).toThrow(ProtocolError)
})

test.each([
  ['an unsigned integer', 'cf 0020000000000000'],
  ['a negative integer', 'd3 ffdfffffffffffff'],
  ['an integer within objects', '81 a161 92 01 cf ffffffffffffffff'],
])('%s above 2^53 in data makes the message invalid, and the error names it', (_what, data) => {
  expect(() => new MsgpackCodec().decode(bytes(`96 03 a3613a62 a178 ${data} 07 00`))).toThrow(
    expect.objectContaining({
      name: 'InvalidMessage',
      message: expect.stringMatching(/an integer beyond 2\^53 - 1 \(about -?\d+\); send it as a string/),
      ref: 7,
      room_id: 'a:b',
    }),
  )
})

test.each([
  ['a decimal', 'd5 10 3039', 123.45],
  ['a decimal in a longer form than it needs', 'd6 2f fffffc18', -1],
  ['float32', 'ca 3fc00000', 1.5],
  ['float64 of an integer', 'cb 3ff0000000000000', 1],
  ['uint64', 'cf 000001a1b2c3d4e5', 0x1a1b2c3d4e5],
  ['int64', 'd3 ffffffffffffffff', -1],
  ['an integer in a longer form than it needs', 'ce 00000001', 1],
  ['str 32', 'db 00000001 61', 'a'],
  ['array 32', 'dd 00000001 c3', [true]],
  ['map 32', 'df 00000001 a161 c2', { a: false }],
  ['a byte order mark', 'a4 efbbbf61', '\ufeffa'],
])('%s is read like any other form', (_what, data, value) => {
  expect(new MsgpackCodec().decode(message(data))).toMatchObject({ data: value })
})

test.each(['dd ffffffff', 'df ffffffff', 'db ffffffff', 'dc ffff', '94 03 dd 7fffffff'])(
  'a declared length of %s without the bytes is refused without an allocation',
  (hex) => {
    const before = process.memoryUsage().heapUsed
    for (let i = 0; i < 1000; i++) expect(() => new MsgpackCodec().decode(bytes(hex))).toThrow(ProtocolError)
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(50_000_000)
  },
)

test.each([
  ['c0', ProtocolError, /array/],
  ['80', ProtocolError, /array/],
  ['90', Error, /^the opcode is no number; a client may send 0 to 11/],
  ['91 10', Error, /^the opcode is 16/],
  ['91 03', Error, /^room_id is missing/],
  ['93 03 a3613a62 a178', Error, /^data is missing/],
])('the frame %s is refused', (hex, kind, said) => {
  expect(() => new MsgpackCodec().decode(bytes(hex))).toThrow(kind)
  expect(() => new MsgpackCodec().decode(bytes(hex))).toThrow(said)
})

test('the fast path for messages returns the same as the check of every field', () => {
  const codec = new MsgpackCodec()
  const checked = (payload: Uint8Array) => parsePositional(new MsgpackReader(payload).value() as unknown[])
  const outcome = (decoded: () => unknown) => {
    try {
      return decoded()
    } catch (error) {
      return String(error)
    }
  }
  const some = (...values: unknown[]) => fc.constantFrom(...values)
  const fields = fc.tuple(
    fc.oneof(some('a:b', 'a:ü', '', 'a'.repeat(193), 'a'.repeat(194), null, 7), fc.string()),
    fc.oneof(some('move', 'x'.repeat(64), 'x'.repeat(65), '', [], undefined), fc.string()),
    fc.oneof(json(), some(JSON.parse('{"__proto__":1}'))),
    some(1, 2 ** 40, 0, -1, 1.5, null, 'one', undefined),
    some(0, 12, -1, null, 1.5, {}),
  )
  fc.assert(
    fc.property(fields, fc.nat(7), (all, length) => {
      const payload = encode([3, ...all, 'later'].slice(0, length))
      expect(outcome(() => codec.decode(payload))).toEqual(outcome(() => checked(payload)))
    }),
    { numRuns: 1_000 },
  )
})

test('another library reads the writer’s bytes, and the reader reads those of another library', () => {
  const writer = new MsgpackWriter()
  fc.assert(
    fc.property(json(), (value) => {
      writer.begin().value(value)
      const written = writer.take()
      // Libraries differ about -0, and JSON has only 0.
      const plain = JSON.parse(JSON.stringify(value)) as Json
      expect(decode(written, { extensionCodec: decimals })).toEqual(plain)
      expect(new MsgpackReader(encode(value)).value()).toEqual(value)
    }),
    { numRuns: 1_000 },
  )
})

test.each([31, 32, 64, 65, 255, 256, 65_535, 65_536, 200_000])(
  'strings of %i characters are unchanged',
  (length) => {
    const writer = new MsgpackWriter()
    for (const text of ['a'.repeat(length), 'é'.repeat(length), `${'a'.repeat(length - 1)}🎲`]) {
      writer.begin().value([text, Array(20).fill(text.length)])
      const written = writer.take()
      expect(Buffer.from(written).equals(encode([text, Array(20).fill(text.length)]))).toBe(true)
      expect(new MsgpackReader(written).value()).toEqual([text, Array(20).fill(text.length)])
    }
  },
)

test('a failed frame leaves no bytes in the next one', () => {
  const codec = new MsgpackCodec()
  const ping = codec.encode({ t: 'move', in_ms: 1 })
  expect(() => codec.encode({ t: 'move', in_ms: Number.NaN })).toThrow(TypeError)
  expect(codec.encode({ t: 'move', in_ms: 1 })).toEqual(ping)
})

const AT = { room_id: 'a:b', epoch: 1_795_181_400_123, checksum: 5 }
const plain = (frame: Uint8Array) => decode(frame) as unknown[]

test('the first patch that changes a key announces it, and later patches have an integer', () => {
  const room = new MsgpackCodec().roomEncoder()
  const [, epoch, , , keys, change] = plain(
    room.patch({ ...AT, seq: 1 }, diff({}, { hp: 1, name: { hp: 2 } })),
  )
  expect(epoch).toBe(AT.epoch)
  expect(keys).toEqual([0, 'hp', 'name'])
  expect(change).toEqual({ 0: 1, 1: [{ 0: 2 }] })
  expect(plain(room.patch({ ...AT, seq: 2 }, diff({ hp: 1 }, { hp: 2, x: [] }))).slice(4)).toEqual([
    [2, 'x'],
    { 0: 2, 2: [[]] },
  ])
  expect(plain(room.patch({ ...AT, seq: 3 }, diff({ hp: 1 }, { hp: 2 }))).slice(4)).toEqual([null, { 0: 2 }])
  // A joining client gets the whole table. Keys without a patch are still strings.
  expect(
    plain(room.whole('state.snapshot', { ...AT, seq: 3, state: { hp: 2, map: { x: 1 } } }, [])).slice(4),
  ).toEqual([[0, 'hp', 'name', 'x'], { 0: 2, map: { 2: 1 } }, []])
})

test('an array change has two elements: changed elements by index, then splices', () => {
  const room = new MsgpackCodec().roomEncoder()
  const [a, b, c] = [{ n: 1 }, { n: 2 }, { n: 3 }]
  expect(plain(room.patch({ ...AT, seq: 1 }, diff([a, b, c], [a, { n: 9 }, c, null]))).slice(4)).toEqual([
    [0, 'n'],
    [{ 1: { 0: 9 } }, [3, 0, [null]]],
  ])
})

test('changes of equal keys are a table: the keys, each row, and a map of the others', () => {
  const room = new MsgpackCodec().roomEncoder()
  const change = (from: Json, to: Json) => plain(room.patch({ ...AT, seq: 1 }, diff(from, to)))[5]
  const at = (x: number, y = x) => ({ x, y })
  expect(change({ a: at(1), b: at(1) }, { a: at(2), b: at(3) })).toEqual([[0, 1], 2, 2, 2, 3, 3, 3])
  // One change is not a table, and neither are two with different keys.
  expect(change({ a: at(1), b: at(1) }, { a: at(2), b: at(1) })).toEqual({ 2: { 0: 2, 1: 2 } })
  expect(change({ a: at(1), b: at(1) }, { a: at(2, 1), b: at(1, 2) })).toEqual({ 2: { 0: 2 }, 3: { 1: 2 } })
  const others = change(
    { a: at(1), b: at(1), c: at(1), d: 1, e: 1 },
    { a: at(5, 1), b: at(2), c: at(3), e: at(4) },
  )
  expect(others).toEqual([[0, 1], 3, 2, 2, 4, 3, 3, { 2: { 0: 5 }, 5: [{ 0: 4, 1: 4 }], 6: null }])
  // The keys of an array's rows are its indexes.
  expect(change([at(1), at(1), at(1)], [at(1), at(2), at(3), 'new'])).toEqual([
    [[0, 1], 1, 2, 2, 2, 3, 3],
    [3, 0, ['new']],
  ])
})

test('a table keeps any changes of its rows', () => {
  const cell = fc.option(fc.oneof(fc.nat(3), json()), { nil: undefined })
  const record = fc.record({ x: cell, y: cell, z: cell }, { requiredKeys: [] })
  const states = fc.oneof(
    fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'), fc.oneof(record, json()), { minKeys: 4 }),
    fc.array(fc.oneof(record, record, fc.nat(3)), { minLength: 3, maxLength: 6 }),
  )
  let tables = 0
  fc.assert(
    fc.property(states, states, (before, after) => {
      const [from, to] = [before, after].map((state) => JSON.parse(JSON.stringify(state)) as Json)
      const room = new MsgpackCodec().roomEncoder()
      const member = new ReadingCodec(new MsgpackClientCodec(AT.room_id))
      member.decode(room.whole('state.snapshot', { ...AT, seq: 1, state: from! }, []))
      const delta = diff(from!, to!)
      if (!delta) return
      for (const [seq, frame] of [
        room.patch({ ...AT, seq: 2 }, delta),
        room.replay({ ...AT, seq: 3 }, delta),
      ].entries()) {
        if (Array.isArray(plain(frame)[5])) tables++
        const patch = member.decode(frame)
        expect(patch).toMatchObject({ t: 'state.patch', seq: seq + 2 })
        if (patch.t === 'state.patch') expect(apply(from!, patch.delta!)).toEqual(to)
      }
    }),
    { numRuns: 400 },
  )
  expect(tables).toBeGreaterThan(60)
})

/** A room, and a member who reads every frame of it. */
class Interned {
  readonly #room = new MsgpackCodec().roomEncoder()
  readonly #member = new ReadingCodec(new MsgpackClientCodec(AT.room_id))
  #seq = 0

  constructor() {
    this.snapshot({})
  }

  /** Returns the keys that a complete state of this room carries. */
  snapshot(state: Json): string[] {
    const frame = this.#room.whole('state.snapshot', { ...AT, seq: this.#seq, state }, [])
    const decoded = this.#member.decode(frame)
    // There are thousands of keys, for which `toEqual` takes seconds.
    deepStrictEqual('state' in decoded && decoded.state, state)
    return (plain(frame)[4] as [number, ...string[]]).slice(1) as string[]
  }

  /** Returns the keys that a patch announces which sets these keys in `state`. */
  set(keys: readonly string[], state: Json = objectOf(keys)): Json {
    this.#room.stateChanged(state)
    const frame = this.#room.patch({ ...AT, seq: ++this.#seq }, diff({}, objectOf(keys)))
    const decoded = this.#member.decode(frame)
    if (decoded.t !== 'state.patch') throw new Error(decoded.t)
    deepStrictEqual(apply({}, decoded.delta!), objectOf(keys))
    return plain(frame)[4] as Json
  }
}

const objectOf = (keys: readonly string[]): Record<string, Json> =>
  Object.fromEntries(keys.map((key) => [key, 1]))
const many = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}${i}`)

test('long keys are never interned, and a full table restarts when it no longer saves bytes', () => {
  const room = new Interned()
  expect(room.set(['k'.repeat(65)])).toBe(null)
  const all = objectOf([...many('a', 16_000), ...many('b', 16_384), ...many('c', 384)])
  expect(room.set(many('a', 16_000), all)).toHaveLength(16_001)
  // 384 more fit, and the others stay strings.
  expect(room.set(many('b', 16_384), all)).toHaveLength(385)
  expect(room.set(many('a', 10), all)).toBe(null)
  expect(room.set(many('c', 384), all)).toBe(null)
  expect(room.set(many('d', 3), all)).toEqual([0, 'd0', 'd1', 'd2'])
})

test('in a room of 2,000 moving players, each key is sent once', () => {
  const room = new Interned()
  const players = many('mem_', 2000)
  for (let i = 0; i < 2000; i += 100) room.set(players.slice(i, i + 100), objectOf(players))
  expect(room.set(players)).toBe(null)
  expect(room.snapshot(objectOf(players))).toHaveLength(2000)
})

test('after most players have left, one complete state carries their keys, and none after the next patch', () => {
  const room = new Interned()
  const players = many('mem_', 2000)
  room.set(players)
  const left = players.slice(0, 999)
  room.set(left)
  expect(room.snapshot(objectOf(left))).toHaveLength(2000)
  expect(room.set(left.slice(0, 2))).toEqual([0, 'mem_0', 'mem_1'])
  expect(room.snapshot(objectOf(left))).toEqual(['mem_0', 'mem_1'])
})

test('keys that come and go do not grow the table, also without joins', () => {
  const room = new Interned()
  for (let i = 0; i < 5000; i++) room.set([`bullet_${i}`], { [`bullet_${i}`]: 1 })
  expect(room.snapshot({}).length).toBeLessThanOrEqual(1024)
})
