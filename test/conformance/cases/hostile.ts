import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { CLOSE, counted, type Stage, Topic } from '../case.ts'
import { encodeMsgpack } from '../codecs.ts'
import { type ClientMessage, CODECS, type Codec, type Json } from '../messages.ts'
import type { Peer } from '../peer.ts'
import type { RoomView } from '../room-view.ts'

const topic = new Topic('hostile')
export const hostile = topic.cases

const WRONG = 'Messages from the client: what is answered, and what is closed'

/** Close codes that are allowed after an invalid frame. 1007 is the websocket's code for invalid UTF-8. */
const CLOSES_FOR_GARBAGE: readonly number[] = [
  // A changed byte can make a goodbye.
  CLOSE.goodbye,
  CLOSE.protocol_error,
  CLOSE.too_large,
  CLOSE.rate_limited,
  CLOSE.unauthenticated,
  CLOSE.resume_failed,
  1007,
]

/** Connects two clients that must not notice the attack. Returns a function that checks them. */
async function bystanders(stage: Stage): Promise<() => Promise<void>> {
  const key = stage.key()
  const peers = [await stage.connect('json'), await stage.connect('msgpack')]
  const views: RoomView[] = []
  for (const peer of peers) views.push(await peer.join('counter', key))
  let total = 0
  return async () => {
    for (const peer of peers) {
      await peer.acted(`counter:${key}`, 'inc', {})
      total += 1
    }
    for (const [index, peer] of peers.entries()) {
      await peer.until('both see it', () => counted(views[index]!) === total)
    }
  }
}

/** Waits until the server has handled all frames of `peer`: it has closed the connection, or answers a ping. */
async function handled(peer: Peer): Promise<void> {
  const at = performance.now()
  if (!peer.ending) peer.send({ t: 'ping', at })
  await peer.until(
    'the server answers or closes',
    () =>
      peer.ending !== undefined || peer.inbox.some((message) => message.t === 'pong' && message.at === at),
    5000,
    'even closed',
  )
  if (peer.ending && !CLOSES_FOR_GARBAGE.includes(peer.ending.code)) {
    peer.fail(`closed with ${peer.ending.code} ${peer.ending.reason}`)
  }
}

topic.each('random bytes after welcome do not disturb other clients', WRONG, async (stage, codec) => {
  const random = new SeededRandom(stage.target.seed)
  const check = await bystanders(stage)
  const token = await stage.token()
  for (let round = 0; round < 25; round += 1) {
    const peer = await stage.connectWith(codec, token)
    const noise = random.bytes(random.integer(1, 400))
    if (codec === 'json') peer.sendRaw(Buffer.from(noise).toString('latin1'))
    else peer.sendRaw(noise)
    await handled(peer)
    if (round % 5 === 0) await check()
  }
})

topic.each('random bytes instead of hello are closed with 4000', WRONG, async (stage, codec) => {
  const random = new SeededRandom(stage.target.seed)
  const check = await bystanders(stage)
  for (let round = 0; round < 25; round += 1) {
    const peer = await stage.open(codec)
    const noise = random.bytes(random.integer(1, 400))
    peer.sendRaw(codec === 'json' ? Buffer.from(noise).toString('latin1') : noise)
    await peer.closes(CLOSE.protocol_error)
  }
  await check()
})

/** Valid messages, whose bytes a case changes. */
function validMessages(roomId: string): ClientMessage[] {
  return [
    { t: 'join', request_id: 9, room_type: 'counter', options: { key: 'x', deep: [{ a: [1, 2.5, null] }] } },
    { t: 'leave', request_id: 10, room_id: 'counter:nowhere' },
    { t: 'message', room_id: roomId, type: 'inc', data: { by: 3 }, ref: 1, settled: 0 },
    { t: 'state.resync', room_id: roomId, reason: 'checksum' },
    { t: 'ping', at: 12.5 },
    { t: 'token', token: 'v4.public.abc' },
    { t: 'hello', project_id: 'prj_1', token: 'v4.public.abc' },
  ]
}

