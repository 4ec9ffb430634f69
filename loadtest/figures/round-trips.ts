import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import type { FiguresCluster, Slot } from './cluster.ts'
import { Player, type RoomName, roomIdOf } from './player.ts'

const WARM_UP = 500

/** Round trips of reliable ops of two players who take turns, in milliseconds and in their order. */
export interface RoundTrips {
  readonly first: readonly number[]
  readonly second: readonly number[]
}

/** `samples` round trips of each of two players, one op of the one, then one of the other; both closed loops of one op. */
export async function takeTurns(first: Player, second: Player, samples: number): Promise<RoundTrips> {
  const trips: [number[], number[]] = [[], []]
  for (let i = -WARM_UP; i < samples; i++) {
    for (const [which, player] of [first, second].entries()) {
      const began = performance.now()
      await player.op()
      if (i >= 0) trips[which]!.push(performance.now() - began)
    }
  }
  return { first: trips[0], second: trips[1] }
}

/** A room that runs at `owner`, with one member, whose connection is at `edge`. */
export async function playerAt(
  cluster: FiguresCluster,
  { owner, edge, durability }: { owner: Slot; edge: Slot; durability: RoomName['durability'] },
): Promise<Player> {
  // Whoever comes first has the room near; should it be placed elsewhere, another one may not.
  for (let attempt = 0; attempt < 50; attempt++) {
    const room = { durability, key: `near-${randomToken(systemRandom, 8)}` }
    const opener = await Player.join(owner, room, cluster.credentials)
    if ((await cluster.ownerOf(roomIdOf(room))) === owner) {
      if (owner === edge) return opener
      const player = await Player.join(edge, room, cluster.credentials)
      await opener.leave()
      opener.close()
      return player
    }
    opener.close()
  }
  throw new Error(`node ${owner.index + 1} takes no room`)
}
