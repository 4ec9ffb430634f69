import { defineRoom, type Member } from 'roomful'
import * as v from 'valibot'

interface Player {
  x: number
  y: number
}

/** What the tick needs of its context. */
interface Turn {
  readonly members: readonly Member[]
  random(): number
}

/**
 * The room of the benchmark: every tick moves every player (`updates`), every `move` moves one (`game`), and `nudge` is validated and
 * applied without changing anything (`inputs`). `counted` hears of every input.
 */
export const benchRoom = (tick: boolean, counted: () => void) =>
  defineRoom({
    type: tick ? 'bench-tick' : 'bench',
    max_members: 1_000,
    messages: {
      move: { data: v.object({ x: v.number(), y: v.number() }) },
      nudge: { data: v.object({ x: v.number(), y: v.number() }) },
    },
    sync: { rate: 20 },
    durability: 'none',
    create: () => ({ players: {} as Record<string, Player> }),
    on_join(state, member) {
      state.players[member.member_id] = { x: 500, y: 500 }
    },
    on_message(state, input) {
      counted()
      if (input.type !== 'move') return
      const player = state.players[input.member.member_id]
      if (!player) return
      player.x = input.data.x
      player.y = input.data.y
    },
    on_leave(state, member) {
      delete state.players[member.member_id]
    },
    ...(tick && {
      tick: { rate: 20 },
      on_tick: (_state: unknown, ctx: Turn) => ({ state: { players: everywhere(ctx) } }),
    }),
  })

/** Every member at a new place: as little game logic as can change everything. */
function everywhere(ctx: Turn): Record<string, Player> {
  const players: Record<string, Player> = {}
  for (const { member_id } of ctx.members)
    players[member_id] = { x: Math.floor(ctx.random() * 1_000), y: Math.floor(ctx.random() * 1_000) }
  return players
}
