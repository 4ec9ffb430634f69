import assert from 'node:assert/strict'
import { CLOSE, type Stage, Topic } from '../case.ts'
import type { ClientMessage, Codec } from '../messages.ts'
import { type Peer, SUBPROTOCOL } from '../peer.ts'

const topic = new Topic('handshake')
export const handshake = topic.cases

const ANSWERS = 'R2'
const OFFERS = 'Messages from the client: 4000 for unknown subprotocols only'
const BEFORE = 'Messages from the client: 4000 for anything before `hello`'
const INVALID_BEFORE = 'Messages from the client: 4000 for an invalid message before `welcome`'
const NO_MESSAGE = 'Messages from the client: 4000 for a frame that is no message'

topic.each('welcome answers hello', ANSWERS, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const welcome = peer.session.welcome!
  assert.equal(peer.inbox[0], welcome, 'welcome is the first message')
  assert.equal(peer.socket.protocol, SUBPROTOCOL[codec])
  assert.equal(peer.socket.extensions, '', 'a websocket without extensions')
  assert.ok(Math.abs(Date.parse(welcome.server_time) - Date.now()) < 60_000, welcome.server_time)
  await peer.roundTrip()
})

topic.each('unknown features are ignored', 'R25: `features`', async (stage, codec) => {
  const peer = await stage.open(codec)
  const token = await stage.token()
  peer.send({ t: 'hello', project_id: peer.session.projectId, token, features: ['time-travel'] })
  await peer.expect('welcome')
  await peer.roundTrip()
})

topic.once(
  'a client that names no subprotocol gets JSON',
  'Messages from the client: a client that names no subprotocol gets JSON',
  async (stage) => {
    const peer = await stage.connect('json', {}, { subprotocols: [] })
    assert.equal(peer.socket.protocol, '')
    await peer.roundTrip()
  },
)

const UNKNOWN = ['roomful.v2.json', 'chat']
const FIRST_KNOWN: [string[], Codec][] = [
  [['roomful.v9.msgpack', 'roomful.v1.json'], 'json'],
  [['roomful.v1.msgpack', 'roomful.v1.json'], 'msgpack'],
  [['roomful.v1.json', 'roomful.v1.msgpack'], 'json'],
]

for (const [subprotocols, codec] of FIRST_KNOWN) {
  topic.once(`the server chooses ${codec} from ${subprotocols.join(', ')}`, OFFERS, async (stage) => {
    const peer = await stage.connect(codec, {}, { subprotocols })
    assert.equal(peer.socket.protocol, SUBPROTOCOL[codec])
    await peer.roundTrip()
  })
}

topic.once('a connection with only unknown subprotocols is closed with 4000', OFFERS, async (stage) => {
  const peer = await stage.open('json', { subprotocols: UNKNOWN })
  await peer.closes(CLOSE.protocol_error)
})

topic.waiting(
  'a connection without hello is closed with 4104',
  'R2: `hello` within 5 seconds (4104)',
  async (stage) => {
    const openedAt = performance.now()
    const peer = await stage.open('json')
    await peer.closes(CLOSE.hello_timeout, 8000)
    const took = performance.now() - openedAt
    assert.ok(took > 4500, `closed after ${Math.round(took)} ms, too early`)
  },
)

/** Sends a hello that must be refused. */
async function refused(stage: Stage, codec: Codec, hello: ClientMessage, code: number): Promise<Peer> {
  const peer = await stage.open(codec)
  peer.send(hello)
  await peer.closes(code)
  assert.deepEqual(peer.inbox, [], 'nothing but the close')
  return peer
}

topic.each('a wrong token is closed with 4001', 'Close codes: 4001', async (stage, codec) => {
  const { project_id: projectId } = stage.target
  await refused(
    stage,
    codec,
    { t: 'hello', project_id: projectId, token: 'v4.public.bm90IGEgdG9rZW4' },
    CLOSE.unauthenticated,
  )
})

topic.once('a manipulated token is closed with 4001', 'Close codes: 4001', async (stage) => {
  const token = await stage.token({ sub: 'anna' })
  const parts = token.split('.')
  const payload = Buffer.from(parts[2]!, 'base64url')
  payload[10]! ^= 1
  parts[2] = payload.toString('base64url')
  const { project_id: projectId } = stage.target
  await refused(
    stage,
    'json',
    { t: 'hello', project_id: projectId, token: parts.join('.') },
    CLOSE.unauthenticated,
  )
})

topic.each("another project's token is closed with 4001", 'Close codes: 4001', async (stage, codec) => {
  const token = await stage.token()
  const projectId = await stage.control.createProject()
  await refused(stage, codec, { t: 'hello', project_id: projectId, token }, CLOSE.unauthenticated)
})

topic.once('an unknown project is closed with 4001', 'Close codes: 4001', async (stage) => {
  const token = await stage.token()
  await refused(stage, 'json', { t: 'hello', project_id: 'prj_nobody', token }, CLOSE.unauthenticated)
})

topic.each('a message before hello is closed with 4000', BEFORE, async (stage, codec) => {
  const peer = await stage.open(codec)
  peer.send({ t: 'ping', at: 1 })
  await peer.closes(CLOSE.protocol_error)
  assert.deepEqual(peer.inbox, [])
})

