import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { JoinOptions, ResumePosition } from '../shared/protocol/messages.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import type {
  RoomCollection,
  RoomIn,
  RoomOfType,
  RoomOptions,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
import type { WebSocketConstructor } from './connection.ts'
import { closedByCaller, RoomfulError } from './errors.ts'
import { Listeners, type Unsubscribe } from './listeners.ts'
import { Reported } from './reported.ts'
import { Room, toJson } from './room.ts'
import { Seat, type SeatLink } from './seat.ts'
import { ServerClock } from './server-clock.ts'
import { ClientSession, type ConnectionStatus } from './session.ts'
import { type ClientStats, newCounters } from './stats.ts'
import { browserTab, type Credentials, type TabPlatform, TabSession } from './tab.ts'
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
  /**
   * Function that the client uses to wait: it must call `callback` when the current synchronous code has finished. The client then sends all
   * messages of this code in one websocket message. Default: `queueMicrotask`.
   */
  readonly endOfTurn?: (callback: () => void) => void
}

/** Options of a join: `key`, and the options of the room type. */
export type RoomJoinOptions<R extends TypedRoom> = RoomOptions<R> & {
  /** Key of the room, 1 to 128 characters. Default `"default"`. */
  readonly key?: string
}

/** Arguments of `join` after the room type. The options may be omitted if none of them is required. */
export type JoinArguments<R extends TypedRoom> =
  Record<never, never> extends RoomOptions<R> ? [options?: RoomJoinOptions<R>] : [options: RoomJoinOptions<R>]

const CONNECT_TIMEOUT_MS = 10_000
const MAX_UNACKED = 1024
const MAX_UNACKED_BYTES = 256 * 1024
const DEFAULT_KEY = 'default'
/** Time for a reloaded page to join the rooms of its seats. Then the seats are given up. */
const CLAIM_MS = 10_000

/** The machine's clock. Unlike the server's, its timers keep a Node process alive until the client is closed. */
const machineClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs)
    return () => clearTimeout(timer)
  },
}

/** Client of one player, created by `connect`. `Rooms` is the type argument of `connect`. */
export class Client<Rooms extends RoomCollection = readonly TypedRoom<UntypedRoom>[]> {
  readonly #session: ClientSession
  readonly #serverClock: ServerClock
  readonly #link: SeatLink
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

  private constructor(url: string, options: ConnectOptions) {
    const { reconnect, connectTimeoutMs, maxUnacked, maxUnackedBytes, WebSocket, clock, random } = {
      clock: machineClock,
      random: systemRandom,
      ...options,
    }
    const decodeStates = options.decodeStates ?? true
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
        endOfTurn: options.endOfTurn ?? ((callback) => queueMicrotask(callback)),
        tokens,
        restore: (token) => this.#restore(tokens.projectId, token),
      },
      {
        welcome: (moved) => this.#welcome(moved),
        message: (message) => this.#receive(message),
        lost: () => this.#eachSeat((seat) => seat.disconnected()),
        forgotten: (error) => this.#eachSeat((seat) => seat.forgotten(error)),
        positions: () => this.#positions(),
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
  }

