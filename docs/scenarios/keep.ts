import type { JsonObject } from '../../shared/json.ts'
import { ADDRESS, ARENA, at, BOB, HOSTS, Level, ME, ScriptRoom, STATE } from './script.ts'

/** Level 2 of docs/protocol.md. */
const level = new Level(2)
export const KEEP = level.scenarios

const JOIN = { as: 'j', room_type: 'arena', options: { key: 'lobby' } }

level.add(
  'R18',
  'a resume names the session, the last resume token and the position of the room',
  (s, room) => {
    s.server(room.patch({ ...STATE, n: 2 }))
    s.lose(1006, { session_id: 'ses_1', resume_token: 'resume-1', rooms: [at(room)] })
    s.client(null).welcome({ resumed: true })
    s.server(room.patch({ ...STATE, n: 3 }))
      .expect({ state: { ...STATE, n: 3 }, status: 'online' })
      .client(null)
    s.lose(4101, { session_id: 'ses_1', resume_token: 'resume-2', rooms: [at(room)] })
  },
)

level.add('R18', 'a connection that ends before its welcome: the same token again', (s, room) => {
  s.lose(1006, { resume_token: 'resume-1' })
  s.lose(1006, { resume_token: 'resume-1' })
  s.lose(1013, { resume_token: 'resume-1', rooms: [at(room)] })
  s.welcome({ resumed: true })
  s.lose(1000, { resume_token: 'resume-2', rooms: [at(room)] })
})

level.add('R18', 'missed frames follow, then the next ones', (s, room) => {
  const position = at(room)
  const missed = [
    room.patch({ ...STATE, n: 2 }),
    room.event('boom', 1),
    room.patch({ ...STATE, n: 3, more: { x: 1 } }),
  ]
  s.lose(1006, { rooms: [position] }).welcome({ resumed: true })
  for (const frame of missed) s.server(frame)
  s.expect({ state: { ...STATE, n: 3, more: { x: 1 } }, events: [['boom', 1]] })
  s.server(room.patch({ ...STATE, n: 4, more: { x: 2 } }))
    .expect({ state: { ...STATE, n: 4, more: { x: 2 } } })
    .client(null)
})

level.add('R18', 'a resync follows, under a higher epoch', (s, room) => {
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  room.move()
  room.seq += 500
  room.state = { n: 99 }
  room.members = [ME]
  s.server(room.resync())
    .expect({ state: { n: 99 } })
    .expectMembers(ME)
  s.server(room.patch({ n: 100 }))
    .expect({ state: { n: 100 } })
    .client(null)
})

level.add('R18', 'the own left follows', (s, room) => {
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  s.server(room.out('kicked')).expect({ seat: 'kicked' }).client(null)
  s.lose(1006, { resume_token: 'resume-2', rooms: [] })
})

level.add(
  'R19',
  'a room without a snapshot is not listed, and its join is sent again',
  (s, room) => {
    s.do('join', JOIN).client({ t: 'join', request_id: 1 })
    s.lose(1006, { rooms: [] }).welcome({ resumed: true })
    s.client({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'lobby' } })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_me' }).server(room.snapshot())
    s.expect({ state: STATE, outcomes: { j: 'done' } }).client(null)
  },
  { start: 'online' },
)

level.add(
  'R19',
  'a joined without its snapshot is asked for again, too',
  (s, room) => {
    s.do('join', JOIN).client({ t: 'join', request_id: 1 })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_me' })
    s.lose(1006, { rooms: [] }).welcome({ resumed: true })
    s.client({ t: 'join', request_id: 1 })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_me' }).server(room.snapshot())
    s.expect({ outcomes: { j: 'done' } }).client(null)
  },
  { start: 'online' },
)

