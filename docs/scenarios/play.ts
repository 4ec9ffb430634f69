import type { JsonObject } from '../../shared/json.ts'
import type { ListedRoom, PlainMessage } from '../../shared/protocol/messages.ts'
import { ObjectDelta, Replace } from '../../shared/sync/delta.ts'
import { ADDRESS, ARENA, BOB, Level, ME, ScriptRoom, STATE } from './script.ts'

/** Level 1 of docs/protocol.md. */
const level = new Level(1)
export const PLAY = level.scenarios

const CARLA = { member_id: 'mem_carla', sub: null, connected: true }
const AWAY = { ...BOB, connected: false }

level.first('R2', 'nothing is sent between hello and welcome', (s) => {
  s.do('connect').open({ url: ADDRESS })
  s.client({ t: 'hello', project_id: 'prj_1', token: 'token-1' })
  s.client(null).wait(1000).client(null)
  s.welcome().expect({ status: 'online' })
})

level.add(
  'R2',
  'a join before welcome is sent after it',
  (s) => {
    s.close(4300).open({ url: ADDRESS }).client({ t: 'hello' })
    s.do('join', { as: 'j', room_type: 'arena', options: { key: 'lobby' } }).client(null)
    s.welcome().client({ t: 'join', request_id: 1, room_type: 'arena' }).client(null)
  },
  { start: 'online' },
)

level.first('R2', 'without a welcome in 10 seconds the client connects again', (s) => {
  s.do('connect').open({ url: ADDRESS }).client({ t: 'hello' })
  s.wait(10_000).closed(1)
  s.open({ url: ADDRESS }).client({ t: 'hello' })
  s.welcome().expect({ status: 'online' })
})

level.add('R1', 'unknown messages and fields are ignored', (s, room) => {
  const later = { json: { t: 'later', room_id: ARENA, x: [1] }, msgpack: Uint8Array.of(0x92, 0x63, 0x01) }
  s.server(later)
  const known = room.patch({ ...STATE, n: 2 })
  s.server({ ...known, json: { ...known.json, later: true } })
  s.expect({ state: { ...STATE, n: 2 }, status: 'online' }).client(null)
})

level.first('R3', 'ping is the first message after welcome', (s) => {
  s.do('connect').open().client({ t: 'hello' }).welcome().client({ t: 'ping' })
})

level.add('R3', 'ping is sent every heartbeat_seconds', (s) => {
  for (const _ of [1, 2, 3]) {
    s.wait(10_000).client({ t: 'ping' })
    s.server({ t: 'pong', at: 0, server_time: '2026-10-01T12:00:10.000Z' })
  }
})

level.add('R3', 'a connection without a frame for two heartbeats is lost', (s) => {
  s.wait(21_000).closed(1)
  s.open({ url: ADDRESS }).client({ t: 'hello' })
})

for (const code of [4001, 4005, 4099])
  level.add('R4', `${code} ends the client`, (s) => {
    s.close(code).wait(20_000).expect({ status: 'ended', sockets: 1 })
  })

for (const code of [1000, 1006, 1013, 4101, 4199, 4999])
  level.add('R4', `${code} is followed by another connection`, (s) => {
    s.close(code).open({ url: ADDRESS }).client({ t: 'hello' })
  })

level.first('R5', 'the waits grow, and begin anew after a connection that has lasted 5 seconds', (s) => {
  s.do('connect')
  for (let attempt = 0; attempt < 10; attempt += 1) s.open({ refuse: true })
  s.open({ url: ADDRESS }).expect({ waited_ms: [5000, 60_000] })
  for (let connection = 0; connection < 3; connection += 1)
    s.client({ t: 'hello' })
      .welcome()
      .wait(6000)
      .close(1006)
      .open()
      .expect({ waited_ms: [0, 1000] })
})

level.first('R5', 'the waits also grow after connections that last shorter', (s) => {
  s.do('connect').open()
  for (let connection = 0; connection < 10; connection += 1)
    s.client({ t: 'hello' }).welcome().wait(1000).close(1006).open()
  s.expect({ waited_ms: [5000, 60_000] })
})

