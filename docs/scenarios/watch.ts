import { ADDRESS, ARENA, BOB, Level, ME, ScriptRoom, STATE } from './script.ts'

/** Level 7 of docs/protocol.md. */
const level = new Level(7)
export const WATCH = level.scenarios

const JOIN = { room_type: 'arena', options: { key: 'lobby' } }
const WATCHER = { ...ME, spectator: true }

/** A room whose list of members has no spectators, and in which this client watches. */
function watched(): ScriptRoom {
  const room = new ScriptRoom()
  room.members = [BOB]
  return room
}

level.add(
  'R37',
  'a client watches a room, and is not in its list of members',
  (s) => {
    s.do('join', { as: 'w', ...JOIN, watch: true })
    s.client({ t: 'join', request_id: 1, ...JOIN, watch: true })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_me' }).server(watched().snapshot())
    s.expect({ state: STATE, role: 'spectator', seat: 'joined', outcomes: { w: 'done' } })
    s.expectMembers(BOB).client(null)
  },
  { start: 'online' },
)

level.add(
  'R37',
  'a spectator that has lost its seat joins again to watch',
  (s) => {
    const room = watched()
    s.do('join', { as: 'w', ...JOIN, watch: true }).client({ t: 'join', request_id: 1 })
    s.server({ t: 'joined', request_id: 1, room_id: ARENA, member_id: 'mem_me' }).server(room.snapshot())
    s.close(4300).open({ url: ADDRESS }).client({ t: 'hello' }).welcome()
    s.client({ t: 'join', request_id: 2, ...JOIN, rejoin: true, watch: true })
    s.server({ t: 'joined', request_id: 2, room_id: ARENA, member_id: 'mem_2' }).server(room.snapshot())
    s.expect({ role: 'spectator' })
  },
  { start: 'online' },
)

level.add('R38', 'the list of members has spectators', (s, room) => {
  room.members = [WATCHER, BOB]
  s.server(room.resync()).expect({ role: 'spectator' }).expectMembers(WATCHER, BOB)
  s.server(room.patch())
  const carla = { member_id: 'mem_carla', sub: null, connected: true, spectator: true }
  s.server(room.member(carla)).expectMembers(WATCHER, BOB, carla)
  room.members = [ME, BOB, carla]
  s.server(room.resync()).expect({ role: 'player' }).expectMembers(ME, BOB, carla)
})

level.add('R38', 'this client and another change their roles, in a list without spectators', (s, room) => {
  s.server(room.patch())
  s.server(room.gone(ME)).expectMembers(BOB).expect({ role: 'spectator' })
  s.server(room.patch({ ...STATE, n: 2 }))
  s.server(room.gone(BOB)).expectMembers().server(room.member(ME))
  s.expectMembers(ME)
    .expect({ role: 'player', state: { ...STATE, n: 2 } })
    .client(null)
})

level.add('R38', 'members change their roles in a list with spectators', (s, room) => {
  s.server(room.patch())
  s.server(room.member(WATCHER)).expectMembers(WATCHER, BOB)
  s.expect({ role: 'spectator' })
  s.server(room.patch())
  const bob = { ...BOB, connected: false, spectator: true }
  s.server(room.member(bob)).expectMembers(WATCHER, bob)
  s.server(room.patch())
  s.server(room.member(ME)).expectMembers(ME, bob)
  s.expect({ role: 'player' }).client(null)
})

level.add('R38', 'a player that has become a spectator joins again to watch', (s, room) => {
  s.server(room.patch())
  s.server(room.gone(ME)).close(4300).open({ url: ADDRESS }).client({ t: 'hello' }).welcome()
  s.client({ t: 'join', request_id: 2, ...JOIN, rejoin: true, watch: true })
})

level.add('R38', 'a spectator that has become a player joins again to play', (s, room) => {
  room.members = [BOB]
  s.server(room.resync()).expect({ role: 'spectator' })
  s.server(room.patch())
  s.server(room.member(ME)).close(4300).open({ url: ADDRESS }).client({ t: 'hello' }).welcome()
  s.client({ t: 'join', request_id: 2, ...JOIN, rejoin: true })
})

level.add('R39', 'the number of spectators', (s, room) => {
  s.server({ t: 'spectators', room_id: ARENA, count: 2000 }).expect({ spectators: 2000 })
  s.server(room.patch({ ...STATE, n: 2 })).server({ t: 'spectators', room_id: ARENA, count: 0 })
  s.expect({ spectators: 0, state: { ...STATE, n: 2 } }).client(null)
})
