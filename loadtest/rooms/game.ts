import { defineRoom } from 'roomful'
import * as v from 'valibot'

const place = v.pipe(v.number(), v.minValue(0), v.maxValue(1000))

/** A room as small games have it: all move, and see all others move twenty times a second. */
export default defineRoom({
  type: 'load-game',
  messages: { move: { data: v.object({ x: place, y: place }) } },
  sync: { rate: 20 },
  durability: 'journal',
  idleSeconds: 1,
  create: () => ({ players: {} as Record<string, { x: number; y: number }> }),

  onJoin(state, member) {
    state.players[member.id] = { x: 0, y: 0 }
  },

  onLeave(state, member) {
    delete state.players[member.id]
  },

  onMessage(state, { data, member }) {
    // A move that is sent again and again still goes somewhere else.
    const { y = 0 } = state.players[member.id] ?? {}
    state.players[member.id] = { x: data.x, y: (y + data.y) % 1000 }
  },
})
