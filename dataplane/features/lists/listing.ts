import type { StandardSchemaV1 } from '@standard-schema/spec'
import { sleep, timestamp } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import { type Listings, type Records, StoreUnavailable } from '../../../shared/store/port.ts'
import type { RoomDefinition, RoomListingRules } from '../../room/definition.ts'
import type { ListedRoomFacts, RoomLog } from '../../room/definition-types.ts'
import { jsonCopy, RoomLogicError, validate } from '../../room/failures.ts'
import type {
  FeatureNeeds,
  Leaving,
  RoomEnd,
  RoomFeature,
  RoomObserver,
  RoomView,
  Since,
} from '../../room/feature.ts'
import { readOnlyView } from '../../room/guarded.ts'
import type { TurnRoom } from '../../room/hooks.ts'
import { turnOf } from '../../room/room-code.ts'
import { PacedWork } from '../../room/scheduler.ts'
import type { LiveState } from '../../room/state.ts'
import type { Tables } from '../../room/table.ts'
import { type RoomAddress, roomIdOf } from '../../traffic.ts'
import { RoomCodes } from './codes.ts'
import type { ListMetrics } from './metrics.ts'
import { encodeRow, type StoredRow } from './rows.ts'

/** Least time between two reads of a room for its row. */
const READ_MS = 1000
/** Least time between two writes of a row of which only the number of spectators has changed. */
const SPECTATORS_MS = 10_000
/** Lifetime of rows and codes in the store, unless they are written again. */
const LISTED_MS = 3_600_000
/** Mean time until they are written again. */
const REWRITE_MS = LISTED_MS / 2
/** Rooms write again what the store may have lost at random times within this period, not all at the same moment. */
const REPAIR_MS = 5000
/** Shortest pause after a failed write. The longest is twice as long. */
const RETRY_MS = 1000
/** How long an ended room waits until the store has removed its row and code. After that they expire. */
const LEAVE_MS = 60_000
const MAX_DATA_BYTES = 1024
const DAY_MS = 86_400_000

/** The room that is listed. */
interface ListedRoom extends TurnRoom {
  readonly address: RoomAddress
  readonly roomId: string
  readonly log: RoomLog
  readonly createdAt: number
  readonly definition: RoomDefinition
  readonly state: LiveState
  readonly tables: Tables
  readonly inFlight: object | undefined
  readonly awaited: boolean
  code: string | undefined
  readonly changes: { code: boolean }
  readonly wants: { flush: 'paced' | 'soon' | undefined }
}

type ListedView = RoomView<ListedRoom>

/** Dependencies of the rows and the codes of rooms. */
interface ListingNeeds extends FeatureNeeds {
  readonly metrics: ListMetrics
  readonly listings: Listings
  readonly codes: RoomCodes
}

interface ListingStore {
  readonly listings: Listings
  readonly records: Records
}

/** The rows and the codes of the rooms of a node. */
export class ListedRooms implements RoomFeature {
  readonly #needs: ListingNeeds

  constructor(needs: FeatureNeeds, metrics: ListMetrics, { listings, records }: ListingStore) {
    this.#needs = { ...needs, metrics, listings, codes: new RoomCodes(records, needs.random) }
  }

