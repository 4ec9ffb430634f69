import { defineRoom } from '../../../dataplane/rooms/definition.ts'

/** Puts values that are not JSON into its state, as code without type checks can. */
export const careless = defineRoom({
  type: 'careless',
  idleSeconds: 0,
  create: ({ broken }) => ({
    at: broken === true ? (new Date(0) as unknown as string) : '',
    by: {} as Record<string, unknown>,
  }),
  messages: {
    write: {
      handle(state, { member }) {
        state.by[member.id] = { seen: new Map() }
      },
    },
    give: { handle: (state) => ({ state: { ...state, by: { all: new Set() } } }) },
  },
})
