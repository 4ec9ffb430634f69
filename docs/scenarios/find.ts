import type { JsonObject } from '../../shared/json.ts'
import type { ListedRoom } from '../../shared/protocol/messages.ts'
import { ADDRESS, ARENA, Level, ScriptRoom, STATE } from './script.ts'

/** Level 6 of docs/protocol.md. */
const level = new Level(6, 'online')
export const FIND = level.scenarios

const QUERY: JsonObject = { where: { map: 'desert' } }
const TWO = 'arena:two'

const row = (room_id: string): ListedRoom => ({
  room_id,
  members: 1,
  max_members: 4,
  reserved: 0,
  created_at: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
})

level.add('R46', 'a list', (s) => {
  s.do('list', { as: 'l', room_type: 'arena', query: QUERY })
  s.client({ t: 'rooms', request_id: 1, room_type: 'arena', query: QUERY })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(ARENA), row(TWO)] })
  s.expect({ lists: { l: [[ARENA, TWO]] } })
})

level.add('R46', 'a refused list', (s) => {
  s.do('list', { as: 'l', room_type: 'arena', query: QUERY }).client({ t: 'rooms', request_id: 1 })
  s.error('invalid_options', { request_id: 1 }).expect({ outcomes: { l: { error: 'invalid_options' } } })
})

level.add('R46', 'a watch gets whole lists until it is ended', (s) => {
  s.do('watch', { as: 'w', room_type: 'arena', query: QUERY })
  s.client({ t: 'rooms', request_id: 1, room_type: 'arena', query: QUERY, watch: true })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(ARENA)] })
  s.server({ t: 'rooms', request_id: 1, rooms: [row(TWO)] })
  s.do('end_watch', { as: 'w' }).client({ t: 'rooms.end', request_id: 1 })
  s.server({ t: 'rooms', request_id: 1, rooms: [] }).expect({ lists: { w: [[ARENA], [TWO]] } })
})

level.add('R47', 'a code leads to a room, which the join does not make', (s, room) => {
  s.do('join_by_code', { as: ARENA, code: 'k7qx2m' }).client({ t: 'find', request_id: 1, code: 'k7qx2m' })
  s.server({ t: 'found', request_id: 1, room_id: ARENA })
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

level.add('R47', 'a wrong code', (s) => {
  s.do('join_by_code', { as: 'j', code: 'wrong' }).client({ t: 'find', request_id: 1, code: 'wrong' })
  s.error('room_not_found', { request_id: 1 })
  s.expect({ outcomes: { j: { error: 'room_not_found' } } }).client(null)
})

level.add('R47', 'a room with a free seat, after one that was full', (s) => {
  const room = new ScriptRoom(TWO)
  const options = { map: 'desert' }
  s.do('join_or_create', { as: 'j', room_type: 'arena', options, query: QUERY })
  s.client({ t: 'find', request_id: 1, room: { room_type: 'arena', query: QUERY, options } })
  s.server({ t: 'found', request_id: 1, room_id: ARENA })
  s.client({ t: 'join', request_id: 2, room_type: 'arena', options: { ...options, key: 'lobby' } })
  s.error('room_full', { request_id: 2, room_id: ARENA }, true)
  s.client({ t: 'find', request_id: 3, room: { room_type: 'arena', query: QUERY, options, not: [ARENA] } })
  s.server({ t: 'found', request_id: 3, room_id: TWO })
  s.client({ t: 'join', request_id: 4, room_type: 'arena', options: { ...options, key: 'two' } })
  s.server({ t: 'joined', request_id: 4, room_id: TWO, member_id: 'mem_me' }).server(room.snapshot())
  s.expect({ room_id: TWO, state: STATE, outcomes: { j: 'done' } })
})

level.add('R48', 'a lost connection ends no request', (s) => {
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
