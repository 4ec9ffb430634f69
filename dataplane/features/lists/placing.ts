import * as v from 'valibot'
import { type Clock, sleep } from '../../../shared/clock.ts'
import { randomToken } from '../../../shared/ids.ts'
import { canonicalJson, type Json } from '../../../shared/json.ts'
import type { Logger } from '../../../shared/log.ts'
import type { ErrorCode } from '../../../shared/protocol/error-codes.ts'
import type { Random } from '../../../shared/random.ts'
import { type Bus, type Records, StoreUnavailable } from '../../../shared/store/port.ts'
import { NodeCalls } from '../../node-calls.ts'
import type { ListReader, RoomList } from './directory.ts'
import type { ListMetrics } from './metrics.ts'
import { InvalidQuery, type RoomQuery, type StoredRow, takenSeats, tooManyRows } from './rows.ts'

/**
 * The room for a player who searches one. `ClusterPlacing` finds the node that decides. `Placer` chooses the room, at that node. `promises.ts`
 * counts players who do not come.
 */

/** A player who needs a room of one type. */
export interface PlaceRequest {
  readonly projectId: string
  readonly roomType: string
  /** Conditions and order. The placer ignores `limit` and `full`. */
  readonly query: RoomQuery
  /** Hash of the join options. A room without a row is shared only by requests with the same hash and conditions. */
  readonly optionsHash: string
  /** Requests with the same session and request id get the same room, unless `not` has it. */
  readonly sessionId: string
  readonly requestId: number
  /** Ids of rooms that refused the join. */
  readonly not: readonly string[]
  /** The token's `rooms` claim. Undefined: all rooms. */
  readonly allows?: readonly string[] | undefined
  /** Maximum number of players of a new room. Undefined: no limit. */
  readonly maxPlayers?: number | undefined
  /** False: no seat is promised, because the player did not come to several promised seats. */
  readonly isPromised: boolean
  /** Earlier request of the player, whose promise ends. */
  readonly instead?: RequestName | undefined
}

/** Name of a request: unique in its list. */
interface RequestName {
  readonly sessionId: string
  readonly requestId: number
}

/** The room for a player. */
export interface PlacedRoom {
  readonly key: string
  /** True: the room may not exist yet, so the join may create it. */
  readonly create: boolean
}

/** Chooses rooms for players. */
export interface Placing {
  /**
   * Returns a room with a free seat, or the key of a new room. The seat is promised to the player if `isPromised`. Rejects with `InvalidQuery`. Rejects with
   * `PlacingFailed` if no node answers within 10 s, or if the token allows no new room. `comparisons`, also of the errors: see `QueryResult`.
   */
  place(request: PlaceRequest): Promise<PlacedRoom & { readonly comparisons: number }>
}

/** No room was chosen. */
export class PlacingFailed extends Error {
  override readonly name = 'PlacingFailed'
  readonly code: Extract<ErrorCode, 'room_unavailable' | 'forbidden'>
  readonly comparisons: number

  constructor(code: PlacingFailed['code'], message: string, comparisons = 0) {
    super(message)
    this.code = code
    this.comparisons = comparisons
  }
}

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

/** Earlier versions do not send it. */
const COMPARISONS = v.optional(COUNT, 0)

const TEXTS = v.pipe(v.array(v.string()), v.readonly())

/** Schema of a `PlaceRequest` from another node. */
const QUESTION = v.object({
  projectId: v.string(),
  roomType: v.string(),
  /** Checked by the edge that sent it. */
  query: v.custom<RoomQuery>((value) => typeof value === 'object' && value !== null),
  optionsHash: v.string(),
  sessionId: v.string(),
  requestId: COUNT,
  not: TEXTS,
  allows: v.optional(TEXTS),
  maxPlayers: v.optional(COUNT),
  /** An older node sends neither. */
  isPromised: v.optional(v.boolean(), true),
  instead: v.optional(v.object({ sessionId: v.string(), requestId: COUNT })),
})

