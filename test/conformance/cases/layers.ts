import assert from 'node:assert/strict'
import { Topic } from '../case.ts'
import type { Codec, Json } from '../messages.ts'
import type { Peer } from '../peer.ts'
import type { RoomView } from '../room-view.ts'
import type { Stage } from '../stage.ts'

const topic = new Topic('layers')
export const layers = topic.cases

const HIDDEN = '§5 "a member gets the base, which is everything else, and the layers that it has been given"'
const OUTDATED =
  '§2 "A `join` of a room type that needs one which is not named is refused with `client_outdated`"'

type Named = { [key: string]: Json }

/** Two players at a table of cards, one in each subprotocol, that have been dealt their hands. */
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
  for (const [one, { layers, memberId }] of seated)
    await one.until('there is a hand', () => JSON.stringify(layers.get(`member:${memberId}`) ?? {}) !== '{}')
  return seated
}

/** What a client has of hands is its own, as large as everyone is told. */
function ownHandOnly({ memberId, layers, merged, state }: RoomView): void {
  assert.deepEqual([...layers.keys()], [`member:${memberId}`])
  const { hands, players } = merged as { hands: { [id: string]: Json[] }; players: { [id: string]: Named } }
  assert.deepEqual(Object.keys(hands), [memberId])
  assert.equal(hands[memberId]!.length, players[memberId]!.cards)
  assert.deepEqual((state as Named).hands, {})
}

topic.each('each has its own hand, and no frame has that of another', HIDDEN, async (stage, codec) => {
  const seated = await dealt(stage, codec)
  for (const [, view] of seated) ownHandOnly(view)
  const { of } = (seated[0]![1].state as { turn: { of: string } }).turn
  const [peer, view] = seated.find(([, { memberId }]) => memberId === of)!
  const ref = peer.act(view.roomId, 'draw', null)
  await peer.settled(ref)
  const { card } = peer.session.replies.get(ref) as { card: string }
  ownHandOnly(view)
  const { hands } = view.merged as { hands: { [id: string]: string[] } }
  assert.ok(hands[of]!.includes(card), `${card} is in the hand`)
  for (const [other, its] of seated) {
    await other.until('everyone has the flush', () => its.seq >= view.seq)
    if (other === peer) continue
    const frames = Buffer.concat(other.frames.map((frame) => Buffer.from(frame as string)))
    assert.ok(!frames.includes(card), `${card} is in no frame of the other`)
  }
})

topic.each('a resume and a resync bring the base and its layers', HIDDEN, async (stage, codec) => {
  const [[peer, view]] = (await dealt(stage, codec)) as [[Peer, RoomView]]
  peer.cut()
  const back = await stage.resume(peer)
  await back.roundTrip()
  ownHandOnly(view)
  const { resyncs } = view
  back.send({ t: 'state.resync', room_id: view.roomId, have_seq: view.seq, reason: 'checksum' })
  await back.until('the resync is here', () => view.resyncs > resyncs)
  ownHandOnly(view)
})

topic.each('a client that does not name the feature is refused', OUTDATED, async (stage, codec) => {
  const peer = await stage.connect(codec)
  const ref = peer.session.nextRef()
  peer.send({ t: 'join', ref, room_type: 'cards', options: { key: stage.key() } })
  const error = await peer.expect('error', { ref })
  assert.equal(error.code, 'client_outdated')
})
