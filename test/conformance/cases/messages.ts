import assert from 'node:assert/strict'
import { CLOSE, counted, type Stage, Topic } from '../case.ts'
import type { Codec, Json } from '../messages.ts'
import type { Peer } from '../peer.ts'
import { canonical, type RoomView } from '../room-view.ts'

const topic = new Topic('messages')
export const messages = topic.cases

const ACK = 'R24: an `ack` says that the messages up to its `ref` were applied'
const ORDER = 'Order: of the messages of one client'
const WITHIN = 'Order: within a flush'
const ONCE = 'Level 2: exactly once and in order'
const REPLIED = 'R24: a `reply` comes before its `ack`'
const UNRELIABLE = 'Level 1: a message without `ref` is applied at most once'
const FINAL = 'R24: an `error` with a `ref` is final'

async function inCounter(
  stage: Stage,
  codec: Codec,
): Promise<{ peer: Peer; view: RoomView; room_id: string }> {
  const peer = await stage.connect(codec)
  const view = await peer.join('counter', stage.key())
  return { peer, view, room_id: view.roomId }
}

topic.each('a message is acknowledged after its patch', WITHIN, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const ref = peer.act(roomId, 'inc', { by: 5 })
  await peer.expect('ack', { room_id: roomId, ref })
  const kinds = peer.inbox.map(({ t }) => t)
  assert.ok(kinds.indexOf('state.patch') < kinds.indexOf('ack'), kinds.join(' '))
  assert.equal(counted(view), 5)
})

topic.each('one ack may cover many messages, and all are applied', ACK, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const refs = Array.from({ length: 30 }, (_, index) => peer.act(roomId, 'inc', { by: index + 1 }))
  await peer.expect('ack', { room_id: roomId, ref: refs.at(-1)! })
  assert.equal(counted(view), 465)
  assert.equal(peer.session.kept.size, 0)
  const acked = peer.inbox.flatMap((message) => (message.t === 'ack' ? [message.ref] : []))
  assert.deepEqual(
    acked,
    acked.toSorted((a, b) => a - b),
  )
})

topic.each('messages are applied in their order', ORDER, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const view = await peer.join('arena', stage.key())
  const refs = Array.from({ length: 40 }, (_, x) => peer.act(view.roomId, 'move', { x, y: 999.5 - x }))
  await peer.expect('ack', { room_id: view.roomId, ref: refs.at(-1)! })
  const players = (view.state as { players: Record<string, { x: number; y: number }> }).players
  assert.deepEqual({ ...players[view.memberId], hp: 0 }, { x: 39, y: 960.5, hp: 0 })
})

topic.each('a repeated ref is applied once and not answered again', ONCE, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const ref = await peer.acted(roomId, 'inc', { by: 4 })
  peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 4 }, ref, settled: ref })
  await peer.roundTrip()
  peer.session.kept.clear()
  await peer.acted(roomId, 'inc', { by: 1 })
  assert.equal(counted(view), 5)
  const acks = peer.inbox.flatMap((message) => (message.t === 'ack' ? [message.ref] : []))
  assert.deepEqual(acks, [1, 2])
})

topic.each('a reply arrives between the patch and the ack of its message', REPLIED, async (stage, codec) => {
  const { peer, room_id: roomId } = await inCounter(stage, codec)
  const ref = peer.act(roomId, 'take', null)
  await peer.expect('ack', { room_id: roomId, ref })
  assert.deepEqual(peer.session.replyTo(roomId, ref), { count: 1 })
  const kinds = peer.inbox.map(({ t }) => t).filter((t) => ['state.patch', 'reply', 'ack'].includes(t))
  assert.deepEqual(kinds, ['state.patch', 'reply', 'ack'])
})

topic.each('only the sender receives a reply, and once', REPLIED, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const other = await stage.connect(codec)
  await other.join('counter', roomId.slice('counter:'.length))
  const ref = peer.act(roomId, 'take', null)
  await peer.expect('ack', { room_id: roomId, ref })
  await other.acted(roomId, 'inc', { by: 7 })
  peer.send({ t: 'message', room_id: roomId, type: 'take', data: null, ref, settled: ref - 1 })
  await peer.roundTrip()
  peer.session.kept.clear()
  assert.deepEqual(peer.session.replyTo(roomId, ref), { count: 1 })
  assert.equal(peer.inbox.filter(({ t }) => t === 'reply').length, 1)
  assert.equal(counted(view), 8)
  assert.ok(!other.inbox.some(({ t }) => t === 'reply'), 'the other client got the reply')
})

