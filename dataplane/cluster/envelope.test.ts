import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { json } from '../../test/support/json-arbitrary.ts'
import { roomAddress } from '../traffic.ts'
import {
  DamagedEnvelope,
  EnvelopeReader,
  EnvelopeWriter,
  envelopeHeader,
  type PeerMessage,
  UnknownVersion,
} from './envelope.ts'

const header = envelopeHeader('node_a')
const reader = new EnvelopeReader()

function sealed(messages: readonly PeerMessage[], number = 1): Uint8Array {
  const writer = new EnvelopeWriter(header)
  for (const message of messages) writer.add(message)
  return writer.take().read(Number.POSITIVE_INFINITY, number).envelope
}

function opened(bytes: Uint8Array): PeerMessage[] {
  return reader.messages(bytes.subarray(reader.header(bytes).bodyAt))
}

const text = fc.oneof(
  fc.constantFrom('', '__proto__', 'constructor', 'toJSON', 'seq', 'roomful.v1.json'),
  fc.string({ unit: 'grapheme', maxLength: 40 }),
)
const number = fc.oneof(fc.nat(), fc.maxSafeInteger().map(Math.abs))
const frame = fc.uint8Array({ maxLength: 300 })
const frames = fc.record(
  { 'roomful.v1.json': frame, 'roomful.v1.msgpack': frame },
  { requiredKeys: [], noNullPrototype: true },
)
const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined })
const room = fc
  .tuple(text, fc.constantFrom('arena', 'chess'), fc.constantFrom('one', 'two', 'é'))
  .map(([project, ...parts]) => roomAddress(project.replaceAll('/', ''), ...parts))

/** An object of a kind: the fields of every message of its direction, and the given ones. */
const kind = (name: string, fields: Record<string, fc.Arbitrary<unknown>>) =>
  fc.record({ room, kind: fc.constant(name), ...fields }, { noNullPrototype: true })

const toOwner = fc
  .oneof(
    kind('join', {
      ref: number,
      edge: text,
      codec: text,
      session_id: text,
      sub: maybe(text),
      options: json(),
    }),
    kind('leave', { reason: text, ref: maybe(number) }),
    kind('message', { type: text, data: json(), ref: maybe(number), after: maybe(number) }),
    kind('resync', { reason: text }),
    kind('detach', {}),
    kind('attach', { ask: number, edge: text, codec: text, session_id: text, epoch: number, seq: number }),
    kind('refuse', { ref: number, after: maybe(number), code: text, message: text }),
    kind('of_a_later_version', { novelty: json() }),
  )
  .chain((message) => text.map((memberId) => ({ ...message, member_id: memberId })))

const layers = fc.array(fc.record({ layer: text, change: fc.option(frames) }, { noNullPrototype: true }))
const stateFrames = fc.record(
  { patch: maybe(frames), layers: maybe(layers), rest: maybe(frames) },
  { noNullPrototype: true },
)
const event = fc.record({ t: text, room_id: text, name: text, data: json() }, { noNullPrototype: true })
const toEdge = fc
  .oneof(
    kind('update', {
      seq: number,
      patch: maybe(frames),
      rest: maybe(frames),
      personal: fc.array(
        fc.record(
          { member_id: text, events: fc.array(event), ack: maybe(number) },
          { noNullPrototype: true },
        ),
      ),
      joined: fc.array(
        fc.record(
          { member_id: text, ref: number, members: fc.array(json()), snapshot: stateFrames },
          { noNullPrototype: true },
        ),
      ),
      leaving: maybe(fc.array(text)),
    }),
    kind('state', { member_id: text, seq: number, state: stateFrames }),
    kind('attached', {
      ask: number,
      member_id: text,
      seq: number,
      resumed: fc.boolean(),
      frames: fc.array(stateFrames),
    }),
    kind('no_seat', { member_id: text }),
    kind('refused', { member_id: text, ref: number, code: text, message: text }),
    kind('error', { member_id: text, code: text, message: text }),
    kind('left', { member_id: text, ref: maybe(number), farewell: maybe(event) }),
    kind('redirect', { owner: fc.option(text) }),
    kind('resend', {}),
  )
  .chain((message) => number.map((epoch) => ({ ...message, epoch })))

