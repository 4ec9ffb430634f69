import assert from 'node:assert/strict'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { type Stage, Topic } from '../case.ts'
import type { Codec, Json } from '../messages.ts'
import type { Peer } from '../peer.ts'
import { canonical, type RoomView } from '../room-view.ts'

const topic = new Topic('state')
export const state = topic.cases

const SEQ = 'R12, R13'
const RESYNC = 'R14'
const SHARED = 'Order: of flushes, and within one'

/** Joins a player with each codec to one room. Waits until all players have received all joins. */
async function seat(stage: Stage, roomType: string, codecs: readonly Codec[]): Promise<[Peer, RoomView][]> {
  const key = stage.key()
  const seated: [Peer, RoomView][] = []
  for (const [index, codec] of codecs.entries()) {
    const peer = await stage.connect(codec, { sub: `player-${index}` })
    seated.push([peer, await peer.join(roomType, key)])
  }
  const last = seated.at(-1)![1].seq
  for (const [peer, view] of seated) {
    await peer.until('the last join has arrived', () => view.seq >= last)
  }
  return seated
}

/** Sends `count` messages from the players in turn, below every rate limit. Waits until all have an outcome. */
async function play(
  seated: readonly [Peer, RoomView][],
  count: number,
  message: (view: RoomView) => [type: string, data: Json],
): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) {
    const [peer, view] = seated[turn % seated.length]!
    await peer.paced()
    const [type, data] = message(view)
    peer.act(view.roomId, type, data)
  }
  for (const [peer] of seated) {
    await peer.until('every message is answered', () => peer.session.kept.size === 0, 20_000)
  }
}

/** Waits until all players have one seq. Expects equal states of each flush that all have received, equal events and equal members. */
async function sameForAll(seated: readonly [Peer, RoomView][]): Promise<void> {
  for (const [peer, view] of seated) {
    await peer.until('all have one seq', () => seated.every(([, other]) => other.seq === view.seq))
  }
  const [, first] = seated[0]!
  const from = Math.max(...seated.map(([, view]) => Math.min(...view.history.keys())))
  for (const [peer, view] of seated) {
    for (let seq = from; seq <= first.seq; seq += 1) {
      const [one, another] = [first, view].map(({ history }) => canonical(history.get(seq)!))
      if (one !== another) peer.fail(`seq ${seq}: one has ${one}, another ${another}`)
    }
    const events = (of: RoomView) =>
      of.events.filter(({ seq }) => seq > from).map(({ seq, event: { name, data } }) => ({ seq, name, data }))
    assert.deepEqual(events(view), events(first))
    assert.deepEqual([...view.members].sort(), [...first.members].sort())
    assert.equal(view.resyncs, 0, 'a player needed a resync')
  }
}

topic.once('six players have the same states after 400 random moves and hits', SEQ, async (stage) => {
  const random = new SeededRandom(stage.target.seed)
  const seated = await seat(stage, 'arena', ['json', 'msgpack', 'json', 'msgpack', 'msgpack', 'json'])
  const views = seated.map(([, view]) => view)
  const act = (view: RoomView): [type: string, data: Json] => {
    const target = random.pick(views.filter((other) => other !== view)).memberId
    // One in eight is a hit: the room allows ten hits a second.
    if (random.integer(1, 8) === 1) return ['hit', { target }]
    const coordinate = () => (random.integer(0, 1) ? random.integer(0, 1000) : random.float() * 1000)
    return ['move', { x: coordinate(), y: coordinate() }]
  }
  await play(seated, 400, act)
  // A busy service puts many messages into one flush.
  while (seated[0]![1].patches <= 20) await play(seated, 50, act)
  await sameForAll(seated)
})

