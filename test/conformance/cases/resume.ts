import assert from 'node:assert/strict'
import { CLOSE, counted, pair, Topic } from '../case.ts'
import type { Peer } from '../peer.ts'
import { canonical, RoomView } from '../room-view.ts'

const topic = new Topic('resume')
export const resume = topic.cases

const MISSED = 'Level 2: the frames above the listed `seq`, then the next ones'
const APPLIED = 'R22: kept messages are sent again'
const HIGHEST = 'R24: the `ack` after a resume'
const LOST = 'Level 2: an `error` arrives before the `ack` that covers it'

/** Returns the messages of a room's stream from the patch after `seq` on. Without epochs: the first missed patch has one even if it is not new. */
function stream(peer: Peer, roomId: string, seq: number): object[] {
  const first = peer.inbox.findIndex(
    (message) => message.t === 'state.patch' && message.room_id === roomId && message.seq > seq,
  )
  return peer.inbox
    .slice(first)
    .filter(
      (message) =>
        (message.t === 'state.patch' || message.t === 'event' || message.t === 'member') &&
        message.room_id === roomId,
    )
    .map((message) => ({ ...message, epoch: undefined }))
}

topic.each('a resume brings exactly the missed frames', MISSED, async (stage, codec) => {
  const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
  await peer.acted(roomId, 'inc', { by: 3 })
  await peer.until('both have one seq', () => view.seq === witness.seq)
  const { seq } = view
  peer.cut()
  for (let count = 0; count < 12; count += 1) await other.acted(roomId, 'inc', { by: 7 })
  const guest = await stage.connect('msgpack', { sub: 'guest' })
  await guest.join('counter', roomId.slice('counter:'.length))
  await guest.leave(roomId)
  await other.expect('member', { room_id: roomId, sub: 'guest', connected: undefined })

  const back = await stage.resume(peer)
  const isBack = { room_id: roomId, member_id: view.memberId, connected: true }
  for (const receiver of [back, other]) await receiver.expect('member', isBack)
  await back.until('it has caught up', () => view.seq === witness.seq)
  await back.roundTrip()
  assert.equal(view.resyncs, 0)
  assert.equal(view.snapshots, 1, 'only the snapshot of the join')
  if (codec === 'json') assert.deepEqual(stream(back, roomId, 0), stream(other, roomId, seq))
  const kinds = (frames: object[]) => frames.map((frame) => (frame as { t: string }).t)
  assert.deepEqual(kinds(stream(back, roomId, 0)), kinds(stream(other, roomId, seq)))
  assert.equal(canonical(view.state!), canonical(witness.state!))
  assert.deepEqual([...view.members].sort(), [...witness.members].sort())

  await other.acted(roomId, 'inc', { by: 1 })
  await back.acted(roomId, 'inc', { by: 1 })
  await back.until('the stream continues', () => counted(view) === 89)
  assert.equal(view.resyncs, 0)
})

topic.each(
  'a session without a room ends with its connection',
  'Level 2: a session without a room ends with its connection',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    peer.cut()
    const refused = await stage.askToResume(peer)
    await refused.closes(CLOSE.resume_failed)
    assert.deepEqual(refused.inbox, [])
  },
)

topic.each('a resume without missed frames brings no frames', MISSED, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await pair(stage, codec)
  // The old connection is still open. After a lost connection, the client would have missed the message about its loss.
  const back = await stage.resume(peer)
  await back.roundTrip()
  assert.deepEqual(stream(back, roomId, 0), [])
  await back.acted(roomId, 'inc', {})
  assert.equal(counted(view), 1)
})

topic.each('messages that are sent again after a resume are applied once', APPLIED, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await pair(stage, codec)
  const acked = await peer.acted(roomId, 'inc', { by: 10 })
  for (let round = 0; round < 5; round += 1) {
    for (let count = 0; count < 8; count += 1) peer.act(roomId, 'inc', { by: 1 })
  }
  await peer.until('some were applied', () => counted(view) > 10)
  peer.cut()
  const back = await stage.resume(peer)
  stage.resend(back)
  await back.until('all are answered', () => back.session.kept.size === 0)
  back.send({ t: 'message', room_id: roomId, type: 'inc', data: { by: 10 }, ref: acked, settled: acked })
  await back.roundTrip()
  back.session.kept.clear()
  await back.acted(roomId, 'inc', { by: 1 })
  assert.equal(counted(view), 51)
})

