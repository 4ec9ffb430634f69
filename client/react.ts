/**
 * `roomful/react`: hooks for React 19.
 *
 *     declare module 'roomful/react' {
 *       interface Register { rooms: typeof rooms } // Once, anywhere: types all hooks.
 *     }
 *
 *     <RoomfulProvider url="ws://localhost:4000" options={{ dev: 'alice' }} fallback="Connecting …">
 *       <Duel />
 *     </RoomfulProvider>
 *
 *     function Duel() {
 *       const room = useRoom('duel', { key: 'ours' })
 *       const score = useRoomState(room, (state) => state.score)
 *       return <button onClick={() => room.send('strike')}>{score}</button>
 *     }
 * @module roomful/react
 */
'use client'

import {
  createContext,
  createElement,
  type ReactNode,
  Suspense,
  use,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
  useSyncExternalStore,
} from 'react'
import type {
  Immutable,
  NoRoom,
  RoomCollection,
  RoomEvents,
  RoomIn,
  RoomOfType,
  TypedRoom,
  UntypedRoom,
  VisibleState,
} from '../shared/room-types.ts'
import type { Client, ConnectOptions } from './client.ts'
import {
  type ConnectionStatus,
  connect,
  type ListedRoom,
  type Member,
  type Room,
  type RoomfulError,
  type RoomQuery,
} from './index.ts'
import { type MatchRoom, type QueueOptions, type Queues, type TicketData, withQueues } from './queue.ts'
import type { JoinArguments, RoomJoinOptions } from './room.ts'
import type { JoinTarget } from './seat.ts'

/** Types of your rooms. In `declare module 'roomful/react'`, declare the property `rooms` of this interface. Its type is an object or a list of your room definitions, such as `typeof rooms`. */
// biome-ignore lint/suspicious/noEmptyInterface: applications fill it.
export interface Register {}

/** The rooms in `Register`. If there are none: any room. */
export type RegisteredRooms = Register extends {
  /** Registered definitions. */
  rooms: infer Rooms extends RoomCollection
}
  ? Rooms
  : readonly TypedRoom<UntypedRoom>[]

/** State of the connection. */
export interface Connection {
  /** Connection status. */
  readonly status: ConnectionStatus
  /** The client. Undefined until the server has accepted the client. */
  readonly client: Client<RegisteredRooms> | undefined
  /** Reason if the connection was lost or the server closed it. */
  readonly error: RoomfulError | undefined
}

/** Props of `RoomfulProvider`. */
export interface RoomfulProviderProps {
  /** Address of the server, `ws://` or `wss://`. May be omitted with `options.dev`: the default is the address of `roomful dev`. */
  readonly url?: string | URL
  /** Options of `connect`. Later changes have no effect. To connect as another player, change the React `key` of the provider. */
  readonly options: ConnectOptions
  /** Shown while components wait for a room. Default: nothing. If a component has a nearer `<Suspense>`, its fallback is shown instead. */
  readonly fallback?: ReactNode
  /** Components that use rooms. */
  readonly children?: ReactNode
}

/**
 * Milliseconds that an unused room is kept. React may render without mounting, and StrictMode and page navigation unmount components that
 * are mounted again immediately.
 */
const UNUSED_MS = 1000
/** Attempts to watch a list while the client watches too many. Lists of earlier queries end after `UNUSED_MS`. */
const LIST_TRIES = 5

/** A room or a list that components share. */
interface Shared {
  readonly id: string
  /** The `Room` or `RoomList`. */
  readonly opened: Promise<unknown>
  readonly close: () => void
  users: number
  unused: ReturnType<typeof setTimeout> | undefined
  over: boolean
  /** Reason if the room or the list ended without a request of this client. */
  error: RoomfulError | undefined
  readonly listeners: Set<() => void>
  readonly changed: () => void
  readonly end: (error: RoomfulError | undefined) => void
}

