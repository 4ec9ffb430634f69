import { type RequestAnswer, type RoomAddress, type RoomRequest, roomAddress } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member, TaskOutcome } from './definition-types.ts'
import { errorText, RoomLogicError, validateInput } from './failures.ts'
import { type RoomCode, turnOf } from './room-code.ts'
import type { LiveState } from './state.ts'
import { checkedResult, MOVED, type RoomTask, type Work } from './timers-and-tasks.ts'
import type { Turns } from './turn.ts'

/** The room of the tasks. */
interface WorkingRoom {
  readonly name: string
  readonly epoch: number
  readonly createdAt: number
  readonly address: RoomAddress
  readonly definition: RoomDefinition
  readonly state: LiveState
  readonly memberships: { get(memberId: string): { readonly member: Member } | undefined }
}

/** Dependencies of the tasks of a room. */
export interface TaskNeeds {
  readonly code: RoomCode
  readonly cluster: {
    readonly requests: {
      /** Sends a request to another room. */
      send(room: RoomAddress, request: RoomRequest, waitMs: number): Promise<RequestAnswer>
    }
  }
}

/** The work of one room's tasks, which runs outside of turns. Its outcome is a turn. */
export class Tasks {
  readonly #room: WorkingRoom
  readonly #turns: Turns
  readonly #needs: TaskNeeds
  readonly #post: (run: () => void) => void
  /** Ids of the tasks whose work this owner has started. */
  readonly #running = new Set<string>()

  /** `post`: runs later work when the room can act. */
  constructor(room: WorkingRoom, turns: Turns, needs: TaskNeeds, post: (run: () => void) => void) {
    this.#room = room
    this.#turns = turns
    this.#needs = needs
    this.#post = post
  }

  /** The update with these tasks is committed, by this owner or an earlier one. Starts their work. */
  begin(started: readonly RoomTask[]): void {
    for (const task of started) {
      if (this.#running.has(task.id)) continue
      this.#running.add(task.id)
      const work = task.work ?? this.#retried(task)
      if (typeof work === 'function') void this.#work(task, work)
      else this.#end(task, work)
    }
  }

  /** Returns the work of a task from the record, or the outcome of a task that cannot run here. */
  #retried({ id, name, data, due }: RoomTask): Work | TaskOutcome<never> {
    if (due === undefined) return MOVED
    return async () => {
      const { data: schema, run } = this.#turns.taskType(name) ?? {}
      if (!schema || !run)
        throw new RoomLogicError(`there is no task ${JSON.stringify(name)} with retry any more`)
      const valid = validateInput(schema, data)
      if (!valid.ok) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
      const { address, definition, memberships, state } = this.#room
      const isSystem = definition.system === true
      const internal = isSystem && {
        ask: (roomType: string, key: string, request: RoomRequest, waitMs: number) =>
          this.#needs.cluster.requests.send(roomAddress(address.projectId, roomType, key), request, waitMs),
        state: state.flushed,
        memberOf: (id: string) => memberships.get(id)?.member,
      }
      return run.call(definition.tasks[name], valid.value, { id, ...internal })
    }
  }

  async #work(task: RoomTask, work: Work): Promise<void> {
    const { code } = this.#needs
    const { name, epoch, createdAt } = this.#room
    // Neither the work nor the check of its result writes to the state.
    const turn = { ...turnOf({ name, epoch, createdAt }, 'task'), subject: task.id, type: task.name }
    let outcome: TaskOutcome<unknown>
    try {
      const value = await code.start(turn, work)
      outcome = code.run({ ...turn, hook: 'onTask' }, () =>
        checkedResult(this.#turns.taskType(task.name)?.result, value),
      )
    } catch (error) {
      outcome = { ok: false, error: errorText(error) }
    }
    this.#end(task, outcome)
  }

  #end(task: RoomTask, outcome: TaskOutcome<unknown>): void {
    this.#post(() => {
      this.#running.delete(task.id)
      this.#turns.taskEnded(task, outcome)
    })
  }
}
