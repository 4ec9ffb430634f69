import { hash } from 'node:crypto'
import type { Clock } from '../../../shared/clock.ts'
import { codeKey, normalizeCode } from '../../../shared/ids.ts'
import { canonicalJson, type Json } from '../../../shared/json.ts'
import { type Logger, Quiet } from '../../../shared/log.ts'
import { setNewest } from '../../../shared/newest.ts'
import { type Records, StoreUnavailable } from '../../../shared/store/port.ts'
import type { Connection } from '../../gateway/connection.ts'
import type { FindingRequest, RoomFinder, RoomFinding } from '../../gateway/finding.ts'
import { type ErrorAnswer, Refused } from '../../gateway/refusals.ts'
import type { Session } from '../../gateway/session.ts'
import type { ListReader } from './directory.ts'
import { type ClientLists, Lists, type ListsEnvironment } from './lists.ts'
import { type Placing, PlacingFailed } from './placing.ts'
import { SeatPromises } from './promises.ts'
import { InvalidQuery, type RoomQuery, readQuery } from './rows.ts'

/** Maximum length of a query, in characters of JSON. */
const MAX_QUERY_LENGTH = 4096

/** Maximum number of codes that a session remembers; older ones are dropped. */
const MAX_CODES = 16

/** Time for which a session is not led to a room that has refused it. */
const REFUSED_MS = 10_000

/** Minimum time between two logs of the same failure of lists and finds. */
const QUIET_MS = 10_000

/** A request of a client, by its type. */
type Ask<T extends FindingRequest['t']> = Extract<FindingRequest, { t: T }>

/** Dependencies of `Finding`. */
export interface FindingEnvironment extends ListsEnvironment {
  readonly log: Logger
  /** Store of the codes of rooms. */
  readonly records: Records
  readonly options: ListsEnvironment['options'] & { readonly maxWatchesPerSession: number }
  /** Lists of rooms. */
  readonly directory: ListReader
  /** Chooses rooms for players. */
  readonly placing: Placing
  /** Maximum number of players of a room type; undefined: no limit, or the type is not installed. */
  readonly maxPlayers: (roomType: string) => number | undefined
}

/** The requests of all clients of a node for rooms: lists, codes, and rooms with a free seat. */
export class Finding implements RoomFinding {
  readonly environment: FindingEnvironment
  readonly wrongCodes: WrongCodes
  readonly promises: SeatPromises
  readonly lists: Lists
  /** Limits how often the same failure is logged. */
  readonly quiet: Quiet

  constructor(environment: FindingEnvironment) {
    const { clock, metrics } = environment
    this.environment = environment
    this.wrongCodes = new WrongCodes(clock)
    this.promises = new SeatPromises(clock, metrics)
    this.lists = new Lists(environment)
    this.quiet = new Quiet(clock, QUIET_MS)
  }

  of(connection: Connection, source: string): RoomFinder {
    return new ClientFinder(this, connection, source)
  }

  joins(session: Session, roomId: string): void {
    this.promises.joins(session, roomId)
  }

  sweep(): void {
    this.promises.sweep()
  }

  /** Returns the room id of a code; undefined: no room has it. Rejects with `StoreUnavailable`. */
  async roomOfCode(projectId: string, code: string): Promise<string | undefined> {
    const [record] = await this.environment.records.read([codeKey(projectId, code)])
    return record && new TextDecoder().decode(record.value)
  }
}

/** A list that a client watches. */
interface Watch {
  /** Sends the list now and after each change. Returns the function that ends the watch. */
  readonly begin: () => () => void
  readonly stop: () => void
}

/**
 * Answers one client's requests about rooms that it is not in: lists, and which room to join. The requests change nothing, so they end with the
 * connection. After a resume the client sends them again.
 */
class ClientFinder implements RoomFinder {
  readonly #finding: Finding
  readonly #connection: Connection
  readonly #source: string
  /** Lists that the client watches, by request id. */
  readonly #watches = new Map<number, Watch>()
  /** Undefined until the first request for a list. */
  #lists: ClientLists | undefined

  constructor(finding: Finding, connection: Connection, source: string) {
    this.#finding = finding
    this.#connection = connection
    this.#source = source
  }