/** Place of a player in a queue, and later the match. */
export interface Queueing<R extends TypedRoom> {
  /** The room of the match, which the client has joined. Undefined while the player waits. */
  readonly room: Room<R> | undefined
  /** Time for which the player has waited, in milliseconds. Changes once a second. */
  readonly waitedMs: number
  /** Number of tickets in the queue, some seconds old. */
  readonly waiting: number
}

/** A ticket of a queue, kept up to date. */
interface Search {
  state: Queueing<TypedRoom<UntypedRoom>>
  readonly stop: () => void
}

/** A list of rooms, kept up to date. */
interface RoomList {
  rooms: readonly unknown[]
  stop: () => void
}

type TypeName = RoomIn<RegisteredRooms>['type']

/** State of the connection on a server, and in a page until it is hydrated. */
const CONNECTING: Connection = { status: 'connecting', client: undefined, error: undefined }

/** Connection and rooms of all components below a provider. */
class Rooms {
  readonly #connect: () => Promise<Client<RegisteredRooms>>
  readonly #shared = new Map<string, Shared>()
  readonly #listeners = new Set<() => void>()
  #client: Promise<Client<RegisteredRooms>> | undefined
  #closing: ReturnType<typeof setTimeout> | undefined
  /** Number of rooms that have not arrived. Lists do not count: a list may wait for long, and rooms must not wait for it. */
  #joining = 0
  connection: Connection = CONNECTING

  constructor(url: string | URL | undefined, options: ConnectOptions) {
    this.#connect = () => connect<RegisteredRooms>(url as string | URL, options)
  }

  /** Joins the room at the first call. Later calls return the same room, so that a render can wait for it. */
  room<Type extends TypeName>(
    roomType: Type,
    options: RoomJoinOptions<RoomOfType<RegisteredRooms, Type>>,
    target: JoinTarget,
  ): Shared {
    return this.share(
      `${roomType}:${options.key ?? 'default'}`,
      async (client, { end }) => {
        this.#joining++
        try {
          const room = await client.join(roomType, options, target)
          room.onLeave((_reason, error) => end(error))
          return room
        } finally {
          this.#joining--
        }
      },
      (room) => room.leave(),
    )
  }

  /** Watches the list at the first call. */
  list(roomType: string, query: object): Shared {
    return this.share(
      `${roomType} ${JSON.stringify(query)}`,
      (client, { changed, end }) =>
        new Promise<RoomList>((resolve, reject) => {
          let tries = LIST_TRIES
          const failed = (error: RoomfulError): void => {
            if (error.code === 'too_many_rooms' && --tries > 0) {
              setTimeout(begin, UNUSED_MS)
              return
            }
            reject(error)
            end(error)
          }
          const update = (rooms: readonly unknown[]): void => {
            list.rooms = rooms
            resolve(list)
            changed()
          }
          const begin = (): void => {
            list.stop = client.watchRooms<TypedRoom<UntypedRoom>>(roomType, query, update, failed)
          }
          const list: RoomList = { rooms: [], stop: () => {} }
          begin()
        }),
      (list) => list.stop(),
    )
  }

  /** Returns the room, list or ticket with this id. The first call opens it. */
  share<T>(
    id: string,
    open: (client: Client<RegisteredRooms>, shared: Shared) => Promise<T>,
    close: (opened: T) => unknown,
  ): Shared {
    const known = this.#shared.get(id)
    if (known) return known
    const opened = this.#connected().then((client) => open(client, shared))
    const shared: Shared = {
      id,
      opened,
      close: () => void opened.then(close).catch(() => undefined),
      users: 0,
      unused: undefined,
      over: false,
      error: undefined,
      listeners: new Set(),
      changed: () => {
        for (const listener of shared.listeners) listener()
      },
      end: (error) => {
        if (shared.over) return
        shared.over = true
        // Closing the page closes its client. This is not a failure.
        shared.error = error?.code === 'client_closed' ? undefined : error
        shared.changed()
      },
    }
    this.#shared.set(id, shared)
    const release = (): void => this.#releaseUnused(shared)
    opened.then(release, release)
    return shared
  }