level.add(
  'R19',
  'a join that was sent again has another member_id, which counts',
  (s, room) => {
    s.do('join', JOIN).client({ t: 'join', request_id: 1 })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_1' })
    s.lose(1006, { rooms: [] }).welcome({ resumed: true }).client({ t: 'join', request_id: 1 })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_2' }).server(room.snapshot())
    s.lose(1006, { rooms: [at(room, 0, 'mem_2')] })
  },
  { start: 'online' },
)

level.add('R19', 'a leave without an answer is sent again', (s, room) => {
  s.do('leave', { as: 'l', room_id: ARENA }).client({ t: 'leave', request_id: 2 })
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  s.client({ t: 'leave', request_id: 2, room_id: ARENA })
  s.server(room.out('left'))
    .expect({ outcomes: { l: 'done' }, seat: 'left' })
    .client(null)
})

level.add('R19', 'a leave whose answer was lost', (s, room) => {
  s.do('leave', { as: 'l', room_id: ARENA }).client({ t: 'leave', request_id: 2 })
  s.lose(1006, { rooms: [at(room)] })
    .welcome({ resumed: true })
    .client({ t: 'leave', request_id: 2 })
  s.server(room.out('left'))
  s.error('not_in_room', { request_id: 2, room_id: ARENA })
  s.expect({ outcomes: { l: 'done' }, seat: 'left', status: 'online' }).client(null)
})

level.add('R19', 'the epoch is the last that a frame of the state had', (s, room) => {
  const moved = (next: JsonObject) => {
    room.move()
    return s.server(room.patch(next)).server(room.patch({ ...next, more: 1 }))
  }
  moved({ n: 2 }).lose(1006, { rooms: [at(room)] })
  s.welcome({ resumed: true }).server(room.patch({ n: 3 }))
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  moved({ n: 4 })
  room.move()
  s.server(room.resync()).server(room.patch({ n: 5 }, { epoch: undefined }))
  s.expect({ state: { n: 5 } }).lose(1006, { rooms: [at(room)] })
})

for (const failure of ['another checksum', 'a gap'])
  level.add(
    'R19',
    `after ${failure}, the room is listed at position 0 until a whole state arrives`,
    (s, room) => {
      const reason = failure === 'a gap' ? 'sequence' : 'checksum'
      if (failure === 'a gap') room.patch({ ...STATE, n: 2 })
      s.server(room.patch({ ...STATE, n: 3 }, failure === 'a gap' ? {} : { checksum: 1 })).client({
        t: 'state.resync',
        reason,
      })
      s.server(room.patch({ ...STATE, n: 4 }))
      const nowhere = { ...at(room), epoch: 0, seq: 0 }
      s.lose(1006, { rooms: [nowhere] })
        .lose(1006, { rooms: [nowhere] })
        .welcome({ resumed: true })
      s.server(room.resync())
        .server(room.patch({ ...STATE, n: 5 }))
        .expect({ state: { ...STATE, n: 5 } })
      s.wait(5000)
        .client(null)
        .lose(1006, { rooms: [at(room)] })
    },
  )

const ask = (within_seconds: number) => ({ t: 'token', within_seconds }) as const

level.add('R20', 'the server asks for a fresh token', (s) => {
  s.server(ask(720)).client({ t: 'token', token: 'token-2' })
  s.wait(15_000).expect({ status: 'online' }).client(null)
})

level.add('R20', 'a fresh token that is refused is followed by another one after the next question', (s) => {
  s.server(ask(20)).client({ t: 'token', token: 'token-2' })
  s.error('invalid_token', {}).wait(500).server(ask(19)).client({ t: 'token', token: 'token-3' })
  s.expect({ status: 'online' }).client(null)
})

for (const code of [4200, 4299])
  level.add('R20', `${code}: the client resumes, and the server asks for a token`, (s, room) => {
    s.lose(code, { resume_token: 'resume-1', rooms: [at(room)] }).welcome({ resumed: true })
    s.server(ask(5)).client({ t: 'token', token: 'token-2' })
    s.expect({ status: 'online' }).client(null)
  })

