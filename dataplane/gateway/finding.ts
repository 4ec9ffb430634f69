import { hash } from 'node:crypto'
import { normalizeCode } from '../../shared/ids.ts'
import { canonicalJson, type Json } from '../../shared/json.ts'
import type { Quiet } from '../../shared/log.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, ListedRoom } from '../../shared/protocol/messages.ts'
import type { Rate, RateLimits } from '../../shared/rate-limit.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { PlacingFailed } from '../directory/placing.ts'
import { InvalidQuery, type RoomQuery, type RoomRow, readQuery } from '../directory/rows.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext, GatewayOptions } from './context.ts'
import type { WrongCodes } from './rate-limits.ts'
import type { Session } from './session.ts'

/** Maximum length of a query, in characters of JSON. */
const MAX_QUERY_LENGTH = 4096

/** Maximum number of codes that a session remembers: the latest ones. */
const MAX_CODES = 16

/** Lists and finds of each player: three seconds' worth at once. */
export const queryRate = ({ queriesPerSecond: perSecond }: GatewayOptions): Rate => ({
  perSecond,
  burst: 3 * perSecond,
})

/** A message of a client, by its type. */
type Ask<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>

/** Dependencies of `RoomFinder`. */
export interface FindingContext extends GatewayContext {
  /** Rates of lists and finds, by `Session.player`. */
  readonly queryRates: RateLimits
  readonly wrongCodes: WrongCodes
  /** Lets a log line about lists and finds that fail pass, by their message. */
  readonly findingFaults: Quiet
  /** Returns the room id of a code; undefined: no room has it. Rejects with `StoreUnavailable`. */
  readonly roomOfCode: (projectId: string, code: string) => Promise<string | undefined>
}

/** A list whose changes a client gets. */
interface Watch {
  /** Sends the list now and after each change. Returns what ends that. */
  readonly begin: () => () => void
  readonly stop: () => void
}

/** A request that gets an `error`. */
class Refused extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Answers the requests of one client about rooms that it is not in: lists, and which room to join. A request changes nothing, so none of it
 * outlives the connection: after a resume the client sends it again.
 */
export class RoomFinder {
  readonly #context: FindingContext
  readonly #connection: Connection
  readonly #address: string | undefined
  /** By request id. */
  readonly #watches = new Map<number, Watch>()
  /** By request id, the latest list that waits until the client has read. */
  readonly #held = new Map<number, readonly RoomRow[]>()

  /** `address`: where the client connects from, for the count of wrong codes. Undefined: it is not counted. */
  constructor(context: FindingContext, connection: Connection, address: string | undefined) {
    this.#context = context
    this.#connection = connection
    this.#address = address
  }