  /** Marks the room or list as used until the returned function is called. */
  retain(shared: Shared): () => void {
    shared.users++
    clearTimeout(shared.unused)
    return () => {
      shared.users--
      this.#releaseUnused(shared)
    }
  }

  /** Marks the provider as mounted until the returned function is called. */
  open(): () => void {
    clearTimeout(this.#closing)
    return () => {
      this.#closing = setTimeout(() => {
        this.#client?.then((client) => client.close()).catch(() => undefined)
        this.#client = undefined
        this.#shared.clear()
      }, UNUSED_MS)
    }
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  #connected(): Promise<Client<RegisteredRooms>> {
    if (this.#client) return this.#client
    this.#changed({ status: 'connecting', client: undefined, error: undefined })
    const client = this.#connect()
    this.#client = client
    client.then(
      (client) => {
        client.onConnectionChange((status, error) => {
          if (status === 'closed') this.#client = undefined
          this.#changed({ status, client, error })
        })
        this.#changed({ status: client.status, client, error: undefined })
      },
      (error: RoomfulError) => {
        this.#client = undefined
        this.#changed({ status: 'closed', client: undefined, error })
      },
    )
    return client
  }

  #changed(connection: Connection): void {
    this.connection = connection
    for (const listener of this.#listeners) listener()
  }

  #releaseUnused(shared: Shared): void {
    clearTimeout(shared.unused)
    if (shared.users > 0) return
    const forget = (): void => {
      // While a room is pending, React mounts no component of that boundary, so the others only seem unused.
      if (!shared.over && this.#joining > 0) {
        this.#releaseUnused(shared)
        return
      }
      if (this.#shared.get(shared.id) === shared) this.#shared.delete(shared.id)
      shared.end(undefined)
      shared.close()
    }
    if (shared.over) forget()
    else shared.unused = setTimeout(forget, UNUSED_MS)
  }
}

const RoomsContext = createContext<Rooms | undefined>(undefined)

/**
 * A component with a room is rendered on a server. React then sends the fallback of the nearest boundary, and renders the component in the
 * browser. Next.js does not log errors with this digest.
 */
class BrowserOnly extends Error {
  override readonly name = 'BrowserOnly'
  readonly digest = 'BAILOUT_TO_CLIENT_SIDE_RENDERING'
}

const noChanges = (): (() => void) => () => {}

/** Throws on a server, so that it opens no socket and no seat for a page that it renders. */
function useBrowser(): void {
  const onServer = useSyncExternalStore(
    noChanges,
    () => false,
    () => true,
  )
  if (onServer)
    throw new BrowserOnly(
      'rooms are joined in the browser: a server sends the fallback of the nearest boundary',
    )
}

function useProvider(): Rooms {
  const rooms = use(RoomsContext)
  if (!rooms) throw new Error('This hook needs a <RoomfulProvider> above its component.')
  return rooms
}

/** Waits for a shared room or list, and uses it while the component is mounted. `snapshot`: the component renders again when it changes. */
function useShared(rooms: Rooms, shared: Shared, snapshot: (opened: unknown) => unknown): unknown {
  const opened = use(shared.opened)
  useEffect(() => rooms.retain(shared), [rooms, shared])
  const subscribe = useCallback(
    (listener: () => void) => {
      shared.listeners.add(listener)
      return () => void shared.listeners.delete(listener)
    },
    [shared],
  )
  // Renders again when the room or list has ended. If it was released before this component mounted, that opens it again.
  useSyncExternalStore(subscribe, () => shared.over)
  const value = useSyncExternalStore(subscribe, () => snapshot(opened))
  if (shared.error) throw shared.error
  return value
}

/**
 * Provides one client for all components in it. Connects when the first component joins a room. Closes the client when the provider
 * unmounts.
 */
export function RoomfulProvider({ url, options, fallback, children }: RoomfulProviderProps): ReactNode {
  const [rooms] = useState(() => new Rooms(url, options))
  useEffect(() => rooms.open(), [rooms])
  // The Suspense boundary is inside, because React discards the state of a suspended component that never mounted.
  return createElement(RoomsContext, { value: rooms }, createElement(Suspense, { fallback }, children))
}

