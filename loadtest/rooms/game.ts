import { defineRoom } from 'roomful'
import * as v from 'valibot'

const place = v.pipe(v.number(), v.minValue(0), v.maxValue(1000))

/** A typical room of a small game: all players move, and see all others move twenty times a second. */
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
    // A repeated message must still change the position.
    const { y = 0 } = state.players[member.id] ?? {}
    state.players[member.id] = { x: data.x, y: (y + data.y) % 1000 }
  },
})
