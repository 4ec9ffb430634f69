import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** The room of a match. It records the players with seats. */
const match = defineRoom({
  type: 'load-match',
  maxPlayers: 2,
  options: v.object({ tickets: v.array(v.string()) }),
  idleSeconds: 1,
  create: ({ tickets }) => ({ tickets, seats: {} as { [memberId: string]: string } }),
  onJoin(state, { id, sub }) {
    state.seats[id] = sub ?? ''
  },
})
export default match
export type MatchRoom = typeof match
