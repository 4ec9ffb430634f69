import { type Store, StoreUnavailable } from '../../shared/store/port.ts'
import { type Choice, type Fault, type Item, ordinary, RANK, type Subject } from './explorer.ts'
import { textOf } from './history.ts'
import type { Ledger } from './ledger.ts'
import type { Answer, Operation, Pending, Process, SimTime } from './model-node.ts'

/** Dependencies of `Calls`. */
interface CallsParts {
  readonly time: SimTime
  readonly ledger: Ledger
  readonly store: () => Store
  /** `project/type:key` of the room. */
  readonly room: string
  readonly processes: readonly Process[]
  readonly may: (fault: Fault) => boolean
  /** Longest duration of a slow call. */
  readonly faultMs: number
}

/** A slow call or a slow answer. */
interface Landing {
  readonly id: string
  readonly about: Subject
  /** Process that waits for the answer. Undefined: none. */
  readonly process: Process | undefined
  readonly due: number
  readonly land: () => void | Promise<void>
}

/** Pending store calls, and the faults that can happen to them. */
export class Calls {
  readonly #parts: CallsParts
  #landings: Landing[] = []

  constructor(parts: CallsParts) {
    this.#parts = parts
  }

  /** Latest ends of the slow calls. */
  get dues(): number[] {
    return this.#landings.map(({ due }) => due)
  }

  /** Equal for equal sets of slow calls. */
  get digest(): string {
    return this.#landings.map(({ id, due }) => `${id} ${due}`).join()
  }

  /** Adds a store call of a process. */
  add(process: Process, operation: Operation): void {
    if (!process.alive) return
    process.operations.push({
      order: this.#parts.time.order++,
      id: process.nextOperation(),
      value: operation,
    })
  }

  /** Slow calls whose longest duration has passed. */
  ending(): Item[] {
    const now = this.#parts.time.ms
    return this.#landings
      .filter(({ due }) => due <= now)
      .map((landing) => ({
        ...ordinary(`${landing.id} lands`, landing.due, undefined, () => this.#land(landing)),
        rank: RANK.ending,
      }))
  }

  /** Slow calls may end at any moment. That makes a difference only before an item about the same subject or process. */
  early({ about, process: next }: Item): Choice[] {
    const now = this.#parts.time.ms
    return this.#landings
      .filter(({ due }) => due > now)
      .filter((landing) => landing.about === about || (next !== undefined && landing.process === next))
      .map((landing) => ({ label: `${landing.id} lands`, cost: 0, take: () => this.#land(landing) }))
  }

  /** Returns the next call of a process, with its possible faults. */
  next(process: Process): Item | undefined {
    const [pending] = process.operations
    if (!pending) return undefined
    const { id, value: operation, order } = pending
    const label = `${process.id} ${operation.name}${fenceOf(operation)}`
    const off = (then: Choice['take']) => () => {
      process.operations.shift()
      return then()
    }
    const fail = () => this.#fail(process, pending)
    if (process.cutUntil !== undefined) return ordinary(`${label}: no connection`, order, process, off(fail))
    return {
      about: subjectOf(operation),
      ...ordinary(
        label,
        order,
        process,
        off(() => this.#complete(process, id, operation)),
      ),
      instead: this.#instead(process, pending)
        .filter(({ fault }) => this.#parts.may(fault))
        .map(({ text, befall }) => ({ label: `${label}: ${text}`, cost: 1, take: off(befall) })),
    }
  }

  /** Delivers an answer to its process. */
  deliver(process: Process, id: string, { operation, result, error, recordedEpoch }: Answer): void {
    process.lived(`${id} ${error ? error.name : textOf(result)}`)
    if (error) operation.fail(error)
    else {
      this.#parts.ledger.answered(operation, result, recordedEpoch)
      operation.answer(result)
    }
  }

  #instead(
    process: Process,
    pending: Pending<Operation>,
  ): { readonly fault: Fault; readonly text: string; readonly befall: Choice['take'] }[] {
    const { id, value: operation } = pending
    const { time, faultMs, processes } = this.#parts
    const fail = () => this.#fail(process, pending)
    const later = (land: Landing['land'], waits = true): void => {
      const about = subjectOf(operation)
      const due = time.ms + faultMs
      this.#landings.push({ id, about, process: waits ? process : undefined, due, land })
    }
    const lose = async () => {
      await this.#perform(operation)
      fail()
    }
    const cut = (then: Choice['take']) => () => {
      process.cutUntil = time.ms + faultMs
      return then()
    }
    const outage = () => {
      for (const other of processes) if (other.alive) other.cutUntil = time.ms + faultMs
      fail()
    }
    const always = [
      { fault: 'refused', text: 'does not take place', befall: fail },
      { fault: 'cut', text: 'fails, and the process has lost the store', befall: cut(fail) },
      { fault: 'outage', text: 'fails, and all processes have lost the store', befall: outage },
    ] as const
    if (!operation.writes)
      return [
        ...always,
        {
          fault: 'slow',
          text: 'the answer is slow',
          befall: async () => {
            const answer = await this.#perform(operation)
            later(() => this.#answer(process, id, answer))
          },
        },
      ]
    return [
      ...always,
      { fault: 'lost', text: 'takes place, the answer is lost', befall: lose },
      {
        fault: 'late',
        text: 'times out, and takes place later',
        befall: () => {
          later(async () => void (await this.#perform(operation)), false)
          fail()
        },
      },
      {
        fault: 'slow',
        text: 'is slow',
        befall: () => later(() => this.#complete(process, id, operation)),
      },
      { fault: 'cut', text: 'takes place, and the process has then lost the store', befall: cut(lose) },
    ]
  }

  async #land(landing: Landing): Promise<void> {
    this.#landings = this.#landings.filter((other) => other !== landing)
    await landing.land()
  }

  async #complete(process: Process, id: string, operation: Operation): Promise<void> {
    this.#answer(process, id, await this.#perform(operation))
  }

  /** Executes a call in the store. */
  async #perform(operation: Operation): Promise<Answer> {
    const { ledger, store, room } = this.#parts
    let result: unknown
    let error: Error | undefined
    try {
      result = await operation.perform()
    } catch (problem) {
      error = problem as Error
    }
    ledger.performed(operation, result)
    const recordedEpoch = (await store().rooms.inspect(room))?.epoch ?? 0
    return { operation, result, error, recordedEpoch }
  }

  #fail(process: Process, { id, value: operation }: Pending<Operation>): void {
    const error = new StoreUnavailable(operation.name)
    this.#answer(process, id, { operation, result: undefined, error, recordedEpoch: 0 })
  }

  /** Delivers an answer. A paused process receives it after the pause. */
  #answer(process: Process, id: string, answer: Answer): void {
    if (process.running) this.deliver(process, id, answer)
    else if (process.alive) process.answers.push({ order: this.#parts.time.order++, id, value: answer })
  }
}

const subjectOf = ({ name }: Operation): Subject => (name.startsWith('rooms.') ? 'room' : 'leases')

/** Fence or epoch of a call, as text. */
function fenceOf({ name, args }: Operation): string {
  if (name === 'rooms.claim') return ` over epoch ${args[2]}`
  const fence = args[1]
  if (typeof fence !== 'object' || fence === null || !('epoch' in fence)) return ''
  const { epoch, version } = fence as { epoch: number; version: number }
  return ` at ${epoch}.${version}`
}
