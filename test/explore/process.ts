import { hash } from './digest.ts'
import type { ModelNode } from './model-node.ts'
import { SimClock, type SimTime } from './sim-clock.ts'
import type { Operation } from './sim-store.ts'

/** Something that is to happen, and since when, as a number that grows. */
export interface Pending<T> {
  readonly order: number
  /** The same in every run that lived through the same. */
  readonly id: string
  readonly value: T
}

/** The answer of an operation that a process has yet to hear. */
export interface Answer {
  readonly operation: Operation
  readonly result: unknown
  readonly error: Error | undefined
  readonly recordedEpoch: number
}

/** One life of a node's process, and everything on its way to and from it. */
export class Process {
  readonly id: string
  /** The node's name, the same after a restart. */
  readonly node: string
  readonly clock: SimClock
  /** Calls on their way to the store, oldest first. */
  readonly operations: Pending<Operation>[] = []
  readonly answers: Pending<Answer>[] = []
  /** What is to be done at the end of this turn of the event loop. */
  deferred: Pending<(() => void)[]> | undefined
  alive = true
  /** It hands over what it has, and takes nothing more. */
  draining = false
  /** World time at which it goes on. */
  pausedUntil: number | undefined
  /** World time until which it cannot reach the store. */
  cutUntil: number | undefined
  /** World time until which it does not listen to others. */
  deafUntil: number | undefined
  /** It has gone on, and looks at its timers before anything else. */
  timersFirst = false
  /** To be called when it reaches the store again. */
  readonly onReturn = new Set<() => void>()
  model!: ModelNode
  #asked = 0
  #history = ''

  constructor(id: string, node: string, time: SimTime, aheadMs: number) {
    this.id = id
    this.node = node
    this.clock = new SimClock(time, aheadMs)
  }

  get running(): boolean {
    return this.alive && this.pausedUntil === undefined
  }

  /** Everything on its way from and to it but messages. */
  get pending(): Pending<unknown>[] {
    const { operations, answers, deferred } = this
    return deferred ? [...operations, ...answers, deferred] : [...operations, ...answers]
  }

  /** When something happens to it by itself, in the world's time. */
  get times(): number[] {
    const { running, clock, pausedUntil, cutUntil, deafUntil } = this
    const own = running ? [clock.due, cutUntil, deafUntil] : []
    return [pausedUntil, ...own].filter((time) => time !== undefined)
  }

  /** Whether nothing is wrong with it that will pass. */
  get calm(): boolean {
    const { alive, model, pausedUntil, cutUntil, deafUntil } = this
    return !alive || (model.ready && (pausedUntil ?? cutUntil ?? deafUntil) === undefined)
  }

  /** It reaches the store again. */
  reconnect(): void {
    this.cutUntil = undefined
    this.lived('return')
    for (const callback of this.onReturn) callback()
  }

  /** It listens to others again. */
  hear(): void {
    this.deafUntil = undefined
    this.lived('hears')
    this.model.missed()
  }

  /** It is gone, and hears of nothing any more. What it has sent is on its way. */
  end(): void {
    this.alive = false
    this.pausedUntil = undefined
    this.cutUntil = undefined
    this.answers.length = 0
    this.deferred = undefined
  }

  /** A name for its next call of the store. */
  nextOperation(): string {
    return `${this.id}#${++this.#asked}`
  }

  /** It takes something in. A process is what it lived through: two with the same history are the same. */
  lived(what: string): void {
    this.#history = hash(`${this.#history}${what}@${this.clock.monotonic()}`)
  }

  /** Equal for processes that are in the same state. */
  get digest(): string {
    const { id, alive, pausedUntil, cutUntil, deafUntil, timersFirst } = this
    return alive
      ? `${id} ${this.#history} ${pausedUntil} ${cutUntil} ${deafUntil} ${timersFirst}`
      : `${id} gone`
  }
}