topic.each(
  'a client that sends settled may have 32 unconfirmed replies',
  'Level 2: at most 32 messages whose type has a reply (`too_many_requests`)',
  async (stage, codec) => {
    const { peer, room_id: roomId } = await inCounter(stage, codec)
    const known = await peer.acted(roomId, 'inc', {})
    const take = (settled: number): number => {
      const ref = peer.session.nextRef(roomId)
      peer.send({ t: 'message', room_id: roomId, type: 'take', data: null, ref, settled })
      return ref
    }
    const refs = Array.from({ length: 33 }, () => take(known))
    await peer.expect('error', { room_id: roomId, ref: refs.at(-1)!, code: 'too_many_requests' })
    const more = take(refs[0]!)
    await peer.expect('reply', { room_id: roomId, ref: more })
  },
)

topic.each(
  'a skipped ref ends the connection, and its message is not applied',
  'R21: a skipped `ref` closes with 4000',
  async (stage, codec) => {
    for (const [before, ref] of [
      [0, 2],
      [2, 4],
      [1, Number.MAX_SAFE_INTEGER],
    ] as const) {
      const { peer, room_id: roomId } = await inCounter(stage, codec)
      const other = await stage.connect(codec)
      const witness = await other.join('counter', roomId.slice('counter:'.length))
      for (let sent = 0; sent < before; sent += 1) await peer.acted(roomId, 'inc', { by: 1 })
      peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 50 }, ref, settled: before })
      const { reason } = await peer.closes(CLOSE.protocol_error)
      assert.ok(reason.includes(`${before + 1} is due`), reason)
      await other.acted(roomId, 'inc', { by: 1 })
      assert.equal(counted(witness), before + 1)
    }
  },
)

topic.each('each seat counts its refs from 1', 'R21', async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const key = roomId.slice('counter:'.length)
  const other = await stage.connect(codec)
  await other.join('counter', key)
  const second = await peer.join('counter', stage.key())
  for (const [who, room] of [
    [peer, roomId],
    [other, roomId],
    [peer, second.roomId],
  ] as const)
    assert.equal(await who.acted(room, 'inc', {}), 1)
  assert.equal(counted(view), 2)
  await peer.leave(roomId)
  const again = await peer.join('counter', key)
  assert.equal(await peer.acted(roomId, 'inc', {}), 1)
  assert.equal(counted(again), 3)
})

topic.each(
  'answers arrive in the order of the refs, and an ack before the error of the next ref',
  'Level 2: an `error` arrives before the `ack` that covers it',
  async (stage, codec) => {
    const { peer, room_id: roomId } = await inCounter(stage, codec)
    for (let round = 0; round < 10; round += 1) for (const by of [1, 0, 0, 1]) peer.act(roomId, 'inc', { by })
    await peer.until('all are answered', () => peer.session.kept.size === 0)
    // Each client reports an error before the ack of a lower ref as a fault.
    const refused = peer.inbox.flatMap((message) => (message.t === 'error' ? [message.ref! % 4] : []))
    assert.deepEqual(new Set(refused), new Set([2, 3]))
    assert.equal(refused.length, 20)
  },
)

topic.each('a message without ref is applied and not answered', UNRELIABLE, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  for (let count = 0; count < 5; count += 1)
    peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 2 } })
  await peer.until('all five are applied', () => counted(view) === 10)
  const ref = await peer.acted(roomId, 'inc', { by: 1 })
  const answers = peer.inbox.filter(({ t }) => t === 'ack' || t === 'error')
  assert.deepEqual(
    answers.map((answer) => answer.t === 'ack' && answer.ref),
    [ref],
  )
})

topic.once('a ref of null counts as absent', 'Messages from the client: null is absent', async (stage) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, 'json')
  peer.sendRaw(JSON.stringify({ t: 'message', room_id: roomId, type: 'inc', data: { by: 3 }, ref: null }))
  await peer.until('it is applied', () => counted(view) === 3)
  await peer.roundTrip()
  assert.ok(!peer.inbox.some(({ t }) => t === 'ack' || t === 'error'), 'it was answered')
})

const BAD_PAYLOADS: Json[] = [{ by: 0 }, { by: 101 }, { by: 1.5 }, { by: '1' }, { by: null }, null, 7]

topic.each('invalid data is answered with invalid_payload', FINAL, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  for (const data of BAD_PAYLOADS) {
    const ref = peer.act(roomId, 'inc', data)
    const error = await peer.expect('error', { ref })
    assert.equal(error.code, 'invalid_payload', JSON.stringify(data))
  }
  await peer.acted(roomId, 'inc', { by: 1 })
  assert.equal(counted(view), 1)
})

