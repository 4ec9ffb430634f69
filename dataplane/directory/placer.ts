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

/** Seats of one room that were promised, and which its row may not show yet. */
interface Promised {
  /** When each seat was promised, oldest first: monotonic milliseconds. */
  at: number[]
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
  readonly #promised = new Map<string, Promised>()
  /** By session and request, oldest first. */
  readonly #answers = new Map<string, { readonly placed: PlacedRoom; readonly at: number }>()

  constructor(parts: PlacerParts) {
    this.#parts = parts
  }

  /**
   * Returns a room with a free seat, and promises the seat. A request that is repeated gets the same room, unless the room has refused it.
   * Undefined: there is no such room, and the token does not allow a new one. Rejects as `Directory.rooms`.
   */
  async place(request: PlaceRequest): Promise<PlacedRoom | undefined> {
    const { list, directory } = this.#parts
    const { query, not, allows } = request
    const isAllowed = (roomId: string): boolean =>
      allows === undefined || allows.includes(list.roomType) || allows.includes(roomId)
    for (;;) {
      // One more than the rooms that can be left out below.
      const limit = 1 + this.#promised.size + not.length
      const rows = await directory.rooms(list, { ...query, full: false, limit }, isAllowed)
      // From here to the return nothing waits: no other request gets the same seat.
      this.#expire()
      const known = this.#answer(request) ?? this.#listed(rows, request)
      if (known) return known
      if (rows.length === limit) continue
      return this.#made(request, isAllowed)
    }
  }

  /** Drops promises and answers that are too old. */
  #expire(): void {
    const now = this.#parts.clock.monotonic()
    for (const [roomId, { at }] of this.#promised) {
      if (now - at.at(-1)! < PROMISE_MS) break
      this.#promised.delete(roomId)
    }
    for (const [id, { at }] of this.#answers) {
      if (now - at < ANSWER_MS) break
      this.#answers.delete(id)
    }
  }

  #answer(request: PlaceRequest): PlacedRoom | undefined {
    const placed = this.#answers.get(answerId(request))?.placed
    return placed && !request.not.includes(this.#roomId(placed.key)) ? placed : undefined
  }

  /** Chooses a room that has a row. */
  #listed(rows: readonly StoredRow[], request: PlaceRequest): PlacedRoom | undefined {
    let best: StoredRow | undefined
    let bestTaken = Number.POSITIVE_INFINITY
    for (const row of rows) {
      const taken = takenSeats(row) + this.#countPromised(row)
      if (taken >= (row.max_members ?? Number.POSITIVE_INFINITY) || request.not.includes(row.room_id))
        continue
      if (best && (request.query.order !== 'emptiest' || taken >= bestTaken)) continue
      best = row
      bestTaken = taken
    }
    if (!best) return undefined
    return this.#promise(request, { key: best.key, create: false }, takenSeats(best))
  }

  /** Chooses a room that is being made for requests like this one, or a new one. */
  #made(request: PlaceRequest, isAllowed: (roomId: string) => boolean): PlacedRoom | undefined {
    const { clock, random } = this.#parts
    const { not, maxMembers = Number.POSITIVE_INFINITY } = request
    const now = clock.monotonic()
    const kind = kindOf(request)
    for (const [roomId, { made, at }] of this.#promised) {
      if (made?.kind !== kind || now - made.at >= PROMISE_MS || at.length >= maxMembers) continue
      if (!not.includes(roomId) && isAllowed(roomId))
        return this.#promise(request, { key: made.key, create: true })
    }
    const key = randomToken(random, KEY_LENGTH)
    if (!isAllowed(this.#roomId(key))) return undefined
    this.#promised.set(this.#roomId(key), { at: [], taken: 0, made: { key, at: now, kind } })
    return this.#promise(request, { key, create: true })
  }

  /** Counts the seats of a room that are promised and not taken yet, as far as its row tells. */
  #countPromised(row: StoredRow): number {
    const promised = this.#promised.get(row.room_id)
    if (!promised) return 0
    const taken = takenSeats(row)
    const now = this.#parts.clock.monotonic()
    // The oldest promises have become the seats that were taken since the last look.
    promised.at = promised.at.slice(Math.max(0, taken - promised.taken)).filter((at) => now - at < PROMISE_MS)
    promised.taken = taken
    promised.made = undefined
    if (promised.at.length === 0) this.#promised.delete(row.room_id)
    return promised.at.length
  }

  #promise(request: PlaceRequest, placed: PlacedRoom, taken = 0): PlacedRoom {
    const now = this.#parts.clock.monotonic()
    const roomId = this.#roomId(placed.key)
    const promised = this.#promised.get(roomId) ?? { at: [], taken, made: undefined }
    promised.at.push(now)
    this.#promised.delete(roomId)
    this.#promised.set(roomId, promised)
    const id = answerId(request)
    this.#answers.delete(id)
    this.#answers.set(id, { placed, at: now })
    return placed
  }

  #roomId(key: string): string {
    return `${this.#parts.list.roomType}:${key}`
  }
}

const answerId = ({ sessionId, requestId }: PlaceRequest): string => `${sessionId}/${requestId}`

/** Requests with the same conditions and the same join options: what one of them makes fits the others. */
const kindOf = ({ query, optionsHash }: PlaceRequest): string =>
  `${optionsHash} ${canonicalJson((query.where ?? {}) as Json)}`
