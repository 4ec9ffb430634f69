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
  RoomCollection,
  RoomEvents,
  RoomIn,
  RoomOfType,
  TypedRoom,
  UntypedRoom,
  VisibleState,
} from '../shared/room-types.ts'
import type { Client, ConnectOptions, JoinArguments } from './client.ts'
import { type ConnectionStatus, connect, type Member, type Room, type RoomfulError } from './index.ts'

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

/** A room that components share. */
interface SharedRoom {
  readonly id: string
  /** The `Room`. */
  readonly joined: Promise<unknown>
  readonly leave: () => void
  users: number
  unused: ReturnType<typeof setTimeout> | undefined
  over: boolean
  /** Reason if the room ended without a request of this client. */
  error: RoomfulError | undefined
  readonly listeners: Set<() => void>
  readonly end: (error: RoomfulError | undefined) => void
}

type TypeName = RoomIn<RegisteredRooms>['type']

/** Connection and rooms of all components below a provider. */
class Rooms {
  readonly #connect: () => Promise<Client<RegisteredRooms>>
  readonly #rooms = new Map<string, SharedRoom>()
  readonly #listeners = new Set<() => void>()
  #client: Promise<Client<RegisteredRooms>> | undefined
  #closing: ReturnType<typeof setTimeout> | undefined
  /** Number of pending joins. */
  #joining = 0
  connection: Connection = { status: 'connecting', client: undefined, error: undefined }

  constructor(url: string | URL | undefined, options: ConnectOptions) {
    this.#connect = () => connect<RegisteredRooms>(url as string | URL, options)
  }

  /** Joins the room at the first call. Later calls return the same room, so that a render can wait for it. */
  shared<Type extends TypeName>(
    roomType: Type,
    ...options: JoinArguments<RoomOfType<RegisteredRooms, Type>>
  ): SharedRoom {
    const id = `${roomType}:${options[0]?.key ?? 'default'}`
    const known = this.#rooms.get(id)
    if (known) return known
    const joined = this.#connected().then((client) => client.join(roomType, ...options))
    const shared: SharedRoom = {
      id,
      joined,
      leave: () => void joined.then((room) => room.leave()).catch(() => undefined),
      users: 0,
      unused: undefined,
      over: false,
      error: undefined,
      listeners: new Set(),
      end: (error) => {
        if (shared.over) return
        shared.over = true
        shared.error = error
        for (const listener of shared.listeners) listener()
      },
    }
    this.#rooms.set(id, shared)
    this.#joining++
    const release = (): void => {
      this.#joining--
      this.#releaseUnused(shared)
    }
    // Closing the page closes its client. This is not a failure.
    const ended = (error: RoomfulError | undefined) =>
      shared.end(error?.code === 'client_closed' ? undefined : error)
    joined.then((room) => void room.onLeave((_reason, error) => ended(error))).then(release, release)
    return shared
  }

  /** Marks the room as used until the returned function is called. */
  retain(shared: SharedRoom): () => void {
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
        this.#rooms.clear()
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

  #releaseUnused(shared: SharedRoom): void {
    clearTimeout(shared.unused)
    if (shared.users > 0) return
    const forget = (): void => {
      // While a join is pending, React mounts no component of that boundary, so the room only seems unused.
      if (!shared.over && this.#joining > 0) {
        this.#releaseUnused(shared)
        return
      }
      if (this.#rooms.get(shared.id) === shared) this.#rooms.delete(shared.id)
      shared.end(undefined)
      shared.leave()
    }
    if (shared.over) forget()
    else shared.unused = setTimeout(forget, UNUSED_MS)
  }
}

const RoomsContext = createContext<Rooms | undefined>(undefined)

function useRooms(): Rooms {
  const rooms = use(RoomsContext)
  if (!rooms) throw new Error('This hook needs a <RoomfulProvider> above its component.')
  return rooms
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
 * Joins a room. The component suspends until the room's state has arrived. All components with the same room type and key share one
 * membership, with the join options of the first component. The client leaves the room one second after the last of these components
 * unmounts.
 *
 * If the join fails, or if the room removes this client, for example by a kick, the hook throws a RoomfulError to the nearest error
 * boundary. If the error boundary renders the components again, they join again, at the earliest one second after the error. If the room is not in `Register`,
 * write `useRoom<typeof duel>('duel')`.
 */
export function useRoom<R extends TypedRoom = never>(
  roomType: R['type'],
  ...options: JoinArguments<R>
): Room<R>
export function useRoom<Type extends TypeName>(
  roomType: Type,
  ...options: JoinArguments<RoomOfType<RegisteredRooms, Type>>
): Room<RoomOfType<RegisteredRooms, Type>>
export function useRoom(
  roomType: TypeName,
  ...options: JoinArguments<RoomOfType<RegisteredRooms, TypeName>>
): unknown {
  const rooms = useRooms()
  const shared = rooms.shared(roomType, ...options)
  const room = use(shared.joined)
  useEffect(() => rooms.retain(shared), [rooms, shared])
  const subscribe = useCallback(
    (listener: () => void) => {
      shared.listeners.add(listener)
      return () => void shared.listeners.delete(listener)
    },
    [shared],
  )
  // Renders again when the room is over. This joins again if the room was given up before this component mounted.
  useSyncExternalStore(subscribe, () => shared.over)
  if (shared.error) throw shared.error
  return room
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
  const subscribe = useCallback((listener: () => void) => room.onMembersChange(listener), [room])
  return useSyncExternalStore(subscribe, () => room.members)
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
  const rooms = useRooms()
  return useSyncExternalStore(rooms.subscribe, () => rooms.connection)
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