/**
 * Joins a room, to play or, with `{ watch: true }` as the third argument, to watch. The component suspends until the room's state has
 * arrived, and renders again when `room.spectator` changes. All components with the same room type and key share one membership, with the
 * join options of the first component. The client leaves the room one second after the last of these components unmounts.
 *
 * If the join fails, or if the room removes this client, for example by a kick, the hook throws a RoomfulError to the nearest error
 * boundary. If the error boundary renders the components again, they join again, at the earliest one second after the error. If the room is not in `Register`,
 * write `useRoom<typeof duel>('duel')`.
 */
export function useRoom<R extends TypedRoom = NoRoom>(
  roomType: R['type'],
  ...options: JoinArguments<R>
): Room<R>
export function useRoom<Type extends TypeName>(
  roomType: Type,
  ...options: JoinArguments<RoomOfType<RegisteredRooms, Type>>
): Room<RoomOfType<RegisteredRooms, Type>>
export function useRoom<R extends TypedRoom = NoRoom>(
  roomType: R['type'],
  options: RoomJoinOptions<R>,
  target: JoinTarget,
): Room<R>
export function useRoom<Type extends TypeName>(
  roomType: Type,
  options: RoomJoinOptions<RoomOfType<RegisteredRooms, Type>>,
  target: JoinTarget,
): Room<RoomOfType<RegisteredRooms, Type>>
export function useRoom(
  roomType: TypeName,
  options: RoomJoinOptions<RoomOfType<RegisteredRooms, TypeName>> = {},
  target: JoinTarget = {},
): unknown {
  const rooms = useProvider()
  useBrowser()
  const room = useShared(rooms, rooms.room(roomType, options, target), (room) => room) as Room
  useMembership(room, ({ spectator }) => spectator)
  return room
}

/** Returns the result of `part`. The component renders again when a change of the room's members has changed it. */
function useMembership<R extends TypedRoom, T>(room: Room<R>, part: (room: Room<R>) => T): T {
  const subscribe = useCallback((listener: () => void) => room.onMembersChange(listener), [room])
  return useSyncExternalStore(subscribe, () => part(room))
}

/**
 * Returns the rooms of a type that has `listing`. The component renders again after each change, at most once a second. It suspends until
 * the first list has arrived, and again when the query changes. Components with the same type and query share one list.
 *
 * If the server refuses the query, or if the client watches four other lists, the hook throws a RoomfulError to the nearest error boundary.
 */
export function useRooms<R extends TypedRoom = NoRoom>(
  roomType: R['type'],
  query?: RoomQuery<R>,
): readonly ListedRoom<R>[]
export function useRooms<Type extends TypeName>(
  roomType: Type,
  query?: RoomQuery<RoomOfType<RegisteredRooms, Type>>,
): readonly ListedRoom<RoomOfType<RegisteredRooms, Type>>[]
export function useRooms(roomType: string, query: object = {}): unknown {
  const rooms = useProvider()
  useBrowser()
  return useShared(rooms, rooms.list(roomType, query), (list) => (list as RoomList).rooms)
}

/** Puts the player into a queue. `end` and `changed` are those of the shared ticket. */
function search(
  client: Client<RegisteredRooms>,
  { changed, end }: Shared,
  [type, data, options]: readonly [type: string, data: unknown, options: QueueOptions],
): Search {
  // The queues of a client remember its last match, so a client has them once.
  const queues = 'queue' in client ? (client as typeof client & Queues<RegisteredRooms>) : withQueues(client)
  const ticket = queues.queue<never>(type as never, data as never, options)
  const show = (room?: Room): void => {
    search.state = { room, waitedMs: ticket.waitedMs, waiting: ticket.waiting }
    changed()
  }
  const search: Search = {
    state: { room: undefined, waitedMs: 0, waiting: 0 },
    stop: () => {
      void ticket.cancel()
      ticket.matched.then((room) => room.leave()).catch(() => undefined)
    },
  }
  ticket.onChange(() => show())
  ticket.matched.then((room) => {
    room.onLeave((_reason, error) => end(error))
    show(room)
  }, end)
  return search
}

