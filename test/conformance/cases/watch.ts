import assert from 'node:assert/strict'
import { type Stage, Topic } from '../case.ts'
import type { Codec } from '../messages.ts'
import type { Peer } from '../peer.ts'
import type { RoomView } from '../room-view.ts'

const topic = new Topic('watch')
export const watch = topic.cases

const WATCH = 'R37'
const ROLE = 'R38'
const COUNT = 'R39'
const REFUSED = 'Error codes: `not_a_player`'
const WATCHING = { watch: true } as const

/** Two players of a room, and a spectator in `codec`. */
interface Table {
  readonly anna: Peer
  readonly ben: Peer
  readonly eve: Peer
  readonly first: RoomView
  readonly second: RoomView
  readonly view: RoomView
  readonly room_id: string
}

async function table(stage: Stage, codec: Codec): Promise<Table> {
  const key = stage.key()
  const anna = await stage.connect('json', { sub: 'anna' })
  const ben = await stage.connect('msgpack', { sub: 'ben' })
  const eve = await stage.connect(codec, { sub: 'eve' })
  const first = await anna.join('tictactoe', key)
  const second = await ben.join('tictactoe', key)
  const view = await eve.join('tictactoe', key, WATCHING)
  return { anna, ben, eve, first, second, view, room_id: `tictactoe:${key}` }
}

topic.each('a spectator receives the state, and is in no list of members', WATCH, async (stage, codec) => {
  const { anna, first, second, eve, view, room_id: roomId } = await table(stage, codec)
  assert.equal(view.spectator, true)
  await anna.acted(roomId, 'move', { cell: 4 })
  await eve.until('the move has arrived', () => view.seq === first.seq)
  const players = [first.memberId, second.memberId].sort()
  for (const { members } of [view, first]) assert.deepEqual([...members.keys()].sort(), players)
  assert.deepEqual(view.state, first.state)
})

topic.each('a message of a spectator is refused', REFUSED, async (stage, codec) => {
  const { eve, room_id: roomId } = await table(stage, codec)
  const ref = eve.act(roomId, 'move', { cell: 0 })
  await eve.expect('error', { room_id: roomId, ref, code: 'not_a_player' })
  eve.send({ t: 'message', room_id: roomId, type: 'restart', data: {} })
  await eve.until(
    'both messages are refused',
    () => eve.inbox.filter((message) => message.t === 'error').length === 2,
  )
})

topic.each('a join to watch creates no room', WATCH, async (stage, codec) => {
  const eve = await stage.connect(codec)
  const key = stage.key()
  const refused = async (roomType: string) => {
    const id = eve.session.nextRequest()
    eve.send({ t: 'join', request_id: id, room_type: roomType, options: { key }, ...WATCHING })
    return (await eve.expect('error', { request_id: id })).code
  }
  assert.equal(await refused('tictactoe'), 'room_not_found')
  const anna = await stage.connect('json')
  await anna.join('counter', key)
  assert.equal(await refused('counter'), 'invalid_options', 'the type has no spectators')
})

topic.each('a spectator becomes a player, which all members see', ROLE, async (stage, codec) => {
  const { anna, ben, eve, first, second, view, room_id: roomId } = await table(stage, codec)
  const early = eve.act(roomId, 'sit', null)
  await eve.expect('error', { room_id: roomId, ref: early, code: 'room_logic_refused' })
  await anna.leave(roomId)
  await eve.acted(roomId, 'sit', null)
  const seated = { room_id: roomId, member_id: view.memberId, sub: 'eve', connected: true }
  for (const peer of [ben, eve]) await peer.expect('member', seated)
  assert.equal(view.spectator, false)
  const players = [second.memberId, view.memberId].sort()
  for (const { members } of [view, second]) assert.deepEqual([...members.keys()].sort(), players)
  await eve.acted(roomId, 'move', { cell: 0 })
  assert.equal(first.seated, false)
})

topic.each(
  'the number of spectators follows each whole state and each change',
  COUNT,
  async (stage, codec) => {
    const { anna, eve, first, view, room_id: roomId } = await table(stage, codec)
    await eve.expect('spectators', { room_id: roomId })
    await anna.until('the spectator counts', () => first.spectators === 1)
    const kim = await stage.connect('json', { sub: 'kim' })
    await kim.join('tictactoe', roomId.slice('tictactoe:'.length), WATCHING)
    for (const [peer, one] of [
      [anna, first],
      [eve, view],
    ] as const)
      await peer.until('both spectators count', () => one.spectators === 2)
    await kim.leave(roomId)
    await anna.until('one has left', () => first.spectators === 1)
  },
)

topic.each(
  'a resume keeps the role, and is followed by the number of spectators',
  COUNT,
  async (stage, codec) => {
    const { anna, eve, first, view, room_id: roomId } = await table(stage, codec)
    eve.cut()
    await anna.acted(roomId, 'move', { cell: 4 })
    const back = await stage.resume(eve)
    await back.until('it has caught up', () => view.seq === first.seq)
    await back.expect('spectators', { room_id: roomId, count: 1 })
    assert.equal(view.spectator, true)
  },
)
