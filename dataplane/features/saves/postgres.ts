/**
 * `roomful/postgres`: keeps rooms in a table of Postgres.
 *
 *     const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
 *
 *     export default defineRoom({
 *       type: 'notes',
 *       create: () => ({ notes: [] as string[] }),
 *       ...postgresRooms(pool, { table: 'rooms' }),
 *     })
 * @module roomful/postgres
 */
import type { Migration, RoomOrigin, SavedAs } from '../../room/definition-types.ts'

/** Result of a statement. */
export interface PostgresResult {
  /** Rows that the statement returned. */
  readonly rows: unknown[]
}

/** The part of a `Pool` of the package `pg` that `postgresRooms` uses. */
export interface PostgresPool {
  /** Runs one statement. */
  query(text: string, values: unknown[]): Promise<PostgresResult>
  /** Adds a listener for lost idle connections. */
  on(event: 'error', listener: (error: Error) => void): unknown
  /** Number of such listeners. */
  listenerCount(event: 'error'): number
}

/** Options of `postgresRooms`. */
export interface PostgresOptions {
  /** Table that `roomful postgres-schema` has described, such as `rooms` or `game.rooms`. Room types and projects can share it. */
  readonly table: string
  /** Option `save.everySeconds` of the room type. Default 5. */
  readonly everySeconds?: number
  /** Option `version` of the room type. Default 1. */
  readonly version?: number
  /** Option `migrate` of the room type. It also converts the rows that older code wrote. */
  readonly migrate?: { readonly [from: number]: Migration }
}

/** The options of a room type that `postgresRooms` returns. */
export interface PostgresRooms {
  /** Option `version` of the room type. */
  readonly version: number
  /** Option `migrate` of the room type. */
  readonly migrate: { readonly [from: number]: Migration }
  /** Option `load` of the room type. */
  readonly load: (
    key: string,
    options: unknown,
    room: RoomOrigin,
    // biome-ignore lint/suspicious/noExplicitAny: the state has the type of the room type's `create`
  ) => Promise<any>
  /** Option `save` of the room type. */
  readonly save: {
    /** Seconds between two saves. */
    readonly everySeconds: number
    /** Writes a state to its row, unless the row is newer. */
    readonly to: (state: unknown, room: SavedAs) => Promise<unknown>
  }
}

interface Row {
  readonly version: number
  readonly state: unknown
}

const TABLE = /^[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?$/

/** Returns the name. Throws if it is no plain name, because the statements contain it as it is. */
function checked(table: string): string {
  if (TABLE.test(table)) return table
  throw new TypeError(
    `table is ${JSON.stringify(table)}: use small letters, digits and _, such as rooms or game.rooms`,
  )
}

/** Returns the SQL statement that creates the table for `postgresRooms`, as `roomful postgres-schema` prints it. */
export const postgresSchema = (table: string): string => `CREATE TABLE IF NOT EXISTS ${checked(table)} (
  project_id text NOT NULL,
  room_type text NOT NULL,
  key text NOT NULL,
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  version integer NOT NULL,
  state json NOT NULL,
  saved_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (project_id, room_type, key)
);
`

/**
 * Returns the options `load`, `save`, `version` and `migrate` of a room type, which keep its rooms in a table. An older save never replaces a
 * newer one: the table compares `(epoch, seq)`. Each row has the version of its state. `load` converts the state of an older version with
 * `migrate`, and rejects a newer one. Throws if `table` is no plain name.
 */
export function postgresRooms(
  pool: PostgresPool,
  { table, everySeconds = 5, version = 1, migrate = {} }: PostgresOptions,
): PostgresRooms {
  const select = `SELECT version, state FROM ${checked(table)} WHERE (project_id, room_type, key) = ($1, $2, $3)`
  const upsert = `INSERT INTO ${table} AS saved (project_id, room_type, key, epoch, seq, version, state)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (project_id, room_type, key) DO UPDATE
    SET epoch = excluded.epoch, seq = excluded.seq, version = excluded.version, state = excluded.state, saved_at = now()
    WHERE (excluded.epoch, excluded.seq) >= (saved.epoch, saved.seq)`
  // Without a listener, the loss of an idle connection would be an uncaught error. The next query opens another connection.
  if (pool.listenerCount('error') === 0) pool.on('error', () => undefined)
  return {
    version,
    migrate,
    load: async (key, _options, { projectId, roomType }) => {
      const { rows } = await pool.query(select, [projectId, roomType, key])
      const [row] = rows as Row[]
      if (!row) return undefined
      if (row.version > version)
        throw new Error(
          `the row of ${roomType}:${key} has version ${row.version}: this code knows versions up to ${version}`,
        )
      let { state } = row
      for (let step = row.version; step < version; step++) state = migrate[step]!(state) ?? state
      return state
    },
    save: {
      everySeconds,
      to: (state, { projectId, roomType, key, epoch, seq }) =>
        pool.query(upsert, [projectId, roomType, key, epoch, seq, version, JSON.stringify(state)]),
    },
  }
}