  handle(session: Session, request: FindingRequest): void {
    if (request.t === 'rooms') this.#rooms(session, request)
    else if (request.t === 'find') this.#find(session, request)
    else this.#endWatch(request.request_id)
  }

  /** Sends the rooms of a list, with `watch` also after each change. */
  #rooms(session: Session, { request_id: requestId, room_type: roomType, query, watch }: Ask<'rooms'>): void {
    const { directory } = this.#finding.environment
    const list = { projectId: session.projectId, roomType }
    const lists = this.#listsOf(session)
    const failed = ({ code, message }: InvalidQuery): void => {
      this.#endWatch(requestId)
      this.#connection.sendError(code, message, { request_id: requestId })
    }
    void this.#answer(requestId, async () => {
      const asked = queryOf(query)
      if (watch)
        this.#watch(requestId, () =>
          directory.watch(list, asked, session.claims.rooms, lists.watcher(requestId, failed)),
        )
      else {
        const allows = (roomId: string): boolean => session.allows(roomType, roomId)
        await lists.answer(requestId, () => directory.rooms(list, asked, allows))
      }
    })
  }

  /** Ends a watch. */
  #endWatch(requestId: number): void {
    this.#watches.get(requestId)?.stop()
    this.#watches.delete(requestId)
    this.#lists?.end(requestId)
  }

  /** Finds the room that the client shall join, by a code or by a query. */
  #find(session: Session, request: Ask<'find'>): void {
    const { request_id: requestId } = request
    void this.#answer(requestId, async () => {
      const byCode = 'code' in request
      const roomId = byCode
        ? await this.#withCode(session, request.code)
        : await this.#place(session, requestId, request.room)
      const colon = roomId.indexOf(':')
      const room = { room_type: roomId.slice(0, colon), key: roomId.slice(colon + 1) }
      this.#connection.send({ t: 'found', request_id: requestId, ...room, ...(byCode && { create: false }) })
    })
  }

  hasRoom(): void {
    this.#lists?.hasRoom()
  }

  /** Restarts each watch. */
  renewed(): void {
    for (const [requestId, { begin, stop }] of [...this.#watches]) {
      stop()
      this.#watches.set(requestId, { begin, stop: begin() })
    }
  }

  stop(): void {
    for (const requestId of this.#watches.keys()) this.#endWatch(requestId)
    this.#lists?.stop()
  }

  async #answer(requestId: number, work: () => Promise<void>): Promise<void> {
    const { quiet, environment } = this.#finding
    try {
      await work()
    } catch (error) {
      const { code, message } = refusalOf(error)
      const suppressed = code === 'room_unavailable' ? quiet.pass(message) : undefined
      if (suppressed !== undefined)
        environment.log.warn({ err: error, suppressed }, 'rooms cannot be listed or found')
      this.#connection.sendError(code, message, { request_id: requestId })
    }
  }

  #listsOf(session: Session): ClientLists {
    this.#lists ??= this.#finding.lists.of(session, this.#connection, this.#source)
    return this.#lists
  }

  #watch(requestId: number, begin: () => () => void): void {
    this.#endWatch(requestId)
    const max = this.#finding.environment.options.maxWatchesPerSession
    if (this.#watches.size >= max)
      throw new Refused('too_many_rooms', `a session can watch ${max} lists: end a watch first`)
    const stop = begin()
    if (this.#connection.open) this.#watches.set(requestId, { begin, stop })
    else stop()
  }

  async #withCode(session: Session, typed: string): Promise<string> {
    const { wrongCodes, environment } = this.#finding
    const { metrics } = environment
    const { projectId, player } = session
    // Counted as wrong until the room is found, so that concurrent guesses do not bypass the limit.
    const right = wrongCodes.add({ projectId, player, address: this.#connection.from?.address })
    if (!right) {
      metrics.wrongCodes.inc({ result: 'refused' })
      throw new Refused('rate_limited', 'too many wrong codes: try again in a minute')
    }
    const code = normalizeCode(typed)
    const roomId =
      code &&
      (await this.#finding.roomOfCode(projectId, code).catch((error: unknown) => {
        right()
        throw error
      }))
    // A room that the token does not allow gets the same answer as one that does not exist.
    if (!code || !roomId || !session.allows(roomId.slice(0, roomId.indexOf(':')), roomId)) {
      metrics.wrongCodes.inc({ result: 'wrong' })
      throw new Refused('room_not_found', `there is no room with the code "${typed}"`)
    }
    right()
    session.codes ??= new Map()
    setNewest(session.codes, roomId, code, MAX_CODES)
    return roomId
  }

  /** Returns the rooms to which a session must not be led: those that it is in, and those that have just refused it. */
  #leftOut({ subscriptions, refusals }: Session): string[] {
    const since = this.#finding.environment.clock.monotonic() - REFUSED_MS
    const refused = [...(refusals ?? [])].flatMap(([roomId, at]) => (at > since ? roomId : []))
    return [...subscriptions.keys(), ...refused]
  }

  async #place(
    session: Session,
    requestId: number,
    { room_type: roomType, query, options = {} }: Extract<Ask<'find'>, { room: unknown }>['room'],
  ): Promise<string> {
    const { promises, environment } = this.#finding
    const { placing, maxPlayers } = environment
    const banned = session.bannedFrom(roomType)
    if (banned !== undefined) throw new Refused('banned', banned)
    const asked = queryOf(query)
    const request = {
      projectId: session.projectId,
      roomType,
      query: asked,
      optionsHash: hash('sha256', canonicalJson(options), 'base64url'),
      sessionId: session.sessionId,
      requestId,
      not: this.#leftOut(session),
      allows: session.claims.rooms,
      maxPlayers: maxPlayers(roomType),
      ...promises.ask(session, requestId, roomType),
    }
    let roomId: string | undefined
    try {
      const { key } = await this.#listsOf(session).search(() => placing.place(request))
      roomId = `${roomType}:${key}`
      return roomId
    } finally {
      promises.answered(session, requestId, roomId)
    }
  }
}