/**
 * Puts the player into a queue while the component is mounted, and joins the match. The component renders again when the match is found, and
 * once a second until then. One second after the last component with this queue unmounts, the client leaves the queue, or the room of the
 * match. Components with the same queue share one ticket, with the data of the first component.
 *
 * If the queue refuses the player, or if the room removes this client, the hook throws a RoomfulError to the nearest error boundary.
 */
export function useQueue<Q extends TypedRoom = never, R extends TypedRoom = TypedRoom<UntypedRoom>>(
  type: Q['type'],
  data: TicketData<Q>,
  options?: QueueOptions,
): Queueing<R>
export function useQueue<Type extends TypeName>(
  type: Type,
  data: TicketData<RoomOfType<RegisteredRooms, Type>>,
  options?: QueueOptions,
): Queueing<MatchRoom<RegisteredRooms, RoomOfType<RegisteredRooms, Type>>>
export function useQueue(type: string, data: unknown, options: QueueOptions = {}): unknown {
  const rooms = useProvider()
  useBrowser()
  const shared = rooms.share(
    `queue ${type}`,
    async (client, shared) => search(client, shared, [type, data, options]),
    (opened) => opened.stop(),
  )
  return useShared(rooms, shared, (opened) => (opened as Search).state)
}

/**
 * Returns the result of `selector` for the room's state, or the whole state if there is no `selector`. The component renders again when the
 * result has changed. Arrays and objects are compared by their elements, so a selector may filter, map and pick.
 */
export function useRoomState<R extends TypedRoom, Selected = VisibleState<R>>(
  room: Room<R>,
  selector?: (state: VisibleState<R>) => Selected,
): Selected {
  const last = useRef<{ readonly selected: Selected } | undefined>(undefined)
  const subscribe = useCallback((listener: () => void) => room.onStateChange(listener), [room])
  const select = (): Selected => {
    const selected = selector ? selector(room.state) : (room.state as Selected)
    if (last.current && isAlike(last.current.selected, selected)) return last.current.selected
    last.current = { selected }
    return selected
  }
  return useSyncExternalStore(subscribe, select)
}

/** Returns all members of the room. The component renders again when they change. */
export function useMembers<R extends TypedRoom>(room: Room<R>): readonly Member[] {
  return useMembership(room, ({ members }) => members)
}

/** Returns the number of members who watch. The component renders again when it changes, at most once a second. */
export function useSpectators<R extends TypedRoom>(room: Room<R>): number {
  return useMembership(room, ({ spectators }) => spectators)
}

/**
 * Calls `callback` with the data of each event of this name while the component is mounted. Events that arrived between the join and the
 * mount are included (at most the latest 64). The `callback` of the latest render is called.
 */
export function useEvent<R extends TypedRoom, K extends keyof RoomEvents<R> & string>(
  room: Room<R>,
  name: K,
  callback: (data: Immutable<RoomEvents<R>[K]>) => void,
): void {
  const latest = useRef(callback)
  useLayoutEffect(() => {
    latest.current = callback
  })
  useEffect(() => room.on(name, (data) => latest.current(data)), [room, name])
}

/**
 * Returns the state of the connection, for example for a banner. The component renders again when it changes. This hook opens no
 * connection.
 */
export function useConnection(): Connection {
  const rooms = useProvider()
  return useSyncExternalStore(
    rooms.subscribe,
    () => rooms.connection,
    () => CONNECTING,
  )
}

/** True if both are equal, or arrays or objects with equal elements. */
function isAlike(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true
  if (typeof one !== 'object' || typeof other !== 'object' || !one || !other) return false
  if (Array.isArray(one) !== Array.isArray(other)) return false
  const keys = Object.keys(one)
  return (
    keys.length === Object.keys(other).length &&
    keys.every(
      (key) => Object.hasOwn(other, key) && Object.is(Reflect.get(one, key), Reflect.get(other, key)),
    )
  )
}