topic.each('a refused ref stays refused', FINAL, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await inCounter(stage, codec)
  const ref = peer.act(roomId, 'inc', { by: 0 })
  await peer.expect('error', { ref, code: 'invalid_payload' })
  await peer.acted(roomId, 'inc', { by: 1 })
  peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 50 }, ref, settled: ref })
  await peer.roundTrip()
  peer.session.kept.clear()
  assert.equal(counted(view), 1)
  assert.equal(peer.inbox.filter(({ t }) => t === 'error').length, 1)
})

topic.each(
  'invalid data without ref is answered with an error without ref',
  UNRELIABLE,
  async (stage, codec) => {
    const { peer, room_id: roomId } = await inCounter(stage, codec)
    peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 0 } })
    const error = await peer.expect('error', { code: 'invalid_payload' })
    assert.equal(error.ref, undefined)
  },
)

topic.each(
  'an unknown type is answered with unknown_type',
  'Error codes: `unknown_type`',
  async (stage, codec) => {
    const { peer, room_id: roomId } = await inCounter(stage, codec)
    for (const type of ['dec', 'toString', '__proto__']) {
      const ref = peer.act(roomId, type, {})
      await peer.expect('error', { ref, code: 'unknown_type' })
    }
    await peer.acted(roomId, 'inc', {})
  },
)

topic.each('a message without a seat is not_in_room', 'Error codes: `not_in_room`', async (stage, codec) => {
  const { peer } = await inCounter(stage, codec)
  const ref = peer.act(`counter:${stage.key()}`, 'inc', {})
  await peer.expect('error', { ref, code: 'not_in_room' })
})

topic.each(
  'a refusal of the room logic contains its reason',
  'Error codes: `room_logic_refused`',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const view = await peer.join('tictactoe', stage.key())
    const before = canonical(view.state!)
    const ref = peer.act(view.roomId, 'move', { cell: 0 })
    const { message } = await peer.expect('error', { ref, code: 'room_logic_refused' })
    assert.match(message, /the seat of O is empty/)
    await peer.roundTrip()
    assert.equal(canonical(view.state!), before)
  },
)

topic.each(
  'messages above the rate of the room type are rate_limited',
  'Limits: of message types',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const { roomId } = await peer.join('tictactoe', stage.key())
    const refs = Array.from({ length: 30 }, () => peer.act(roomId, 'restart', {}))
    await peer.until('every restart is answered', () => peer.session.kept.size === 0)
    const limited = peer.inbox.filter((message) => message.t === 'error')
    assert.ok(
      limited.length >= 15,
      `only ${limited.length} of ${refs.length} were limited: the rate is 1 a second with a burst of 10`,
    )
    assert.ok(
      limited.length <= 20,
      `${limited.length} of ${refs.length} were limited: a burst of 10 is allowed`,
    )
    for (const error of limited) assert.equal(error.code, 'rate_limited')
    await peer.acted(roomId, 'move', { cell: 1 }).then(
      () => assert.fail('a move of a single player must be refused'),
      (problem: Error) => assert.match(problem.message, /room_logic_refused/),
    )
  },
)

topic.once(
  'a message without ref above messages_per_second is rate_limited',
  'Limits: above the rate',
  async (stage) => {
    const { peer, view, room_id: roomId } = await inCounter(stage, 'json')
    const sent = 5 * peer.session.welcome!.limits.message_burst
    for (let count = 0; count < sent; count += 1)
      peer.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 1 } })
    const limited = () => peer.inbox.filter((message) => message.t === 'error')
    await peer.until('each is applied or refused', () => counted(view) + limited().length === sent, 20_000)
    assert.ok(limited().length > 0, 'nothing was limited')
    for (const error of limited()) assert.equal(error.code, 'rate_limited')
  },
)

topic.once(
  'messages with a ref above messages_per_second wait',
  "Level 2: never refused for the session's rate",
  async (stage) => {
    const { peer, view, room_id: roomId } = await inCounter(stage, 'msgpack')
    const sent = 3 * peer.session.welcome!.limits.message_burst
    for (let count = 0; count < sent; count += 1) peer.act(roomId, 'inc', { by: 1 })
    await peer.until('every message is answered', () => peer.session.kept.size === 0, 20_000)
    const errors = peer.inbox.filter((message) => message.t === 'error')
    assert.deepEqual(errors, [])
    await peer.until('all are applied', () => counted(view) === sent)
  },
)

topic.once('a client that ignores the rate limit is closed with 4006', 'Limits: 4006', async (stage) => {
  const { peer } = await inCounter(stage, 'msgpack')
  const { message_burst: messageBurst } = peer.session.welcome!.limits
  const deadline = performance.now() + 40_000
  while (!peer.ending && performance.now() < deadline) {
    for (let at = 0; at < messageBurst && !peer.ending; at += 1) peer.send({ t: 'ping', at })
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  await peer.closes(CLOSE.rate_limited)
})
