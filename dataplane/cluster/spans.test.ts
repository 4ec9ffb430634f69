import { beforeEach, describe, expect, it } from 'vitest'
import { HERE, ROOM, RouterBench, THERE } from '../../test/support/cluster/router-bench.ts'
import { roomName, type ToOwner } from '../traffic.ts'

const JOIN = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

const join = (member_id = 'mem_a', traceparent: string | null = JOIN): ToOwner => ({
  kind: 'join',
  room: ROOM,
  member_id,
  ref: 1,
  edge: HERE,
  turn: 0,
  codec: 'roomful.v1.json',
  session_id: `ses_${member_id}`,
  sub: null,
  principal: 'token',
  options: {},
  ...(traceparent !== null && { traceparent }),
})
const claim = { fence: { room: roomName(ROOM), epoch: 9 }, snapshot: undefined, journal: [] } as never

describe('the span of a look for the owner of a room', () => {
  let bench: RouterBench
  let { clock, host, records, dead, tracer, router } = new RouterBench()

  beforeEach(() => {
    bench = new RouterBench()
    ;({ clock, host, records, dead, tracer, router } = bench)
  })

  it('is a part of the join, and says who has the room', async () => {
    router.send(join())
    clock.advance(30)
    await records.answer({ epoch: 7, version: 3, owner: THERE })
    expect(tracer.spans).toMatchObject([
      {
        name: 'room.locate',
        parent: JOIN,
        took: 30,
        failed: undefined,
        attributes: {
          'roomful.project_id': 'prj_a',
          'roomful.room_type': 'duel',
          'roomful.room_id': 'duel:one',
          'roomful.session_id': 'ses_mem_a',
          'roomful.result': 'found',
          'roomful.owner_node_id': THERE,
          'roomful.epoch': 7,
        },
      },
    ])
  })

  it('is none when the owner is known already, nor for joins that are not recorded', async () => {
    router.send(join())
    await records.answer({ epoch: 7, version: 3, owner: THERE })
    router.send(join('mem_b'))
    expect(tracer.spans).toHaveLength(1)
    router.forget(ROOM)
    router.send(join('mem_c', null))
    await records.answer({ epoch: 7, version: 3, owner: THERE })
    expect(tracer.spans).toHaveLength(1)
  })

  it('is one for each join that waits, and no more when its edge asks again', async () => {
    router.send(join('mem_a'))
    router.send(join('mem_b'))
    router.send(join('mem_a'))
    await records.answer({ epoch: 7, version: 3, owner: THERE })
    expect(tracer.ended).toEqual(['room.locate found', 'room.locate found'])
    expect(tracer.spans.map(({ attributes }) => attributes['roomful.session_id'])).toEqual([
      'ses_mem_a',
      'ses_mem_b',
    ])
  })

  it.each([
    ['claimed', claim, { 'roomful.owner_node_id': HERE, 'roomful.epoch': 9 }],
    [
      'taken_over',
      { ...(claim as object), from: THERE } as never,
      { 'roomful.owner_node_id': HERE, 'roomful.epoch': 9, 'roomful.from_node_id': THERE },
    ],
    ['found', { elsewhere: THERE }, { 'roomful.owner_node_id': THERE, 'roomful.epoch': undefined }],
    ['unavailable', 'unavailable', { 'roomful.owner_node_id': undefined }],
    ['refused', undefined, { 'roomful.owner_node_id': undefined }],
  ] as const)(
    'lasts until this node knows what came of its own claim: %s',
    async (result, claimed, attributes) => {
      dead.add(THERE)
      host.claimed = claimed
      router.send(join())
      await records.answer({ epoch: 7, version: 3, owner: THERE })
      expect(tracer.spans).toMatchObject([
        {
          attributes: { ...attributes, 'roomful.result': result },
          failed: result === 'unavailable' ? result : undefined,
        },
      ])
      expect(tracer.open).toEqual([])
    },
  )

  it('has failed when no node can take the room, or the store does not answer', async () => {
    bench.chosen = undefined
    router.send(join('mem_a'))
    await records.answer(undefined)
    router.send(join('mem_b'))
    await records.fail()
    expect(tracer.spans.map(({ failed }) => failed)).toEqual(['overloaded', 'unavailable'])
    expect(tracer.open).toEqual([])
  })
})
