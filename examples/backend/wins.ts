import * as v from 'valibot'

/** The part of a table of Crazy Eights that says who has won. */
const TableView = v.object({
  players: v.record(v.string(), v.object({ sub: v.nullable(v.string()), wins: v.number() })),
})

/** The rooms of the backend's project (`OwnProject`). */
interface Rooms {
  stateOf(type: string, key: string): Promise<unknown>
}

/** Maximum number of players whose games are remembered. */
const MAX_PLAYERS = 10_000

/**
 * Games of Crazy Eights that the players have won. A page says only that a game is over. The table itself says who has won it, so no player
 * can make up wins. This example keeps them in memory; a real backend has a database.
 */
export class Wins {
  readonly #rooms: Rooms
  /** By player, the games won at each table. */
  readonly #won = new Map<string, Map<string, number>>()

  constructor(rooms: Rooms) {
    this.#rooms = rooms
  }

  /** Number of games that a player has won. */
  of(player: string): number {
    let sum = 0
    for (const wins of this.#won.get(player)?.values() ?? []) sum += wins
    return sum
  }

  /** Asks the table with this key who has won its games. Rejects with a ControlError. */
  async look(key: string): Promise<void> {
    const { players } = v.parse(TableView, await this.#rooms.stateOf('cards', key))
    for (const { sub, wins } of Object.values(players)) {
      if (sub === null || wins === 0) continue
      const tables = this.#won.get(sub) ?? new Map<string, number>()
      // A player who has left the table and come back begins with 0.
      tables.set(key, Math.max(wins, tables.get(key) ?? 0))
      this.#won.set(sub, tables)
      const [oldest] = this.#won.keys()
      if (this.#won.size > MAX_PLAYERS) this.#won.delete(oldest!)
    }
  }
}
