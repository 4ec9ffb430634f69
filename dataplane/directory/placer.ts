import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import { canonicalJson, type Json } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import type { Directory, RoomList } from './directory.ts'
import type { PlacedRoom, PlaceRequest } from './placing.ts'
import { type StoredRow, takenSeats } from './row.ts'

/** Dependencies of Placer. */
interface PlacerParts {
  readonly list: RoomList
  readonly directory: Pick<Directory, 'rooms'>
  readonly clock: Clock
  readonly random: Random
}

/** A room in which seats were promised. */
interface Room {
  /** When each seat was promised that its row does not show yet, oldest first: monotonic milliseconds. */
  at: number[]
  /** Number of seats of the room. */
  seats: number
  /** Taken seats in the row when it was last compared with the promises. */
  taken: number
  /** Undefined: the room has a row. */
  made: Made | undefined
}

/** A room that a client is about to make. */
interface Made {
  readonly key: string
  readonly at: number
  /** The room is shared by requests of the same kind only: its data is not known yet. */
  readonly kind: string
}

/**
 * How long a promised seat counts as taken, and a new room is filled before it has a row. A join reaches its row and the copies of the
 * list within 1.7 s (rows are written once a second, copies poll twice a second).
 */
const PROMISE_MS = 3000
/** How long the placer remembers its answers. A client repeats a request when its connection was lost. */
const ANSWER_MS = 60_000
/** 132 random bits. */
const KEY_LENGTH = 22

/** Chooses rooms of one list, and counts the seats that it has promised. */
export class Placer {
  readonly #parts: PlacerParts
  /** By room id; the latest promise last. */
  readonly #rooms = new Map<string, Room>()
  /** By session and request, oldest first. */
  readonly #answers = new Map<string, { readonly placed: PlacedRoom; readonly at: number }>()
  /** The request before. */
  #previous: Promise<unknown> = Promise.resolve()

  constructor(parts: PlacerParts) {
    this.#parts = parts
  }

  /**
   * Returns a room with a free seat, and promises the seat. A request that is repeated gets the same room, unless the room has refused it.
   * Undefined: there is no such room, and the token does not allow a new one. Rejects as `Directory.rooms`.
   */
  place(request: PlaceRequest): Promise<PlacedRoom | undefined> {
    // One after the other: otherwise requests that arrive together would all get the same rows, and most would have to read them again.
    const placed = this.#previous.then(() => this.#place(request))
    this.#previous = placed.catch(() => undefined)
    return placed
  }

  async #place(request: PlaceRequest): Promise<PlacedRoom | undefined> {
    const { list, directory } = this.#parts
    const { query, not, allows } = request
    this.#expire()
    const known = this.#answers.get(answerId(request))?.placed
    if (known && !not.includes(this.#roomId(known.key))) return known
    const isAllowed = (roomId: string): boolean =>
      (allows === undefined || allows.includes(list.roomType) || allows.includes(roomId)) &&
      !not.includes(roomId) &&
      !this.#isFull(roomId)
    // A room with promises may be less empty than its row.
    const limit = query.order === 'emptiest' ? 1 + this.#rooms.size : 1
    const rows = await directory.rooms(list, { ...query, full: false, limit }, isAllowed)
    const [best] = rows
      .map((row) => ({ row, room: this.#compare(row) }))
      .sort((one, other) => takenIn(one.room) - takenIn(other.room))
    if (!best) return this.#made(request, isAllowed)
    return this.#promise(request, { key: best.row.key, create: false }, best.room)
  }

  /** Drops promises and answers that are too old. */
  #expire(): void {
    const now = this.#parts.clock.monotonic()
    for (const [roomId, { at }] of this.#rooms) {
      if (at.length > 0 && now - at.at(-1)! < PROMISE_MS) break
      this.#rooms.delete(roomId)
    }
    for (const [id, { at }] of this.#answers) {
      if (now - at < ANSWER_MS) break
      this.#answers.delete(id)
    }
  }

  /** Chooses a room that is being made for requests like this one, or a new one. */
  #made(request: PlaceRequest, isAllowed: (roomId: string) => boolean): PlacedRoom | undefined {
    const { clock, random } = this.#parts
    const now = clock.monotonic()
    const kind = kindOf(request)
    for (const [roomId, room] of this.#rooms) {
      const { made } = room
      if (made?.kind === kind && now - made.at < PROMISE_MS && isAllowed(roomId))
        return this.#promise(request, { key: made.key, create: true }, room)
    }
    const key = randomToken(random, KEY_LENGTH)
    if (!isAllowed(this.#roomId(key))) return undefined
    const seats = request.maxMembers ?? Number.POSITIVE_INFINITY
    const made = { key, at: now, kind }
    return this.#promise(request, { key, create: true }, { at: [], seats, taken: 0, made })
  }

  /** Returns the promises of a room, compared with its row. */
  #compare(row: StoredRow): Room {
    const taken = takenSeats(row)
    const seats = row.max_members ?? Number.POSITIVE_INFINITY
    const known = this.#rooms.get(row.room_id)
    if (!known) return { at: [], seats, taken, made: undefined }
    // The oldest promises have become the seats that were taken since the last look.
    known.at.splice(0, taken - known.taken)
    return Object.assign(known, { seats, taken, made: undefined })
  }

  /** True: all seats of a room are promised, or were taken when it was last compared with its row. */
  #isFull(roomId: string): boolean {
    const room = this.#rooms.get(roomId)
    if (!room) return false
    const now = this.#parts.clock.monotonic()
    while (room.at.length > 0 && now - room.at[0]! >= PROMISE_MS) room.at.shift()
    return takenIn(room) >= room.seats
  }

  #promise(request: PlaceRequest, placed: PlacedRoom, room: Room): PlacedRoom {
    const now = this.#parts.clock.monotonic()
    const roomId = this.#roomId(placed.key)
    room.at.push(now)
    // The latest comes last.
    this.#rooms.delete(roomId)
    this.#rooms.set(roomId, room)
    const id = answerId(request)
    this.#answers.delete(id)
    this.#answers.set(id, { placed, at: now })
    return placed
  }

  #roomId(key: string): string {
    return `${this.#parts.list.roomType}:${key}`
  }
}

/** Seats that are taken or promised. */
const takenIn = ({ taken, at }: Room): number => taken + at.length

const answerId = ({ sessionId, requestId }: PlaceRequest): string => `${sessionId}/${requestId}`

/** Requests with the same conditions and the same join options: what one of them makes fits the others. */
const kindOf = ({ query, optionsHash }: PlaceRequest): string =>
  `${optionsHash} ${canonicalJson((query.where ?? {}) as Json)}`