function queryOf(query: Json = {}): RoomQuery {
  const { length } = JSON.stringify(query)
  if (length > MAX_QUERY_LENGTH)
    throw new InvalidQuery(`the query has ${length} characters: ${MAX_QUERY_LENGTH} are allowed`)
  return readQuery(query)
}

function refusalOf(error: unknown): ErrorAnswer {
  if (error instanceof Refused) return error
  if (error instanceof InvalidQuery || error instanceof PlacingFailed) return error
  if (error instanceof StoreUnavailable)
    return { code: 'room_unavailable', message: 'the store does not answer: try again' }
  return { code: 'room_unavailable', message: 'rooms cannot be found at the moment: try again' }
}

/** Maximum number of wrong codes in one minute at a node: of one player, from one address, and in one project. */
const WRONG_CODES = { player: 10, address: 100, project: 1000 }

/** An attempt to use a code. `address` undefined: unknown, and not counted. */
interface CodeAttempt {
  readonly projectId: string
  /** See `Session.player`. */
  readonly player: string
  readonly address: string | undefined
}

/**
 * Counts the wrong codes of the current minute. These limits are separate from the player's budget: they protect the codes of a project against many
 * accounts, and a player who mistypes a code can still play. At the limit of a project, only players and addresses with a wrong code
 * are refused, so that an attacker cannot block the codes of others.
 */
export class WrongCodes {
  readonly #clock: Clock
  #counts = new Map<string, number>()
  #minute = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Counts an attempt as wrong until the returned function is called because the code was right. Undefined: a limit is reached. */
  add({ projectId, player, address }: CodeAttempt): (() => void) | undefined {
    const minute = Math.floor(this.#clock.monotonic() / 60_000)
    if (minute !== this.#minute) this.#counts = new Map()
    this.#minute = minute
    const counts = this.#counts
    const of = (who: string): number => counts.get(who) ?? 0
    const [byPlayer, byAddress, byProject] = [
      `player ${player}`,
      `address ${address}`,
      `project ${projectId}`,
    ]
    const fromAddress = address === undefined ? 0 : of(byAddress)
    if (of(byPlayer) >= WRONG_CODES.player || fromAddress >= WRONG_CODES.address) return undefined
    if (of(byProject) >= WRONG_CODES.project && of(byPlayer) + fromAddress > 0) return undefined
    const count = (by: number): void => {
      for (const who of [byPlayer, byAddress, byProject]) counts.set(who, of(who) + by)
    }
    count(1)
    return () => count(-1)
  }
}
