import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** A board on which every player places dots. This code runs on the server. */
export default defineRoom({
  type: 'board',
  maxPlayers: 20,
  create: () => ({
    players: {} as Record<string, { name: string; color: string; score: number }>,
    dots: [] as { x: number; y: number; color: string }[],
  }),
  messages: {
    dot: {
      data: v.object({
        x: v.pipe(v.number(), v.minValue(0), v.maxValue(1)),
        y: v.pipe(v.number(), v.minValue(0), v.maxValue(1)),
      }),
      rate: { perSecond: 10, burst: 10 },
      handle(state, { data, member }) {
        const player = state.players[member.id]
        if (!player) return
        player.score += 1
        state.dots.push({ ...data, color: player.color })
        if (state.dots.length > 200) state.dots.shift()
      },
    },
  },
  onJoin(state, member, ctx) {
    const color = `hsl(${(ctx.members.length * 137) % 360} 70% 55%)`
    state.players[member.id] = { name: member.sub ?? 'someone', color, score: 0 }
  },
  onLeave(state, member) {
    delete state.players[member.id]
  },
})