const message = fc.oneof(
  fc.record({ to: fc.constantFrom('owner', 'opener'), message: toOwner }, { noNullPrototype: true }),
  fc.record({ to: fc.constant('edge'), message: toEdge }, { noNullPrototype: true }),
  fc.record({ to: fc.constant('gateway'), session_id: text, ended: fc.boolean() }, { noNullPrototype: true }),
  fc.record({ to: fc.constant('host'), room }, { noNullPrototype: true }),
) as fc.Arbitrary<PeerMessage>

describe('an envelope', () => {
  it('transports every kind of message unchanged', () => {
    fc.assert(
      fc.property(fc.array(message, { maxLength: 8 }), (messages) => {
        expect(opened(sealed(messages))).toEqual(messages)
      }),
      { numRuns: 200 },
    )
  })

  // Nodes of two versions work side by side during an upgrade.
  it('may have fields that this node does not know', () => {
    const room = roomAddress('prj_a', 'arena', 'one')
    const detach = { kind: 'detach', room, member_id: 'mem_1', of_tomorrow: { is: ['more'] } } as const
    expect(opened(sealed([{ to: 'owner', message: detach }]))).toEqual([{ to: 'owner', message: detach }])
  })

  it('has the id of its sender, and its number', () => {
    expect(reader.header(sealed([], 7))).toMatchObject({ sender: 'node_a', number: 7 })
    expect(reader.header(sealed([], 2 ** 40))).toMatchObject({ number: 2 ** 40 })
  })

  it('keeps names in payloads that have a meaning in JavaScript', () => {
    const data = JSON.parse('{"__proto__":{"x":1},"constructor":2,"toJSON":3,"prototype":null,"":4}')
    const [got] = opened(sealed([{ to: 'owner', message: { ...MESSAGE, data } }]))
    expect(JSON.stringify(Object.entries((got as { message: typeof MESSAGE }).message.data!))).toBe(
      JSON.stringify(Object.entries(data)),
    )
    expect(Object.getPrototypeOf((got as { message: typeof MESSAGE }).message.data)).toBe(Object.prototype)
  })

  it('contains the name of a room once', () => {
    const key = 'k'.repeat(100)
    const about = (ref: number): PeerMessage => ({
      to: 'owner',
      message: { ...MESSAGE, room: roomAddress('prj_a', 'arena', key), ref },
    })
    const one = sealed([about(1)]).length
    expect(sealed([about(1), about(2)]).length).toBeLessThan(one + 60)
    expect(opened(sealed([about(1), about(2)]))).toEqual([about(1), about(2)])
  })

  it('omits a message that cannot be encoded, and transports the others', () => {
    const writer = new EnvelopeWriter(header)
    const fresh = { ...MESSAGE, room: roomAddress('prj_a', 'arena', 'fresh') }
    writer.add({ to: 'owner', message: MESSAGE })
    expect(() => writer.add({ to: 'owner', message: { ...fresh, data: Number.NaN } })).toThrow(TypeError)
    writer.add({ to: 'owner', message: fresh })
    expect(opened(writer.take().read(Number.POSITIVE_INFINITY, 1).envelope)).toEqual([
      { to: 'owner', message: MESSAGE },
      { to: 'owner', message: fresh },
    ])
  })

  it('also omits the large frame of a message that cannot be encoded', () => {
    const writer = new EnvelopeWriter(header)
    const event = (data: number) =>
      ({ t: 'event', room_id: 'a:b', epoch: 1, seq: 1, name: 'said', data }) as const
    const update = (data: number): PeerMessage => ({
      to: 'edge',
      message: {
        room: MESSAGE.room,
        epoch: 1,
        kind: 'update',
        seq: 1,
        patch: { 'roomful.v1.json': new Uint8Array(200_000).fill(data) },
        rest: undefined,
        personal: [{ member_id: 'mem_1', events: [event(data)] }],
        joined: [],
      },
    })
    writer.add({ to: 'owner', message: MESSAGE })
    writer.add(update(1))
    expect(() => writer.add(update(Number.NaN))).toThrow(TypeError)
    writer.add(update(2))
    const [first, ...updates] = opened(writer.take().read(Number.POSITIVE_INFINITY, 1).envelope)
    expect(first).toMatchObject({ to: 'owner', message: MESSAGE })
    // The matcher of vitest takes seconds to compare the bytes.
    const patches = updates.map((update) =>
      update.to === 'edge' && update.message.kind === 'update' ? update.message.patch : undefined,
    )
    expect(
      patches.map((patch) => [patch?.['roomful.v1.json']?.length, new Set(patch?.['roomful.v1.json'])]),
    ).toEqual([
      [200_000, new Set([1])],
      [200_000, new Set([2])],
    ])
  })

  it('returns frames that do not keep a large envelope in memory', () => {
    const large = new Uint8Array(100_000)
    const small = Uint8Array.of(1, 2, 3)
    const state = (bytes: Uint8Array): PeerMessage => ({
      to: 'edge',
      message: {
        room: MESSAGE.room,
        epoch: 1,
        kind: 'state',
        member_id: 'mem_a',
        seq: 1,
        state: { patch: { 'roomful.v1.json': bytes } },
      },
    })
    const [, got] = opened(sealed([state(large), state(small)])) as {
      message: { state: { patch: Record<string, Uint8Array> } }
    }[]
    expect(got!.message.state.patch['roomful.v1.json']).toEqual(small)
    expect(got!.message.state.patch['roomful.v1.json']!.buffer.byteLength).toBe(3)
  })

  it('of another version is an UnknownVersion with its sender, not a damaged one', () => {
    const bytes = sealed([])
    bytes[0] = 9
    expect(() => reader.header(bytes)).toThrow(UnknownVersion)
    expect(() => reader.header(bytes)).toThrow(expect.objectContaining({ sender: 'node_a' }))
  })

  // Nodes of two releases share a cluster during an upgrade. New fields and kinds are written by their names. A change of the meaning of
  // an integer needs another version of the envelope.
  it('is written in the form that nodes of an earlier release read', () => {
    const names =
      `roomful.v1.json roomful.v1.msgpack member_id seq epoch patch rest personal joined events ack ref type data after
      ask owner edge codec session_id sub options reason state resumed frames members snapshot code message farewell t
      room_id name`.split(/\s+/)
    const kinds =
      `message update join leave resync detach attach refuse state attached no_seat refused error left redirect resend`.split(
        ' ',
      )
    const data = {
      ...Object.fromEntries(names.map((name, index) => [name, index])),
      bytes: Uint8Array.of(1, 2),
    }
    const messages = kinds.map((kind) => ({ to: 'owner', message: { ...MESSAGE, kind, data } }))
    const bytes = sealed([
      ...messages,
      { to: 'gateway', session_id: 's', ended: false },
      { to: 'host', room: MESSAGE.room },
    ] as PeerMessage[])
    const digest = createHash('sha256').update(bytes).digest('hex')
    expect(digest.slice(0, 16)).toBe('2a671f07f45eb0b0')
  })

  it('that is damaged gives a clear error or messages, and no other result', () => {
    const damage = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(fc.array(message, { maxLength: 3 }), damage, fc.nat(), (messages, changes, cut) => {
        const whole = sealed(messages)
        const bytes = whole.slice(0, cut % 3 === 0 ? cut % whole.length : whole.length)
        for (const [at, value] of changes) if (bytes.length > 0) bytes[19 + (at % bytes.length)] = value
        try {
          opened(bytes)
        } catch (error) {
          expect((error as Error).name).toMatch(/^(ProtocolError|DamagedEnvelope)$/)
        }
      }),
      { numRuns: 1000 },
    )
    const whole = sealed([{ to: 'owner', message: MESSAGE }])
    expect(() => opened(whole.subarray(0, whole.length - 1))).toThrow(DamagedEnvelope)
    expect(() => opened(Uint8Array.of(...whole, 0xc0))).toThrow(DamagedEnvelope)
  })
})

const MESSAGE = {
  room: roomAddress('prj_a', 'arena', 'one'),
  member_id: 'mem_a',
  kind: 'message' as const,
  type: 'move',
  data: { x: 1 } as { [key: string]: number } | number,
  ref: 4,
}