level.add('R20', 'a token that takes longer than the server waits does not end the session', (s, room) => {
  s.do('token_delay', { ms: 8000 }).server(ask(5)).wait(5000)
  s.lose(4200, { resume_token: 'resume-1', rooms: [at(room)] }).welcome({ resumed: true })
  s.server(ask(5)).client({ t: 'token' }).expect({ status: 'online' })
})

level.add('R18', '43xx while online: a new session with a fresh token', (s) => {
  s.close(4399).open({ url: ADDRESS }).client({ t: 'hello', token: 'token-2' })
  s.welcome().client({ t: 'join', room_type: 'arena', options: { key: 'lobby' }, rejoin: true })
})

level.add('R18', '4300: a new session with a fresh token, and refs from 1', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1, settled: 0 })
  s.lose(1006, { session_id: 'ses_1' }).close(4300)
  s.open({ url: ADDRESS }).client({ t: 'hello', token: 'token-2' })
  s.welcome().client({
    t: 'join',
    request_id: 2,
    room_type: 'arena',
    options: { key: 'lobby' },
    rejoin: true,
  })
  s.expect({ outcomes: { a: 'unknown' } })
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_2' }).server(room.snapshot())
  s.client(null).send('b', 2).client({ t: 'message', data: 2, ref: 1, settled: 0 })
})

level.add('R21', 'messages have the refs 1, 2, 3, and an ack confirms several', (s, room) => {
  s.send('a', 1).client({ t: 'message', room_id: ARENA, type: 'move', data: 1, ref: 1, settled: 0 })
  s.send('b', 2).client({ t: 'message', data: 2, ref: 2, settled: 0 })
  s.send('c', 3).client({ t: 'message', data: 3, ref: 3, settled: 0 })
  s.server(room.ack(2)).expect({ outcomes: { a: 'done', b: 'done', c: 'pending' } })
  s.server(room.ack(3)).expect({ outcomes: { c: 'done' } })
  s.send('d', 4).client({ t: 'message', data: 4, ref: 4, settled: 3 })
})

level.add('R21', 'each seat has separate refs', (s, room) => {
  const other = new ScriptRoom('arena:other', {})
  s.join(other, 2)
  s.send('a', 1).client({ t: 'message', room_id: ARENA, ref: 1 })
  s.send('b', 2, { room_id: other.id }).client({ t: 'message', room_id: other.id, ref: 1, settled: 0 })
  s.server(other.ack(1)).expect({ outcomes: { a: 'pending', b: 'done' } })
  s.server(room.ack(1)).expect({ outcomes: { a: 'done' } })
})

level.add('R21', 'messages wait for the snapshot', (s, room) => {
  s.close(4300).open({ url: ADDRESS }).client({ t: 'hello' }).welcome().client({ t: 'join', request_id: 2 })
  s.send('a', 1).client(null)
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_2' })
  s.send('b', 2).client(null).server(room.snapshot())
  s.client({ t: 'message', data: 1, ref: 1 }).client({ t: 'message', data: 2, ref: 2 }).client(null)
})

level.add('R21', 'a message that is too large gets no ref', (s) => {
  s.send('a', 'x'.repeat(1025))
    .client(null)
    .send('b', 1)
    .client({ t: 'message', data: 1, ref: 1, settled: 0 })
})

level.add('R21', 'refs start at 1 again after a new joined', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 }).server(room.ack(1))
  s.do('leave', { as: 'l', room_id: ARENA }).client({ t: 'leave', request_id: 2 }).server(room.out('left'))
  s.do('join', JOIN).client({ t: 'join', request_id: 3 })
  s.server({ t: 'joined', request_id: 3, room_id: ARENA, member_id: 'mem_me' }).server(room.snapshot())
  s.send('b', 2).client({ t: 'message', ref: 1, settled: 0 })
})

