import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { States } from './states.ts'

interface Notes {
  readonly next: number
  readonly notes: Readonly<Record<string, string>>
}

/** A board of notes. A database keeps the notes while the server does not run. */
export const notes = (states: States) =>
  defineRoom({
    type: 'notes',
    create: (): Notes => ({ next: 1, notes: {} }),
    load: (key) => states.load<Notes>(key),
    save: {
      everySeconds: 2,
      to: (state, room) => states.save(state, room),
    },
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

export default notes(
  new States(process.env.NOTES_FILE ?? join(tmpdir(), 'roomful-notes.db')),
)
