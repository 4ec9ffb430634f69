import { defineRoom } from 'roomful'
import * as v from 'valibot'

interface Player {
  x: number
  y: number
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
    ...(tick ? { tick: { rate: 20 } } : {}),
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
    on_tick(state, ctx) {
      for (const player of Object.values(state.players)) {
        player.x = Math.floor(ctx.random() * 1_000)
        player.y = Math.floor(ctx.random() * 1_000)
      }
    },
  })