  observe(room: RoomView, { codes, listing }: RoomDefinition, since: Since): RoomObserver | undefined {
    return listing || codes ? new RoomListing(room, this.#needs, since === 'made') : undefined
  }

  /** Claims a code. It stays claimed until the room renews it, also if this node dies before the first renewal. */
  async codeFor(address: RoomAddress, definition: RoomDefinition): Promise<string | undefined> {
    const { codes, onIdle, sleepDays } = definition
    const lifeMs = onIdle === 'sleep' ? Math.max(LISTED_MS, sleepDays * DAY_MS) : LISTED_MS
    return codes ? this.#needs.codes.claim(address, lifeMs) : undefined
  }

  /** Removes the row of a sleeping room that is not opened under its claim. */
  gone(address: RoomAddress, epoch: number): void {
    const { listings, log } = this.#needs
    const { name, projectId, roomType } = address
    const removed = { roomId: roomIdOf(address), epoch, version: 1, value: undefined }
    listings.write(`${projectId}/${roomType}`, removed, LISTED_MS).catch((error) => {
      log.warn({ err: error, room: name }, 'the row of a room could not be removed')
    })
  }
}

/** A row in the store. `at`: when it was written (monotonic clock). */
interface WrittenRow {
  readonly row: StoredRow
  readonly bytes: Uint8Array
  readonly at: number
}

/**
 * Keeps the row and the code of one running room in the store. A row shows a stored update, so no list shows changes that a crash can undo.
 * The row is written only if it differs from the last one. A node that has lost the room cannot overwrite the row of the next owner, which
 * has a larger epoch.
 */
class RoomListing implements RoomObserver {
  readonly #room: ListedRoom
  readonly #view: ListedView
  readonly #needs: ListingNeeds
  readonly #writes: PacedWork
  /** Version of the last row of this owner. */
  #version = 0
  /** The row in the store. Undefined: none, or the row of an earlier owner. */
  #written: WrittenRow | undefined
  #readAt = Number.NEGATIVE_INFINITY
  /** When row and code are written again, even if they have not changed. */
  #rewriteAt: number
  /** The removal of the row of a room that is ending. */
  #unlisted: Promise<void> | undefined
  #givenUp = false
  /** The owner's epoch at the last repair. */
  #epoch: number

  /** `isNew`: the code of the room is claimed, and its first row follows its first update. */
  constructor(view: ListedView, needs: ListingNeeds, isNew: boolean) {
    this.#room = view.core
    this.#view = view
    this.#needs = needs
    this.#writes = new PacedWork(needs.scheduler, () => this.#read())
    this.#rewriteAt = this.#nextRewrite
    this.#epoch = view.core.epoch
    if (!isNew) this.#rewrite()
  }

  redefined(): true {
    this.#rewrite()
    return true
  }

  committed(): void {
    this.#wait(this.#room.definition.listing ? Number.NEGATIVE_INFINITY : this.#rewriteAt)
  }

  /** Writes row and code again, and immediately if the room continues under another epoch. */
  repair(): void {
    this.#rewrite(this.#epoch === this.#room.epoch ? REPAIR_MS : 0)
    this.#epoch = this.#room.epoch
  }

  /** The store may lack the present row and code: writes them again within `withinMs`. */
  #rewrite(withinMs = 0): void {
    this.#rewriteAt = this.#now + withinMs * this.#needs.random.float()
    // A migrated state is not flushed yet. The first update follows soon, and the row with it.
    if (!this.#room.state.dirty) this.#wait(this.#rewriteAt)
  }

  /** A room that has ended is not listed while its last save lasts, which can take long. */
  async leaving(how: Leaving): Promise<true> {
    if (how === 'disposed') void this.#unlist()
    return true
  }

  /** Ends all writes except those of `ended`. */
  stop(): void {
    this.#writes.end()
  }

  /**
   * Removes row and code of a room that has ended. If the room sleeps, they stay as long as its record. Resolves when the store has
   * answered, after `giveUp`, or after a minute. Never rejects.
   */
  ended(how: RoomEnd): Promise<void> {
    // For the next owner, only the row is removed: it names this node. Since the node lives, no other node removes it. The store keeps the
    // row of a later owner.
    return how === 'disposed' || how === 'asleep' ? this.#end(how) : this.#unlist()
  }

  #unlist(): Promise<void> {
    this.stop()
    this.#unlisted ??= this.#leave(undefined, LISTED_MS)
    return this.#unlisted
  }

