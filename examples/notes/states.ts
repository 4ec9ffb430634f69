import type Database from 'libsql'
import type { SavedAs } from 'roomful'

const TABLE = `CREATE TABLE IF NOT EXISTS rooms (
  key TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL)`

/** Only what is newer than the row, or the same, takes its place: a late save of an old owner has a lower epoch. */
const SAVE = `INSERT INTO rooms VALUES (?, ?, ?, ?)
  ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, state = excluded.state
  WHERE (excluded.epoch, excluded.seq) >= (rooms.epoch, rooms.seq)`

/** The states of rooms in a SQLite file, one row for each. */
export class States {
  readonly #path: string
  #opened: Promise<Database> | undefined

  /** The file is opened, and made, with the first load or save. */
  constructor(path: string) {
    this.#path = path
  }

  async load<State>(key: string): Promise<State | undefined> {
    const database = await this.#open()
    const row = database.prepare('SELECT state FROM rooms WHERE key = ?').get(key)
    return row && JSON.parse((row as { state: string }).state)
  }

  /** False: the file has a newer state, which stays. */
  async save(state: unknown, { key, epoch, seq }: Pick<SavedAs, 'key' | 'epoch' | 'seq'>): Promise<boolean> {
    const database = await this.#open()
    return database.prepare(SAVE).run(key, epoch, seq, JSON.stringify(state)).changes > 0
  }

  async close(): Promise<void> {
    ;(await this.#opened)?.close()
  }

  #open(): Promise<Database> {
    this.#opened ??= import('libsql').then(({ default: SQLite }) => {
      const database = new SQLite(this.#path)
      database.exec(TABLE)
      return database
    })
    return this.#opened
  }
}
