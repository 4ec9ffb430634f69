import { defineRoom } from 'roomful'
import * as v from 'valibot'
import type { Durability } from '../../dataplane/rooms/definition.ts'

/** How many messages of a member its room has applied, and the number the last one carried. */
export interface Applied {
  count: number
  last: number
}

/** What a room of the figures keeps: players stay when they leave, so that the end tells what was applied. */
export interface FigureState {
  players: { [member_id: string]: Applied }
}

/** A room that counts: every `op` changes the state, and members see it as soon as it may be seen. */
export const figureRoom = (durability: Durability) =>
  defineRoom({
    type: `figures-${durability}`,
    messages: { op: { data: v.object({ n: v.number() }) } },
    sync: { rate: 0 },
    durability,
    idle_seconds: 1,
    create: (): FigureState => ({ players: {} }),

    on_join(state, member) {
      state.players[member.member_id] ??= { count: 0, last: 0 }
    },

    on_message(state, { data, member }) {
      const player = state.players[member.member_id]
      if (!player) return
      player.count += 1
      player.last = data.n
    },
  })

export type FigureRoom = ReturnType<typeof figureRoom>
