import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { TaskOutcome } from './definition.ts'
import { errorText, validateInput } from './failures.ts'

/** What a task does. */
export type Work = () => PromiseLike<unknown>

/** A task of a room that has not ended. */
export interface RoomTask {
  readonly id: string
  /** Which of the room type's `tasks` it is. */
  readonly name: string
  /**
   * Begins the work, once the update that has the task in it is committed. The record does not have it. Undefined: an earlier owner has begun
   * the task or was about to, and nothing more is known of it.
   */
  readonly work?: Work
}

/** The outcome of work that `begin` starts; `check` makes it of the value that the work resolves with. Never rejects. */
export async function outcomeOf(
  begin: Work,
  check: (value: unknown) => TaskOutcome<unknown>,
): Promise<TaskOutcome<unknown>> {
  try {
    return check(await begin())
  } catch (error) {
    return { ok: false, error: errorText(error) }
  }
}

/** The outcome of work that resolved with `value`, which has to fit the schema of the task's `result`. */
export function checkedResult(schema: StandardSchemaV1 | undefined, value: unknown): TaskOutcome<unknown> {
  if (!schema) return { ok: true, value: undefined }
  const valid = validateInput(schema, value)
  return valid.ok ? { ok: true, value: valid.value } : { ok: false, error: valid.message }
}

/** The outcome of a task that was lost with its owner: whether it has done anything is not known. */
export const MOVED: TaskOutcome<never> = { ok: false, error: 'moved' }
