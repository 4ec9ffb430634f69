import type { RoomDefinition } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { kindOf, RoomLogicError } from './failures.ts'
import type { CodeRoom } from './room-code.ts'
import type { LiveState } from './state.ts'

/** The state of a room could not be brought to the version of its code; the room stays as it is. The text is for players. */
export class CannotMigrate extends Error {
  override readonly name = 'CannotMigrate'
}

/** The state of a room is of a newer version than the code here. */
export class NewerState extends Error {
  override readonly name = 'NewerState'

  constructor(roomType: string, stateVersion: number, version: number) {
    super(
      `the state has version ${stateVersion}, and the code of room type ${roomType} here is for version ${version}`,
    )
  }
}

/**
 * Brings a state of version `from` to that of the definition, one `migrate` after the other, as one turn: all of it, or nothing. Throws
 * CannotMigrate, and NewerState where there is no way back.
 */
export function migrate(
  state: LiveState,
  from: number,
  definition: RoomDefinition,
  { code, failures, metrics }: Pick<RoomEnvironment, 'code' | 'failures' | 'metrics'>,
  room: CodeRoom,
): void {
  const { type, version } = definition
  if (from === version) return
  if (from > version) throw new NewerState(type, from, version)
  try {
    code.run({ room, hook: 'migrate', subject: '', ref: from, type: '', principal: '' }, () =>
      migrateState(state, from, definition),
    )
    metrics.roomMigrations.inc({ room_type: type, outcome: 'migrated' })
  } catch (error) {
    metrics.roomMigrations.inc({ room_type: type, outcome: 'failed' })
    const { message } = failures.explain(`migrate of ${type} from version ${from} to ${version}`, error)
    throw new CannotMigrate(
      `its state of version ${from} could not be brought to version ${version}: ${message}`,
    )
  }
}

function migrateState(state: LiveState, from: number, definition: RoomDefinition): void {
  const { migrate, version } = definition
  // The functions get a copy of the state, so that a failure half way changes nothing.
  let next: unknown = state.plain()
  for (let step = from; step < version; step++) {
    const made = migrate[step]!(next)
    if (typeof (made as { then?: unknown } | undefined)?.then === 'function')
      throw new RoomLogicError(`migrate.${step} returned a promise; it must return the state, or change it`)
    // An arrow function that assigns, such as `(state) => (state.rounds = 3)`, returns what it assigns.
    if (made !== undefined && Object(made) !== made && Object(next) === next)
      throw new RoomLogicError(
        `migrate.${step} returned ${kindOf(made)} for a state that is an object; return the whole next state, or nothing after changing it`,
      )
    if (made !== undefined) next = made
  }
  state.begin()
  try {
    state.commit(next)
  } catch (error) {
    throw state.undo('migrate', error, definition)
  }
}
