import { ADDRESS, at, HOSTS, Level, ScriptRoom, STATE } from './script.ts'

/** Level 5 of docs/protocol.md. */
const level = new Level(5)
export const MOVE = level.scenarios

const URL = `ws://${HOSTS[0]}:9000/`

level.add('R43', 'a move without a url: the same address, after in_ms, without a pause', (s, room) => {
  s.server({ t: 'move', in_ms: 2000 }).wait(1500).expect({ sockets: 1 })
  s.server(room.patch({ ...STATE, n: 2 })).expect({ state: { ...STATE, n: 2 } })
  s.open({ url: ADDRESS }).client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).close(4005, 1)
  s.server(room.patch({ ...STATE, n: 3 }))
    .expect({ state: { ...STATE, n: 3 }, status: 'online' })
    .client(null)
})

level.add('R43', 'a new move replaces one that waits', (s, room) => {
  s.server({ t: 'move', in_ms: 1000 }).server({ t: 'move', in_ms: 3000 })
  s.wait(2000).expect({ sockets: 1 }).wait(1500)
  s.open({ url: ADDRESS }).client({ t: 'hello', resume: { rooms: [at(room)] } })
  s.welcome({ resumed: true }).wait(500).expect({ sockets: 2, status: 'online' })
})

level.add('R43', 'a move to a url on a listed host', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL })
  s.client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).close(4005, 1).expect({ status: 'online' })
  s.close(1006)
    .open({ url: ADDRESS })
    .client({ t: 'hello', resume: { resume_token: 'resume-2' } })
})

level.add('R43', 'a move to a url on another host is ignored', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: 'ws://evil.test/' }).wait(5000)
  s.server(room.patch({ ...STATE, n: 2 }))
    .expect({ sockets: 1, state: { ...STATE, n: 2 } })
    .client(null)
})

level.add('R43', 'a url that cannot be opened: the client stays', (s, room) => {
  s.server({ t: 'move', in_ms: 0, url: URL }).open({ url: URL, refuse: true })
  s.wait(1000)
  s.server(room.patch({ ...STATE, n: 2 }), 1).expect({ state: { ...STATE, n: 2 }, status: 'online' })
  s.send('a', 1)
    .client({ t: 'message', ref: 1 }, 1)
    .server(room.ack(1), 1)
    .expect({ outcomes: { a: 'done' } })
})

level.add(
  'R43',
  'an address that cannot be opened is tried again, and the first connection goes on',
  (s, room) => {
    s.server({ t: 'move', in_ms: 0 }).open({ url: ADDRESS, refuse: true })
    s.server(room.patch({ ...STATE, n: 2 }), 1).expect({ state: { ...STATE, n: 2 }, status: 'online' })
    s.open({ url: ADDRESS }).client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
    s.welcome({ resumed: true }).close(4005, 1).expect({ status: 'online' })
  },
)

level.add(
  'R44',
  'the first connection is used until the hello, then only for the rest of its flush',
  (s, room) => {
    s.send('a', 1).client({ t: 'message', ref: 1 })
    s.server(room.patch({ ...STATE, n: 2 }))
      .server({ t: 'move', in_ms: 0 })
      .open({ url: ADDRESS })
    s.client({ t: 'hello', resume: { rooms: [at(room)] } })
    s.send('b', 2).client(null, 1)
    s.server(room.event('rest', 1), 1)
    const stale = new ScriptRoom()
    stale.state = { stale: true }
    s.server(stale.resync({ seq: room.seq }), 1)
    const event = room.event('boom', 2, { seq: room.seq + 1 })
    const patch = room.patch({ ...STATE, n: 3 })
    s.server(patch, 1).server(event, 1).server(room.ack(1), 1)
    s.expect({ state: { ...STATE, n: 2 }, events: [['rest', 1]], outcomes: { a: 'pending' } })
    s.close(4005, 1).welcome({ resumed: true })
    s.client({ t: 'message', data: 1, ref: 1 }).client({ t: 'message', data: 2, ref: 2 })
    s.server(patch).server(event).server(room.ack(2))
    s.expect({ state: { ...STATE, n: 3 }, events: [['boom', 2]], outcomes: { a: 'done', b: 'done' } }).client(
      null,
    )
  },
)

level.add(
  'R44',
  'a late event of the first connection is taken after the welcome of the second',
  (s, room) => {
    s.server(room.patch({ ...STATE, n: 2 }))
      .server({ t: 'move', in_ms: 0 })
      .open({ url: ADDRESS })
    s.client({ t: 'hello', resume: { rooms: [at(room)] } }).welcome({ resumed: true })
    s.server(room.event('late', 1), 1)
    s.server(room.event('twice', 2, { seq: room.seq + 1 }), 1)
    s.expect({ events: [['late', 1]], status: 'online' })
    s.close(4005, 1).wait(1000).expect({ status: 'online', sockets: 2 }).client(null)
  },
)

level.add('R44', 'a join without an answer is sent again on the second connection', (s, room) => {
  s.do('join', { as: 'j', room_type: 'arena', options: { key: 'other' } })
  s.client({ t: 'join', request_id: 2 }).server({ t: 'move', in_ms: 0 }).open({ url: ADDRESS })
  s.client({ t: 'hello', resume: { rooms: [at(room)] } }).welcome({ resumed: true })
  s.client({ t: 'join', request_id: 2, options: { key: 'other' } }).client(null)
})

level.add(
  'R45',
  'a second connection that ends before its welcome: a resume at the own address',
  (s, room) => {
    s.send('a', 1).client({ t: 'message', ref: 1 })
    s.server({ t: 'move', in_ms: 0, url: URL })
      .open({ url: URL })
      .client({ t: 'hello', resume: { rooms: [at(room)] } })
    s.close(1006).closed(1)
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

level.add('R45', 'a client that has not moved in time resumes after 4101', (s, room) => {
  s.server({ t: 'move', in_ms: 60_000 }).wait(1000).close(4101)
  s.open({ url: ADDRESS }).client({ t: 'hello', resume: { resume_token: 'resume-1', rooms: [at(room)] } })
  s.welcome({ resumed: true }).expect({ status: 'online', sockets: 2 })
})