  /** Sends the rooms of a list, with `watch` also after each change. */
  rooms(session: Session, { request_id: requestId, room_type: roomType, query, watch }: Ask<'rooms'>): void {
    const { directory } = this.#context
    const list = { projectId: session.projectId, roomType }
    const allows = (roomId: string): boolean => session.allows(roomType, roomId)
    void this.#answer(session, requestId, async () => {
      const asked = queryOf(query)
      if (watch)
        this.#watch(requestId, () =>
          directory.watch(list, asked, allows, (rows) => this.#changed(requestId, rows)),
        )
      else this.#send(requestId, await directory.rooms(list, asked, allows))
    })
  }

  /** Ends a watch. */
  endWatch(requestId: number): void {
    this.#watches.get(requestId)?.stop()
    this.#watches.delete(requestId)
    this.#held.delete(requestId)
  }

  /** Tells the client which room to join. */
  find(session: Session, request: Ask<'find'>): void {
    const { request_id: requestId } = request
    void this.#answer(session, requestId, async () => {
      const roomId =
        'code' in request
          ? await this.#withCode(session, request.code)
          : await this.#place(session, requestId, request.room)
      this.#connection.send({ t: 'found', request_id: requestId, room_id: roomId })
    })
  }

  /** The client has read what waited for it. */
  hasRoom(): void {
    for (const [requestId, rows] of this.#held) this.#send(requestId, rows)
    this.#held.clear()
  }

  /** The token allows other rooms than before: each watch begins again. */
  renewed(): void {
    for (const [requestId, { begin }] of [...this.#watches]) this.#watch(requestId, begin)
  }

  /** The connection is over. */
  stop(): void {
    for (const requestId of this.#watches.keys()) this.endWatch(requestId)
  }

  async #answer(session: Session, requestId: number, work: () => Promise<void>): Promise<void> {
    const { queryRates, findingFaults, options, log } = this.#context
    try {
      const { perSecond, burst } = queryRate(options)
      if (!queryRates.take(session.player))
        throw new Refused(
          'rate_limited',
          `more than ${perSecond} lists and finds a second, or ${burst} at once`,
        )
      await work()
    } catch (error) {
      const { code, message } = refusalOf(error)
      const suppressed = code === 'room_unavailable' ? findingFaults.pass(message) : undefined
      if (suppressed !== undefined) log.warn({ err: error, suppressed }, 'rooms cannot be listed or found')
      this.#connection.sendError(code, message, { request_id: requestId })
    }
  }

  #watch(requestId: number, begin: () => () => void): void {
    const { maxWatchesPerSession: max } = this.#context.options
    this.endWatch(requestId)
    if (this.#watches.size >= max)
      throw new Refused('too_many_rooms', `a session can watch ${max} lists: end a watch first`)
    const stop = begin()
    if (this.#connection.open) this.#watches.set(requestId, { begin, stop })
    else stop()
  }

  #changed(requestId: number, rows: readonly RoomRow[]): void {
    const { outbox } = this.#connection
    if (outbox.congested) {
      this.#held.set(requestId, rows)
      outbox.awaitRoom()
    } else this.#send(requestId, rows)
  }

  #send(requestId: number, rows: readonly RoomRow[]): void {
    this.#connection.send({ t: 'rooms', request_id: requestId, rooms: rows.map(listed) })
  }

  async #withCode(session: Session, typed: string): Promise<string> {
    const { wrongCodes, roomOfCode, metrics } = this.#context
    const { projectId, player } = session
    // Counts as wrong until the room is found, so that many guesses at once are no way around the limit.
    const right = wrongCodes.add({ projectId, player, address: this.#address })
    if (!right) {
      metrics.wrongCodes.inc({ result: 'refused' })
      throw new Refused('rate_limited', 'too many wrong codes: try again in a minute')
    }
    const code = normalizeCode(typed)
    const roomId =
      code &&
      (await roomOfCode(projectId, code).catch((error: unknown) => {
        right()
        throw error
      }))
    // A room that the token does not allow looks like one that does not exist.
    if (!code || !roomId || !session.allows(roomId.slice(0, roomId.indexOf(':')), roomId)) {
      metrics.wrongCodes.inc({ result: 'wrong' })
      throw new Refused('room_not_found', `there is no room with the code "${typed}"`)
    }
    right()
    const { codes } = session
    codes.delete(roomId)
    codes.set(roomId, code)
    const [oldest] = codes.keys()
    if (codes.size > MAX_CODES && oldest !== undefined) codes.delete(oldest)
    return roomId
  }

  async #place(
    session: Session,
    requestId: number,
    { room_type: roomType, query, options = {}, not = [] }: Extract<Ask<'find'>, { room: unknown }>['room'],
  ): Promise<string> {
    const { placing, maxMembers } = this.#context
    const banned = session.bannedFrom(roomType)
    if (banned !== undefined) throw new Refused('banned', banned)
    const { key } = await placing.place({
      projectId: session.projectId,
      roomType,
      query: queryOf(query),
      optionsHash: hash('sha256', canonicalJson(options), 'base64url'),
      sessionId: session.sessionId,
      requestId,
      not,
      allows: session.claims.rooms,
      maxMembers: maxMembers(roomType),
    })
    return `${roomType}:${key}`
  }
}

function queryOf(query: Json = {}): RoomQuery {
  const { length } = JSON.stringify(query)
  if (length > MAX_QUERY_LENGTH)
    throw new InvalidQuery(`the query has ${length} characters: ${MAX_QUERY_LENGTH} are allowed`)
  return readQuery(query)
}

function refusalOf(error: unknown): { readonly code: ErrorCode; readonly message: string } {
  if (error instanceof Refused) return error
  if (error instanceof InvalidQuery || error instanceof PlacingFailed) return error
  if (error instanceof StoreUnavailable)
    return { code: 'room_unavailable', message: 'the store does not answer: try again' }
  return { code: 'room_unavailable', message: 'rooms cannot be found at the moment: try again' }
}

const listed = ({ room_id, members, max_members: max, reserved, created_at, data }: RoomRow): ListedRoom => ({
  room_id,
  members,
  ...(max !== null && { max_members: max }),
  reserved,
  created_at,
  data,
})
