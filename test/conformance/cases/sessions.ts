import assert from 'node:assert/strict'
import { CLOSE, counted, pair, type Stage, Topic } from '../case.ts'
import type { Peer } from '../peer.ts'

const topic = new Topic('sessions')
export const sessions = topic.cases

const TOKEN = 'Level 2: each `welcome` has a new resume token'
const USED = 'Close codes: 4005'
const WRONG = 'Close codes: 4300'
const TAKEN = 'Level 2: a resume closes the previous connection with 4005'
const GOODBYE = 'R7'
const STAYS = 'R7: a close does not end a session'

topic.each('each resume brings a new resume token for the same session', TOKEN, async (stage, codec) => {
  const { peer, room_id: roomId } = await pair(stage, codec)
  const tokens = [peer.session.resumeToken]
  const { sessionId } = peer.session
  let now = peer
  for (let round = 0; round < 4; round += 1) {
    now.cut()
    now = await stage.resume(now)
    tokens.push(now.session.resumeToken)
    assert.equal(now.session.sessionId, sessionId)
    await now.acted(roomId, 'inc', {})
  }
  assert.equal(new Set(tokens).size, 5)
})

/** Tries to resume with `resumeToken` on a new connection. */
async function tryToken(stage: Stage, peer: Peer, resumeToken: string, code: number): Promise<void> {
  const { projectId, sessionId, codec } = peer.session
  const thief = await stage.open(codec)
  const { rooms } = peer.session.resumption().resume
  thief.send({
    t: 'hello',
    project_id: projectId,
    resume: { session_id: sessionId, resume_token: resumeToken, rooms },
  })
  await thief.closes(code)
  assert.deepEqual(thief.inbox, [])
}

topic.each(
  'a used resume token is closed with 4005, and the session continues',
  USED,
  async (stage, codec) => {
    const { peer, room_id: roomId } = await pair(stage, codec)
    const used = peer.session.resumeToken
    peer.cut()
    const back = await stage.resume(peer)
    await tryToken(stage, back, used, CLOSE.taken_over)
    await back.acted(roomId, 'inc', {})
  },
)

topic.each(
  'a wrong resume token is closed with 4300, and the session continues',
  WRONG,
  async (stage, codec) => {
    const { peer, room_id: roomId } = await pair(stage, codec)
    await tryToken(stage, peer, 'not-the-token', CLOSE.resume_failed)
    await peer.acted(roomId, 'inc', {})
    const first = peer.session.resumeToken
    let now = peer
    for (let round = 0; round < 2; round += 1) {
      now.cut()
      now = await stage.resume(now)
    }
    await tryToken(stage, now, first, CLOSE.resume_failed)
    await now.acted(roomId, 'inc', {})
  },
)

topic.each('a resume of an unknown session is closed with 4300', WRONG, async (stage, codec) => {
  const stranger = await stage.open(codec)
  const { project_id: projectId } = stage.target
  stranger.send({
    t: 'hello',
    project_id: projectId,
    resume: { session_id: 'ses_nobody', resume_token: 'none', rooms: [] },
  })
  await stranger.closes(CLOSE.resume_failed)
})

topic.once("a resume of another project's session is closed with 4300", WRONG, async (stage) => {
  const { peer, room_id: roomId } = await pair(stage, 'json')
  const projectId = await stage.control.createProject()
  const thief = await stage.openFor(projectId, 'json')
  const { sessionId, resumeToken } = peer.session
  thief.send({
    t: 'hello',
    project_id: projectId,
    resume: { session_id: sessionId, resume_token: resumeToken, rooms: [] },
  })
  await thief.closes(CLOSE.resume_failed)
  await peer.acted(roomId, 'inc', {})
})

topic.each('exactly one of two concurrent resumes succeeds', TOKEN, async (stage, codec) => {
  const { peer, view, room_id: roomId } = await pair(stage, codec)
  peer.cut()
  peer.detached = true
  const hello = peer.session.resumption()
  const racers = [await stage.open(codec, {}, peer.session), await stage.open(codec, {}, peer.session)]
  for (const racer of racers) racer.send(hello)
  const welcomed = () => racers.filter((racer) => racer.inbox.some(({ t }) => t === 'welcome'))
  await racers[0]!.until('one is welcomed', () => welcomed().length > 0, undefined, 'even closed')
  const [winner] = welcomed()
  // R3: the client's first frame after `welcome` shows that it has the next token. Until then, the other resume waits.
  winner!.send({ t: 'ping', at: 0 })
  const loser = racers.find((racer) => racer !== winner)!
  await loser.closes(CLOSE.taken_over)
  assert.equal(welcomed().length, 1, `${welcomed().length} were welcomed`)
  await winner!.acted(roomId, 'inc', {})
  assert.equal(counted(view), 1)
})

topic.each(
  'a resume takes over a live connection, and other members see no disconnect',
  TAKEN,
  async (stage, codec) => {
    const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
    const back = await stage.resume(peer)
    await peer.closes(CLOSE.taken_over)
    await other.acted(roomId, 'inc', {})
    await back.acted(roomId, 'inc', {})
    await other.until('both see it', () => counted(witness) === 2)
    assert.equal(counted(view), 2)
    assert.ok(
      !other.inbox.some((message) => message.t === 'member' && message.connected === false),
      'the other client saw a disconnect',
    )
  },
)