level.add('R22', 'kept messages are sent again after a resume, with the same refs and data', (s, room) => {
  for (const [i, as] of ['a', 'b', 'c'].entries())
    s.send(as, { i }).client({ t: 'message', ref: i + 1, settled: 0 })
  s.server(room.ack(1))
  s.lose(1006, { rooms: [at(room, 1)] }).welcome({ resumed: true })
  s.client({ t: 'message', room_id: ARENA, type: 'move', data: { i: 1 }, ref: 2, settled: 0 })
  s.client({ t: 'message', data: { i: 2 }, ref: 3, settled: 0 }).client(null)
  s.send('d', {}).client({ t: 'message', ref: 4, settled: 1 })
  s.server(room.ack(4))
    .expect({ outcomes: { b: 'done', c: 'done', d: 'done' } })
    .client(null)
})

level.add('R22', 'an error or a reply with a ref that is not kept changes nothing', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 }).server(room.ack(1))
  s.error('room_logic_refused', { room_id: ARENA, ref: 1 }).server(room.reply(1, 'late'))
  s.error('room_logic_refused', { room_id: ARENA, ref: 7 })
  s.expect({ outcomes: { a: 'done' }, status: 'online' })
  s.send('b', 2).client({ t: 'message', ref: 2, settled: 1 })
})

level.add('R23', 'settled is below the lowest kept ref', (s, room) => {
  for (const [i, as] of ['a', 'b', 'c'].entries())
    s.send(as, i).client({ t: 'message', ref: i + 1, settled: 0 })
  s.error('room_logic_refused', { room_id: ARENA, ref: 2 }).expect({
    outcomes: { a: 'pending', b: { error: 'room_logic_refused' } },
  })
  s.send('d', 3).client({ t: 'message', ref: 4, settled: 0 })
  s.server(room.ack(1)).send('e', 4).client({ t: 'message', ref: 5, settled: 2 })
  s.lose(1006, { rooms: [at(room, 2)] }).welcome({ resumed: true })
  s.client({ t: 'message', ref: 3 }).client({ t: 'message', ref: 4 }).client({ t: 'message', ref: 5 })
  s.server(room.ack(5)).send('f', 5).client({ t: 'message', ref: 6, settled: 5 })
})

level.add('R24', 'a refused message has its error, and the ack behind it covers the others', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 }).send('b', 2).client({ t: 'message', ref: 2 })
  s.error('rate_limited', { room_id: ARENA, ref: 2 }, true).server(room.ack(2))
  s.expect({ outcomes: { a: 'done', b: { error: 'rate_limited' } } }).client(null)
  s.lose(1006, { rooms: [at(room, 2)] })
    .welcome({ resumed: true })
    .client(null)
})

level.add('R24', 'a message whose outcome is forgotten', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 })
  s.lose(1006, { rooms: [at(room)] })
    .welcome({ resumed: true })
    .client({ t: 'message', ref: 1 })
  s.error('outcome_unknown', { room_id: ARENA, ref: 1 }).server(room.ack(1))
  s.expect({ outcomes: { a: { error: 'outcome_unknown' } } })
})

level.add('R24', 'a reply', (s, room) => {
  s.send('a', 'what?', { request: true }).client({ t: 'message', ref: 1 })
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  s.client({ t: 'message', data: 'what?', ref: 1 })
  s.server(room.reply(1, { answer: 42 })).server(room.ack(1))
  s.expect({ outcomes: { a: { reply: { answer: 42 } } } })
})

level.add('R24', 'kept messages of a lost seat have an unknown outcome', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 }).send('b', 2).client({ t: 'message', ref: 2 })
  s.server(room.ack(1)).server(room.out('kicked'))
  s.expect({ seat: 'kicked', outcomes: { a: 'done', b: 'unknown' } }).client(null)
})

level.add('R24', 'no message of an ended seat is sent again', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 })
  s.lose(1006, { rooms: [at(room)] })
    .welcome({ resumed: true })
    .client({ t: 'message', ref: 1 })
  s.server(room.out('closed')).expect({ seat: 'closed', outcomes: { a: 'unknown' } })
  s.lose(1006, { rooms: [] }).welcome({ resumed: true }).client(null)
})

