import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { TaskOutcome } from './definition.ts'
import { errorText, validateInput } from './failures.ts'

/** Slow work of a room that has not ended, as the record has it. */
export interface RoomTask {
  readonly id: string
  /** Which of the room type's `tasks` it is. */
  readonly name: string
}

/** What became of a room's tasks since the update before. */
export interface TaskChanges {
  /** These begin once the update is committed. */
  readonly started: readonly RoomTask[]
  /** Ids of those whose outcome the room has handled. */
  readonly ended: readonly string[]
}

export const NO_TASK_CHANGES: TaskChanges = { started: [], ended: [] }

/** What a task does. */
export type Work = () => PromiseLike<unknown>

/** The tasks of one room: each begins at most once, when the update of the turn that asked for it is committed. */
export class Tasks {
  /** What earlier owners have begun, or were about to: no one knows of it any more. */
  readonly moved: readonly RoomTask[]
  readonly #epoch: number
  /** As of the last flush. */
  readonly #flushed: Map<string, RoomTask>
  /** Of those that are not begun yet. */
  readonly #works = new Map<string, Work>()
  #started: RoomTask[] = []
  #ended: string[] = []
  #ids = 0

  /** `epoch`: of the owner, so that no two owners give one id. */
  constructor(restored: readonly RoomTask[], epoch: number) {
    this.moved = restored
    this.#epoch = epoch
    this.#flushed = new Map(restored.map((task) => [task.id, task]))
  }

  /** How many have not ended. */
  get size(): number {
    return this.#flushed.size + this.#started.length - this.#ended.length
  }

  /** A turn that succeeded has asked for it. */
  add(name: string, work: Work): void {
    const id = `tsk_${this.#epoch.toString(36)}_${(++this.#ids).toString(36)}`
    this.#works.set(id, work)
    this.#started.push({ id, name })
  }

  /** The room has handled its outcome. */
  end(id: string): void {
    this.#ended.push(id)
  }

  /** Whether there is anything to flush. */
  get changed(): boolean {
    return this.#started.length > 0 || this.#ended.length > 0
  }

  /** What has changed since the last flush, which this is now. */
  flush(): TaskChanges {
    if (!this.changed) return NO_TASK_CHANGES
    const changes = { started: this.#started, ended: this.#ended }
    for (const task of changes.started) this.#flushed.set(task.id, task)
    for (const id of changes.ended) this.#flushed.delete(id)
    this.#started = []
    this.#ended = []
    return changes
  }

  /** As of the last flush. */
  get flushed(): RoomTask[] {
    return [...this.#flushed.values()]
  }

  /** The work of a task, which is given once. */
  take({ id }: RoomTask): Work | undefined {
    const work = this.#works.get(id)
    this.#works.delete(id)
    return work
  }
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
