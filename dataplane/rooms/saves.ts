import type { Json } from '../../shared/json.ts'
import type { RoomDefinition } from './definition.ts'
import type { Timer } from './scheduler.ts'
import type { RoomStream } from './stream.ts'

/** How a room type is saved: `save` of its definition. */
type Save = NonNullable<RoomDefinition['save']>

/** A room as of an update that stands; the state is a frozen copy. */
export interface CommittedRoom {
  readonly state: Json
  readonly epoch: number
  readonly seq: number
  /** True if the room ends with this state. */
  readonly last: boolean
}

/** The longest pause after saves that failed, unless `everySeconds` is longer. */
const LONGEST_PAUSE_MS = 60_000

/**
 * Takes the state of one room to a database of its room type: at most once in `everySeconds` while it changes, one save at a time, and after a
 * pause again where that fails. What is saved was committed before, wherever the room type is stored at all. A database may get two saves in
 * the wrong order, from this owner or from an earlier one; `(epoch, seq)` tells it which is newer.
 */
export class RoomSaves {
  readonly #room: RoomStream
  readonly #timer: Timer
  #save: Save
  #unsaved = false
  /** Whether the room has changed since the save that runs, or ran last, was begun. */
  #changed = false
  /** Whether a save is to begin as soon as the last update stands. */
  #due = false
  /** The save that runs: whether it succeeds. Never rejects. */
  #running: Promise<boolean> | undefined
  /** In a row. */
  #failures = 0
  #ended = false
  #givenUp = false
  #giveUp: () => void = () => {}

  constructor(room: RoomStream, save: Save) {
    this.#room = room
    this.#save = save
    this.#timer = room.environment.scheduler.timer(() => this.soon())
  }

  /** Goes on by another definition. */
  redefine(save: Save): void {
    this.#save = save
  }

  /** Whether the room is newer than what was saved last, as far as this owner knows. */
  get unsaved(): boolean {
    return this.#unsaved
  }

  /** Whether the last save failed. */
  get failing(): boolean {
    return this.#failures > 0
  }

  /** The room is newer than what was saved: it is saved within this share (0–1) of `everySeconds`. */
  changed(share = 1): void {
    this.#unsaved = true
    this.#changed = true
    if (!this.#running && !this.#due && !this.#timer.waiting && !this.#ended)
      this.#timer.at(this.#now + share * this.#everyMs)
  }

  /** An update stands. */
  committed(): void {
    if (this.#due) this.soon()
  }

  /** Saves the room as soon as its last update stands, unless it is being saved. */
  soon(): void {
    if (this.#running || this.#ended) return
    this.#timer.cancel()
    const room = this.#room.committed
    this.#due = room === undefined
    if (room) void this.#run(room)
  }

  /**
   * The last save: of the room as it will never be another, tried until it succeeds or is given up, or only once. Resolves with whether it
   * succeeded.
   */
  async last(room: CommittedRoom, tries: 'once' | 'until_saved'): Promise<boolean> {
    this.end()
    if (this.#givenUp) return false
    const givenUp = new Promise<false>((resolve) => {
      this.#giveUp = () => resolve(false)
    })
    const step = <T>(work: Promise<T>) => Promise.race([work, givenUp])
    if (this.#running) await step(this.#running)
    this.#changed = false
    for (;;) {
      const saved = await step(this.#attempt(room))
      this.#count(saved)
      this.#room.saveEnded()
      if (saved || tries === 'once') return saved
      const { clock } = this.#room.environment
      const paused = new Promise<true>((go) => clock.schedule(this.#pauseMs, () => go(true)))
      if (!(await step(paused))) return false
    }
  }

  /** Stops trying. */
  giveUp(): void {
    this.#givenUp = true
    this.#giveUp()
  }

  /** Nothing more is saved. */
  end(): void {
    this.#ended = true
    this.#due = false
    this.#timer.cancel()
  }

  async #run(room: CommittedRoom): Promise<void> {
    const began = this.#now
    this.#changed = false
    this.#running = this.#attempt(room)
    const saved = await this.#running
    this.#running = undefined
    this.#count(saved)
    if (this.#ended) return
    if (this.#unsaved) this.#timer.at(saved ? began + this.#everyMs : this.#now + this.#pauseMs)
    this.#room.saveEnded()
  }

  #count(saved: boolean): void {
    if (saved) this.#unsaved = this.#changed
    this.#failures = saved ? 0 : this.#failures + 1
  }

  /** One call of the room type's function. One that hangs counts as failed, whatever comes of it later. */
  async #attempt(room: CommittedRoom): Promise<boolean> {
    const { clock, limits, metrics } = this.#room.environment
    let cancel: (() => void) | undefined
    const late = new Promise<'timed_out'>((resolve) => {
      cancel = clock.schedule(limits.saveToMs, () => resolve('timed_out'))
    })
    const outcome = await Promise.race([this.#call(room), late])
    cancel?.()
    metrics.roomSaves.inc({ room_type: this.#room.address.roomType, outcome })
    return outcome === 'saved'
  }

  async #call({ state, epoch, seq, last }: CommittedRoom): Promise<'saved' | 'failed'> {
    const { code, failures } = this.#room.environment
    const { key, projectId, roomType } = this.#room.address
    const { name, epoch: owner } = this.#room
    const room = { name, epoch: owner }
    const turn = { room, hook: 'save', subject: '', ref: 0, type: '', principal: '' } as const
    try {
      await code.start(turn, () => this.#save.to(state, { key, epoch, seq, projectId, roomType, last }))
      return 'saved'
    } catch (error) {
      failures.explain(`save of ${roomType}`, error)
      return 'failed'
    }
  }

  get #now(): number {
    return this.#room.environment.clock.monotonic()
  }

  get #everyMs(): number {
    return this.#save.everySeconds * 1000
  }

  /** How long to wait after a save that failed: twice as long each time, and not the same for every room. */
  get #pauseMs(): number {
    const everyMs = this.#everyMs
    const longest = Math.min(Math.max(everyMs, LONGEST_PAUSE_MS), everyMs * 2 ** this.#failures)
    return longest * (0.5 + this.#room.environment.random.float() / 2)
  }
}
