import type { Clock } from '../shared/clock.ts'
import type { JsonObject } from '../shared/json.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import { type JoinOptions, MAX, type ResumePosition } from '../shared/protocol/messages.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import type {
  NoRoom,
  RoomCollection,
  RoomIn,
  RoomListing,
  RoomOfType,
  RoomOptions,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
import type { WebSocketConstructor } from './connection.ts'
import { closedByCaller, RoomfulError, type RoomfulErrorCode } from './errors.ts'
import {
  type Finding,
  type FoundAnswer,
  type ListAnswer,
  type ListedRoom,
  type ListedRow,
  listAfter,
  Requests,
  type RoomQuery,
} from './finding.ts'
import { lanUrl } from './lan.ts'
import { Listeners, Reported, type Unsubscribe } from './listeners.ts'
import { watchPage } from './page.ts'
import {
  type CreateArguments,
  type JoinArguments,
  type JoinOrCreateArguments,
  Room,
  type RoomJoinOptions,
  type RoomOf,
  toJson,
} from './room.ts'
import { type JoinTarget, Seat, type SeatLink } from './seat.ts'
import { machineClock, ServerClock } from './server-clock.ts'
import { ClientSession, type ConnectionStatus } from './session.ts'
import { type ClientStats, newCounters } from './stats.ts'
import { browserTab, type Credentials, type EarlierSeat, type TabPlatform, TabSession } from './tab.ts'
import { type TokenOptions, TokenSource } from './token-source.ts'

/** Options of `connect`. Pass `token`, `getToken` or both. With both, the client connects with `token`, and calls `getToken` when it needs the next token. During development, pass `dev` instead. */
export type ConnectOptions = ConnectionOptions & TokenOptions

interface ConnectionOptions {
  /** True (default): the client reconnects after a lost connection. False: the client closes when the connection is lost. */
  readonly reconnect?: boolean
  /**
   * `'tab'`: a reload of the page continues the session. The new page keeps memberships, member ids and unacknowledged messages. Closing
   * the page does not end the session immediately. Default: a session ends with its page. `'tab'` needs the browser's `sessionStorage`.
   */
  readonly resume?: 'tab'
  /** Time limit of `connect` in milliseconds, retries included. Default 10,000. */
  readonly connectTimeoutMs?: number
  /**
   * True (default): the client keeps a copy of the state. False: `room.state` is null, which saves most of the CPU time, for example in a
   * load test. Events and members still work. The client still detects missing updates, but compares no checksums.
   */
  readonly decodeStates?: boolean
  /**
   * Whether the server may move the connection to the node (server process) that runs all rooms of this client. True (default): only to
   * nodes on the host of `url`. A list: also to these hosts. False: never.
   */
  readonly reroute?: boolean | readonly string[]
  /** Signal that closes the client, as `client.close()` does. It also works during `connect`. */
  readonly signal?: AbortSignal
  /**
   * Maximum number of unacknowledged messages in each room. (A message with `reliable: false` is never acknowledged and does not count.) If a message exceeds it, `send` rejects with
   * `queue_full`. Default 1024, like the server's limit `maxUnackedMessages`. Do not exceed that limit: the server would reject messages
   * with `room_unavailable` or `outcome_unknown`.
   */
  readonly maxUnacked?: number
  /** The same limit in bytes. A single message may be larger. Default 262,144, like the server's limit `maxUnackedBytes`. */
  readonly maxUnackedBytes?: number
  /**
   * Called with errors that no awaited promise reports: errors in your callbacks, rejections that your code does not await, and errors of
   * the connection that belong to no call. Default: errors in callbacks are thrown as uncaught errors (`error` event of the page,
   * `uncaughtException` in Node), rejections go to the console, and other errors are only counted in `stats`.
   */
  readonly onError?: (error: unknown) => void
  /** WebSocket class. Default: the platform's class. In Node before version 22: the class of the package `ws`. */
  readonly WebSocket?: WebSocketConstructor
  /** Clock and randomness. Default: the machine's. */
  readonly clock?: Clock
  readonly random?: Random
  /** Storage and locks for `resume: 'tab'`. Default: the browser's `sessionStorage` and Web Locks. */
  readonly tabPlatform?: TabPlatform
}

const CONNECT_TIMEOUT_MS = 10_000
const MAX_UNACKED = 1024
const MAX_UNACKED_BYTES = 256 * 1024
const DEFAULT_KEY = 'default'
/** Time limit of `joinOrCreate` for rooms that refuse the player. */
const FIND_MS = 10_000
/** Refusals after which `joinOrCreate` tries another room. */
const ELSEWHERE: ReadonlySet<RoomfulErrorCode> = new Set(['room_full', 'banned', 'already_joined'])
/** Time for a reloaded page to join the rooms of its seats. Then the client leaves them. */
const CLAIM_MS = 10_000

/** Client of one player, created by `connect`. `Rooms` is the type argument of `connect`. */
export class Client<Rooms extends RoomCollection = readonly TypedRoom<UntypedRoom>[]> {
  readonly #session: ClientSession
  readonly #serverClock: ServerClock
  readonly #link: SeatLink
  readonly #random: Random
  readonly #requests: Requests
  readonly #seats = new Map<string, Seat>()
  readonly #tab: TabSession | undefined
  readonly #counters = newCounters()
  readonly #onError: ConnectOptions['onError']
  readonly #onConnection: Listeners<[status: ConnectionStatus, error: RoomfulError | undefined]>
  #lastRequest = 0
  #welcomes = 0
  #error: RoomfulError | undefined
  #unwatch = () => {}
  #cancelClaims = () => {}

  private constructor(address: string, options: ConnectOptions) {
    const url = lanUrl(address)
    const { reconnect, connectTimeoutMs, maxUnacked, maxUnackedBytes, WebSocket, clock, random } = {
      clock: machineClock,
      random: systemRandom,
      ...options,
    }
    const decodeStates = options.decodeStates ?? true
    this.#random = random
    this.#onError = options.onError
    this.#serverClock = new ServerClock(clock)
    this.#onConnection = new Listeners((error) => this.#thrown(error))
    const common = {
      serverClock: this.#serverClock,
      clock,
      random,
      decodeStates,
      report: (error: unknown) => this.#failed(error),
    }
    const tab = options.resume === 'tab' ? (options.tabPlatform ?? browserTab()) : undefined
    this.#tab = tab && new TabSession(tab, random)
    const tokens = new TokenSource(url, options, common)
    const session = new ClientSession(
      {
        ...common,
        url,
        reconnect: reconnect ?? true,
        connectTimeoutMs: connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
        rerouteHosts: rerouteHosts(options.reroute),
        WebSocket,
        tokens,
        restore: (token) => this.#restore(tokens.projectId, token),
      },
      {
        welcome: (moved) => this.#welcome(moved),
        message: (message) => this.#receive(message),
        lost: () => this.#eachSeat((seat) => seat.disconnected()),
        forgotten: (error) => this.#eachSeat((seat) => seat.forgotten(error)),
        positions: () => this.#positions(),
        onlyWatches: () => this.#seats.size > 0 && [...this.#seats.values()].every((seat) => seat.spectator),
        status: (status, error) => this.#changed(status, error),
      },
    )
    this.#session = session
    this.#link = {
      clock,
      random,
      counters: this.#counters,
      decodeStates,
      maxUnacked: {
        messages: maxUnacked ?? MAX_UNACKED,
        bytes: maxUnackedBytes ?? MAX_UNACKED_BYTES,
      },
      report: (error) => this.#thrown(error),
      tab: this.#tab,
      nextRequestId: () => this.#nextRequestId(),
      send: (message) => session.send(message),
      sendEncoded: (payload) => session.sendEncoded(payload),
      encode: (message) => session.encode(message),
      trySend: (message) => session.trySend(message),
      changed: () => this.#save(),
      release: (seat) => {
        this.#seats.delete(seat.roomId)
        this.#save()
      },
      failed: (error, listeners) => {
        if (listeners.none) this.#ignored(error)
        else {
          this.#counters.errors += 1
          listeners.call(error)
        }
      },
    }
    this.#requests = new Requests(this.#link)
  }

  /** See `connect`. */
  static open<Rooms extends RoomCollection>(url: string, options: ConnectOptions): Promise<Client<Rooms>> {
    if (!/^wss?:\/\//.test(url)) {
      const text = `The address is ${JSON.stringify(url)}: it must begin with ws:// or wss://.`
      return Promise.reject(new RoomfulError('invalid_options', text))
    }
    const client = new Client<Rooms>(url, options)
    const opened = client.#open(options.signal).then(() => client)
    return Reported.of(opened, (error) => client.#ignored(error))
  }

  /** Connection status. `onConnectionChange` reports its changes. */
  get status(): ConnectionStatus {
    return this.#session.status
  }

  /** Average time of the latest round trips to the server, in milliseconds. */
  get latency(): number {
    return this.#serverClock.latency
  }

  /** Returns the server's time in milliseconds since 1970. The error is at most about half a round trip. */
  serverTime(): number {
    return this.#serverClock.now()
  }

  /**
   * Calls `callback` once after `ms`, by the clock of the client. The returned function cancels it. For modules of the SDK.
   * @internal
   */
  schedule(ms: number, callback: () => void): () => void {
    return this.#link.clock.schedule(ms, callback)
  }

  /** Counters since `connect`. */
  get stats(): ClientStats {
    return structuredClone(this.#counters)
  }

  /** Calls `callback` after each change of `status`. `error` is the reason if the connection was lost or the server closed it. */
  onConnectionChange(
    callback: (status: ConnectionStatus, error: RoomfulError | undefined) => void,
  ): Unsubscribe {
    return this.#onConnection.add(callback)
  }

  /**
   * Joins a room. Resolves when the room's state has arrived. If you add callbacks right after the `await`, they miss no change or event.
   * Rejects with a RoomfulError if the join is refused. With `resume: 'tab'`, a reloaded page gets its previous membership, with the same
   * member id.
   */
  join<R extends TypedRoom = NoRoom>(roomType: R['type'], ...options: JoinArguments<R>): Promise<Room<R>>
  join<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    ...options: JoinArguments<RoomOfType<Rooms, Type>>
  ): Promise<Room<RoomOfType<Rooms, Type>>>
  join<R extends TypedRoom = NoRoom>(
    roomType: R['type'],
    options: RoomJoinOptions<R>,
    target: JoinTarget,
  ): Promise<Room<R>>
  join<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    options: RoomJoinOptions<RoomOfType<Rooms, Type>>,
    target: JoinTarget,
  ): Promise<Room<RoomOfType<Rooms, Type>>>
  /**
   * Continues a seat of the page before the reload, from `seats`. If it has ended, the client joins as a new member. Rejects with
   * `seat_lost` if the client knows that it has ended, if this page has joined the room, and from 10 s after `connect`.
   */
  join<R extends TypedRoom = TypedRoom<UntypedRoom>>(seat: EarlierSeat): Promise<Room<R>>
  join<R extends TypedRoom>(
    roomType: R['type'] | EarlierSeat,
    options?: object,
    target?: JoinTarget,
  ): Promise<Room<R>> {
    return this.#reported(async () => {
      if (typeof roomType === 'object') {
        const roomId = roomIdOf(roomType.type, { key: roomType.key })
        const kept = this.#unclaimed.find((seat) => seat.roomId === roomId)?.kept
        if (kept) return this.#join<R>(roomId, kept.options, { watch: roomType.spectator })
        throw new RoomfulError(
          'seat_lost',
          `The seat in ${roomId} has ended, or the page has joined already.`,
        )
      }
      const json = optionsOf(options)
      return this.#join<R>(roomIdOf(roomType, json), json, target)
    })
  }

  /**
   * Returns the seats of the page before a reload (`resume: 'tab'`) that this page has not joined yet, without tickets of queues. They end
   * 10 s after `connect`.
   */
  seats(): EarlierSeat[] {
    return this.#unclaimed.flatMap(({ roomId, memberId, kept, spectator }) => {
      const [type, key] = partsOf(roomId)
      if (!kept || 'ticket' in kept.options) return []
      return [{ type, key, memberId, ...(kept.code !== undefined && { code: kept.code }), spectator }]
    })
  }

  /**
   * Joins a room of this type that has a free seat and matches `where`, or creates one with these options. Players who call it at the same
   * time get into as few rooms as they fit. Does not reject with `room_full`. With `resume: 'tab'`, a reloaded page gets its previous
   * membership.
   */
  joinOrCreate<R extends TypedRoom = NoRoom>(
    roomType: R['type'],
    ...options: JoinOrCreateArguments<R>
  ): Promise<Room<R>>
  joinOrCreate<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    ...options: JoinOrCreateArguments<RoomOfType<Rooms, Type>>
  ): Promise<Room<RoomOfType<Rooms, Type>>>
  joinOrCreate<R extends TypedRoom>(roomType: R['type'], options?: object, query?: object): Promise<Room<R>> {
    return this.#reported(() => this.#joinOrCreate<R>(roomType, optionsOf(options), queryOf(query)))
  }

  /** Creates a room with a random key and joins it. If its type has `codes`, `room.code` is the code to share. */
  create<R extends TypedRoom = NoRoom>(roomType: R['type'], ...options: CreateArguments<R>): Promise<Room<R>>
  create<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    ...options: CreateArguments<RoomOfType<Rooms, Type>>
  ): Promise<Room<RoomOfType<Rooms, Type>>>
  create<R extends TypedRoom>(roomType: R['type'], options?: object): Promise<Room<R>> {
    return this.#reported(async () => {
      const bytes = Array.from(this.#random.bytes(16), (byte) => byte.toString(16).padStart(2, '0'))
      return this.#join<R>(`${roomType}:${bytes.join('')}`, optionsOf(options))
    })
  }

  /**
   * Joins the room that has this code, to play or to watch. Lower case, full-width characters, spaces, dashes, `#` and look-alikes (O and 0,
   * I, L and 1) are accepted. Rejects with `room_not_found` if no room has the code.
   */
  joinByCode<R extends TypedRoom = RoomIn<Rooms>>(
    code: string,
    options?: RoomOptions<R>,
    target?: Pick<JoinTarget, 'watch'>,
  ): Promise<RoomOf<R>> {
    return this.#reported(async () => {
      const json = optionsOf(options)
      const typed = String(code).trim()
      if (typed === '' || typed.length > MAX.code)
        throw new RoomfulError('room_not_found', `No room has the code "${typed}".`)
      const [roomId, create] = await this.#find({ code: typed })
      return this.#join<R>(roomId, json, { ...target, ...create }) as Promise<RoomOf<R>>
    })
  }

  /** Returns the rooms of a type that has `listing`. A room in the list may be full or gone when you join it. */
  rooms<R extends TypedRoom = NoRoom>(roomType: R['type'], query?: RoomQuery<R>): Promise<ListedRoom<R>[]>
  rooms<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    query?: RoomQuery<RoomOfType<Rooms, Type>>,
  ): Promise<ListedRoom<RoomOfType<Rooms, Type>>[]>
  rooms<R extends TypedRoom>(roomType: R['type'], query?: object): Promise<ListedRoom<R>[]> {
    return this.#reported(async () => {
      const answer = await this.#ask(listMessage(roomType, query))
      return rowsOf((answer as ListAnswer).rooms!)
    })
  }

  /**
   * Calls `callback` with the rooms of a type, and again after each change, at most once a second, until the returned function is called.
   * Continues after a lost connection. `failed` receives the error if the server refuses the query. Default: the option `onError` of
   * `connect`.
   */
  watchRooms<R extends TypedRoom = NoRoom>(
    roomType: R['type'],
    query: RoomQuery<R>,
    callback: (rooms: readonly ListedRoom<R>[]) => void,
    failed?: (error: RoomfulError) => void,
  ): Unsubscribe
  watchRooms<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    query: RoomQuery<RoomOfType<Rooms, Type>>,
    callback: (rooms: readonly ListedRoom<RoomOfType<Rooms, Type>>[]) => void,
    failed?: (error: RoomfulError) => void,
  ): Unsubscribe
  watchRooms<R extends TypedRoom>(
    roomType: R['type'],
    query: object,
    callback: (rooms: readonly ListedRoom<R>[]) => void,
    failed = (error: RoomfulError): void => {
      if (this.status !== 'closed') this.#ignored(error)
    },
  ): Unsubscribe {
    const listeners = new Listeners<[rooms: readonly ListedRoom<R>[]]>((error) => this.#thrown(error))
    listeners.add(callback)
    let rows: ListedRow[] = []
    let last: string | undefined
    this.#checkOpen()
    return this.#requests.watch(
      listMessage(roomType, query),
      (answer) => {
        rows = listAfter(rows, answer as ListAnswer)
        // The server sends the whole list again after each reconnect.
        const text = JSON.stringify(rows)
        if (text !== last) listeners.call(rowsOf(rows))
        last = text
      },
      failed,
    )
  }

  /** Seats of the page before a reload that no `join` has claimed. */
  get #unclaimed(): Seat[] {
    return [...this.#seats.values()].filter(({ unclaimed }) => unclaimed)
  }

  #reported<T>(work: () => Promise<T>): Promise<T> {
    return Reported.of(work(), (error) => this.#ignored(error))
  }

  #checkOpen(): void {
    if (this.status === 'closed') throw this.#error ?? closedByCaller()
  }

  async #ask(message: Parameters<Requests['ask']>[0]) {
    this.#checkOpen()
    return this.#requests.ask(message)
  }

  /** Returns the id of a room, and how the join must be. */
  async #find(by: { code: string } | { room: Finding }): Promise<[roomId: string, how: JoinTarget]> {
    const { room_type: roomType, key, create } = (await this.#ask({ t: 'find', ...by })) as FoundAnswer
    return [`${roomType}:${key}`, create === undefined ? {} : { create }]
  }

  async #joinOrCreate<R extends TypedRoom>(
    room_type: R['type'],
    options: JoinOptions,
    query: JsonObject,
  ): Promise<Room<R>> {
    const kept = this.#unclaimed.find(({ roomType }) => roomType === room_type)
    if (kept) return this.#join(kept.roomId, options)
    const { clock } = this.#link
    const until = clock.monotonic() + FIND_MS
    for (;;) {
      const [roomId, how] = await this.#find({ room: { room_type, query, options } })
      try {
        return await this.#join(roomId, options, how)
      } catch (error) {
        const { code, message } = error as RoomfulError
        if (!ELSEWHERE.has(code)) throw error
        if (clock.monotonic() >= until)
          throw new RoomfulError('room_unavailable', message, { retryable: true })
      }
    }
  }

  async #join<R extends TypedRoom>(
    roomId: string,
    given: JoinOptions,
    target: JoinTarget = {},
  ): Promise<Room<R>> {
    const [roomType, key] = partsOf(roomId)
    const options = { ...given, key }
    const kept = this.#seats.get(roomId)
    if (kept?.claim(options, target)) {
      await kept.joined
      return new Room<R>(kept)
    }
    for (let before = kept; before; before = this.#seats.get(roomId)) {
      if (!before.leaving) throw new RoomfulError('already_joined', `This client is already in ${roomId}.`)
      await before.leave()
    }
    this.#checkOpen()
    // The storage may have messages of a seat that an earlier page was leaving. They must not be sent in this seat.
    this.#tab?.restart(roomId)
    const seat = new Seat(this.#link, roomId, roomType, options, target)
    this.#seats.set(roomId, seat)
    if (this.status === 'online') seat.connected()
    await seat.joined
    return new Room<R>(seat)
  }

  /** Closes the client, which leaves all rooms immediately. Pending promises reject with `client_closed`. */
  close(): void {
    this.#session.close()
  }

  #open(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const unsubscribe = this.onConnectionChange((status, error) => {
        unsubscribe()
        if (status === 'online') resolve()
        else reject(error ?? closedByCaller())
      })
      if (signal?.aborted) {
        this.close()
        return
      }
      const abort = (): void => this.close()
      signal?.addEventListener('abort', abort)
      const unwatch =
        // In React Native, a window has no events.
        globalThis.window?.addEventListener === undefined
          ? undefined
          : watchPage(window, {
              leaves: (forGood) => this.#leavePage(forGood),
              returns: () => void this.#comeBack(),
              online: () => this.#session.hurry(),
            })
      this.#unwatch = () => {
        signal?.removeEventListener('abort', abort)
        unwatch?.()
      }
      this.#session.open()
    })
  }

  #welcome(moved: boolean): void {
    if (moved) this.#counters.moves += 1
    else if (this.#welcomes > 0) this.#counters.reconnects += 1
    this.#welcomes += 1
    this.#save()
    this.#eachSeat((seat) => seat.connected())
    this.#requests.connected()
  }

  /** Restores the seats of an earlier page of the tab. Returns its credentials, with which the next hello resumes. */
  async #restore(projectId: string, token: string): Promise<Credentials | undefined> {
    const kept = await this.#tab?.open(projectId, token)
    if (!kept || this.status === 'closed') return undefined
    this.#lastRequest = kept.last_request
    for (const place of kept.seats) {
      const roomId = roomIdOf(place.room_type, place.options)
      this.#seats.set(roomId, Seat.restored(this.#link, this.#tab!, roomId, place))
    }
    this.#cancelClaims = this.#link.clock.schedule(CLAIM_MS, () => {
      for (const seat of this.#unclaimed) seat.leave().catch((error) => this.#failed(error))
    })
    return kept.credentials
  }

  /** Returns the next request id and stores it: after a reload, a late answer to a join must not match a new request. */
  #nextRequestId(): number {
    this.#lastRequest += 1
    this.#save()
    return this.#lastRequest
  }

  /** Stores the session and its seats for the next page of the tab. */
  #save(): void {
    const { credentials } = this.#session
    if (!credentials || !this.#tab) return
    const seats = [...this.#seats.values()].flatMap((seat) => seat.kept ?? [])
    try {
      this.#tab.save({ credentials, seats, last_request: this.#lastRequest })
    } catch (error) {
      this.#failed(error)
    }
  }

  #leavePage(forGood: boolean): void {
    if (this.#tab?.keeps) {
      this.#session.suspend()
      this.#tab.leave()
    } else if (forGood) this.close()
  }

  /** The page is shown again. Other pages of the tab may have continued the session. */
  async #comeBack(): Promise<void> {
    if (!this.#tab?.keeps) {
      this.#session.hurry()
      return
    }
    const kept = await this.#tab.comeBack()
    this.#lastRequest = Math.max(this.#lastRequest, kept?.last_request ?? 0)
    this.#session.goOn(kept?.credentials)
  }

  #receive(message: DecodedMessage): void {
    if (message.t === 'error') this.#refused(message)
    else if (message.t === 'rooms' || message.t === 'found') this.#requests.receive(message)
    else if ('room_id' in message && message.t !== 'room') this.#seats.get(message.room_id)?.receive(message)
  }

  #refused(frame: Extract<DecodedMessage, { t: 'error' }>): void {
    const { request_id: requestId, room_id: roomId, ref, code, message, retryable, match } = frame
    const error = new RoomfulError(code, message, { retryable, cause: match })
    if (this.#requests.refused(requestId, error)) return
    const seats = [...this.#seats.values()]
    const taken = seats.some(
      (seat) =>
        (roomId === undefined ? ref === undefined : seat.roomId === roomId) && seat.refused(frame, error),
    )
    // If no caller waits for this answer, the request or the message already has its outcome.
    if (!taken && (ref ?? requestId) === undefined) this.#failed(error)
  }

  #positions(): ResumePosition[] {
    return [...this.#seats.values()].flatMap((seat) => seat.position ?? [])
  }

  #eachSeat(call: (seat: Seat) => void): void {
    for (const seat of [...this.#seats.values()]) call(seat)
  }

  #changed(status: ConnectionStatus, error: RoomfulError | undefined): void {
    if (status === 'closed') {
      this.#unwatch()
      this.#cancelClaims()
      this.#error = error
      this.#requests.end(error ?? closedByCaller())
      this.#eachSeat((seat) => seat.end('client_closed', error ?? closedByCaller()))
      this.#tab?.clear()
    }
    this.#onConnection.call(status, error)
  }

  /** A callback has thrown. */
  #thrown(error: unknown): void {
    if (this.#onError) this.#onError(error)
    else rethrow(error)
  }

  /** Reports a rejection that the caller does not await. */
  #ignored(error: unknown): void {
    this.#failed(error)
    // biome-ignore lint/suspicious/noConsole: no other output shows the error.
    if (!this.#onError) console.warn(error)
  }

  /** Counts an error that belongs to no promise, and passes it to `onError`. */
  #failed(error: unknown): void {
    this.#counters.errors += 1
    this.#onError?.(error)
  }
}