level.add('R6', 'a new session joins the room again with rejoin', (s, room) => {
  s.close(4300).open({ url: ADDRESS }).client({ t: 'hello' })
  s.welcome().client({
    t: 'join',
    request_id: 2,
    room_type: 'arena',
    options: { key: 'lobby' },
    rejoin: true,
  })
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_me' })
  s.server(room.snapshot()).expect({ state: STATE })
})

level.add(
  'R10',
  'a join without an answer is sent again on the next connection',
  (s) => {
    const join = { t: 'join', request_id: 1, room_type: 'arena', options: { key: 'lobby' } }
    s.do('join', { as: 'j', room_type: 'arena', options: { key: 'lobby' } }).client(join)
    s.close(1006).open({ url: ADDRESS }).client({ t: 'hello' }).welcome().client(join).client(null)
  },
  { start: 'online' },
)

level.first('R4', 'a hello that is refused with 4200 is repeated with a fresh token', (s) => {
  s.do('connect').open({ url: ADDRESS }).client({ t: 'hello', token: 'token-1' })
  s.close(4200).open({ url: ADDRESS }).client({ t: 'hello', token: 'token-2' })
  s.welcome().expect({ status: 'online' })
})

level.add('R7', 'goodbye ends the session', (s) => {
  s.do('goodbye').client({ t: 'goodbye' }).close(1000)
  s.wait(20_000).expect({ status: 'ended', sockets: 1 })
})

level.add(
  'R8',
  'a join is answered with joined and a snapshot',
  (s, room) => {
    s.join(room).expect({ state: STATE, outcomes: { [ARENA]: 'done' } })
    s.expectMembers(ME, BOB)
  },
  { start: 'online' },
)

level.add(
  'R8',
  'a refused join',
  (s) => {
    s.do('join', { as: 'j', room_type: 'arena', options: { key: 'lobby' } }).client({
      t: 'join',
      request_id: 1,
    })
    s.error('room_full', { request_id: 1, room_id: ARENA }, true)
    s.expect({ outcomes: { j: { error: 'room_full' } } })
  },
  { start: 'online' },
)

level.add(
  'R8',
  'two joins that are answered in the other order',
  (s) => {
    const other = new ScriptRoom('arena:other', { other: true })
    s.do('join', { as: 'a', room_type: 'arena', options: { key: 'lobby' } }).client({
      t: 'join',
      request_id: 1,
    })
    s.do('join', { as: 'b', room_type: 'arena', options: { key: 'other' } }).client({
      t: 'join',
      request_id: 2,
    })
    s.server({ t: 'joined', request_id: 2, room_id: other.id, member_id: 'mem_me' }).server(other.snapshot())
    s.expect({ outcomes: { a: 'pending', b: 'done' } })
    s.error('banned', { request_id: 1, room_id: ARENA })
    s.expect({ room_id: other.id, state: { other: true }, outcomes: { a: { error: 'banned' } } })
  },
  { start: 'online' },
)

level.add('R8', 'messages wait for the snapshot', (s, room) => {
  s.close(4300).open({ url: ADDRESS }).client({ t: 'hello' }).welcome().client({ t: 'join', request_id: 2 })
  s.send('a', 1, { ref: false }).client(null)
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_2' })
  s.send('b', 2, { ref: false }).client(null)
  s.server(room.snapshot()).expect({ state: STATE })
})

level.add('R9', 'a leave is answered with the own left', (s, room) => {
  s.do('leave', { as: 'l', room_id: ARENA }).client({ t: 'leave', request_id: 2, room_id: ARENA })
  s.expect({ outcomes: { l: 'pending' } })
  s.server(room.out('left')).expect({ outcomes: { l: 'done' }, seat: 'left' })
})

level.add('R9', 'a refused leave keeps the seat', (s, room) => {
  s.do('leave', { as: 'l', room_id: ARENA }).client({ t: 'leave', request_id: 2 })
  s.error('room_unavailable', { request_id: 2, room_id: ARENA }, true)
  s.expect({ outcomes: { l: { error: 'room_unavailable' } } })
  s.server(room.patch({ ...STATE, n: 2 })).expect({ state: { ...STATE, n: 2 } })
})