topic.each(
  'valid frames with a few changed bytes do not disturb other clients',
  WRONG,
  async (stage, codec) => {
    const random = new SeededRandom(stage.target.seed)
    const check = await bystanders(stage)
    const token = await stage.token()
    for (let round = 0; round < 60; round += 1) {
      const peer = await stage.connectWith(codec, token)
      // The server may answer a changed ref that this client has not sent. That is no fault.
      peer.detached = true
      const message = random.pick(validMessages(`counter:${stage.key()}`))
      const frame =
        codec === 'json' ? Buffer.from(JSON.stringify(message)) : Buffer.from(encodeMsgpack(message))
      for (let change = random.integer(1, 3); change > 0; change -= 1) {
        frame[random.integer(0, frame.length - 1)] = random.integer(0, codec === 'json' ? 127 : 255)
      }
      peer.sendRaw(codec === 'json' ? frame.toString('utf8') : new Uint8Array(frame))
      await handled(peer)
      if (round % 10 === 0) await check()
    }
  },
)

function randomJson(random: SeededRandom, depth: number): Json {
  switch (random.integer(0, depth > 3 ? 5 : 7)) {
    case 0:
      return null
    case 1:
      return random.integer(0, 1) === 1
    case 2:
      return random.integer(-1000, 1000)
    case 3:
      return random.float() * 1e9
    case 4:
      return 'counter:x'.slice(0, random.integer(0, 9))
    case 5:
      return random.pick(['hello', 'ping', '', '__proto__', 'constructor', '\u0000', '🎲'])
    case 6:
      return Array.from({ length: random.integer(0, 4) }, () => randomJson(random, depth + 1))
    default:
      return Object.fromEntries(
        Array.from({ length: random.integer(0, 4) }, (_, index) => [
          random.pick(['key', 'toString', 'by', `k${index}`]),
          randomJson(random, depth + 1),
        ]),
      )
  }
}

const FIELDS = [
  'request_id',
  'ref',
  'room_type',
  'room_id',
  'options',
  'type',
  'data',
  'reason',
  'at',
  'token',
]

topic.each(
  'well-formed messages with random fields do not disturb other clients',
  WRONG,
  async (stage, codec) => {
    const random = new SeededRandom(stage.target.seed)
    const check = await bystanders(stage)
    const peer = await stage.connect(codec)
    peer.detached = true
    for (let round = 0; round < 70; round += 1) {
      await peer.paced()
      const t = random.pick(['join', 'leave', 'message', 'state.resync', 'ping', 'token', 'toString'])
      const fields: { [key: string]: Json } = { t }
      for (const field of FIELDS) if (random.integer(0, 1)) fields[field] = randomJson(random, 0)
      const values = Array.from({ length: random.integer(0, 5) }, () => randomJson(random, 0))
      peer.sendOdd(fields, [random.pick([1, 2, 3, 4, 5, 6, 9]), ...values])
      if (round % 30 === 0) await check()
    }
    await peer.roundTrip()
    await check()
  },
)

topic.once('JSON with the deepest nesting that a frame can hold is refused', WRONG, async (stage) => {
  const check = await bystanders(stage)
  const peer = await stage.connect('json')
  const { roomId } = await peer.join('counter', stage.key())
  for (const depth of [101, 1000, 7000]) {
    const data = `${'['.repeat(depth)}${']'.repeat(depth)}`
    const from = peer.inbox.length
    const ref = peer.session.nextRef(roomId)
    peer.session.sending({ t: 'message', room_id: roomId, type: 'inc', data: null, ref })
    peer.sendRaw(
      `{"t":"message","room_id":${JSON.stringify(roomId)},"type":"inc","data":${data},"ref":${ref},"settled":0}`,
    )
    await peer.until(
      'an answer',
      () => peer.ending !== undefined || peer.inbox.length > from,
      5000,
      'even closed',
    )
    if (peer.ending) await peer.closes(CLOSE.protocol_error)
    else assert.equal(peer.inbox[from]!.t, 'error')
    await check()
    if (peer.ending) return
  }
})

