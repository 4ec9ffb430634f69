import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

describe('the state of a room', () => {
  let kept: { x: number } | undefined
  const mine = { x: 7 }
  const keeper = defineRoom({
    type: 'keeper',
    messages: { keep: { data: v.boolean() }, wait: { data: v.null() }, own: { data: v.null() } },
    sync: { rate: 0 },
    durability: 'none',
    create: () => ({ at: { x: 1 }, put: [] as { x: number }[], heard: '' }),
    tasks: {
      read: {
        result: v.number(),
        handle(state, outcome) {
          state.heard = outcome.ok ? 'read' : outcome.error
        },
      },
    },
    onMessage(state, input, ctx) {
      if (input.type === 'own') state.put.push(mine)
      else if (input.type === 'wait') ctx.task(async () => state.at.x, 'read')
      else {
        kept = state.at
        kept.x++
        if (input.data) throw new Error('no')
      }
    },
  })

  // Were it alive, the state would change outside of every turn: no one is sent a patch of it, and no checksum fits any more.
  it.each(['throws', 'succeeds'])('cannot be used any more once a turn is over that %s', async (ends) => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'keep', ends === 'throws')
    const before = ann.state
    expect(before).toMatchObject({ at: { x: ends === 'throws' ? 1 : 2 } })
    for (const use of [
      () => kept!.x,
      () => {
        kept!.x = 9
      },
      () => JSON.stringify(kept),
      () => 'x' in kept!,
      () => Object.keys(kept!),
      () => delete (kept as Partial<typeof kept>)!.x,
    ])
      expect(use).toThrow(/state_outside_turn: .*read from it what is needed later/)
    const bob = await bench.join('keeper', 'bob')
    expect([bob.state, bob.faults]).toEqual([before, []])
  })

  it('is not for tasks, which are told so', async () => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'wait', null)
    await bench.settle()
    expect(ann.state).toMatchObject({ heard: expect.stringMatching(/^state_outside_turn/) })
  })

  it('does not follow what was put into it', async () => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'own', null)
    mine.x = 8
    await bench.say('keeper', 'ann', 'keep', false)
    expect(ann.state).toMatchObject({ at: { x: 2 }, put: [{ x: 7 }] })
    expect(ann.faults).toEqual([])
  })
})
