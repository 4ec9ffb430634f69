import { defineRoom } from 'roomful'

/** Size of the state as JSON. A player's budget for some seconds is four times as much. */
export const HOARD_BYTES = 4_000_000

/** A room with a large state, below the limit. */
export default defineRoom({
  type: 'hoard',
  maxPlayers: 1000,
  messages: {},
  durability: 'none',
  create: () => ({ hoard: 'x'.repeat(HOARD_BYTES) }),
  onMessage() {},
})