for (const reason of ['kicked', 'closed', 'replaced'] as const)
  level.add('R9', `the own left with the reason ${reason}`, (s, room) => {
    s.server(room.out(reason, 'for you')).expect({ seat: reason }).client(null)
  })

level.add('R9', 'after session_ended, the client joins again', (s, room) => {
  s.server(room.out('session_ended'))
  s.client({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'lobby' }, rejoin: true })
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_2' })
  room.members = [{ ...ME, member_id: 'mem_2' }]
  s.server(room.snapshot()).expectMembers(...room.members)
  s.server(room.patch({ ...STATE, n: 2 }))
    .expect({ state: { ...STATE, n: 2 } })
    .client(null)
})

level.add('R11', 'a resync without a request replaces state, members, epoch and seq', (s, room) => {
  room.move()
  room.seq += 40
  room.state = { fresh: true }
  room.members = [ME]
  s.server(room.resync())
    .expect({ state: { fresh: true } })
    .expectMembers(ME)
  s.server(room.patch({ fresh: false }))
    .expect({ state: { fresh: false } })
    .client(null)
})

level.add('R12', 'patches add, replace and remove, also in arrays', (s, room) => {
  const steps: JsonObject[] = [
    { ...STATE, n: null, 'a/b~c': { deep: [1, [2]] }, '~1': '~0' },
    {
      n: 0.1,
      players: { mem_bob: { x: 1.5, y: 7 } },
      log: ['start', 'second', { third: 3 }],
      'a/b~c': { deep: [1, [2, 3]] },
      '~1': 1,
    },
    { n: 0.1, players: { mem_bob: { x: 1.5, y: 7 } }, log: ['second', { third: 4 }], 'a/b~c': { deep: [] } },
    { n: 'text', players: {}, log: [] },
  ]
  for (const state of steps) s.server(room.patch(state)).expect({ state })
  s.client(null)
})

level.add('R12', 'a patch replaces the whole state', (s, room) => {
  for (const state of [['now', 'a', 'list'], 'text', null, { again: {} }])
    s.server(room.patch(state)).expect({ state })
  s.client(null)
})

level.add('R12', 'a patch without changes counts', (s, room) => {
  s.server(room.patch()).server(room.patch({ ...STATE, n: 2 }))
  s.expect({ state: { ...STATE, n: 2 } }).client(null)
})

level.add('R12', 'seq continues under a higher epoch', (s, room) => {
  s.server(room.patch({ ...STATE, n: 2 }))
  room.move()
  s.server(room.patch({ ...STATE, n: 3 })).server(room.patch({ ...STATE, n: 4 }))
  s.expect({ state: { ...STATE, n: 4 } }).client(null)
})

level.add('R14', 'after another checksum, the client asks', (s, room) => {
  s.server(room.patch({ ...STATE, n: 2 }, { checksum: 1 }))
  s.client({ t: 'state.resync', room_id: ARENA, reason: 'checksum' })
  s.server(room.resync()).server(room.patch({ ...STATE, n: 3 }))
  s.expect({ state: { ...STATE, n: 3 } }).client(null)
})

level.add('R14', 'after a patch that cannot be applied, the client asks', (s, room) => {
  s.server(room.change(new ObjectDelta(['nothing'], [new ObjectDelta(['x'], [new Replace(1)])])))
  s.client({ t: 'state.resync', room_id: ARENA, reason: 'checksum' })
  s.server(room.resync()).expect({ state: STATE }).client(null)
})

level.add('R13', 'checksums of numbers and texts of all kinds', (s, room) => {
  const state = {
    numbers: [
      -1,
      0.1,
      1 / 3,
      0.1 + 0.2,
      123.456,
      5e-324,
      1.7976931348623157e308,
      9007199254740991,
      -12345.678901234567,
    ],
    'ключ 🎲': 'é 漢字 \u0000',
  }
  s.server(room.patch(state)).expect({ state }).client(null)
})

