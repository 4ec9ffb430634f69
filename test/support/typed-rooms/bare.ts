import { defineRoom } from 'roomful'

/** Has no schema at all, for the tests of `roomful types`. */
export default defineRoom({
  type: 'bare',
  create: () => ({ round: 1, names: ['ada'], scores: {}, winner: null, at: { x: 0, y: 0 }, log: [] }),
  onMessage: () => undefined,
})
