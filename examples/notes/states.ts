import type Database from 'libsql'
import type { SavedAs } from 'roomful'

const TABLE = `CREATE TABLE IF NOT EXISTS rooms (
  key TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  state TEXT NOT NULL)`

/** Replaces the row only by an equal or newer state. Late saves may be older. */
const SAVE = `INSERT INTO rooms VALUES (?, ?, ?, ?)
  ON CONFLICT (key) DO UPDATE
  SET epoch = excluded.epoch, seq = excluded.seq, state = excluded.state
  WHERE (excluded.epoch, excluded.seq) >= (rooms.epoch, rooms.seq)`

/** The states of rooms in a SQLite file, one row for each room. */
export class States {
  readonly #path: string
  #opened: Promise<Database> | undefined

  /** The first load or save opens the file and creates it if needed. */
  constructor(path: string) {
    this.#path = path
  }

  async load<State>(key: string): Promise<State | undefined> {
    const database = await this.#open()
    const row = database.prepare('SELECT state FROM rooms WHERE key = ?').get(key)
    return row && JSON.parse((row as { state: string }).state)
  }

  /** Returns false when the file already has a newer state. */
  async save(
    state: unknown,
    { key, epoch, seq }: Pick<SavedAs, 'key' | 'epoch' | 'seq'>,
  ): Promise<boolean> {
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