const BAD_HELLOS: [string, { [key: string]: unknown }, unknown[]][] = [
  ['no token', { t: 'hello', project_id: 'prj_1' }, [0, 'prj_1']],
  [
    'a project_id of 129 characters',
    { t: 'hello', project_id: 'p'.repeat(129), token: 'x' },
    [0, 'p'.repeat(129), 'x'],
  ],
  [
    'a token of 8193 characters',
    { t: 'hello', project_id: 'prj_1', token: 'x'.repeat(8193) },
    [0, 'prj_1', 'x'.repeat(8193)],
  ],
]

for (const [what, fields, elements] of BAD_HELLOS) {
  topic.each(`a hello with ${what} is closed with 4000`, INVALID_BEFORE, async (stage, codec) => {
    const peer = await stage.open(codec)
    peer.sendOdd(fields, elements)
    await peer.closes(CLOSE.protocol_error)
    assert.deepEqual(peer.inbox, [])
  })
}

topic.each(
  'a second hello is closed with 4000',
  'Messages from the client: 4000 for a second `hello`',
  async (stage, codec) => {
    const token = await stage.token()
    const welcome = await stage.connectWith(codec, token)
    const early = await stage.open(codec)
    const hello = { t: 'hello', project_id: stage.target.project_id, token } as const
    early.send(hello)
    for (const peer of [welcome, early]) {
      peer.send(hello)
      await peer.closes(CLOSE.protocol_error)
    }
  },
)

topic.each(
  '16 messages right after hello are answered',
  'R2: nothing before `welcome`; the server lets such messages wait',
  async (stage, codec) => {
    const token = await stage.token()
    const peer = await stage.open(codec)
    const key = stage.key()
    peer.send({ t: 'hello', project_id: stage.target.project_id, token })
    const id = peer.session.nextRequest()
    peer.send({ t: 'join', request_id: id, room_type: 'counter', options: { key } })
    for (let at = 1; at <= 15; at += 1) peer.send({ t: 'ping', at })
    await peer.expect('pong', { at: 15 })
    await peer.expect('state.snapshot', { room_id: `counter:${key}` })
    assert.equal(peer.inbox[0]?.t, 'welcome', 'welcome comes first')
    const pongs = peer.inbox.flatMap((message) => (message.t === 'pong' ? [message.at] : []))
    assert.deepEqual(
      pongs,
      Array.from({ length: 15 }, (_, index) => index + 1),
    )
  },
)

/** Frames that are not messages. The vectors have more. */
const GARBAGE: [string, Codec, string | Uint8Array][] = [
  ['text that is not JSON', 'json', 'hello'],
  ['an empty text', 'json', ''],
  ['a binary frame', 'json', new TextEncoder().encode('{"t":"ping","at":1}')],
  ['bytes that are not MessagePack', 'msgpack', new Uint8Array([0xc1])],
  ['no bytes', 'msgpack', new Uint8Array()],
  ['a text frame', 'msgpack', '{"t":"ping","at":1}'],
]

for (const [what, codec, frame] of GARBAGE) {
  topic.once(`${what} instead of hello is closed with 4000 (${codec})`, NO_MESSAGE, async (stage) => {
    const peer = await stage.open(codec)
    peer.sendRaw(frame)
    await peer.closes(CLOSE.protocol_error)
  })
  topic.once(`${what} after welcome is closed with 4000 (${codec})`, NO_MESSAGE, async (stage) => {
    const peer = await stage.connect(codec)
    peer.sendRaw(frame)
    await peer.closes(CLOSE.protocol_error)
  })
}

topic.each(
  'a frame of max_message_bytes passes, one byte more is closed with 4008',
  'R16: 4008',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const most = peer.session.welcome!.limits.max_message_bytes
    peer.sendRaw(paddedPing(codec, 1, most))
    await peer.expect('pong', { at: 1 })
    peer.sendRaw(paddedPing(codec, 2, most + 1))
    await peer.closes(CLOSE.too_large)
    assert.ok(!peer.inbox.some((message) => message.t === 'pong' && message.at === 2), 'it was answered')
  },
)

topic.once('a hello that is too large is closed with 4008', 'R16: 4008', async (stage) => {
  const { limits } = (await stage.connect('json')).session.welcome!
  const peer = await stage.open('json')
  const hello = { t: 'hello', project_id: stage.target.project_id, token: 'x', more: '' }
  hello.more = ' '.repeat(limits.max_message_bytes)
  peer.sendRaw(JSON.stringify(hello))
  await peer.closes(CLOSE.too_large)
})

/** Returns a ping of exactly `size` bytes. An unknown field, which the server ignores, fills it. */
function paddedPing(codec: Codec, at: number, size: number): string | Uint8Array {
  if (codec === 'json') {
    const bare = JSON.stringify({ t: 'ping', at, padding: '' })
    return bare.replace('""', `"${'x'.repeat(size - bare.length)}"`)
  }
  // [5, at, str16]: six bytes and the text.
  const bytes = new Uint8Array(size).fill(0x78)
  bytes.set([0x93, 0x05, at, 0xda, (size - 6) >> 8, (size - 6) & 0xff])
  return bytes
}