/** Answer of the node that is presumed to be the placer. */
const ANSWER = v.variant('is', [
  v.object({ is: v.literal('placed'), key: v.string(), create: v.boolean(), comparisons: COMPARISONS }),
  v.object({ is: v.literal('forbidden'), comparisons: COMPARISONS }),
  v.object({
    is: v.literal('invalid_query'),
    code: v.picklist(['invalid_options', 'unknown_room_type']),
    message: v.string(),
    comparisons: COMPARISONS,
  }),
  /** The node has no copy of the list, and cannot read it. */
  v.object({ is: v.literal('unavailable') }),
  /** The node does not have the lease. */
  v.object({ is: v.literal('not_placer') }),
])
type Answer = v.InferOutput<typeof ANSWER>

const PLACE = { name: 'place', question: QUESTION, answer: ANSWER }

/** Dependencies of `ClusterPlacing`. */
export interface PlacingEnvironment {
  readonly nodeId: string
  readonly store: { readonly records: Records; readonly bus: Bus }
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: ListMetrics
  /** True: this node does not renew its leases as a placer, so that another node becomes the placer before this one ends. */
  readonly draining: () => boolean
}

/** Answers queries of lists (`Directory`). */
interface ListQueries {
  check(roomType: string, query: RoomQuery): void
  readonly rooms: ListReader['rooms']
}

/** State of one list at this node. */
interface List {
  readonly projectId: string
  readonly roomType: string
  /** `<project_id>/<room_type>`. */
  readonly name: string
  /** Node id of the placer. Undefined: unknown. */
  holder: string | undefined
  /** The pending renewal. */
  renewing: Promise<void> | undefined
  /** Undefined: another node is the placer. */
  placer: Placer | undefined
  /** Time until which this node may act as the placer, on the monotonic clock. */
  trustedUntil: number
  usedAt: number
}

/**
 * Lifetime of a placer's lease after its last renewal. A join reaches the row of its room in less time. The next placer therefore sees the
 * joins that a crashed one has promised.
 */
const LEASE_MS = 3000
/** Shorter than the lease, because the clocks of this machine and of the store run at slightly different rates. */
const TRUSTED_MS = LEASE_MS * 0.9
const RENEWAL_MS = 1000
/** Time after the last request for which a placer keeps its lease, and a node remembers the placer. */
const UNUSED_MS = 60_000
const ANSWER_WAIT_MS = 1000
const RETRY_MS = 200
/** Latest start of an attempt after the request. An attempt takes at most 2 s. */
const ATTEMPTS_MS = 8000
/** Time in which a draining node does not acquire a lease for a request. After it, there may be no other node. */
const LEFT_MS = 1000

/**
 * Chooses rooms for the players of a cluster. One node decides for each list: the placer, which has a lease in the store. The other nodes ask it
 * over the bus.
 */
export class ClusterPlacing implements Placing {
  readonly #environment: PlacingEnvironment
  readonly #directory: ListQueries
  readonly #calls: NodeCalls<PlaceRequest, Answer>
  /** By name, lists in which a room was chosen within the last minute. */
  readonly #lists = new Map<string, List>()
  #cancelRenewals: (() => void) | undefined
  #stopped = false

  constructor(environment: PlacingEnvironment, directory: ListQueries) {
    this.#environment = environment
    this.#directory = directory
    const { bus } = environment.store
    this.#calls = new NodeCalls(PLACE, { ...environment, bus }, (request) => this.#decide(request))
  }

  /** Resolves when other nodes can ask this one. Rejects with `StoreUnavailable`. */
  start(): Promise<void> {
    return this.#calls.start()
  }

