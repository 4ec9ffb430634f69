import * as v from 'valibot'
import { type Durability, defineRoom } from '../../../dataplane/rooms/definition.ts'

/** Counts, and tells of each step. */
export const counting = (durability: Durability) =>
  defineRoom({
    type: 'counter',
    messages: { inc: { data: v.null() } },
    sync: { rate: 0 },
    durability,
    create: () => ({ count: 0 }),
    onMessage(state, _input, ctx) {
      state.count++
      ctx.emit('counted', state.count)
    },
  })
