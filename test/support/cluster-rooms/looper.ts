import { AsyncResource } from 'node:async_hooks'
import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Ends the process, as code that belongs to no turn. */
const exit = AsyncResource.bind(() => process.exit(7))

/** A room that counts, and does not return where it is asked not to. */
export const looper = defineRoom({
  type: 'looper',
  messages: {
    add: { data: v.null() },
    loop: { data: v.null() },
    spin: { data: v.null() },
    exit: { data: v.null() },
  },
  sync: { rate: 0 },
  durability: 'journal',
  idleSeconds: 600,
  options: v.object({ loop_in_admit: v.optional(v.boolean()) }),
  create: () => ({ count: 0 }),
  async admit(_member, { loop_in_admit: loopInAdmit }) {
    await Promise.resolve()
    while (loopInAdmit);
  },
  onMessage(state, { type }) {
    state.count++
    while (type === 'loop') state.count++
    if (type === 'spin') spin()
    if (type === 'exit') queueMicrotask(exit)
  },
})

function spin(): void {
  process.nextTick(spin)
}

export default looper