  /** Ends the renewals. Unanswered requests fail. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancelRenewals?.()
    await this.#calls.stop()
  }

  async place(request: PlaceRequest): ReturnType<Placing['place']> {
    // Checked first, so that a room type that a client has made up gets no lease.
    this.#directory.check(request.roomType, request.query)
    const answer = await this.#answerTo(request)
    switch (answer?.is) {
      case 'placed':
        return { key: answer.key, create: answer.create, comparisons: answer.comparisons }
      case 'invalid_query':
        throw new InvalidQuery(answer.message, answer.code, answer.comparisons)
      case 'forbidden':
        throw new PlacingFailed(
          'forbidden',
          `the token allows no new room of type ${request.roomType}`,
          answer.comparisons,
        )
      default:
        this.#environment.metrics.placements.inc({ result: 'failed' })
        throw new PlacingFailed('room_unavailable', 'no node can choose a room at the moment: try again')
    }
  }

  /** Asks the placer until it answers. Undefined: there was no answer in time. */
  async #answerTo(request: PlaceRequest): Promise<Answer | undefined> {
    const { nodeId, clock } = this.#environment
    const begun = clock.monotonic()
    const end = begun + ATTEMPTS_MS
    let asked: string | undefined
    while (!this.#stopped && clock.monotonic() < end) {
      const list = this.#use(request)
      const leaves = this.#environment.draining() && clock.monotonic() < begun + LEFT_MS
      if (list.holder === undefined) await (leaves ? this.#learn(list) : this.#renew(list))
      const { holder } = list
      // If it is the same node again, its lease is still valid although it has ended or is busy.
      if (holder === undefined || holder === asked) await sleep(clock, RETRY_MS)
      asked = holder
      if (holder === undefined) continue
      const answer =
        holder === nodeId
          ? await this.#decide(request)
          : await this.#calls.ask(holder, request, ANSWER_WAIT_MS)
      if (answer && answer.is !== 'not_placer' && answer.is !== 'unavailable') return answer
      if (list.holder === holder) list.holder = undefined
    }
    return undefined
  }

  /** Answers a request if this node is the placer of its list. */
  async #decide(request: PlaceRequest): Promise<Answer> {
    const { clock, log, metrics } = this.#environment
    const list = this.#use(request)
    const { placer } = list
    const mayDecide = (): boolean => placer === list.placer && clock.monotonic() < list.trustedUntil
    try {
      const decision = mayDecide() && (await placer?.place(request))
      // The directory may have waited for the store, or the process may have been suspended.
      if (!decision || !mayDecide()) return { is: 'not_placer' }
      const { placed, comparisons } = decision
      if (!placed) return { is: 'forbidden', comparisons }
      metrics.placements.inc({ result: placed.create ? 'new' : 'listed' })
      return { is: 'placed', ...placed, comparisons }
    } catch (error) {
      if (error instanceof InvalidQuery)
        return {
          is: 'invalid_query',
          code: error.code,
          message: error.message,
          comparisons: error.comparisons,
        }
      if (!(error instanceof StoreUnavailable)) log.error({ err: error }, 'room could not be chosen')
      return { is: 'unavailable' }
    }
  }

  #use({ projectId, roomType }: PlaceRequest): List {
    const { clock } = this.#environment
    const name = `${projectId}/${roomType}`
    let list = this.#lists.get(name)
    if (!list) {
      list = {
        projectId,
        roomType,
        name,
        holder: undefined,
        renewing: undefined,
        placer: undefined,
        trustedUntil: Number.NEGATIVE_INFINITY,
        usedAt: 0,
      }
      this.#lists.set(name, list)
      this.#scheduleRenewals()
    }
    list.usedAt = clock.monotonic()
    return list
  }

  #scheduleRenewals(): void {
    this.#cancelRenewals ??= this.#environment.clock.schedule(RENEWAL_MS, () => {
      this.#cancelRenewals = undefined
      const now = this.#environment.clock.monotonic()
      for (const list of this.#lists.values()) {
        if (now - list.usedAt >= UNUSED_MS) this.#lists.delete(list.name)
        else if (list.placer && !this.#environment.draining()) void this.#renew(list)
      }
      if (this.#lists.size > 0) this.#scheduleRenewals()
    })
  }

  /** Acquires or renews the lease of a list, or learns which node has it. Never rejects. */
  #renew(list: List): Promise<void> {
    list.renewing ??= this.#acquire(list)
      .catch((error: unknown) => {
        this.#environment.log.debug(
          { err: error, list: list.name },
          'lease of the placer could not be renewed',
        )
      })
      .finally(() => {
        list.renewing = undefined
      })
    return list.renewing
  }

  /** Learns which node has the lease of a list. Never rejects. */
  async #learn(list: List): Promise<void> {
    const { store, log } = this.#environment
    try {
      const [lease] = await store.records.read([leaseKey(list)])
      list.holder = lease && new TextDecoder().decode(lease.value)
    } catch (error) {
      log.debug({ err: error, list: list.name }, 'lease of the placer could not be read')
    }
  }

  async #acquire(list: List): Promise<void> {
    const { nodeId, store, clock, random } = this.#environment
    const sentAt = clock.monotonic()
    const { holder } = await store.records.renewLease({
      key: leaseKey(list),
      holder: nodeId,
      value: new TextEncoder().encode(nodeId),
      ttlMs: LEASE_MS,
    })
    list.holder = holder
    const isPlacer = holder === nodeId
    list.placer = isPlacer ? (list.placer ?? new Placer(list, this.#directory, clock, random)) : undefined
    list.trustedUntil = isPlacer ? sentAt + TRUSTED_MS : Number.NEGATIVE_INFINITY
  }
}