level.add('R15', 'events are delivered in their order', (s, room) => {
  s.server(room.event('first', 1))
  s.server(room.patch())
    .server(room.event('second', { two: 2 }))
    .server(room.event('also', null))
  s.server(room.patch({ ...STATE, n: 2 })).server(room.event('last', []))
  s.expect({
    state: { ...STATE, n: 2 },
    events: [
      ['first', 1],
      ['second', { two: 2 }],
      ['also', null],
      ['last', []],
    ],
  }).client(null)
})

level.add('R14', 'a missing patch shows in the next patch', (s, room) => {
  room.patch({ ...STATE, n: 2 })
  s.server(room.patch({ ...STATE, n: 3 }))
  s.client({ t: 'state.resync', room_id: ARENA, reason: 'sequence' })
  s.server(room.resync())
    .expect({ state: { ...STATE, n: 3 } })
    .client(null)
})

for (const ahead of [0, -1])
  level.add(
    'R14',
    `after a patch with ${ahead === 0 ? 'the known' : 'a lower'} seq, the client asks`,
    (s, room) => {
      s.server(room.patch({ ...STATE, n: 2 }))
      const seq = room.seq + ahead
      s.server(room.patch({ ...STATE, n: 3 }, { seq }))
      s.client({ t: 'state.resync', room_id: ARENA, reason: 'sequence' })
      s.server(room.resync())
        .expect({ state: { ...STATE, n: 3 } })
        .client(null)
    },
  )

level.add(
  'R14',
  'while the client waits, it drops patches, takes events and members, and asks once',
  (s, room) => {
    room.patch({ ...STATE, n: 2 })
    s.server(room.patch({ ...STATE, n: 3 })).client({ t: 'state.resync', reason: 'sequence' })
    s.server(room.patch({ ...STATE, n: 4 })).server(room.event('boom', 1))
    s.server(room.patch({ ...STATE, n: 5 }, { checksum: 1 })).server(room.member(AWAY))
    s.expect({ events: [['boom', 1]] }).expectMembers(ME, { ...BOB, connected: false })
    s.client(null)
    s.server(room.resync()).expect({ state: { ...STATE, n: 5 } })
    s.server(room.patch({ ...STATE, n: 6 }))
      .expect({ state: { ...STATE, n: 6 } })
      .client(null)
  },
)

level.add('R14', 'the client waits for the answer, however long it takes', (s, room) => {
  room.patch({ ...STATE, n: 2 })
  s.server(room.patch({ ...STATE, n: 3 })).client({ t: 'state.resync', reason: 'sequence' })
  s.error('rate_limited', { room_id: ARENA }, true).wait(9000).client(null)
  s.server(room.event('boom', 1)).wait(9000).client(null)
  s.server(room.resync())
    .expect({ state: { ...STATE, n: 3 }, events: [['boom', 1]], sockets: 1 })
    .client(null)
})

level.add('R15', 'members join, lose their connection, return and leave', (s, room) => {
  s.server(room.patch()).server(room.member(CARLA)).expectMembers(ME, BOB, CARLA)
  s.server(room.patch()).server(room.member(AWAY)).expectMembers(ME, AWAY, CARLA)
  s.server(room.patch({ ...STATE, n: 2 }))
  s.server(room.member(BOB)).expectMembers(ME, BOB, CARLA)
  s.server(room.patch({ ...STATE, n: 3 }))
  s.server(room.gone(BOB)).expectMembers(ME, CARLA)
  s.expect({ state: { ...STATE, n: 3 } }).client(null)
})

level.add('R15', 'an entry that the list has already changes nothing', (s, room) => {
  s.server(room.gone(CARLA)).server(room.member(BOB)).expectMembers(ME, BOB).client(null)
})

level.add('R16', 'a message without a ref', (s) => {
  s.send('a', { x: 1 }, { ref: false })
  s.client({ t: 'message', room_id: ARENA, type: 'move', data: { x: 1 } }).client(null)
})

level.add('R16', 'a frame above max_message_bytes is not sent', (s) => {
  s.send('a', 'x'.repeat(1025), { ref: false }).send('b', 'small', { ref: false })
  s.client({ t: 'message', data: 'small' }).client(null)
})

