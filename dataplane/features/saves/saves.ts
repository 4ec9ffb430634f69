import { within } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import { counter, type Metrics, OPEN } from '../../../shared/metrics.ts'
import { frozen } from '../../room/copy.ts'
import type { RoomDefinition } from '../../room/definition.ts'
import type { FeatureNeeds, Leaving, RoomFeature, RoomObserver, RoomView, Since } from '../../room/feature.ts'
import { type CodeRoom, turnOf } from '../../room/room-code.ts'
import { PacedWork } from '../../room/scheduler.ts'
import type { LiveState } from '../../room/state.ts'
import type { RoomAddress } from '../../traffic.ts'

/** Metrics of the saves of rooms. */
export const SAVE_METRICS = {
  roomSaves: counter('service_room_saves_total', 'Calls of `save.to`. timed_out: longer than 30 s.', {
    room_type: OPEN,
    outcome: ['saved', 'failed', 'timed_out'],
  }),
}

/** Dependencies of the saves of a room. */
interface SaveNeeds extends FeatureNeeds {
  readonly metrics: Metrics<typeof SAVE_METRICS>
}

/** Option `save` of a room type. */
type Save = NonNullable<RoomDefinition['save']>

/** A room as of a stored update. The state is a frozen copy. */
interface CommittedRoom {
  readonly state: Json
  readonly epoch: number
  readonly seq: number
  /** True if the room ends with this state. */
  readonly last: boolean
}

/** The room that is saved. */
interface SavedRoom extends CodeRoom {
  readonly createdAt: number
  readonly address: RoomAddress
  readonly state: LiveState
  /** Seq of the last flush. */
  readonly seq: number
  readonly inFlight: object | undefined
  /** True if the room is newer than its last save, as far as this owner knows. */
  unsaved: boolean
}

/** Longest pause after failed saves, unless `everySeconds` is longer. */
const LONGEST_PAUSE_MS = 60_000

/** The saves of the rooms of a node. */
export class SavedRooms implements RoomFeature {
  readonly #needs: SaveNeeds

  constructor(needs: FeatureNeeds, metrics: SaveNeeds['metrics']) {
    this.#needs = { ...needs, metrics }
  }

