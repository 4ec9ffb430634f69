import Database from 'libsql'

const TABLES = `
  CREATE TABLE IF NOT EXISTS coins (player TEXT PRIMARY KEY, coins INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS notices (id TEXT PRIMARY KEY)`

/** The coins of all players, in a SQLite file. */
export class Coins {
  readonly #database: Database

  constructor(path: string) {
    this.#database = new Database(path)
    this.#database.exec(TABLES)
  }

  of(player: string): number {
    const select = this.#database.prepare('SELECT coins FROM coins WHERE player = ?')
    return select.get(player)?.coins ?? 0
  }

  /** Gives coins to players, once for each notice. */
  give(notice: string, amounts: Readonly<Record<string, number>>): void {
    const add = this.#database.prepare(`INSERT INTO coins VALUES (?, ?)
      ON CONFLICT (player) DO UPDATE SET coins = coins + excluded.coins`)
    const first = this.#database.prepare('INSERT OR IGNORE INTO notices VALUES (?)')
    this.#database.transaction(() => {
      if (first.run(notice).changes === 0) return
      for (const [player, amount] of Object.entries(amounts)) add.run(player, amount)
    })()
  }
}
