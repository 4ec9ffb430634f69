import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** "Play now": a match with the next player who waits. */
export default defineQueue({
  type: 'quick',
  room: 'quiz',
  players: 2,
  ticket: v.object({}),
  options: () => ({ mode: 'match' }),
})