/** Throws outside of all callers, so that the platform reports the error. */
function rethrow(error: unknown): void {
  queueMicrotask(() => {
    throw error
  })
}

const rerouteHosts = (option: ConnectOptions['reroute'] = true): readonly string[] | undefined =>
  option === true ? [] : option || undefined

const roomIdOf = (roomType: string, { key = DEFAULT_KEY }: JoinOptions): string => `${roomType}:${key}`

/** Returns the type and the key of a room id. Types contain no colon. */
function partsOf(roomId: string): [roomType: string, key: string] {
  const colon = roomId.indexOf(':')
  return [roomId.slice(0, colon), roomId.slice(colon + 1)]
}

const optionsOf = (options: object = {}): JoinOptions =>
  toJson(options, 'invalid_options', 'The options') as JoinOptions

const queryOf = (query: object = {}): JsonObject =>
  toJson(query, 'invalid_options', 'The query') as JsonObject

const listMessage = (room_type: string, query?: object) =>
  ({ t: 'rooms', room_type, query: queryOf(query) }) as const

const rowsOf = <R extends TypedRoom>(rows: readonly ListedRow[]): ListedRoom<R>[] =>
  rows.map((row) => ({
    roomId: row.room_id,
    key: partsOf(row.room_id)[1],
    players: row.players,
    maxPlayers: row.max_players,
    spectators: row.spectators ?? 0,
    reserved: row.reserved,
    createdAt: row.created_at,
    data: row.data as RoomListing<R>,
  }))