  observe(room: RoomView, { save }: RoomDefinition, since: Since): RoomObserver | undefined {
    if (!save) return undefined
    const saves = new RoomSaves(room.core, save, this.#needs, () => room.progressed())
    // The earlier owner may not have saved the room. The save also gives the database the epoch of this owner. At
    // a random time, because a node may take over many rooms at once.
    if (since === 'claimed') saves.changed(this.#needs.random.float())
    return saves
  }
}

/**
 * Saves the state of one room to the database of its room type. Saves run one at a time, at most once in `everySeconds` while the room
 * changes, and again after a pause if one fails. If the store keeps the room, only committed states are saved. A database may get two saves
 * in the wrong order, from this owner or an earlier one; `(epoch, seq)` shows which is newer.
 */
export class RoomSaves implements RoomObserver {
  readonly #room: SavedRoom
  readonly #needs: SaveNeeds
  readonly #progressed: () => void
  readonly #saves: PacedWork
  #save: Save
  /** True if the room has changed since the last save started. */
  #changed = false
  /** True if a save starts as soon as the last update is stored. */
  #due = false
  /** Failed saves in a row. */
  #failures = 0
  #givenUp = false
  #isDropped = false
  #giveUp: () => void = () => {}

  /** Calls `progressed` when a save has ended. */
  constructor(room: SavedRoom, save: Save, needs: SaveNeeds, progressed: () => void) {
    this.#room = room
    this.#save = save
    this.#needs = needs
    this.#progressed = progressed
    this.#saves = new PacedWork(needs.scheduler, () => this.#start())
  }

  redefined({ save }: RoomDefinition): boolean {
    if (save) this.#save = save
    else {
      // A save in progress says nothing about the room any more.
      this.stop()
      this.#isDropped = true
      this.#room.unsaved = false
    }
    return save !== undefined
  }

  /** True if the last save failed. */
  get failing(): boolean {
    return this.#failures > 0
  }

  /** The room has changed: saves it within this share (0–1) of `everySeconds`. */
  changed(share = 1): void {
    this.#room.unsaved = true
    this.#changed = true
    // A failed save has scheduled the next one, after a pause.
    if (!this.failing) this.#saves.by(this.#now + share * this.#everyMs)
  }

  /** An update is stored. */
  committed(): void {
    if (this.#due) this.#saves.start()
  }

  /** An empty room stays until its database has it. Saves it as soon as its last update is stored, unless a save is in progress. */
  keepsAwake(): boolean {
    if (this.#room.unsaved) this.#saves.start()
    return this.#room.unsaved
  }

  /**
   * Saves the room as of its last turn, if the database lacks changes: once, or if the room has ended, until it succeeds or is given up.
   * Resolves to true if the database has the room.
   */
  async leaving(how: Leaving): Promise<boolean> {
    const { epoch, seq, state, unsaved } = this.#room
    const cut = this.#room.wants?.cut
    const dirty = state.dirty && !cut
    if (!unsaved && !dirty) return true
    const room = {
      state: frozen(cut ? structuredClone(state.flushed) : state.plain()),
      epoch,
      seq: seq + (dirty ? 1 : 0),
      last: how !== 'released',
    }
    this.stop()
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
      this.#progressed()
      if (saved || how !== 'disposed') return saved
      const { clock } = this.#needs
      const paused = new Promise<true>((go) => clock.schedule(this.#pauseMs, () => go(true)))
      if (!(await step(paused))) return false
    }
  }

  /** Gives up the last save. */
  giveUp(): void {
    this.#givenUp = true
    this.#giveUp()
  }

  /** Starts no more saves, except that of `leaving`. */
  stop(): void {
    this.#saves.end()
  }

  #start(): Promise<void> | undefined {
    const { epoch, inFlight, seq, state } = this.#room
    this.#due = inFlight !== undefined
    if (inFlight) return undefined
    return this.#run({ state: frozen(structuredClone(state.flushed)), epoch, seq, last: false })
  }

  async #run(room: CommittedRoom): Promise<void> {
    const began = this.#now
    this.#changed = false
    const saved = await this.#attempt(room)
    this.#count(saved)
    if (this.#saves.ended) return
    // A change during a save that fails must not shorten the pause.
    if (!saved) this.#saves.cancel()
    if (this.#room.unsaved) this.#saves.by(saved ? began + this.#everyMs : this.#now + this.#pauseMs)
    this.#progressed()
  }

  #count(saved: boolean): void {
    if (saved && !this.#isDropped) this.#room.unsaved = this.#changed
    this.#failures = saved ? 0 : this.#failures + 1
  }

  /** Calls the room type's function once. A call that times out counts as failed, even if it succeeds later. */
  async #attempt(room: CommittedRoom): Promise<boolean> {
    const { clock, limits, metrics } = this.#needs
    const outcome = await within(clock, limits.saveToMs, this.#call(room), () => 'timed_out' as const)
    if (outcome === 'timed_out')
      this.#failed(new Error(`save.to did not end within ${limits.saveToMs / 1000} seconds`))
    metrics.roomSaves.inc({ room_type: this.#room.address.roomType, outcome })
    return outcome === 'saved'
  }

  async #call({ state, epoch, seq, last }: CommittedRoom): Promise<'saved' | 'failed'> {
    const { code } = this.#needs
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
    const { address, name } = this.#room
    this.#needs.failures.explain(`save of ${address.roomType}`, error, name)
  }

  get #now(): number {
    return this.#needs.clock.monotonic()
  }

  get #everyMs(): number {
    return this.#save.everySeconds * 1000
  }

  /** Pause after a failed save: twice as long each time, with a random part. */
  get #pauseMs(): number {
    const everyMs = this.#everyMs
    const longest = Math.min(Math.max(everyMs, LONGEST_PAUSE_MS), everyMs * 2 ** this.#failures)
    return longest * (0.5 + this.#needs.random.float() / 2)
  }
}