level.first('R16', 'messages beyond the rate are dropped or wait', (s) => {
  s.online({ limits: { messages_per_second: 2, message_burst: 6 } }).join(new ScriptRoom())
  // The ping and the join count.
  s.send('a', 1, { ref: false, times: 20 }).atMost(4)
  s.wait(1000).send('b', 1, { ref: false, times: 20 }).atMost(4)
})

level.add('R17', 'errors about a message without a ref change nothing', (s, room) => {
  s.send('a', { x: 1 }, { ref: false }).client({ t: 'message' })
  s.error('rate_limited', { room_id: ARENA }, true)
  s.server({ t: 'error', code: 'invalid_message', message: 'for people', retryable: false } as PlainMessage)
  s.error('not_in_room', { room_id: ARENA })
  s.server(room.patch({ ...STATE, n: 2 }))
  s.expect({ state: { ...STATE, n: 2 }, status: 'online' }).client(null)
})

/** Level 6 of docs/protocol.md. */
const finding = new Level(6, 'online')
export const FIND = finding.scenarios

const QUERY: JsonObject = { where: { map: 'desert' } }
const TWO = 'arena:two'

const row = (room_id: string, changes: Partial<ListedRoom> = {}): ListedRoom => ({
  room_id,
  players: 1,
  max_players: 4,
  reserved: 0,
  created_at: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
  ...changes,
})

finding.add('R35', 'a list', (s) => {
  s.do('list', { as: 'l', room_type: 'arena', query: QUERY })
  s.client({ t: 'rooms', request_id: 1, room_type: 'arena', query: QUERY })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(ARENA), row(TWO)] })
  s.expect({ lists: { l: [[ARENA, TWO]] } })
})

finding.add('R35', 'a refused list', (s) => {
  s.do('list', { as: 'l', room_type: 'arena', query: QUERY }).client({ t: 'rooms', request_id: 1 })
  s.error('invalid_options', { request_id: 1 }).expect({ outcomes: { l: { error: 'invalid_options' } } })
})

finding.add('R35', 'a watch gets lists until it is ended', (s) => {
  s.do('watch', { as: 'w', room_type: 'arena', query: QUERY })
  s.client({ t: 'rooms', request_id: 1, room_type: 'arena', query: QUERY, watch: true })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(ARENA)] })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(TWO)] })
  s.do('end_watch', { as: 'w' }).client({ t: 'rooms.end', request_id: 1 })
  s.server({ t: 'rooms', request_id: 1, rooms: [] }).expect({ lists: { w: [[ARENA], [TWO]] } })
})

finding.add('R35', 'a watch gets what has changed', (s) => {
  s.do('watch', { as: 'w', room_type: 'arena', query: QUERY }).client({ t: 'rooms', request_id: 1 })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(ARENA), row(TWO)] })
  s.server({ t: 'rooms', request_id: 1, gone: [1], set: [row(TWO, { players: 2 })], at: [0] })
  s.server({ t: 'rooms', request_id: 1, gone: [1], set: [], at: [] })
  s.expect({ lists: { w: [[ARENA, TWO], [TWO, ARENA], [TWO]] } })
})

finding.add('R35', 'the changes of a list come one after the other: first those that go', (s) => {
  const ids = (keys: string) => [...keys].map((key) => `arena:${key}`)
  const rows = (keys: string) => ids(keys).map((id) => row(id))
  s.do('watch', { as: 'w', room_type: 'arena', query: QUERY }).client({ t: 'rooms', request_id: 1 })
  s.server({ t: 'rooms', request_id: 1, rooms: rows('abcde') })
  s.server({ t: 'rooms', request_id: 1, gone: [4, 2, 0], set: rows('xyaz'), at: [0, 1, 3, 5] })
  s.server({ t: 'rooms', request_id: 1, gone: [5, 0], set: [], at: [] })
  s.server({ t: 'rooms', request_id: 1, gone: [], set: rows('ez'), at: [0, 5] })
  s.expect({ lists: { w: ['abcde', 'xybadz', 'ybad', 'eybadz'].map(ids) } })
})

