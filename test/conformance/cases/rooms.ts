import assert from 'node:assert/strict'
import { Topic } from '../case.ts'
import type { Json, ListedRoom, Received } from '../messages.ts'
import type { Peer } from '../peer.ts'
import { canonical } from '../room-view.ts'

const topic = new Topic('rooms')
export const rooms = topic.cases

const JOINED = 'R8'
const LEFT = 'R9'
const KEY = 'Messages from the client: `options.key`'
const NOT_FOUND = 'Error codes: `room_not_found`'
const FORBIDDEN = 'Error codes: `forbidden`'

/** Sends a join, and waits for its error. */
async function refusedJoin(
  peer: Peer,
  roomType: string,
  options?: { [key: string]: Json },
  create?: boolean,
): Promise<Received<'error'>> {
  const id = peer.session.nextRequest()
  peer.send({
    t: 'join',
    request_id: id,
    room_type: roomType,
    options,
    ...(create !== undefined && { create }),
  })
  await peer.until(`join ${id} is answered`, () =>
    peer.inbox.some(
      (message) => (message.t === 'error' || message.t === 'joined') && message.request_id === id,
    ),
  )
  return peer.expect('error', { request_id: id }, { within: 0 })
}

topic.each('joined, then the snapshot', JOINED, async (stage, codec) => {
  const peer = await stage.connect(codec, { sub: 'anna' })
  const key = stage.key()
  const view = await peer.join('counter', key)
  assert.equal(view.roomId, `counter:${key}`, '`room_id` is `type:key`')
  assert.deepEqual([...view.members], [[view.memberId, 'anna']])
  assert.equal(canonical(view.state!), '{"count":0}')
})

topic.each('a join with create: false creates no room', NOT_FOUND, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const key = stage.key()
  for (const _ of ['once', 'again'])
    assert.equal((await refusedJoin(peer, 'counter', { key }, false)).code, 'room_not_found')
  await peer.join('counter', key)
})

topic.each('a wrong code is room_not_found', 'R36', async (stage, codec) => {
  const peer = await stage.connect(codec)
  const id = peer.session.nextRequest()
  peer.send({ t: 'find', request_id: id, code: '000000' })
  await peer.expect('error', { request_id: id, code: 'room_not_found' })
})

topic.once('a watched list comes whole, and then as what has changed', 'R35', async (stage) => {
  const keys = [stage.key(), stage.key()]
  const [hurt, other] = keys.map((key) => `arena:${key}`) as [string, string]
  const host = await stage.connect('json')
  const views = await Promise.all(keys.map((key) => host.join('arena', key)))
  const peer = await stage.connect('msgpack', { rooms: [hurt, other] })
  const id = peer.session.nextRequest()
  peer.send({ t: 'rooms', request_id: id, room_type: 'arena', query: { where: { wounded: 0 } }, watch: true })
  const lists = () => peer.inbox.filter((message) => message.t === 'rooms')
  const players = (): [string, number][] => {
    let known: ListedRoom[] = []
    for (const { rooms = known, set = [], gone = [], at = [] } of lists()) {
      known = [...rooms]
      for (const index of gone) known.splice(index, 1)
      for (const [i, index] of at.entries()) known.splice(index, 0, set[i]!)
    }
    return known.map((row): [string, number] => [row.room_id, row.players]).sort()
  }
  const shows = (...rows: [string, number][]) =>
    peer.until(`the list is ${JSON.stringify(rows)}`, () => canonical(players()) === canonical(rows.sort()))
  await shows([hurt, 1], [other, 1])
  assert.ok(lists()[0]!.rooms, 'the first list is whole')
  const guest = await stage.connect('json')
  await guest.join('arena', keys[0]!)
  await shows([hurt, 2], [other, 1])
  assert.deepEqual([lists().at(-1)!.set?.length, lists().at(-1)!.gone?.length], [1, 1])
  await guest.acted(hurt, 'hit', { target: views[0]!.memberId })
  await shows([other, 1])
  assert.deepEqual([lists().at(-1)!.set, lists().at(-1)!.gone?.length], [[], 1])
})

topic.each('without options the key is default', KEY, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const id = peer.session.nextRequest()
  peer.send({ t: 'join', request_id: id, room_type: 'counter' })
  await peer.expect('joined', { request_id: id, room_id: 'counter:default' })
})