  /** See `connect`. */
  static open<Rooms extends RoomCollection>(url: string, options: ConnectOptions): Promise<Client<Rooms>> {
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
  join<R extends TypedRoom = never>(roomType: R['type'], ...options: JoinArguments<R>): Promise<Room<R>>
  join<Type extends RoomIn<Rooms>['type']>(
    roomType: Type,
    ...options: JoinArguments<RoomOfType<Rooms, Type>>
  ): Promise<Room<RoomOfType<Rooms, Type>>>
  join<R extends TypedRoom>(roomType: R['type'], options?: object): Promise<Room<R>> {
    return Reported.of(this.#join<R>(roomType, options), (error) => this.#ignored(error))
  }

  async #join<R extends TypedRoom>(roomType: R['type'], options?: object): Promise<Room<R>> {
    const json = toJson(options ?? {}, 'invalid_options', 'The options') as JoinOptions
    const roomId = roomIdOf(roomType, json)
    const kept = this.#seats.get(roomId)
    if (kept?.claim(json)) {
      await kept.joined
      return new Room<R>(kept)
    }
    for (let before = kept; before; before = this.#seats.get(roomId)) {
      if (!before.leaving) throw new RoomfulError('already_joined', `This client is already in ${roomId}.`)
      await before.leave()
    }
    if (this.status === 'closed') throw this.#error ?? closedByCaller()
    // An earlier page may have left messages of a seat that it was leaving. They must not go out in this one.
    this.#tab?.restart(roomId)
    const seat = new Seat(this.#link, roomId, roomType, json)
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
      const settled = this.onConnectionChange((status, error) => {
        settled()
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
        typeof window === 'undefined'
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
  }

  /** Takes up what an earlier page of the tab has left; the next hello resumes it. */
  async #restore(projectId: string, token: string): Promise<Credentials | undefined> {
    const kept = await this.#tab?.open(projectId, token)
    if (!kept || this.status === 'closed') return undefined
    this.#lastRequest = kept.last_request
    for (const place of kept.seats) {
      const roomId = roomIdOf(place.room_type, place.options)
      this.#seats.set(roomId, Seat.restored(this.#link, this.#tab!, roomId, place))
    }
    this.#cancelClaims = this.#link.clock.schedule(CLAIM_MS, () => {
      this.#eachSeat((seat) => void (seat.unclaimed && seat.leave().catch((error) => this.#failed(error))))
    })
    return kept.credentials
  }

  /** A reload of the page continues with the id: one of a join that its server answers later must not be used again. */
  #nextRequestId(): number {
    this.#lastRequest += 1
    this.#save()
    return this.#lastRequest
  }

  /** Keeps what a reload of the page needs. */
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

  /** The page is shown again, after others perhaps, which have gone on with the session. */
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
    else if ('room_id' in message && message.t !== 'room') this.#seats.get(message.room_id)?.receive(message)
  }

  #refused(frame: Extract<DecodedMessage, { t: 'error' }>): void {
    const { request_id: requestId, room_id: roomId, ref, code, message, retryable } = frame
    const error = new RoomfulError(code, message, { retryable })
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

  #eachSeat(tell: (seat: Seat) => void): void {
    for (const seat of [...this.#seats.values()]) tell(seat)
  }

  #changed(status: ConnectionStatus, error: RoomfulError | undefined): void {
    if (status === 'closed') {
      this.#unwatch()
      this.#cancelClaims()
      this.#error = error
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

/** Throws where no one can catch it, so that the platform reports it. */
function rethrow(error: unknown): void {
  queueMicrotask(() => {
    throw error
  })
}

const rerouteHosts = (option: ConnectOptions['reroute'] = true): readonly string[] | undefined =>
  option === true ? [] : option || undefined

/** The part of a browser's `window` that tells of the page's life. */
type PageEvents = Pick<EventTarget, 'addEventListener' | 'removeEventListener'>

const roomIdOf = (roomType: string, { key = DEFAULT_KEY }: JoinOptions): string => `${roomType}:${key}`

/**
 * Watches the client's page. Calls `leaves` when the player leaves the page (`forGood`: the browser does not keep it for the Back button),
 * `returns` when the browser restores the page, and `online` when the network is back. The returned function ends the watch.
 */
export function watchPage(
  page: PageEvents,
  { leaves, returns, online }: { leaves(forGood: boolean): void; returns(): void; online(): void },
): () => void {
  const hidden = (event: Event): void => leaves(!(event as PageTransitionEvent).persisted)
  const shown = (event: Event): void => {
    if ((event as PageTransitionEvent).persisted) returns()
  }
  page.addEventListener('pagehide', hidden)
  page.addEventListener('pageshow', shown)
  page.addEventListener('online', online)
  return () => {
    page.removeEventListener('pagehide', hidden)
    page.removeEventListener('pageshow', shown)
    page.removeEventListener('online', online)
  }
}
