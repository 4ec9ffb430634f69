import assert from 'node:assert/strict'
import { Topic } from '../case.ts'
import type { Codec } from '../messages.ts'
import type { Peer } from '../peer.ts'
import { canonical, type RoomView } from '../room-view.ts'
import type { Stage } from '../stage.ts'
import { CLOSE } from '../tables.ts'

const topic = new Topic('resume')
export const resume = topic.cases

const MISSED = '§8 "`resumed: true`: exactly the missed frames follow, in order, and then the stream goes on"'
const APPLIED =
  '§7 "After a resume it sends what it still keeps again … What was applied already is not applied again; an `ack` says so."'
const HIGHEST = '§8 "Each room\'s `ack` follows with the highest `ref` applied, if any."'
const TOKEN = '§8 "`welcome` has `resumed: true` and a new `resume_token`. Each works once."'
const USED = '§8 "4005, a token that was used already"'
const WRONG = '§8 "4009, no such session (any more), or another token than its last two"'
const TAKEN =
  '§8 "When the session still has a connection, that one is closed with 4005 and the new one has it."'
const GOODBYE = '§8 "Closing with 1000 says goodbye: the session ends, its members leave at once."'
const STAYS =
  '§8 "When the connection ends without a code of the table that says otherwise, the session and its seats stay"'

const counted = (view: RoomView): number => (view.state as { count: number }).count

interface Pair {
  peer: Peer
  view: RoomView
  other: Peer
  witness: RoomView
  room_id: string
}

