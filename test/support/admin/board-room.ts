import * as v from 'valibot'
import { defineRoom } from '../../../dataplane/rooms/definition.ts'
import type { Json } from '../../../shared/json.ts'

const json = v.custom<Json>(() => true)

/** A room whose state and events are whatever its players say. */
export const board = defineRoom({
  type: 'board',
  messages: {
    put: { data: v.object({ key: v.string(), value: json }) },
    shout: { data: v.object({ name: v.string(), data: json }) },
    /** Makes the state about a megabyte large. */
    fill: { data: v.null() },
  },
  sync: { rate: 0 },
  durability: 'snapshot',
  create: (): Record<string, Json> => ({ turn: 0, players: { ada: { hp: 9, at: [1, 2] } } }),
  onMessage(state, input, ctx) {
    if (input.type === 'put') state[input.data.key] = input.data.value as never
    else if (input.type === 'shout') ctx.emit(input.data.name, input.data.data)
    else {
      state.numbers = Array.from({ length: 50_000 }, (_, n) => n)
      for (let part = 0; part < 14; part++) state[`part${part}`] = 'x'.repeat(50_000)
    }
  },
})
