import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

describe('a draft', () => {
  // A handler keeps a part of its draft and throws; a later one puts that part into the state. Were it still alive, the state would
  // hold something that changes outside of every turn: no one is sent a patch of it, and no checksum fits any more.
  it.each(['in a turn that threw', 'in a turn that succeeded'])(
    'taken %s is dead and cannot enter the state later',
    async (turn) => {
      let kept: { x: number } | undefined
      const keeper = defineRoom({
        type: 'keeper',
        messages: { keep: { data: v.null() }, put: { data: v.null() } },
        sync: { rate: 0 },
        durability: 'none',
        create: () => ({ at: { x: 1 }, put: [] as { x: number }[] }),
        onMessage(state, input) {
          if (input.type === 'put') state.put.push(kept!)
          else {
            kept = state.at
            kept.x++
            if (turn === 'in a turn that threw') throw new Error('no')
          }
        },
      })
      const { bench, ann } = await roomWith(keeper, ['ann'])
      bench.message('keeper', 'ann', 'keep', null)
      await bench.say('keeper', 'ann', 'put', null)
      expect(ann.errors.at(-1)?.code).toBe('room_logic_failed')
      expect(ann.state).toEqual({ at: { x: turn === 'in a turn that threw' ? 1 : 2 }, put: [] })
      expect(() => kept!.x++).toThrow(TypeError)
      const bob = await bench.join('keeper', 'bob')
      expect([bob.state, bob.faults]).toEqual([ann.state, []])
    },
  )
})