topic.once('players have the same states while a member joins and leaves', SHARED, async (stage) => {
  const random = new SeededRandom(stage.target.seed)
  const seated = await seat(stage, 'arena', ['json', 'msgpack'])
  const { roomId } = seated[0]![1]
  const guest = await stage.connect('msgpack', { sub: 'guest' })
  const stays = play(seated, 100, () => ['move', { x: random.float() * 1000, y: random.integer(0, 1000) }])
  for (let visit = 0; visit < 8; visit += 1) {
    const view = await guest.join('arena', roomId.slice('arena:'.length))
    await guest.acted(view.roomId, 'move', { x: visit, y: visit / 3 })
    await guest.leave(roomId)
  }
  await stays
  const visits = (view: RoomView) =>
    view.presence.filter(({ sub }) => sub === 'guest').map(({ connected }) => connected)
  for (const [peer, view] of seated) {
    await peer.until('the guest has left for the last time', () => visits(view).length >= 16)
  }
  await sameForAll(seated)
  for (const [, view] of seated) {
    assert.deepEqual(visits(view), Array(8).fill([true, undefined]).flat())
    assert.equal(view.members.size, 2)
  }
})

topic.each('a flush begins with its patch, and its events follow', SHARED, async (stage, codec) => {
  const [[peer, view]] = (await seat(stage, 'counter', [codec])) as [[Peer, RoomView]]
  await peer.acted(view.roomId, 'inc', { by: 8 })
  const from = peer.inbox.length
  const ref = peer.act(view.roomId, 'inc', { by: 25 })
  await peer.expect('ack', { ref }, { from })
  const flush = peer.inbox.slice(from)
  assert.deepEqual(
    flush.map(({ t }) => t),
    ['state.patch', 'event', 'event', 'event', 'ack'],
  )
  assert.deepEqual(
    view.events.map(({ seq, event: { name, data } }) => [seq, name, data]),
    [10, 20, 30].map((count) => [view.seq, 'milestone', { count }]),
  )
  assert.match(canonical(view.state!), /"count":33/)
})

topic.each(
  'members of one subprotocol get the same bytes',
  'docs/guarantees.md: 5. Convergence',
  async (stage, codec) => {
    const seated = await seat(stage, 'counter', [codec, codec, codec])
    const [[peer, view]] = seated as [[Peer, RoomView], ...[Peer, RoomView][]]
    const start = view.seq
    for (let count = 0; count < 10; count += 1) await peer.acted(view.roomId, 'inc', { by: 7 })
    await sameForAll(seated)
    const hot = ([of]: [Peer, RoomView]) => {
      const first = of.inbox.findIndex((message) => message.t === 'state.patch' && message.seq > start)
      return of.inbox.flatMap(({ t }, index) =>
        index >= first && (t === 'state.patch' || t === 'event')
          ? [Buffer.from(of.frames[index]!).toString('hex')]
          : [],
      )
    }
    const frames = hot(seated[0]!)
    assert.ok(frames.length >= 17, `${frames.length} frames`)
    for (const other of seated) assert.deepEqual(hot(other), frames)
  },
)

for (const reason of ['sequence', 'checksum'] as const) {
  topic.each(`a resync because of ${reason} brings state and members`, RESYNC, async (stage, codec) => {
    const seated = await seat(stage, 'arena', [codec, 'json'])
    const [[peer, view], [other, others]] = seated as [[Peer, RoomView], [Peer, RoomView]]
    await other.acted(view.roomId, 'move', { x: 3, y: 4.5 })
    await peer.until('both have one seq', () => view.seq === others.seq)
    const before = canonical(view.state!)
    peer.send({ t: 'state.resync', room_id: view.roomId, reason })
    const resync = await peer.expect('state.resync', { room_id: view.roomId })
    assert.equal(canonical(view.state!), before)
    assert.equal(resync.epoch, others.epoch)
    assert.equal(resync.seq, others.seq)
    assert.deepEqual([...view.members].sort(), [...others.members].sort())
    await other.acted(view.roomId, 'move', { x: 5, y: 6 })
    await peer.until('the stream continues', () => view.seq === others.seq)
    assert.equal(canonical(view.state!), canonical(others.state!))
  })
}