topic.once('options of null count as absent', 'Messages from the client: null is absent', async (stage) => {
  const peer = await stage.connect('json')
  const id = peer.session.nextRequest()
  peer.sendRaw(JSON.stringify({ t: 'join', request_id: id, room_type: 'counter', options: null }))
  await peer.expect('joined', { request_id: id, room_id: 'counter:default' })
})

topic.each('a new member sees the first member, which sees it join', JOINED, async (stage, codec) => {
  const key = stage.key()
  const anna = await stage.connect(codec, { sub: 'anna' })
  const ben = await stage.connect(codec === 'json' ? 'msgpack' : 'json')
  const first = await anna.join('arena', key)
  const second = await ben.join('arena', key)
  assert.deepEqual(
    [...second.members].sort(),
    [
      [first.memberId, 'anna'],
      [second.memberId, null],
    ].sort(),
  )
  await anna.expect('member', {
    ...{ room_id: `arena:${key}`, member_id: second.memberId, sub: null, connected: true },
  })
  assert.deepEqual([...first.members].sort(), [...second.members].sort())
})

topic.each('all members receive a leave, also the leaving member', LEFT, async (stage, codec) => {
  const key = stage.key()
  const anna = await stage.connect(codec, { sub: 'anna' })
  const ben = await stage.connect('json')
  const first = await anna.join('arena', key)
  const second = await ben.join('arena', key)
  await anna.leave(`arena:${key}`)
  await ben.expect('member', {
    room_id: `arena:${key}`,
    member_id: first.memberId,
    sub: 'anna',
    connected: undefined,
  })
  assert.deepEqual([...second.members.keys()], [second.memberId])
  await ben.until(
    'the fighter is off the floor',
    () => canonical(second.state!).includes(first.memberId) === false,
  )
  // The left member must not receive any later frame of the room: its view reports such a frame as a fault.
  await ben.acted(`arena:${key}`, 'move', { x: 1, y: 2 })
  await anna.roundTrip()
})

topic.each('a client that joins again is a new member', LEFT, async (stage, codec) => {
  const key = stage.key()
  const peer = await stage.connect(codec)
  const first = await peer.join('counter', key)
  await peer.acted(`counter:${key}`, 'inc', { by: 3 })
  await peer.leave(`counter:${key}`)
  const second = await peer.join('counter', key)
  assert.notEqual(second.memberId, first.memberId)
  assert.equal(canonical(second.state!), '{"count":3}')
})

topic.each('a second join is already_joined', 'Error codes: `already_joined`', async (stage, codec) => {
  const key = stage.key()
  const peer = await stage.connect(codec)
  await peer.join('counter', key)
  const error = await refusedJoin(peer, 'counter', { key })
  assert.equal(error.code, 'already_joined')
  await peer.acted(`counter:${key}`, 'inc', {})
  // Also before the first join is answered.
  const options = { key: stage.key() }
  const id = peer.session.nextRequest()
  peer.send({ t: 'join', request_id: id, room_type: 'counter', options })
  assert.equal((await refusedJoin(peer, 'counter', options)).code, 'already_joined')
  await peer.expect('joined', { request_id: id })
})

topic.each(
  'two sessions of one player have two seats',
  '"A **member** is one session in one room."',
  async (stage, codec) => {
    const key = stage.key()
    const one = await stage.connect(codec, { sub: 'anna' })
    const two = await stage.connect(codec, { sub: 'anna' })
    const first = await one.join('counter', key)
    const second = await two.join('counter', key)
    assert.notEqual(first.memberId, second.memberId)
    assert.deepEqual([...second.members.values()], ['anna', 'anna'])
  },
)

topic.each('a leave without a seat is not_in_room', 'Error codes: `not_in_room`', async (stage, codec) => {
  const peer = await stage.connect(codec)
  const key = stage.key()
  const ask = async () => {
    const id = peer.session.nextRequest()
    peer.send({ t: 'leave', request_id: id, room_id: `counter:${key}` })
    await peer.expect('error', { request_id: id, code: 'not_in_room' })
  }
  await ask()
  await peer.join('counter', key)
  await peer.leave(`counter:${key}`)
  await ask()
})

