import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { CLOSE, Topic } from '../case.ts'
import { decodeJson, decodeMsgpack, RoomContext } from '../codecs.ts'
import type { Codec, Json, ServerMessage } from '../messages.ts'
import { canonical, checksum, type RoomMessage, RoomView } from '../room-view.ts'

/** Content of docs/protocol-vectors.json. Its `about` describes the fields. */
interface Vectors {
  checksums: { value: Json; checksum: number }[]
  address: { room_id: string; msgpack: string }
  messages: { from: 'client' | 'server'; json: { t: string }; msgpack: string }[]
  stream: { about: string; layer?: string; state: Json; json: { t: string }; msgpack: string }[]
  invalid: { codec: Codec; text?: string; hex?: string; answer: string; ref?: number; request_id?: number }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../../../docs/protocol-vectors.json', import.meta.url), 'utf8'),
)

const topic = new Topic('vectors')
export const vectorCases = topic.cases

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))

topic.once(`the checksum of ${vectors.checksums.length} values is that of the page`, 'Checksum', async () => {
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
  'R13, R33, R41, R42',
  async (_stage, codec) => {
    const view = new RoomView({ t: 'joined', request_id: 1, room_id: 'arena:lobby', member_id: 'mem_b' })
    view.faults.splice(0)
    assert.ok(vectors.stream.length > 0, 'no vectors')
    const context = new RoomContext()
    assert.equal(decodeMsgpack(bytes(vectors.address.msgpack), context), undefined)
    for (const { about, layer, state, json, msgpack } of vectors.stream) {
      const message: ServerMessage | undefined =
        codec === 'json' ? decodeJson(JSON.stringify(json)) : decodeMsgpack(bytes(msgpack), context)
      assert.equal(message?.t, json.t, about)
      view.apply(message as RoomMessage)
      assert.deepEqual(view.faults, [], about)
      // The vectors of a layer have no state of their flush, so the layer must not wait for it.
      if (layer !== undefined) view.takeHeld()
      const got = layer === undefined ? view.state : view.layers.get(layer)
      assert.equal(canonical(got ?? null), canonical(state), about)
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