topic.each('a resync while others play brings the current state', RESYNC, async (stage, codec) => {
  const seated = await seat(stage, 'arena', [codec, 'json', 'msgpack'])
  const [peer, view] = seated[0]!
  const random = new SeededRandom(stage.target.seed)
  const others = play(seated.slice(1), 120, () => ['move', { x: random.float(), y: random.integer(0, 9) }])
  for (let ask = 1; ask <= 2; ask += 1) {
    const reason = ask % 2 ? 'sequence' : 'checksum'
    peer.send({ t: 'state.resync', room_id: view.roomId, reason })
    await peer.until(`resync ${ask} has arrived`, () => view.resyncs === ask)
    const { patches } = view
    await peer.until('patches continue', () => view.patches > patches)
  }
  await others
  const [, witness] = seated[1]!
  await peer.until('both have one seq', () => view.seq === witness.seq)
  assert.equal(canonical(view.state!), canonical(witness.state!))
})

topic.each('a resync without a seat is not_in_room', 'Error codes: `not_in_room`', async (stage, codec) => {
  const peer = await stage.connect(codec)
  const roomId = `counter:${stage.key()}`
  peer.send({ t: 'state.resync', room_id: roomId, reason: 'sequence' })
  await peer.expect('error', { room_id: roomId, code: 'not_in_room' })
})

const HIDDEN = 'R27: a member gets the base and its layers'
const FEATURE = 'R25'

type Named = { [key: string]: Json }

/** Joins two players to a table of cards, one in each subprotocol, and deals their hands. */
async function dealt(stage: Stage, codec: Codec): Promise<[Peer, RoomView][]> {
  const key = stage.key()
  const seated: [Peer, RoomView][] = []
  for (const own of [codec, codec === 'json' ? 'msgpack' : 'json'] as const) {
    const peer = await stage.open(own)
    peer.session.features = ['layers']
    await stage.greet(peer, await stage.token({ sub: own }))
    seated.push([peer, await peer.join('cards', key)])
  }
  const [peer, view] = seated[0]!
  await peer.acted(view.roomId, 'deal', null)
  for (const [one, its] of seated)
    await one.until('there is a hand', () => its.layers.has(`member:${its.memberId}`))
  return seated
}

/** Expects that a client has only its own hand, with the public number of cards. */
function ownHandOnly({ memberId, layers, merged, state }: RoomView): void {
  assert.deepEqual([...layers.keys()], [`member:${memberId}`])
  const { hands, players } = merged as { hands: { [id: string]: Json[] }; players: { [id: string]: Named } }
  assert.deepEqual(Object.keys(hands), [memberId])
  assert.equal(hands[memberId]!.length, players[memberId]!.cards)
  assert.deepEqual((state as Named).hands, {})
}

topic.each('each player receives only its own hand', HIDDEN, async (stage, codec) => {
  const seated = await dealt(stage, codec)
  for (const [, view] of seated) ownHandOnly(view)
  const { of } = (seated[0]![1].state as { turn: { of: string } }).turn
  const [peer, view] = seated.find(([, { memberId }]) => memberId === of)!
  const ref = peer.act(view.roomId, 'draw', null)
  await peer.acknowledged(view.roomId, ref)
  const { card } = peer.session.replyTo(view.roomId, ref) as { card: string }
  ownHandOnly(view)
  const { hands } = view.merged as { hands: { [id: string]: string[] } }
  assert.ok(hands[of]!.includes(card), `${card} is not in the hand`)
  for (const [other, its] of seated) {
    await other.until('the flush has arrived', () => its.seq >= view.seq)
    if (other === peer) continue
    const frames = Buffer.concat(other.frames.map((frame) => Buffer.from(frame as string)))
    assert.ok(!frames.includes(card), `${card} is in a frame of the other player`)
  }
})

topic.each('a resume and a resync bring the base and its layers', HIDDEN, async (stage, codec) => {
  const [[peer, view]] = (await dealt(stage, codec)) as [[Peer, RoomView]]
  peer.cut()
  const back = await stage.resume(peer)
  await back.roundTrip()
  ownHandOnly(view)
  const { resyncs } = view
  back.send({ t: 'state.resync', room_id: view.roomId, reason: 'checksum' })
  await back.until('the resync has arrived', () => view.resyncs > resyncs)
  ownHandOnly(view)
})

topic.each('a client without the feature layers is refused', FEATURE, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const id = peer.session.nextRequest()
  peer.send({ t: 'join', request_id: id, room_type: 'cards', options: { key: stage.key() } })
  const error = await peer.expect('error', { request_id: id })
  assert.equal(error.code, 'client_outdated')
})