const leaseKey = ({ name }: List): string => `{list:${name}}:placer`

/** A room that players got lately. */
interface Room {
  /** Times of the promises that its row does not show yet, oldest first, on the monotonic clock. */
  at: number[]
  /** Time of the last request that got this room. */
  usedAt: number
  /** Number of seats of the room. */
  seats: number
  /** Taken seats in the row when it was last compared with the promises. */
  taken: number
  /** Undefined: the room has a row. */
  made: Made | undefined
}

/** A room that a client is about to create. */
interface Made {
  readonly key: string
  readonly at: number
  /** Only requests of the same kind share the room, because its data is not known yet. */
  readonly kind: string
}

/**
 * Time for which a promised seat counts as taken, and a new room without a row gets players. A join reaches its row and the copies of the list
 * within 1.7 s (rows are written once a second, and copies poll twice a second).
 */
const PROMISE_MS = 3000
/** Time for which the placer keeps its answers. A client repeats a request after a lost connection. */
const ANSWER_MS = 60_000
/** 132 random bits. */
const KEY_LENGTH = 22

/** Answer to one request. */
interface Decision {
  /** Undefined: no listed room fits, and the token does not allow a new one. */
  readonly placed: PlacedRoom | undefined
  /** See `QueryResult`. */
  readonly comparisons: number
}

/** Chooses rooms of one list, and counts the seats that it has promised. */
export class Placer {
  readonly #list: RoomList
  readonly #directory: { readonly rooms: ListReader['rooms'] }
  readonly #clock: Clock
  readonly #random: Random
  /** By room id; the one that was used last is last. */
  readonly #rooms = new Map<string, Room>()
  /** By session and request, oldest first. */
  readonly #answers = new Map<string, { readonly placed: PlacedRoom; readonly at: number }>()
  /** The previous request. */
  #previous: Promise<unknown> = Promise.resolve()

  constructor(
    list: RoomList,
    directory: { readonly rooms: ListReader['rooms'] },
    clock: Clock,
    random: Random,
  ) {
    this.#list = list
    this.#directory = directory
    this.#clock = clock
    this.#random = random
  }

  /**
   * Returns a room with a free seat, and promises the seat. A repeated request gets the same room, unless the room has refused it. Rejects like
   * `Directory.rooms`, and with `InvalidQuery` if the query stopped before it found a room: another room may fit, so none is made.
   */
  place(request: PlaceRequest): Promise<Decision> {
    // One after the other: otherwise concurrent requests would all get the same rows, and most would have to read them again.
    const placed = this.#previous.then(() => this.#place(request))
    this.#previous = placed.catch(() => undefined)
    return placed
  }