/** One client in `codec` and a JSON witness in a counter. */
async function pair(stage: Stage, codec: Codec, room_type = 'counter'): Promise<Pair> {
  const key = stage.key()
  const peer = await stage.connect(codec, { sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join(room_type, key)
  const witness = await other.join(room_type, key)
  await peer.until('both stand at one seq', () => view.seq === witness.seq)
  return { peer, view, other, witness, room_id: view.room_id }
}

/** The frames of a room's stream with a seq above `seq`. */
function stream(peer: Peer, room_id: string, seq: number): object[] {
  return peer.inbox.filter(
    (message) =>
      (message.t === 'state.patch' ||
        message.t === 'event' ||
        message.t === 'room.joined' ||
        message.t === 'room.left') &&
      message.room_id === room_id &&
      message.seq > seq,
  )
}

topic.each('a resume brings exactly the missed frames', MISSED, async (stage, codec) => {
  const { peer, view, other, witness, room_id } = await pair(stage, codec)
  await peer.acted(room_id, 'inc', { by: 3 })
  await peer.until('both stand at one seq', () => view.seq === witness.seq)
  const { seq } = view
  peer.cut()
  for (let count = 0; count < 12; count += 1) await other.acted(room_id, 'inc', { by: 7 })
  const guest = await stage.connect('msgpack', { sub: 'guest' })
  await guest.join('counter', room_id.slice('counter:'.length))
  await guest.leave(room_id)
  await other.expect('room.left', { room_id, sub: 'guest' })

  const back = await stage.resume(peer)
  assert.deepEqual(back.session.welcome!.rooms, [{ room_id, resumed: true }])
  await back.until('it has caught up', () => view.seq === witness.seq)
  await back.roundTrip()
  assert.equal(view.resyncs, 0)
  assert.equal(view.snapshots, 1, 'only that of the join')
  if (codec === 'json') assert.deepEqual(stream(back, room_id, 0), stream(other, room_id, seq))
  const kinds = (frames: object[]) => frames.map((frame) => (frame as { t: string }).t)
  assert.deepEqual(kinds(stream(back, room_id, 0)), kinds(stream(other, room_id, seq)))
  assert.equal(canonical(view.state!), canonical(witness.state!))
  assert.deepEqual([...view.members].sort(), [...witness.members].sort())

  await other.acted(room_id, 'inc', { by: 1 })
  await back.acted(room_id, 'inc', { by: 1 })
  await back.until('the stream goes on', () => counted(view) === 89)
  assert.equal(view.resyncs, 0)
})

topic.each('a resume that missed nothing brings nothing', MISSED, async (stage, codec) => {
  const { peer, view, room_id } = await pair(stage, codec)
  peer.cut()
  const back = await stage.resume(peer)
  await back.roundTrip()
  assert.deepEqual(stream(back, room_id, 0), [])
  await back.acted(room_id, 'inc', {})
  assert.equal(counted(view), 1)
})

topic.each('others do not see a member go that comes back', STAYS, async (stage, codec) => {
  const { peer, view, other, witness, room_id } = await pair(stage, codec)
  peer.cut()
  await other.acted(room_id, 'inc', {})
  const back = await stage.resume(peer)
  await back.acted(room_id, 'inc', {})
  await other.roundTrip()
  assert.ok(witness.members.has(view.member_id), 'its seat is gone')
  assert.ok(!witness.presence.some(({ member_id }) => member_id === view.member_id), 'it was seen to go')
})

topic.each('unacked messages that are sent again are applied once', APPLIED, async (stage, codec) => {
  const { peer, view, room_id } = await pair(stage, codec)
  for (let round = 0; round < 5; round += 1) {
    for (let count = 0; count < 8; count += 1) peer.act(room_id, 'inc', { by: 1 })
  }
  await peer.until('some were applied', () => counted(view) > 0)
  peer.cut()
  const back = await stage.resume(peer)
  stage.resend(back)
  await back.until('all are settled', () => back.session.kept.size === 0)
  await back.acted(room_id, 'inc', { by: 1 })
  assert.equal(counted(view), 41)
})

topic.each(
  'messages acked already that are sent again are not applied again',
  APPLIED,
  async (stage, codec) => {
    const { peer, view, room_id } = await pair(stage, codec)
    const refs: number[] = []
    for (let count = 0; count < 3; count += 1) refs.push(await peer.acted(room_id, 'inc', { by: 10 }))
    peer.cut()
    const back = await stage.resume(peer)
    for (const ref of refs) back.send({ t: 'message', room_id, type: 'inc', data: { by: 10 }, ref })
    await back.until('they are acked again', () => back.session.kept.size === 0)
    await back.acted(room_id, 'inc', { by: 1 })
    assert.equal(counted(view), 31)
  },
)

topic.each('the highest ref applied is acked behind welcome', HIGHEST, async (stage, codec) => {
  const { peer, room_id } = await pair(stage, codec)
  await peer.acted(room_id, 'inc', {})
  const ref = await peer.acted(room_id, 'inc', {})
  peer.cut()
  const back = await stage.resume(peer)
  await back.expect('ack', { room_id, ref })
})

topic.each('a room where nothing was sent has no ack behind welcome', HIGHEST, async (stage, codec) => {
  const { peer } = await pair(stage, codec)
  peer.cut()
  const back = await stage.resume(peer)
  await back.roundTrip()
  assert.ok(!back.inbox.some(({ t }) => t === 'ack'), 'there is an ack')
})

topic.each(
  'a refusal that got lost with the connection is not covered by an ack',
  '§7 "An `ack` says that this and all earlier messages of the member are applied"; §11 "An `error` with the `ref` of a reliable message settles it"',
  async (stage, codec) => {
    const { peer: x, view, other: o, witness, room_id } = await pair(stage, codec, 'tictactoe')
    await x.acted(room_id, 'move', { cell: 0 })
    await o.acted(room_id, 'move', { cell: 1 })
    const { seq } = witness
    const refused = x.act(room_id, 'move', { cell: 1 })
    const good = x.act(room_id, 'move', { cell: 2 })
    // From here on nothing reaches this client; the witness tells that the server has handled both.
    x.detached = true
    await o.until('the good move is made', () => witness.seq > seq)
    x.cut()
    const back = await stage.resume(x)
    stage.resend(back)
    await back.until('both are settled', () => back.session.kept.size === 0)
    const answers = back.inbox.filter(
      (message) => (message.t === 'ack' || message.t === 'error') && message.ref !== undefined,
    )
    const settled = answers.find((answer) => (answer as { ref: number }).ref >= refused)
    if (settled?.t !== 'error' || settled.ref !== refused) {
      back.fail(
        `ref ${refused} was refused, ref ${good} applied; the client learns ${JSON.stringify(answers)}`,
      )
    }
    assert.equal(canonical(view.state!), canonical(witness.state!))
  },
)

topic.each(
  'rooms that are not listed are left',
  '§8 "Rooms that are not listed are left."',
  async (stage, codec) => {
    const { peer, view, other, witness, room_id } = await pair(stage, codec)
    const kept = await peer.join('counter', stage.key())
    peer.cut()
    view.seated = false
    const back = await stage.resume(peer)
    assert.deepEqual(back.session.welcome!.rooms, [{ room_id: kept.room_id, resumed: true }])
    await other.expect('room.left', { room_id, member_id: view.member_id })
    assert.equal(witness.members.size, 1)
    await back.acted(kept.room_id, 'inc', {})
  },
)

topic.each(
  'a room without a seat does not come back',
  '§8 "A room that was listed in `hello` and is not in `rooms` has no seat any more either"',
  async (stage, codec) => {
    const { peer, room_id } = await pair(stage, codec)
    const ghost = `counter:${stage.key()}`
    peer.cut()
    const hello = peer.session.resumption()
    hello.resume.rooms.push({ room_id: ghost, epoch: 0, seq: 0 })
    const back = await stage.open(codec, {}, peer.session)
    back.send(hello)
    const welcome = await back.expect('welcome')
    const told = welcome.rooms!.find((room) => room.room_id === ghost)
    if (told) {
      assert.equal(told.resumed, false)
      await back.expect('error', { room_id: ghost, code: 'not_in_room' })
    }
    await back.acted(room_id, 'inc', {})
  },
)

topic.each(
  'a position that cannot be caught up with gets a resync',
  '§8 "`resumed: false`: a `state.resync` follows"',
  async (stage, codec) => {
    const { peer, view, other, witness, room_id } = await pair(stage, codec)
    await other.acted(room_id, 'inc', { by: 5 })
    await peer.until('both stand at one seq', () => view.seq === witness.seq)
    peer.cut()
    const hello = peer.session.resumption()
    // A seq the room never had: what the client holds cannot be what the room's stream made.
    hello.resume.rooms = [{ room_id, epoch: view.epoch, seq: view.seq + 1000 }]
    const back = await stage.open(codec, {}, peer.session)
    back.send(hello)
    const welcome = await back.expect('welcome')
    assert.deepEqual(welcome.rooms, [{ room_id, resumed: false }])
    await back.expect('state.resync', { room_id })
    await other.acted(room_id, 'inc', { by: 5 })
    await back.until('the stream goes on', () => counted(view) === 10)
  },
)

topic.each('the token rotates, and the session is the same', TOKEN, async (stage, codec) => {
  const { peer, room_id } = await pair(stage, codec)
  const tokens = [peer.session.resume_token]
  const { session_id } = peer.session
  let now = peer
  for (let round = 0; round < 4; round += 1) {
    now.cut()
    now = await stage.resume(now)
    tokens.push(now.session.resume_token)
    assert.equal(now.session.session_id, session_id)
    await now.acted(room_id, 'inc', {})
  }
  assert.equal(new Set(tokens).size, 5)
})

/** Tries to resume with `resume_token`, on a connection of its own. */
async function tryToken(stage: Stage, peer: Peer, resume_token: string, code: number): Promise<void> {
  const { project_id, session_id, codec } = peer.session
  const thief = await stage.open(codec)
  const { rooms } = peer.session.resumption().resume
  thief.send({ t: 'hello', project_id, resume: { session_id, resume_token, rooms } })
  await thief.closes(code)
  assert.deepEqual(thief.inbox, [])
}

topic.each('a used token is refused with 4005, and hurts nobody', USED, async (stage, codec) => {
  const { peer, room_id } = await pair(stage, codec)
  const used = peer.session.resume_token
  peer.cut()
  const back = await stage.resume(peer)
  await tryToken(stage, back, used, CLOSE.taken_over)
  await back.acted(room_id, 'inc', {})
})

topic.each('a wrong token is refused with 4009, and hurts nobody', WRONG, async (stage, codec) => {
  const { peer, room_id } = await pair(stage, codec)
  await tryToken(stage, peer, 'not-the-token', CLOSE.resume_failed)
  await peer.acted(room_id, 'inc', {})
  const first = peer.session.resume_token
  let now = peer
  for (let round = 0; round < 2; round += 1) {
    now.cut()
    now = await stage.resume(now)
  }
  await tryToken(stage, now, first, CLOSE.resume_failed)
  await now.acted(room_id, 'inc', {})
})

topic.each('no such session is refused with 4009', WRONG, async (stage, codec) => {
  const stranger = await stage.open(codec)
  const { project_id } = stage.target
  stranger.send({
    t: 'hello',
    project_id,
    resume: { session_id: 'ses_nobody', resume_token: 'none', rooms: [] },
  })
  await stranger.closes(CLOSE.resume_failed)
})

topic.once("another project's session is refused with 4009", WRONG, async (stage) => {
  const { peer, room_id } = await pair(stage, 'json')
  const project_id = await stage.control.createProject()
  const thief = await stage.openFor(project_id, 'json')
  const { session_id, resume_token } = peer.session
  thief.send({ t: 'hello', project_id, resume: { session_id, resume_token, rooms: [] } })
  await thief.closes(CLOSE.resume_failed)
  await peer.acted(room_id, 'inc', {})
})

topic.each('of two racing resumes exactly one wins', TOKEN, async (stage, codec) => {
  const { peer, view, room_id } = await pair(stage, codec)
  peer.cut()
  peer.detached = true
  const hello = peer.session.resumption()
  const racers = [await stage.open(codec, {}, peer.session), await stage.open(codec, {}, peer.session)]
  for (const racer of racers) racer.send(hello)
  const welcomed = () => racers.filter((racer) => racer.inbox.some(({ t }) => t === 'welcome'))
  for (const racer of racers) {
    await racer.until(
      'both know',
      () => welcomed().length + racers.filter((each) => each.ending).length >= 2,
      5000,
      'even closed',
    )
  }
  assert.equal(welcomed().length, 1, `${welcomed().length} were welcomed`)
  const [winner] = welcomed()
  const loser = racers.find((racer) => racer !== winner)!
  await loser.closes(CLOSE.taken_over)
  await winner!.acted(room_id, 'inc', {})
  assert.equal(counted(view), 1)
})

topic.each('a connection that still lives is taken over', TAKEN, async (stage, codec) => {
  const { peer, view, other, room_id } = await pair(stage, codec)
  const back = await stage.resume(peer)
  await peer.closes(CLOSE.taken_over)
  await other.acted(room_id, 'inc', {})
  await back.acted(room_id, 'inc', {})
  assert.equal(counted(view), 2)
})

topic.each(
  'the token of a welcome that was lost is not the end',
  '§12 "4005 … session stays": the session of a connection taken over goes on',
  async (stage, codec) => {
    const { peer, room_id } = await pair(stage, codec)
    peer.cut()
    const first = await stage.resume(peer)
    const second = await stage.resume(first)
    await first.closes(CLOSE.taken_over)
    await second.acted(room_id, 'inc', {})
  },
)

topic.each('goodbye ends the session and its seats at once', GOODBYE, async (stage, codec) => {
  const { peer, view, other, witness, room_id } = await pair(stage, codec)
  await peer.goodbye()
  const left = await other.expect('room.left', { room_id, member_id: view.member_id })
  // Which of the two a goodbye is the document does not say.
  assert.ok(['left', 'session_ended'].includes(left.reason), left.reason)
  assert.equal(witness.members.size, 1)
  const back = await stage.askToResume(peer)
  await back.closes(CLOSE.resume_failed)
})

for (const [what, end] of [
  ['without a code', (peer: Peer) => peer.socket.close()],
  ['with 1001, as a browser does that navigates away', (peer: Peer) => peer.socket.close(1001)],
  ['with a code of its own', (peer: Peer) => peer.socket.close(3210, 'lunch')],
] as const) {
  topic.each(
    `a client that closes ${what} may come back`,
    '§12 "Every other code, and a connection that ends without one (1006): as `resume`."',
    async (stage, codec) => {
      const { peer, view, other, witness, room_id } = await pair(stage, codec)
      end(peer)
      await peer.until('the connection is down', () => peer.ending !== undefined, 5000, 'even closed')
      await other.acted(room_id, 'inc', {})
      assert.equal(witness.members.size, 2)
      const back = await stage.resume(peer)
      await back.acted(room_id, 'inc', {})
      assert.equal(counted(view), 2)
    },
  )
}

for (const [what, code, sin] of [
  [
    '4000',
    CLOSE.protocol_error,
    (peer: Peer) => peer.sendRaw(peer.session.codec === 'json' ? 'oops' : 'text'),
  ],
  [
    '4008',
    CLOSE.too_large,
    (peer: Peer) => {
      const size = peer.session.welcome!.limits.max_message_bytes + 1
      peer.sendRaw(peer.session.codec === 'json' ? 'x'.repeat(size) : new Uint8Array(size))
    },
  ],
] as const) {
  topic.each(
    `a session closed with ${what} stays`,
    `§12 "${what} … session: stays"`,
    async (stage, codec) => {
      const { peer, view, room_id } = await pair(stage, codec)
      sin(peer)
      await peer.closes(code)
      const back = await stage.resume(peer)
      await back.acted(room_id, 'inc', {})
      assert.equal(counted(view), 1)
    },
  )
}

topic.each(
  'a join that took effect while the connection was down is answered once more',
  '§8 "a `join` that took effect meanwhile is answered with `joined` once more"',
  async (stage, codec) => {
    const { peer, other, witness, room_id } = await pair(stage, codec)
    const key = stage.key()
    const ref = peer.session.nextRef()
    peer.detached = true
    peer.send({ t: 'join', ref, room_type: 'counter', options: { key } })
    const watcher = await other.join('counter', key)
    await other.until('the join has taken effect', () => watcher.members.size === 2)
    peer.cut()
    const hello = peer.session.resumption()
    const back = await stage.open(codec, {}, peer.session)
    back.send(hello)
    await back.expect('welcome', { resumed: true })
    back.send({ t: 'join', ref, room_type: 'counter', options: { key } })
    await back.expect('joined', { ref, room_id: `counter:${key}` })
    await back.acted(`counter:${key}`, 'inc', {})
    await other.until('everybody sees it', () => counted(watcher) === 1)
    assert.equal(watcher.members.size, 2, 'one seat, not two')
    await back.acted(room_id, 'inc', {})
    await other.until('everybody sees it', () => counted(witness) === 1)
  },
)

topic.outlasting('a session nobody comes back to ends, and its seats with it', STAYS, async (stage) => {
  const { peer, view, other, witness, room_id } = await pair(stage, 'json')
  const ttl_ms = peer.session.welcome!.resume_ttl_seconds * 1000
  const cut_at = performance.now()
  peer.cut()
  await other.expect(
    'room.left',
    { room_id, member_id: view.member_id, reason: 'session_ended' },
    { within: ttl_ms + 10_000 },
  )
  const stayed = performance.now() - cut_at
  assert.ok(stayed > ttl_ms * 0.95, `its seat stayed for ${Math.round(stayed)} ms of ${ttl_ms}`)
  assert.equal(witness.members.size, 1)
  const back = await stage.askToResume(peer)
  await back.closes(CLOSE.resume_failed)
})
