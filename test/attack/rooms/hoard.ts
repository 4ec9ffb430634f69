import { defineRoom } from 'roomful'

/** How large its state is, as text: four times of it is what one player may have in some seconds. */
export const HOARD_BYTES = 4_000_000

/** A state that is large, but no larger than it may be. */
export default defineRoom({
  type: 'hoard',
  maxMembers: 1000,
  messages: {},
  durability: 'none',
  create: () => ({ hoard: 'x'.repeat(HOARD_BYTES) }),
  onMessage() {},
})