finding.add('R36', 'a code leads to a room, which the join does not make', (s, room) => {
  s.do('join_by_code', { as: ARENA, code: 'k7qx2m' }).client({ t: 'find', request_id: 1, code: 'k7qx2m' })
  s.server({ t: 'found', request_id: 1, room_type: 'arena', key: 'lobby', create: false })
  s.client({
    t: 'join',
    request_id: 2,
    room_type: 'arena',
    options: { key: 'lobby' },
    create: false,
  })
  s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_me', code: 'K7QX2M' })
  s.server(room.snapshot()).expect({ state: STATE, outcomes: { [ARENA]: 'done' } })
})

finding.add('R36', 'a wrong code', (s) => {
  s.do('join_by_code', { as: 'j', code: 'wrong' }).client({ t: 'find', request_id: 1, code: 'wrong' })
  s.error('room_not_found', { request_id: 1 })
  s.expect({ outcomes: { j: { error: 'room_not_found' } } }).client(null)
})

const OPTIONS: JsonObject = { map: 'desert' }
const finds = (request_id: number): JsonObject => ({
  t: 'find',
  request_id,
  room: { room_type: 'arena', query: QUERY, options: OPTIONS },
})
/** Returns the answer to a `find`. */
const foundAs = (request_id: number, key = 'lobby'): PlainMessage => ({
  t: 'found',
  request_id,
  room_type: 'arena',
  key,
})

finding.add('R36', 'a room with a free seat, after others that have refused the join', (s) => {
  const room = new ScriptRoom(TWO)
  const full = ['lobby', 'banned', 'a:b']
  s.do('join_or_create', { as: 'j', room_type: 'arena', options: OPTIONS, query: QUERY })
  for (const [i, code] of ['room_full', 'banned', 'already_joined'].entries()) {
    const [find, join] = [2 * i + 1, 2 * i + 2]
    s.client(finds(find)).server(foundAs(find, full[i]))
    s.client({ t: 'join', request_id: join, room_type: 'arena', options: { ...OPTIONS, key: full[i]! } })
    s.error(code, { request_id: join, room_id: `arena:${full[i]}` }, code === 'room_full')
  }
  s.client(finds(7)).server(foundAs(7, 'two'))
  s.client({ t: 'join', request_id: 8, room_type: 'arena', options: { ...OPTIONS, key: 'two' } })
  s.server({ t: 'joined', request_id: 8, room_id: TWO, member_id: 'mem_me' }).server(room.snapshot())
  s.expect({ room_id: TWO, state: STATE, outcomes: { j: 'done' } })
})

finding.add('R36', 'another refusal is final', (s) => {
  s.do('join_or_create', { as: 'j', room_type: 'arena', options: OPTIONS, query: QUERY })
  s.client({ t: 'find', request_id: 1 }).server(foundAs(1))
  s.client({ t: 'join', request_id: 2 }).error('join_refused', { request_id: 2, room_id: ARENA })
  s.expect({ outcomes: { j: { error: 'join_refused' } } }).client(null)
})

finding.add('R35', 'a lost connection ends no request', (s) => {
  const list = { t: 'rooms', request_id: 1, room_type: 'arena' }
  const watch = { t: 'rooms', request_id: 2, room_type: 'arena', watch: true }
  const find = { t: 'find', request_id: 3, code: 'k7qx2m' }
  s.do('list', { as: 'l', room_type: 'arena', query: {} }).client(list)
  s.do('watch', { as: 'w', room_type: 'arena', query: {} }).client(watch)
  s.do('join_by_code', { as: 'j', code: 'k7qx2m' }).client(find)
  s.server({ t: 'rooms', request_id: 2, rooms: [row(ARENA)] })
  s.close(1006).open({ url: ADDRESS }).client({ t: 'hello' }).welcome()
  s.client(list).client(watch).client(find)
  s.server({ t: 'rooms', request_id: 1, rooms: [row(TWO)] })
  s.server({ t: 'rooms', request_id: 2, rooms: [row(TWO)] })
  s.expect({ lists: { l: [[TWO]], w: [[ARENA], [TWO]] }, outcomes: { j: 'pending' } })
})
