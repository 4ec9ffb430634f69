import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { encode } from '@msgpack/msgpack'
import { CLOSE, counted, Topic } from '../case.ts'
import { decodeJson, decodeMsgpack, RoomContext } from '../codecs.ts'
import type { Codec, Json, ServerMessage } from '../messages.ts'
import { canonical, checksum, type RoomMessage, RoomView } from '../room-view.ts'

const topic = new Topic('forms')
export const forms = topic.cases

/** Content of docs/protocol-vectors.json. Its `about` describes the fields. */
interface Vectors {
  checksums: { value: Json; checksum: number }[]
  address: { room_id: string; msgpack: string }
  messages: { from: 'client' | 'server'; json: { t: string }; msgpack: string }[]
  stream: {
    about: string
    state: Json
    layers?: { [name: string]: Json }
    json: { t: string }
    msgpack: string
  }[]
  invalid: { codec: Codec; text?: string; hex?: string; answer: string; ref?: number; request_id?: number }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../../../docs/protocol-vectors.json', import.meta.url), 'utf8'),
)

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))

topic.once(`the checksum of ${vectors.checksums.length} values is that of the page`, 'Checks', async () => {
  assert.ok(vectors.checksums.length > 0, 'no vectors')
  for (const vector of vectors.checksums) {
    assert.equal(checksum(vector.value), vector.checksum, JSON.stringify(vector.value))
  }
})

topic.once(
  'messages of the server are decoded in both subprotocols',
  'Messages from the server, opcodes',
  async () => {
    const theirs = vectors.messages.filter(({ from }) => from === 'server')
    assert.ok(theirs.length > 0, 'no vectors')
    for (const { json, msgpack } of theirs) {
      assert.deepEqual(decodeJson(JSON.stringify(json)), json)
      const context = new RoomContext()
      if ('room_id' in json) context.enter(json.room_id)
      assert.deepEqual(decodeMsgpack(bytes(msgpack), context), json, json.t)
    }
  },
)

topic.each(
  'the stream of the vectors is applied frame by frame',
  'R12, R26, R31, R32',
  async (_stage, codec) => {
    const view = new RoomView({ t: 'joined', request_id: 1, room_id: 'arena:lobby', member_id: 'mem_b' })
    view.faults.splice(0)
    assert.ok(vectors.stream.length > 0, 'no vectors')
    const context = new RoomContext()
    assert.equal(decodeMsgpack(bytes(vectors.address.msgpack), context), undefined)
    for (const { about, state, layers = {}, json, msgpack } of vectors.stream) {
      const message: ServerMessage | undefined =
        codec === 'json' ? decodeJson(JSON.stringify(json)) : decodeMsgpack(bytes(msgpack), context)
      assert.equal(message?.t, json.t, about)
      view.apply(message as RoomMessage)
      assert.deepEqual(view.faults, [], about)
      assert.equal(canonical(view.state ?? null), canonical(state), about)
      assert.equal(canonical(Object.fromEntries(view.layers)), canonical(layers), about)
    }
  },
)

for (const { codec, text, hex, answer, ref, request_id } of vectors.invalid) {
  topic.once(
    `the invalid frame ${text ?? hex} is ${answer} (${codec})`,
    'Messages from the client: what is answered, and what is closed',
    async (stage) => {
      const peer = await stage.connect(codec)
      peer.sendRaw(text ?? bytes(hex!))
      if (answer === 'protocol_error') {
        await peer.closes(CLOSE.protocol_error)
        return
      }
      await peer.until('an answer', () => peer.inbox.length > 1)
      const error = peer.inbox[1]!
      assert.ok(error.t === 'error' && error.code === answer, JSON.stringify(error))
      assert.deepEqual([error.ref, error.request_id], [ref, request_id])
      await peer.roundTrip()
    },
  )
}

const STAYS_OPEN =
  'Messages from the client: an unknown `t`, and a missing or wrong field, are `invalid_message`'

/** Readable but invalid messages, in addition to those of the vectors: JSON, MessagePack, and the request id or ref of the answer. */
const INVALID: [string, { [key: string]: unknown }, unknown[], number?][] = [
  ['an unknown name', { t: 'dance' }, [15]],
  ['a message of the server', { t: 'pong', at: 1, server_time: '' }, [28, 1, '']],
  ['ping without at', { t: 'ping' }, [5]],
  ['join with request_id 1.5', { t: 'join', request_id: 1.5, room_type: 'counter' }, [1, 1.5, 'counter']],
  [
    'join with a room_type of 65',
    { t: 'join', request_id: 5, room_type: 'r'.repeat(65) },
    [1, 5, 'r'.repeat(65)],
    5,
  ],
  [
    'join with options that are no object',
    { t: 'join', request_id: 5, room_type: 'counter', options: [1] },
    [1, 5, 'counter', [1]],
    5,
  ],
  [
    'leave with a room_id of 194',
    { t: 'leave', request_id: 6, room_id: 'r'.repeat(194) },
    [2, 6, 'r'.repeat(194)],
    6,
  ],
  [
    'message with an empty type',
    { t: 'message', room_id: 'a:b', type: '', data: 1, ref: 7, settled: 0 },
    [3, 'a:b', '', 1, 7, 0],
    7,
  ],
  [
    'message with ref and without settled',
    { t: 'message', room_id: 'a:b', type: 'x', data: 1, ref: 8 },
    [3, 'a:b', 'x', 1, 8],
    8,
  ],
  ['message without data', { t: 'message', room_id: 'a:b', type: 'x' }, [3, 'a:b', 'x']],
  ['resync for no reason', { t: 'state.resync', room_id: 'a:b', reason: 'boredom' }, [4, 'a:b', 2]],
  ['an empty token', { t: 'token', token: '' }, [6, '']],
]

