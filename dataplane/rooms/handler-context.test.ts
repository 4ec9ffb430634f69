import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const room = defineRoom({
  type: 'room',
  sync: { rate: 0 },
  create: () => ({ key: '', ready: 0 }),
  admit: (_member, _options, ctx) => (ctx.key === 'closed' ? `${ctx.key} is closed` : undefined),
  messages: {
    ready: {
      handle(state, { data }, ctx) {
        state.ready += data === null ? 1 : 100
        state.key = ctx.key
      },
    },
    tell: {
      data: v.picklist(['member', 'members', 'ids', 'result', 'nobody']),
      handle(_state, { data, member }, { emit, members }) {
        if (data === 'member') emit('told', data, member)
        else if (data === 'members') emit('told', data, members)
        else if (data === 'ids') emit('told', data, [member.id, members[1]!])
        else if (data === 'nobody') emit('told', data, { id: 3 } as never)
        else return { event: { name: 'told', data, to: member } }
        return
      },
    },
  },
})

describe('ctx', () => {
  it('emits to one or several members or member ids', async () => {
    const { bench, ann } = await roomWith(room, ['ann', 'bob'])
    const both = [ann, bench.members.get('bob')!]
    const told = async (data: string) => {
      const before = both.map(({ heard }) => heard.length)
      await bench.say('room', 'ann', 'tell', data)
      return both.map(({ heard }, i) => heard.length - before[i]!)
    }
    expect(await told('member')).toEqual([1, 0])
    expect(await told('members')).toEqual([1, 1])
    expect(await told('ids')).toEqual([1, 1])
    expect(await told('result')).toEqual([1, 0])
    expect(await told('nobody')).toEqual([0, 0])
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }])
  })

  it('has the key of the room', async () => {
    const { bench, ann } = await roomWith(room, ['ann'])
    await bench.say('room', 'ann', 'ready', null)
    expect(ann.state).toEqual({ key: 'a', ready: 1 })
    const bob = await bench.join('room', 'bob', { key: 'closed' })
    expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'closed is closed' }])
  })
})

describe('a message without a schema', () => {
  it('takes only null', async () => {
    const { bench, ann } = await roomWith(room, ['ann'])
    await bench.say('room', 'ann', 'ready', { by: 3 })
    expect(ann.errors).toEqual([
      expect.objectContaining({
        code: 'invalid_payload',
        message: 'ready: no data is expected: send null, or declare `data` in the room type',
      }),
    ])
    expect(ann.state).toMatchObject({ ready: 0 })
  })
})