topic.each(
  'a join of an unknown type is unknown_room_type',
  'Error codes: `unknown_room_type`',
  async (stage, codec) => {
    const peer = await stage.connect(codec)
    const error = await refusedJoin(peer, 'no-such-room', {})
    assert.equal(error.code, 'unknown_room_type')
  },
)

const GOOD_KEYS: [string, string][] = [
  ['of 1 character', 'a'],
  ['of 128 characters', 'k'.repeat(128)],
  ['of 64 astral characters, 128 UTF-16 units', '🎲'.repeat(64)],
  ['with a colon, a space and a slash', 'a:b c/d'],
]

for (const [what, key] of GOOD_KEYS) {
  topic.each(`a key ${what} names a room`, KEY, async (stage, codec) => {
    const peer = await stage.connect(codec)
    const view = await peer.join('counter', key)
    assert.equal(view.roomId, `counter:${key}`)
    await peer.acted(view.roomId, 'inc', {})
  })
}

const BAD_KEYS: [string, Json][] = [
  ['of no character', ''],
  ['of 129 characters', 'k'.repeat(129)],
  ['of 65 astral characters, 130 UTF-16 units', '🎲'.repeat(65)],
  ['that is a number', 7],
]

for (const [what, key] of BAD_KEYS) {
  topic.each(`a key ${what} is refused`, KEY, async (stage, codec) => {
    const peer = await stage.connect(codec)
    const error = await refusedJoin(peer, 'counter', { key })
    // The page does not say whether the key is a field of the message or one of the options.
    assert.ok(['invalid_message', 'invalid_options'].includes(error.code), error.code)
    await peer.roundTrip()
  })
}

topic.each('a token for some rooms forbids all other rooms', FORBIDDEN, async (stage, codec) => {
  const key = stage.key()
  const peer = await stage.connect(codec, { rooms: ['arena', `counter:${key}`] })
  await peer.join('arena', stage.key())
  await peer.join('counter', key)
  const other = await refusedJoin(peer, 'counter', { key: stage.key() })
  assert.equal(other.code, 'forbidden')
  const type = await refusedJoin(peer, 'tictactoe', { key })
  assert.equal(type.code, 'forbidden')
})

topic.each('a token with an empty list of rooms forbids all rooms', FORBIDDEN, async (stage, codec) => {
  const peer = await stage.connect(codec, { rooms: [] })
  const error = await refusedJoin(peer, 'counter', { key: stage.key() })
  assert.equal(error.code, 'forbidden')
})

topic.once('one room more than max_rooms is too_many_rooms', 'Limits: `max_rooms`', async (stage) => {
  const peer = await stage.connect('msgpack')
  const { max_rooms: maxRooms } = peer.session.welcome!.limits
  const keys = Array.from({ length: maxRooms }, () => stage.key())
  for (const key of keys) await peer.join('counter', key)
  const error = await refusedJoin(peer, 'counter', { key: stage.key() })
  assert.equal(error.code, 'too_many_rooms')
  await peer.leave(`counter:${keys[0]}`)
  await peer.join('counter', stage.key())
})

topic.once('a full room is room_full until a member leaves', 'Error codes: `room_full`', async (stage) => {
  const key = stage.key()
  const token = await stage.token()
  const seated = await Promise.all(
    Array.from({ length: 64 }, async () => {
      const peer = await stage.connectWith('msgpack', token)
      await peer.join('arena', key)
      return peer
    }),
  )
  const late = await stage.connectWith('json', token)
  const error = await refusedJoin(late, 'arena', { key })
  assert.equal(error.code, 'room_full')
  await seated[0]!.leave(`arena:${key}`)
  const view = await late.join('arena', key)
  assert.equal(view.members.size, 64)
})

topic.once(
  'two projects have two rooms with the same name',
  '`room_id` is unique within a project',
  async (stage) => {
    const key = stage.key()
    const ours = await stage.connect('json')
    const view = await ours.join('counter', key)
    await ours.acted(view.roomId, 'inc', { by: 7 })
    const projectId = await stage.control.createProject()
    const { token } = await stage.control.issueToken(projectId)
    const theirs = await stage.openFor(projectId, 'json')
    await stage.greet(theirs, token)
    const other = await theirs.join('counter', key)
    assert.equal(canonical(other.state!), '{"count":0}')
    assert.equal(other.members.size, 1)
    assert.equal(view.members.size, 1)
  },
)
