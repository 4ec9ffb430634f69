import { defineQueue } from 'roomful'
import * as v from 'valibot'

/** "Play now": a match with a player who has about as many coins. They come from the token, so a player cannot choose them. */
export default defineQueue({
  type: 'quick',
  room: 'quiz',
  players: 2,
  ticket: v.object({}),
  entry: (_ticket, { data }) => ({ coins: Number(data?.coins ?? 0) }),
  near: ({ coins }) => coins,
  fits: (a, b, { waitedMs }) => Math.abs(a.coins - b.coins) <= 10 + waitedMs / 200,
  options: () => ({ mode: 'match' }),
})
