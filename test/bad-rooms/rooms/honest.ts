import { defineRoom } from 'roomful'
import * as v from 'valibot'

/** Applied messages of one player, by their numbers from 1. */
export interface Applied {
  last: number
  /** Numbers that were skipped: ranges from the first to the last. */
  skipped: [number, number][]
  /** Number of messages whose number was not larger than the last one. */
  doubled: number
}

/** Room type of the honest players. Its state shows lost and repeated messages. */
export const honest = defineRoom({
  type: 'honest',
  sync: { rate: 20 },
  durability: 'journal',
  idleSeconds: 3600,
  create: () => ({ players: {} as Record<string, Applied> }),
  messages: {
    add: {
      data: v.object({ n: v.number() }),
      handle({ players }, { data: { n }, member }) {
        players[member.sub ?? ''] ??= { last: 0, skipped: [], doubled: 0 }
        const player = players[member.sub ?? '']!
        if (n <= player.last) player.doubled += 1
        else if (n > player.last + 1) player.skipped.push([player.last + 1, n - 1])
        player.last = Math.max(player.last, n)
      },
    },
  },
})

export default honest
