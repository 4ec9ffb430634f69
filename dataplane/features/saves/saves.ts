import type { Json } from '../../../shared/json.ts'
import type { RoomDefinition } from '../../room/definition.ts'
import { turnOf } from '../../room/room-code.ts'
import { PacedWork } from '../../room/scheduler.ts'
import type { RoomStream } from '../../room/stream.ts'

/** Option `save` of a room type. */
type Save = NonNullable<RoomDefinition['save']>

/** A room as of a stored update. The state is a frozen copy. */
export interface CommittedRoom {
  readonly state: Json
  readonly epoch: number
  readonly seq: number
  /** True if the room ends with this state. */
  readonly last: boolean
}

/** Longest pause after failed saves, unless `everySeconds` is longer. */
const LONGEST_PAUSE_MS = 60_000

/**
 * Saves the state of one room to the database of its room type. Saves run one at a time, at most once in `everySeconds` while the room
 * changes, and again after a pause if one fails. If the store keeps the room, only committed states are saved. A database may get two saves
 * in the wrong order, from this owner or an earlier one; `(epoch, seq)` shows which is newer.
 */
export class RoomSaves {
  readonly #room: RoomStream
  readonly #saves: PacedWork
  #save: Save
  #unsaved = false
  /** True if the room has changed since the last save started. */
  #changed = false
  /** True if a save starts as soon as the last update is stored. */
  #due = false
  /** Failed saves in a row. */
  #failures = 0
  #givenUp = false
  #giveUp: () => void = () => {}

  constructor(room: RoomStream, save: Save) {
    this.#room = room
    this.#save = save
    this.#saves = new PacedWork(room.environment.scheduler, () => this.#start())
  }

  /** Replaces the `save` option. */
  redefine(save: Save): void {
    this.#save = save
  }

  /** True if the room is newer than its last save, as far as this owner knows. */
  get unsaved(): boolean {
    return this.#unsaved
  }

  /** True if the last save failed. */
  get failing(): boolean {
    return this.#failures > 0
  }

  /** The room has changed: saves it within this share (0–1) of `everySeconds`. */
  changed(share = 1): void {
    this.#unsaved = true
    this.#changed = true
    // A failed save has scheduled the next one, after a pause.
    if (!this.failing) this.#saves.by(this.#now + share * this.#everyMs)
  }

  /** An update is stored. */
  committed(): void {
    if (this.#due) this.soon()
  }

  /** Saves the room as soon as its last update is stored, unless a save is in progress. */
  soon(): void {
    this.#saves.start()
  }

  /** Makes the last save of the room: once, or until it succeeds or is given up. Resolves to its success. */
  async last(room: CommittedRoom, tries: 'once' | 'until_saved'): Promise<boolean> {
    this.end()
    if (this.#givenUp) return false
    const givenUp = new Promise<false>((resolve) => {
      this.#giveUp = () => resolve(false)
    })
    const step = <T>(work: Promise<T>) => Promise.race([work, givenUp])
    const { running } = this.#saves
    if (running) await step(running)
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

  /** Gives up the last save. */
  giveUp(): void {
    this.#givenUp = true
    this.#giveUp()
  }

  /** Starts no more saves, except `last`. */
  end(): void {
    this.#saves.end()
  }

  #start(): Promise<void> | undefined {
    const room = this.#room.committed
    this.#due = room === undefined
    return room && this.#run(room)
  }

  async #run(room: CommittedRoom): Promise<void> {
    const began = this.#now
    this.#changed = false
    const saved = await this.#attempt(room)
    this.#count(saved)
    if (this.#saves.ended) return
    // A change during a save that fails must not shorten the pause.
    if (!saved) this.#saves.cancel()
    if (this.#unsaved) this.#saves.by(saved ? began + this.#everyMs : this.#now + this.#pauseMs)
    this.#room.saveEnded()
  }

  #count(saved: boolean): void {
    if (saved) this.#unsaved = this.#changed
    this.#failures = saved ? 0 : this.#failures + 1
  }

  /** Calls the room type's function once. A call that times out counts as failed, even if it succeeds later. */
  async #attempt(room: CommittedRoom): Promise<boolean> {
    const { clock, limits, metrics } = this.#room.environment
    let cancel: (() => void) | undefined
    const late = new Promise<'timed_out'>((resolve) => {
      cancel = clock.schedule(limits.saveToMs, () => resolve('timed_out'))
    })
    const outcome = await Promise.race([this.#call(room), late])
    cancel?.()
    if (outcome === 'timed_out')
      this.#failed(new Error(`save.to did not end within ${limits.saveToMs / 1000} seconds`))
    metrics.roomSaves.inc({ room_type: this.#room.address.roomType, outcome })
    return outcome === 'saved'
  }

  async #call({ state, epoch, seq, last }: CommittedRoom): Promise<'saved' | 'failed'> {
    const { code } = this.#room.environment
    const { key, projectId, roomType } = this.#room.address
    const { name, epoch: owner, createdAt } = this.#room
    const turn = turnOf({ name, epoch: owner, createdAt }, 'save')
    try {
      await code.start(turn, () => this.#save.to(state, { key, epoch, seq, projectId, roomType, last }))
      return 'saved'
    } catch (error) {
      this.#failed(error)
      return 'failed'
    }
  }

  #failed(error: unknown): void {
    const { environment, address, name } = this.#room
    environment.failures.explain(`save of ${address.roomType}`, error, name)
  }

  get #now(): number {
    return this.#room.environment.clock.monotonic()
  }

  get #everyMs(): number {
    return this.#save.everySeconds * 1000
  }

  /** Pause after a failed save: twice as long each time, with a random part. */
  get #pauseMs(): number {
    const everyMs = this.#everyMs
    const longest = Math.min(Math.max(everyMs, LONGEST_PAUSE_MS), everyMs * 2 ** this.#failures)
    return longest * (0.5 + this.#room.environment.random.float() / 2)
  }
}