topic.each('a resume brings the ack that the client does not know', HIGHEST, async (stage, codec) => {
  const { peer, room_id: roomId } = await pair(stage, codec)
  await peer.acted(roomId, 'inc', {})
  const ref = await peer.acted(roomId, 'inc', {})
  peer.cut()
  const hello = peer.session.resumption()
  hello.resume.rooms = hello.resume.rooms.map((room) => ({ ...room, settled: 1 }))
  const back = await stage.open(codec, {}, peer.session)
  back.send(hello)
  await back.expect('welcome')
  await back.expect('ack', { room_id: roomId, ref })
})

topic.each('a resume brings no ack for a room without messages', HIGHEST, async (stage, codec) => {
  const { peer } = await pair(stage, codec)
  peer.cut()
  const back = await stage.resume(peer)
  await back.roundTrip()
  assert.ok(!back.inbox.some(({ t }) => t === 'ack'), 'there is an ack')
})

topic.each('a resume brings all refusals that were lost with the connection', LOST, async (stage, codec) => {
  const { peer, other, witness, room_id: roomId } = await pair(stage, codec)
  const { seq } = witness
  const refused = Array.from({ length: 60 }, () => peer.act(roomId, 'inc', { by: 0 }))
  peer.act(roomId, 'inc', { by: 1 })
  // This client ignores all later messages. The witness sees that the server has handled its messages.
  peer.detached = true
  await other.until('the good one is applied', () => witness.seq > seq)
  peer.cut()
  const back = await stage.resume(peer)
  stage.resend(back)
  await back.until('all are answered', () => back.session.kept.size === 0)
  const firstAck = back.inbox.findIndex(({ t }) => t === 'ack')
  const errors = back.inbox
    .slice(0, firstAck)
    .flatMap((message) => (message.t === 'error' ? [message.ref] : []))
  assert.deepEqual(errors.slice(0, refused.length), refused)
})

topic.each(
  'a resume brings the same reply that was lost with the connection',
  'Level 2: an `error` or `reply` arrives before the `ack` that covers it',
  async (stage, codec) => {
    const { peer, other, witness, room_id: roomId } = await pair(stage, codec)
    const { seq } = witness
    const ref = peer.act(roomId, 'take', null)
    // This client ignores all later messages. The witness sees that the server has handled its message.
    peer.detached = true
    await other.until('it is applied', () => witness.seq > seq)
    await other.acted(roomId, 'inc', { by: 5 })
    peer.cut()
    const back = await stage.resume(peer)
    stage.resend(back)
    await back.until('it is answered', () => back.session.kept.size === 0)
    const kinds = back.inbox.map(({ t }) => t)
    assert.ok(kinds.indexOf('reply') < kinds.indexOf('ack'), kinds.join(' '))
    assert.deepEqual(back.session.replyTo(roomId, ref), { count: 1 })
  },
)

topic.each('a resume does not bring refusals that the client knows', 'R23', async (stage, codec) => {
  const { peer, room_id: roomId } = await pair(stage, codec)
  const known = peer.act(roomId, 'inc', { by: 0 })
  await peer.expect('error', { ref: known })
  const unknown = peer.act(roomId, 'inc', { by: 0 })
  await peer.expect('error', { ref: unknown })
  const errors = (of: Peer) => of.inbox.flatMap((message) => (message.t === 'error' ? [message.ref] : []))
  peer.cut()
  const first = peer.session.resumption()
  first.resume.rooms = first.resume.rooms.map((room) => ({ ...room, settled: known }))
  const back = await stage.open(codec, {}, peer.session)
  back.send(first)
  await back.expect('welcome')
  await back.expect('error', { ref: unknown })
  await back.roundTrip()
  assert.deepEqual(errors(back), [unknown])
  back.cut()
  const hello = back.session.resumption()
  assert.equal(hello.resume.rooms[0]!.settled, unknown)
  const last = await stage.open(codec, {}, back.session)
  last.send(hello)
  await last.expect('welcome')
  await last.roundTrip()
  assert.deepEqual(errors(last), [])
})