topic.each(
  'a readable but invalid message is answered with invalid_message, and the connection stays open',
  STAYS_OPEN,
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    for (const [what, fields, elements, answers] of INVALID) {
      const from = peer.inbox.length
      peer.sendOdd(fields, elements)
      await peer.until(`an answer to ${what}`, () => peer.inbox.length > from)
      const answer = peer.inbox[from]!
      assert.ok(
        answer.t === 'error' && answer.code === 'invalid_message',
        `${what}: ${JSON.stringify(answer)}`,
      )
      if (answers !== undefined) assert.equal(answer.request_id ?? answer.ref, answers, what)
    }
    await peer.roundTrip()
  },
)

topic.each(
  'an integer above 2^53 makes its message invalid, and the connection stays open',
  'R16: integers are within ±(2^53 − 1)',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const { roomId } = await peer.join('counter', stage.key())
    const from = peer.inbox.length
    const by = 2n ** 53n + 1n
    const ref = peer.session.nextRef(roomId)
    peer.session.sending({ t: 'message', room_id: roomId, type: 'inc', data: { by: Number(by) }, ref })
    peer.sendRaw(
      codec === 'json'
        ? `{"t":"message","room_id":"${roomId}","type":"inc","data":{"by":${by}},"ref":${ref},"settled":0}`
        : encode([3, roomId, 'inc', { by }, ref, 0], { useBigInt64: true }),
    )
    await peer.until('an answer', () => peer.inbox.length > from)
    const answer = peer.inbox[from]!
    assert.ok(
      answer.t === 'error' && answer.code === 'invalid_message' && answer.ref === ref,
      JSON.stringify(answer),
    )
    await peer.roundTrip()
  },
)

topic.each(
  'fields that the server does not know are ignored',
  'R1, of the server: unknown fields are ignored',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const view = await peer.join('counter', stage.key())
    const { roomId } = view
    peer.sendOdd({ t: 'ping', at: 1, mood: { good: [true] } }, [5, 1, { mood: [true] }])
    await peer.expect('pong', { at: 1 })
    peer.sendOdd({ t: 'message', room_id: roomId, type: 'inc', data: { by: 2 }, because: 'why not' }, [
      3,
      roomId,
      'inc',
      { by: 2 },
      null,
      null,
      'why not',
    ])
    await peer.until('it is applied', () => counted(view) === 2)
  },
)

topic.once('a client may use every form of a number', 'R30: forms of the same numbers', async (stage) => {
  const peer = await stage.connect('msgpack')
  const view = await peer.join('counter', stage.key())
  const { roomId } = view
  const head = [0x96, 0x03, 0xd9, roomId.length, ...Buffer.from(roomId), 0xa3, ...Buffer.from('inc')]
  const by = (...number: number[]) => [0x81, 0xa2, ...Buffer.from('by'), ...number]
  const forms: [number, number[], number[]][] = [
    [1, [0xce, 0, 0, 0, 1], [0xcd, 0, 1]],
    [2, [0xcf, 0, 0, 0, 0, 0, 0, 0, 1], [0xcf, 0, 0, 0, 0, 0, 0, 0, 2]],
    [3, [0xd3, 0, 0, 0, 0, 0, 0, 0, 1], [0xd3, 0, 0, 0, 0, 0, 0, 0, 3]],
    [4, [0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0], [0xcb, 0x40, 0x10, 0, 0, 0, 0, 0, 0]],
    [5, [0xca, 0x3f, 0x80, 0, 0], [0xca, 0x40, 0xa0, 0, 0]],
    [6, [0xd1, 0, 1], [0xd2, 0, 0, 0, 6]],
    [7, [0xd4, 0x00, 0x0a], [0xd5, 0x00, 0, 0x46]],
    [8, [0xd6, 0x10, 0, 0, 0, 0x64], [0xd6, 0x30, 0, 0x01, 0x38, 0x80]],
  ]
  for (const [ref, one, refBytes] of forms) {
    peer.session.sending({ t: 'message', room_id: roomId, type: 'inc', data: { by: 1 }, ref })
    peer.sendRaw(new Uint8Array([...head, ...by(...one), ...refBytes, 0]))
    await peer.expect('ack', { room_id: roomId, ref })
  }
  assert.equal(counted(view), forms.length)
})