  async #place(request: PlaceRequest): Promise<Decision> {
    const list = this.#list
    const { query, not, allows } = request
    this.#expire()
    if (request.instead) this.#giveBack(request.instead)
    const known = this.#answers.get(answerId(request))?.placed
    if (known && !not.includes(this.#roomId(known.key))) return { placed: known, comparisons: 0 }
    const isAllowed = (roomId: string): boolean =>
      (allows === undefined || allows.includes(list.roomType) || allows.includes(roomId)) &&
      !not.includes(roomId) &&
      !this.#isFull(roomId)
    // A room with promises may be fuller than its row.
    const limit = query.order === 'emptiest' ? 1 + this.#rooms.size : 1
    const result = await this.#directory.rooms(list, { ...query, full: false, limit }, isAllowed)
    const { rows, comparisons, stoppedAt } = result
    const [best] = rows
      .map((row) => ({ row, room: this.#compare(row) }))
      .sort((one, other) => takenIn(one.room) - takenIn(other.room))
    if (!best && stoppedAt) throw tooManyRows(result)
    const placed = best
      ? this.#promise(request, { key: best.row.key, create: false }, best.room)
      : this.#made(request, isAllowed)
    return { placed, comparisons }
  }

  /** Drops expired promises and answers. */
  #expire(): void {
    const now = this.#clock.monotonic()
    for (const [roomId, { usedAt }] of this.#rooms) {
      if (now - usedAt < PROMISE_MS) break
      this.#rooms.delete(roomId)
    }
    for (const [id, { at }] of this.#answers) {
      if (now - at < ANSWER_MS) break
      this.#answers.delete(id)
    }
  }

  /** Chooses a room that is being created for requests of the same kind, or a new one. */
  #made(request: PlaceRequest, isAllowed: (roomId: string) => boolean): PlacedRoom | undefined {
    const now = this.#clock.monotonic()
    const kind = kindOf(request)
    for (const [roomId, room] of this.#rooms) {
      const { made } = room
      if (made?.kind === kind && now - made.at < PROMISE_MS && isAllowed(roomId))
        return this.#promise(request, { key: made.key, create: true }, room)
    }
    const key = randomToken(this.#random, KEY_LENGTH)
    if (!isAllowed(this.#roomId(key))) return undefined
    const seats = request.maxPlayers ?? Number.POSITIVE_INFINITY
    const made = { key, at: now, kind }
    return this.#promise(request, { key, create: true }, { at: [], usedAt: now, seats, taken: 0, made })
  }

  /** Returns the promises of a room, after a comparison with its row. */
  #compare(row: StoredRow): Room {
    const taken = takenSeats(row)
    const seats = row.max_players ?? Number.POSITIVE_INFINITY
    const known = this.#rooms.get(row.room_id)
    if (!known) return { at: [], usedAt: 0, seats, taken, made: undefined }
    // The oldest promises have become the seats that were taken since the last comparison.
    known.at.splice(0, taken - known.taken)
    return Object.assign(known, { seats, taken, made: undefined })
  }

  /** Returns true if all seats of a room are promised, or were taken at the last comparison with its row. */
  #isFull(roomId: string): boolean {
    const room = this.#rooms.get(roomId)
    if (!room) return false
    const now = this.#clock.monotonic()
    while (room.at.length > 0 && now - room.at[0]! >= PROMISE_MS) room.at.shift()
    return takenIn(room) >= room.seats
  }

  /** Ends the promise of an earlier request, if it is still open. */
  #giveBack(earlier: RequestName): void {
    const answer = this.#answers.get(answerId(earlier))
    if (!answer) return
    const room = this.#rooms.get(this.#roomId(answer.placed.key))
    const index = room?.at.indexOf(answer.at) ?? -1
    if (index >= 0) room?.at.splice(index, 1)
  }

  #promise(request: PlaceRequest, placed: PlacedRoom, room: Room): PlacedRoom {
    const now = this.#clock.monotonic()
    const roomId = this.#roomId(placed.key)
    if (request.isPromised) room.at.push(now)
    room.usedAt = now
    // Moves the room to the end, because `#expire` expects the newest there.
    this.#rooms.delete(roomId)
    this.#rooms.set(roomId, room)
    const id = answerId(request)
    this.#answers.delete(id)
    this.#answers.set(id, { placed, at: now })
    return placed
  }

  #roomId(key: string): string {
    return `${this.#list.roomType}:${key}`
  }
}

/** Number of taken and promised seats. */
const takenIn = ({ taken, at }: Room): number => taken + at.length

const answerId = ({ sessionId, requestId }: RequestName): string => `${sessionId}/${requestId}`

/** Kind of a request: its conditions and join options. A room that is created for one request fits all others of its kind. */
const kindOf = ({ query, optionsHash }: PlaceRequest): string =>
  `${optionsHash} ${canonicalJson((query.where ?? {}) as Json)}`