topic.each('no ack covers a refusal that was lost with the connection', LOST, async (stage, codec) => {
  const { peer: x, view, other: o, witness, room_id: roomId } = await pair(stage, codec, 'tictactoe')
  await x.acted(roomId, 'move', { cell: 0 })
  await o.acted(roomId, 'move', { cell: 1 })
  const { seq } = witness
  const refused = x.act(roomId, 'move', { cell: 1 })
  const good = x.act(roomId, 'move', { cell: 2 })
  // This client ignores all later messages. The witness sees that the server has handled both moves.
  x.detached = true
  await o.until('the good move is made', () => witness.seq > seq)
  x.cut()
  const back = await stage.resume(x)
  stage.resend(back)
  await back.until('both are answered', () => back.session.kept.size === 0)
  const answers = back.inbox.filter(
    (message) => (message.t === 'ack' || message.t === 'error') && message.ref !== undefined,
  )
  const first = answers.find((answer) => (answer as { ref: number }).ref >= refused)
  if (first?.t !== 'error' || first.ref !== refused) {
    back.fail(
      `ref ${refused} was refused, ref ${good} applied; the client received ${JSON.stringify(answers)}`,
    )
  }
  await back.until('both have one seq', () => view.seq === witness.seq)
  assert.equal(canonical(view.state!), canonical(witness.state!))
})

topic.each(
  'a resume leaves the rooms that it does not list',
  'R19: the other rooms are left',
  async (stage, codec) => {
    const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
    // The server must know that the client has its seat. Otherwise the seat waits for a repeated join.
    await peer.acted(roomId, 'inc', {})
    const kept = await peer.join('counter', stage.key())
    peer.cut()
    view.seated = false
    const back = await stage.resume(peer)
    await other.expect('member', { room_id: roomId, member_id: view.memberId, connected: undefined })
    assert.equal(witness.members.size, 1)
    await back.acted(kept.roomId, 'inc', {})
  },
)

topic.each(
  'a resume answers a listed room without a seat with left',
  'R9, after a resume',
  async (stage, codec) => {
    const { peer, room_id: roomId } = await pair(stage, codec)
    const ghost = `counter:${stage.key()}`
    peer.cut()
    const hello = peer.session.resumption()
    hello.resume.rooms.push({ room_id: ghost, member_id: 'mem_ghost', epoch: 0, seq: 0, settled: 0 })
    const back = await stage.open(codec, {}, peer.session)
    peer.session.rooms.set(
      ghost,
      new RoomView({ t: 'joined', request_id: 1, room_id: ghost, member_id: 'mem_ghost' }),
    )
    back.send(hello)
    await back.expect('left', { room_id: ghost, reason: 'session_ended' })
    await back.acted(roomId, 'inc', {})
  },
)

topic.each(
  'a position that the room never had gets a resync',
  'R11, after a resume',
  async (stage, codec) => {
    const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
    await other.acted(roomId, 'inc', { by: 5 })
    await peer.until('both have one seq', () => view.seq === witness.seq)
    peer.cut()
    const hello = peer.session.resumption()
    // The room never had this seq, so the client's state cannot come from the room's stream.
    hello.resume.rooms = [{ ...view.position, seq: view.seq + 1000, settled: 0 }]
    const back = await stage.open(codec, {}, peer.session)
    back.send(hello)
    await back.expect('welcome')
    await back.expect('state.resync', { room_id: roomId })
    await other.acted(roomId, 'inc', { by: 5 })
    await back.until('the stream continues', () => counted(view) === 10)
  },
)

topic.each(
  'a repeated join gets the seat that it took while the connection was lost',
  'R10: a `join` with the same `request_id`',
  async (stage, codec) => {
    const { peer, other, witness, room_id: roomId } = await pair(stage, codec)
    const key = stage.key()
    const id = peer.session.nextRequest()
    peer.detached = true
    peer.send({ t: 'join', request_id: id, room_type: 'counter', options: { key } })
    const watcher = await other.join('counter', key)
    await other.until('the join has taken effect', () => watcher.members.size === 2)
    const seats = [...watcher.members.keys()]
    peer.cut()
    const hello = peer.session.resumption()
    const back = await stage.open(codec, {}, peer.session)
    back.send(hello)
    await back.expect('welcome', { resumed: true })
    back.send({ t: 'join', request_id: id, room_type: 'counter', options: { key } })
    const { member_id: seat } = await back.expect('joined', { request_id: id, room_id: `counter:${key}` })
    assert.ok(seats.includes(seat), 'another seat than before')
    await back.acted(`counter:${key}`, 'inc', {})
    await other.until('the other client sees it', () => counted(watcher) === 1)
    assert.equal(watcher.members.size, 2, 'a second seat of the client')
    await back.acted(roomId, 'inc', {})
    await other.until('the other client sees it', () => counted(witness) === 1)
  },
)
