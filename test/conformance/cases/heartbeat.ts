import assert from 'node:assert/strict'
import { Topic } from '../case.ts'

const topic = new Topic('heartbeat')
export const heartbeat = topic.cases

const PONG = '§2 "`at` is any number. Answer: `pong` with the same"'
const PINGS =
  '§1 "The server sends a websocket ping to a client that was silent for `heartbeat_seconds`, and drops the connection when nothing at all, not even a pong, has come for twice as long."'

topic.each('pong has the same number and the time of the server', PONG, async (stage, codec) => {
  const peer = await stage.connect(codec)
  for (const at of [0, 1, -1, 1234.5, 0.1, -1e-9, 2 ** 31, 2 ** 32, 2 ** 53 - 1, 1e300, 5e-324]) {
    const from = peer.inbox.length
    peer.send({ t: 'ping', at })
    await peer.expect('pong', { at }, { from })
  }
  const times = peer.inbox.flatMap((message) =>
    message.t === 'pong' ? [Date.parse(message.server_time)] : [],
  )
  assert.deepEqual(
    times,
    times.toSorted((a, b) => a - b),
  )
})

topic.each('pings are answered in order', PONG, async (stage, codec) => {
  const peer = await stage.connect(codec)
  for (let at = 1; at <= 50; at += 1) peer.send({ t: 'ping', at })
  await peer.expect('pong', { at: 50 })
  const pongs = peer.inbox.flatMap((message) => (message.t === 'pong' ? [message.at] : []))
  assert.deepEqual(
    pongs,
    Array.from({ length: 50 }, (_, index) => index + 1),
  )
})

topic.once('a websocket ping is answered too', 'RFC 6455 §5.5.2', async (stage) => {
  const peer = await stage.connect('json')
  let pongs = 0
  peer.socket.on('pong', () => {
    pongs += 1
  })
  peer.socket.ping()
  await peer.roundTrip()
  assert.equal(pongs, 1)
})

topic.waiting('a client that answers pings stays', PINGS, async (stage) => {
  const peer = await stage.connect('msgpack')
  const periodMs = peer.session.welcome!.heartbeat_seconds * 1000
  await peer.until('two pings have come', () => peer.pings >= 2, periodMs * 3 + 3000)
  await peer.roundTrip()
})

topic.waiting('a client that answers nothing is dropped', PINGS, async (stage) => {
  const peer = await stage.connect('json', {}, { answer_pings: false })
  await peer.join('counter', stage.key())
  const silentAt = performance.now()
  const periodMs = peer.session.welcome!.heartbeat_seconds * 1000
  await peer.until('it is dropped', () => peer.ending !== undefined, periodMs * 3 + 3000, 'even closed')
  const took = performance.now() - silentAt
  assert.ok(peer.pings >= 1, 'it was asked first')
  assert.ok(took > periodMs * 1.9, `dropped after ${Math.round(took)} ms of ${periodMs * 2}`)
  const back = await stage.resume(peer)
  await back.roundTrip()
})
