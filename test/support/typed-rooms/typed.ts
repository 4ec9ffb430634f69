import { defineRoom } from 'roomful'

interface Player {
  name: string
  team?: 'red' | 'blue' | undefined
  hand: string[]
  at: [x: number, y: number]
  friends: Player[]
}

interface State {
  open: boolean
  players: Record<string, Player>
  winner: string | null
  // biome-ignore lint/suspicious/noExplicitAny: a type that TypeScript does not know
  notes: any
}

/** Has a state without a schema, for the tests of `roomful types`. */
export default defineRoom({
  type: 'typed',
  create: (): State => ({ open: true, players: {}, winner: null, notes: null }),
  layers: { 'players.*.hand': (memberId) => `member:${memberId}` },
  onMessage: () => undefined,
})
