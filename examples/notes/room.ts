import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineRoom, type SavedAs } from 'roomful'
import { type PostgresPool, type PostgresRooms, postgresRooms } from 'roomful/postgres'
import * as v from 'valibot'
import { States } from './states.ts'

interface Notes {
  readonly next: number
  readonly notes: Readonly<Record<string, string>>
}

/** The options of the room type that keep boards in a file. */
export const inFile = (states: States) => ({
  load: (key: string) => states.load<Notes>(key),
  save: {
    everySeconds: 2,
    to: (state: unknown, room: SavedAs) => states.save(state, room),
  },
})

/** A board of notes. A database keeps the notes while the server does not run. */
export const notes = (kept: Pick<PostgresRooms, 'load' | 'save'>) =>
  defineRoom({
    type: 'notes',
    create: (): Notes => ({ next: 1, notes: {} }),
    ...kept,
    messages: {
      pin: {
        data: v.object({
          text: v.pipe(v.string(), v.trim(), v.minLength(1), v.maxLength(140)),
        }),
        handle(state, { data }, ctx) {
          if (Object.keys(state.notes).length >= 50)
            return ctx.refuse('the board is full')
          state.notes[state.next++] = data.text
        },
      },
      take: {
        data: v.object({ id: v.string() }),
        handle(state, { data }) {
          delete state.notes[data.id]
        },
      },
    },
  })

const { DATABASE_URL, NOTES_FILE } = process.env

/** Connects when the first board is opened, so that `pg` is needed only then. */
function postgresAt(connectionString: string): PostgresPool {
  let opened: Promise<PostgresPool> | undefined
  const open = async () => {
    const { Pool } = (await import('pg')).default
    return new Pool({ connectionString }).on('error', () => undefined)
  }
  return {
    query: async (text, values) => {
      opened ??= open()
      return (await opened).query(text, values)
    },
    on: () => undefined,
    listenerCount: () => 1,
  }
}

/** In Postgres if `DATABASE_URL` is set, otherwise in a file. */
const kept = DATABASE_URL
  ? postgresRooms(postgresAt(DATABASE_URL), { table: 'rooms', everySeconds: 2 })
  : inFile(new States(NOTES_FILE ?? join(tmpdir(), 'roomful-notes.db')))

export default notes(kept)