level.add('R18', 'a member of a missed flush changes the list', (s, room) => {
  s.lose(1006, { rooms: [at(room)] }).welcome({ resumed: true })
  s.server(room.patch({ ...STATE, n: 2 })).server(room.member({ ...BOB, connected: false }))
  s.expectMembers(ME, { ...BOB, connected: false }).client(null)
})

/** Level 5 of docs/protocol.md. */
const moving = new Level(5)
export const MOVE = moving.scenarios

const URL = `ws://${HOSTS[0]}:9000/`

moving.add('R33', 'a move without a url: the same address, after in_ms, without a pause', (s, room) => {
  s.server({ t: 'move', in_ms: 2000 }).wait(1500).expect({ sockets: 1 })
  s.server(room.patch({ ...STATE, n: 2 })).expect({ state: { ...STATE, n: 2 } })
  s.open({ url: ADDRESS }).changeOver()
  s.client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).close(4005, 1)
  s.server(room.patch({ ...STATE, n: 3 }))
    .expect({ state: { ...STATE, n: 3 }, status: 'online' })
    .client(null)
})

moving.add('R33', 'a move during a move is ignored', (s, room) => {
  s.server({ t: 'move', in_ms: 2000 }).server({ t: 'move', in_ms: 0 })
  s.wait(1500).expect({ sockets: 1 }).open({ url: ADDRESS }).changeOver()
  s.client({ t: 'hello', resume: { rooms: [at(room)] } })
  s.welcome({ resumed: true }).wait(500).expect({ sockets: 2, status: 'online' })
})

moving.add('R33', 'a move to a url on a listed host', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL }).changeOver()
  s.client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).close(4005, 1).expect({ status: 'online' })
  s.close(1006)
    .open({ url: ADDRESS })
    .client({ t: 'hello', resume: { resume_token: 'resume-2' } })
})

moving.add('R33', 'a move to a url on another host is ignored', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: 'ws://evil.test/' }).wait(5000)
  s.server(room.patch({ ...STATE, n: 2 }))
    .expect({ sockets: 1, state: { ...STATE, n: 2 } })
    .client(null)
})

moving.first('R33', 'a move from wss: to ws: is ignored', (s) => {
  const secure = 'wss://server.test/'
  s.do('connect', { address: secure }).open({ url: secure }).client({ t: 'hello' }).welcome()
  s.server({ t: 'move', in_ms: 0, url: 'ws://server.test/' }).wait(5000).expect({ sockets: 1 })
  s.server({ t: 'move', in_ms: 0, url: `wss://${HOSTS[0]}/` }).open({ url: `wss://${HOSTS[0]}/` })
})

moving.add('R33', 'a url that cannot be opened: the client stays', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL, refuse: true }).wait(10_000)
  s.server(room.patch({ ...STATE, n: 2 }), 1)
  s.expect({ sockets: 2, state: { ...STATE, n: 2 }, status: 'online' })
  s.send('a', 1)
    .client({ t: 'message', ref: 1 }, 1)
    .server(room.ack(1), 1)
    .expect({ outcomes: { a: 'done' } })
})

moving.add('R33', 'the own address is tried again, and the first connection stays', (s, room) => {
  s.server({ t: 'move', in_ms: 0 }).open({ url: ADDRESS, refuse: true })
  s.server(room.patch({ ...STATE, n: 2 }), 1).expect({ state: { ...STATE, n: 2 }, status: 'online' })
  s.open({ url: ADDRESS }).client({ t: 'move' }, 1).server({ t: 'moved' }, 1)
  s.client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).close(4005, 1).expect({ status: 'online' })
})