  async #end(how: 'disposed' | 'asleep'): Promise<void> {
    this.stop()
    const { address, code } = this.#room
    const { lifeMs, ownedAt } = this.#view.record
    const { codes } = this.#needs
    const { listing } = this.#room.definition
    const row = how === 'asleep' && listing?.sleeping ? this.#row(listing, null) : undefined
    // The write in flight may change the code.
    await this.#writes.running
    const writeCode = (kept: string) =>
      how === 'asleep' ? codes.keep(address, kept, lifeMs) : codes.remove(address, kept)
    await Promise.all([
      how === 'disposed'
        ? this.#unlist()
        : this.#leave(row === 'failed' ? undefined : row, lifeMs, ownedAt + LEAVE_MS),
      code !== undefined && this.#untilAnswered(() => writeCode(code)),
    ])
  }

  /** Stops asking a store that does not answer. */
  giveUp(): void {
    this.#givenUp = true
  }

  /** Reads the room at `due`, or a second after the last read. */
  #wait(due: number): void {
    this.#writes.by(Math.max(due, this.#readAt + READ_MS))
  }

  #read(): Promise<void> | undefined {
    // The state belongs to an update that is not stored yet: `committed` follows.
    if (this.#room.inFlight) return undefined
    const { listing, codes } = this.#room.definition
    const { nodeId } = this.#needs
    const rewrites = this.#now >= this.#rewriteAt
    if (rewrites) this.#rewriteAt = this.#nextRewrite
    this.#readAt = this.#now
    const made = listing && this.#row(listing, nodeId)
    const row = made === 'failed' ? this.#written?.row : made
    const puts = (listing !== undefined && rewrites) || !this.#isWritten(row)
    const waitsUntil = puts && !rewrites ? this.#waitsUntil(row) : undefined
    if (waitsUntil !== undefined) this.#wait(waitsUntil)
    return this.#write(
      puts && waitsUntil === undefined ? () => this.#put(row, LISTED_MS) : undefined,
      rewrites && codes,
    )
  }

  #isWritten(row: StoredRow | undefined): boolean {
    return row && this.#written
      ? Buffer.compare(encodeRow(row), this.#written.bytes) === 0
      : row === this.#written?.row
  }

  /** Returns when a row may be written of which only the number of spectators has changed. Undefined: it may be written now. */
  #waitsUntil(row: StoredRow | undefined): number | undefined {
    const { spectators } = this.#written?.row ?? {}
    if (!this.#written || !row || spectators === undefined || row.spectators === spectators) return undefined
    const due = this.#written.at + SPECTATORS_MS
    return this.#now < due && this.#isWritten({ ...row, spectators }) ? due : undefined
  }

  /** Never rejects. */
  async #write(put: (() => Promise<unknown>) | undefined, keepsCode: boolean): Promise<void> {
    try {
      await put?.()
      if (keepsCode) await this.#keepCode()
    } catch (error) {
      this.#failed(error)
      this.#rewriteAt = this.#now + this.#pauseMs
    }
    this.#wait(this.#rewriteAt)
  }

  /** Returns false if the store has refused the row. */
  async #put(row: StoredRow | undefined, ttlMs: number, by?: number): Promise<boolean> {
    const { address, epoch, roomId } = this.#room
    const { projectId, roomType } = address
    const version = ++this.#version
    const value = row && encodeRow(row)
    const put = { roomId, epoch, version, value }
    const isWritten = await this.#needs.listings.write(`${projectId}/${roomType}`, put, ttlMs, by)
    this.#written = row && value && { row, bytes: value, at: this.#now }
    this.#count('written')
    return isWritten
  }

  /**
   * Writes the last row of this owner. The row of a sleeping room does not depend on a live node, so a late write could list a room that
   * has ended since: the store refuses it after `by`. Then the earlier row is removed.
   */
  async #leave(row: StoredRow | undefined, ttlMs: number, by?: number): Promise<void> {
    if (!this.#room.definition.listing) return
    const put = async () => (row && (await this.#put(row, ttlMs, by))) || this.#put(undefined, ttlMs)
    await this.#untilAnswered(put)
  }

  /** Keeps the room's code. Claims another code if the room has none, or if another room has claimed the code after the store lost it. */
  async #keepCode(): Promise<void> {
    const { address, code } = this.#room
    const { codes } = this.#needs
    const ttlMs = Math.max(LISTED_MS, this.#view.record.lifeMs)
    if (code !== undefined && (await codes.keep(address, code, ttlMs))) return
    const claimed = await codes.claim(address, ttlMs)
    this.#view.timed(() => {
      const { changes, wants } = this.#room
      this.#room.code = claimed
      changes.code = true
      wants.flush ??= 'paced'
    })
  }

  /** Repeats a write until the store has answered, for at most `LEAVE_MS`. */
  async #untilAnswered(write: () => Promise<unknown>): Promise<void> {
    const { log } = this.#room
    const until = this.#now + LEAVE_MS
    while (!this.#givenUp) {
      try {
        await write()
        return
      } catch (err) {
        this.#failed(err)
        if (!(err instanceof StoreUnavailable)) return
        // The store may refuse only this write. Without an end, the room's name would stay blocked.
        if (this.#now >= until) {
          log.warn({ err }, 'the row or the code of an ended room was not removed: it expires within an hour')
          return
        }
        await sleep(this.#needs.clock, this.#pauseMs)
      }
    }
  }

  #failed(error: unknown): void {
    this.#count('not_written')
    if (!(error instanceof StoreUnavailable))
      this.#room.log.error({ err: error }, 'the row or the code of a room could not be written')
  }

  /** Returns the room's row as of its last update. Undefined: the room is not listed. `failed`: room code has failed. */
  #row(listing: RoomListingRules, nodeId: string | null): StoredRow | 'failed' | undefined {
    const { address, awaited, code, createdAt, epoch, name, roomId, state, tables } = this.#room
    if (awaited) return undefined
    const { code: runner, failures } = this.#needs
    const { key, roomType } = address
    const { maxPlayers, spectators } = this.#room.definition
    const { playerCount: players, spectatorCount } = this.#view.delivery.delivered
    const turn = turnOf({ name, epoch, createdAt }, 'listing')
    try {
      const data = this.#view.timed(() =>
        runner.run(turn, () => dataOf(listing, state.base, { key, players, maxPlayers })),
      )
      if (data === null) return undefined
      return {
        room_id: roomId,
        room_type: roomType,
        key,
        players,
        max_players: maxPlayers === Number.POSITIVE_INFINITY ? null : maxPlayers,
        reserved: tables.reservations.flushed.length,
        created_at: timestamp(createdAt),
        data,
        ...(spectators && { spectators: spectatorCount }),
        node_id: nodeId,
        ...(code !== undefined && { code }),
      }
    } catch (error) {
      this.#count('failed')
      failures.explain(`listing of ${roomType}`, error, this.#room.name)
      return 'failed'
    }
  }

  #count(outcome: 'written' | 'failed' | 'not_written'): void {
    this.#needs.metrics.roomRows.inc({ room_type: this.#room.address.roomType, outcome })
  }

  get #now(): number {
    return this.#needs.clock.monotonic()
  }

  // Random, so that many rooms do not write at the same moment.

  get #nextRewrite(): number {
    return this.#now + REWRITE_MS * (0.75 + this.#needs.random.float() / 2)
  }

  get #pauseMs(): number {
    return RETRY_MS * (1 + this.#needs.random.float())
  }
}

/** Returns the data of a room's row. Null: the room is not listed. Throws the error of room code, or a RoomLogicError. */
function dataOf(listing: RoomListingRules, base: Json, facts: ListedRoomFacts): Json {
  const { view, end } = readOnlyView(base)
  try {
    return checkedData(listing.data, listing.of(view, facts))
  } finally {
    end()
  }
}

function checkedData(schema: StandardSchemaV1, returned: unknown): Json {
  if (returned === null) return null
  const valid = validate(schema, returned)
  if (!valid.ok)
    throw valid.cause ?? new RoomLogicError(`listing.of returned data that does not fit: ${valid.message}`)
  const data = jsonCopy(valid.value, 'the data that listing.of returned')
  const bytes = Buffer.byteLength(JSON.stringify(data))
  if (bytes > MAX_DATA_BYTES)
    throw new RoomLogicError(`listing.of returned ${bytes} bytes of JSON; it may return ${MAX_DATA_BYTES}`)
  return data
}
