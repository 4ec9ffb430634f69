import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A listed room with four seats. Its members set its row and its end. */
const lobby = defineRoom({
  type: 'load-lobby',
  maxPlayers: 4,
  options: v.object({ map: v.string() }),
  durability: 'none',
  idleSeconds: 1,
  create: ({ map }) => ({ map, level: 0 }),
  listing: {
    data: v.object({ map: v.string(), level: v.number() }),
    of: ({ map, level }) => ({ map, level }),
  },
  messages: {
    level: {
      data: v.number(),
      handle(state, { data }) {
        state.level = data
      },
    },
    end: {
      data: v.null(),
      handle: (_state, _input, ctx) => ctx.close(),
    },
  },
})
export default lobby
export type LobbyRoom = typeof lobby