moving.add('R34', 'the first connection is read up to moved, and nothing more is sent on it', (s, room) => {
  s.send('a', 1).client({ t: 'message', ref: 1 })
  s.server(room.patch({ ...STATE, n: 2 }))
    .server({ t: 'move', in_ms: 0 })
    .open({ url: ADDRESS })
  s.client({ t: 'move' }, 1).send('b', 2).wait(1000).client(null, 1).client(null)
  s.server(room.event('rest', 1), 1)
  s.server(room.patch({ ...STATE, n: 3 }), 1)
  s.server(room.event('boom', 2), 1).server(room.ack(1), 1)
  s.expect({
    state: { ...STATE, n: 3 },
    events: [
      ['rest', 1],
      ['boom', 2],
    ],
    outcomes: { a: 'done', b: 'pending' },
  })
  s.server({ t: 'moved' }, 1).client({ t: 'hello', resume: { rooms: [at(room, 1)] } })
  s.close(4005, 1).welcome({ resumed: true }).client({ t: 'message', data: 2, ref: 2 })
  s.server(room.patch({ ...STATE, n: 4 })).server(room.ack(2))
  s.expect({ state: { ...STATE, n: 4 }, outcomes: { b: 'done' } }).client(null)
})

moving.add('R34', 'a seat that ends before moved is not listed', (s, room) => {
  s.server({ t: 'move', in_ms: 0 }).open({ url: ADDRESS }).client({ t: 'move' }, 1)
  s.server(room.out('closed'), 1).expect({ seat: 'closed' }).server({ t: 'moved' }, 1)
  s.client({ t: 'hello', resume: { rooms: [] } })
    .welcome({ resumed: true })
    .client(null)
})

moving.add('R34', 'a join without an answer is sent again on the second connection', (s, room) => {
  s.do('join', { as: 'j', room_type: 'arena', options: { key: 'other' } })
  s.client({ t: 'join', request_id: 2 }).server({ t: 'move', in_ms: 0 }).open({ url: ADDRESS })
  s.changeOver().client({ t: 'hello', resume: { rooms: [at(room)] } })
  s.welcome({ resumed: true })
  s.client({ t: 'join', request_id: 2, options: { key: 'other' } }).client(null)
})

for (const code of [1006, 4005, 4300])
  moving.add(
    'R34',
    `a first connection that ends with ${code} before moved: a resume at the own address`,
    (s, room) => {
      s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL }).client({ t: 'move' }, 1)
      s.close(code, 1).closed(2)
      s.open({ url: ADDRESS }).client({
        t: 'hello',
        resume: { resume_token: 'resume-1', rooms: [at(room)] },
      })
      s.welcome({ resumed: true }).expect({ status: 'online' })
    },
  )

moving.add('R34', 'a second connection that ends before moved: a resume at the own address', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL }).client({ t: 'move' }, 1)
  s.close(1006).closed(1)
  s.open({ url: ADDRESS }).client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).expect({ status: 'online' })
})

for (const code of [1006, 4005, 4200, 4300])
  moving.add(
    'R34',
    `a second connection that ends with ${code} before its welcome: a resume at the own address`,
    (s, room) => {
      s.send('a', 1).client({ t: 'message', ref: 1 })
      s.server({ t: 'move', in_ms: 0, url: URL })
        .open({ url: URL })
        .changeOver()
        .client({ t: 'hello', resume: { rooms: [at(room)] } })
      s.close(code)
      s.open({ url: ADDRESS }).client({
        t: 'hello',
        resume: { session_id: 'ses_1', resume_token: 'resume-1', rooms: [at(room)] },
      })
      s.welcome({ resumed: true }).client({ t: 'message', ref: 1 })
      s.server(room.ack(1))
        .expect({ outcomes: { a: 'done' }, status: 'online' })
        .client(null)
    },
  )

moving.add('R33', 'a client that has not moved in time resumes after 4101', (s, room) => {
  s.server({ t: 'move', in_ms: 60_000 }).wait(1000).close(4101)
  s.open({ url: ADDRESS }).client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).expect({ status: 'online', sockets: 2 })
})