const PRESENCE = 'Level 2: what other members receive'

topic.each('members receive the loss of a connection, and the resume', PRESENCE, async (stage, codec) => {
  const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
  const about = { room_id: roomId, member_id: view.memberId }
  peer.cut()
  await other.expect('member', { ...about, connected: false })
  const third = await stage.connect(codec)
  const newcomer = await third.join('counter', roomId.slice('counter:'.length))
  assert.deepEqual([...newcomer.away], [view.memberId])
  const back = await stage.resume(peer)
  await other.expect('member', { ...about, connected: true })
  await third.expect('member', { ...about, connected: true })
  await back.expect('member', { ...about, connected: true })
  assert.deepEqual([witness.away.size, newcomer.away.size, view.away.size], [0, 0, 0])
})

topic.each('goodbye ends the session and its seats', GOODBYE, async (stage, codec) => {
  const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
  await peer.goodbye()
  assert.equal(peer.ending?.code, CLOSE.goodbye)
  await other.expect('member', { room_id: roomId, member_id: view.memberId, connected: undefined })
  assert.equal(witness.members.size, 1)
  const back = await stage.askToResume(peer)
  await back.closes(CLOSE.resume_failed)
})

for (const [what, end] of [
  ['without a code', (peer: Peer) => peer.socket.close()],
  ['with 1000, like most libraries', (peer: Peer) => peer.socket.close(1000)],
  ['with 1001, like a browser at navigation', (peer: Peer) => peer.socket.close(1001)],
  ['with 3210', (peer: Peer) => peer.socket.close(3210, 'lunch')],
] as const) {
  topic.each(`a client that closes ${what} can resume`, 'R4: all other codes', async (stage, codec) => {
    const { peer, view, other, witness, room_id: roomId } = await pair(stage, codec)
    end(peer)
    await peer.until('the connection has ended', () => peer.ending !== undefined, 5000, 'even closed')
    await other.acted(roomId, 'inc', {})
    assert.equal(witness.members.size, 2)
    const back = await stage.resume(peer)
    await back.acted(roomId, 'inc', {})
    assert.equal(counted(view), 2)
  })
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
    `a session can resume after ${what}`,
    `R7: ${what} does not end a session`,
    async (stage, codec) => {
      const { peer, view, room_id: roomId } = await pair(stage, codec)
      sin(peer)
      await peer.closes(code)
      const back = await stage.resume(peer)
      await back.acted(roomId, 'inc', {})
      assert.equal(counted(view), 1)
    },
  )
}

topic.outlasting(
  'a session without a resume ends after resume_ttl_seconds, with its seats',
  STAYS,
  async (stage) => {
    const { peer, view, other, witness, room_id: roomId } = await pair(stage, 'json')
    const ttlMs = peer.session.welcome!.resume_ttl_seconds * 1000
    const cutAt = performance.now()
    peer.cut()
    await other.expect(
      'member',
      { room_id: roomId, member_id: view.memberId, connected: undefined },
      { within: ttlMs + 10_000 },
    )
    const stayed = performance.now() - cutAt
    assert.ok(stayed > ttlMs * 0.95, `its seat stayed for ${Math.round(stayed)} ms of ${ttlMs}`)
    assert.equal(witness.members.size, 1)
    const back = await stage.askToResume(peer)
    await back.closes(CLOSE.resume_failed)
  },
)

const PONG = 'Messages from the client: `ping`'
const PINGS = 'R3, of the server'

topic.each('pong has the number of its ping and the time of the server', PONG, async (stage, codec) => {
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

topic.once('a websocket ping is answered', 'RFC 6455 §5.5.2', async (stage) => {
  const peer = await stage.connect('json')
  let pongs = 0
  peer.socket.on('pong', () => {
    pongs += 1
  })
  peer.socket.ping()
  await peer.roundTrip()
  assert.equal(pongs, 1)
})

topic.waiting('a client that answers pings stays connected', PINGS, async (stage) => {
  const peer = await stage.connect('msgpack')
  const periodMs = peer.session.welcome!.heartbeat_seconds * 1000
  await peer.until('two pings have come', () => peer.pings >= 2, periodMs * 3 + 3000)
  await peer.roundTrip()
})

topic.waiting(
  'a client that answers no ping is disconnected after two heartbeats, and can resume',
  PINGS,
  async (stage) => {
    const peer = await stage.connect('json', {}, { answer_pings: false })
    await peer.join('counter', stage.key())
    const silentAt = performance.now()
    const periodMs = peer.session.welcome!.heartbeat_seconds * 1000
    await peer.until(
      'the connection has ended',
      () => peer.ending !== undefined,
      periodMs * 3 + 3000,
      'even closed',
    )
    const took = performance.now() - silentAt
    assert.ok(peer.pings >= 1, 'the client received no ping')
    assert.ok(took > periodMs * 1.9, `disconnected after ${Math.round(took)} ms of ${periodMs * 2}`)
    const back = await stage.resume(peer)
    await back.roundTrip()
  },
)