topic.once('MessagePack with more than 100 levels is closed with 4000', 'R16: nesting', async (stage) => {
  const check = await bystanders(stage)
  for (const depth of [102, 5000]) {
    const peer = await stage.connect('msgpack')
    peer.sendRaw(
      new Uint8Array([0x94, 0x03, 0xa3, 0x61, 0x3a, 0x62, 0xa1, 0x78, ...Array(depth).fill(0x91), 0x01]),
    )
    await peer.closes(CLOSE.protocol_error)
  }
  await check()
})

topic.once(
  'a number in JSON that a double cannot hold gets at most one answer',
  'Messages from the client: `ping`',
  async (stage) => {
    const peer = await stage.connect('json')
    peer.sendRaw('{"t":"ping","at":1e999}')
    await handled(peer)
    const pongs = peer.inbox.filter(({ t }) => t === 'pong')
    assert.ok(pongs.length <= 1, 'the number was answered')
  },
)

topic.each('options and data cannot reach a prototype', WRONG, async (stage, codec) => {
  const check = await bystanders(stage)
  const peer = await stage.connect(codec)
  for (const key of ['__proto__', 'constructor', 'prototype', 'toString']) {
    const view = await peer.join('counter', key)
    await peer.acted(view.roomId, 'inc', { constructor: { prototype: { polluted: true } } })
    assert.ok(counted(view) >= 1, 'it was counted')
  }
  const id = peer.session.nextRequest()
  peer.send({ t: 'join', request_id: id, room_type: '__proto__', options: {} })
  await peer.expect('error', { request_id: id, code: 'unknown_room_type' })
  const fighters = await peer.join('arena', stage.key())
  const target = peer.act(fighters.roomId, 'hit', { target: '__proto__' })
  await peer.expect('error', { ref: target, code: 'room_logic_refused' })
  await check()
})

topic.once('text that is not UTF-8 does not disturb other clients', WRONG, async (stage) => {
  const check = await bystanders(stage)
  const peer = await stage.connect('json')
  peer.socket.send(Buffer.from([0x7b, 0xff, 0xfe, 0x7d]), { binary: false })
  await handled(peer)
  await check()
})

topic.once('clients that connect and disconnect do not disturb other clients', WRONG, async (stage) => {
  const check = await bystanders(stage)
  const token = await stage.token()
  const { project_id: projectId } = stage.target
  for (let round = 0; round < 40; round += 1) {
    const peer = await stage.open(CODECS[round % 2] as Codec)
    if (round % 4 > 0) peer.send({ t: 'hello', project_id: projectId, token })
    if (round % 4 > 1)
      peer.send({ t: 'join', request_id: 1, room_type: 'counter', options: { key: 'vanishing' } })
    if (round % 4 > 2) await peer.expect('welcome')
    peer.detached = true
    peer.cut()
  }
  await check()
})

/** Bytes on a TCP connection, without a websocket. */
const RAW: [string, (random: SeededRandom) => Uint8Array][] = [
  ['random bytes', (random) => random.bytes(500)],
  ['a plain GET', () => Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n')],
  [
    'a websocket of version 1',
    () =>
      Buffer.from(
        'GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 1\r\n\r\n',
      ),
  ],
  ['a header without end', () => Buffer.from(`GET / HTTP/1.1\r\nx: ${'y'.repeat(100_000)}`)],
  [
    'frames without a mask',
    () =>
      Buffer.concat([
        Buffer.from(
          'GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: roomful.v1.json\r\n\r\n',
        ),
        Buffer.from([0x81, 0x02, 0x7b, 0x7d, 0xff, 0xff]),
      ]),
  ],
]

for (const [what, make] of RAW) {
  topic.once(`a TCP connection with ${what} gets an answer or ends within 5 s`, 'RFC 6455', async (stage) => {
    const check = await bystanders(stage)
    const { hostname, port } = new URL(stage.target.ws_url)
    const socket = connect(Number(port || 80), hostname)
    const answered = new Promise<void>((resolve) => {
      socket.once('data', () => resolve())
      socket.once('close', () => resolve())
      socket.once('error', () => resolve())
    })
    socket.on('error', () => socket.destroy())
    socket.write(make(new SeededRandom(stage.target.seed)))
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('no answer and no end within 5 s')), 5000)
    })
    await Promise.race([answered, late]).finally(() => {
      clearTimeout(timer)
      socket.destroy()
    })
    await check()
  })
}
