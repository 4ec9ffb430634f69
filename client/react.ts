/**
 * Hooks for React 19: `roomful/react`.
 *
 *     declare module 'roomful/react' {
 *       interface Register { rooms: typeof rooms } // Once, anywhere: from here on all hooks know the rooms.
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
  RoomState,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
import type { Client, ConnectOptions, JoinArguments } from './client.ts'
import { type ConnectionStatus, connect, type Member, type Room, type RoomfulError } from './index.ts'

/** Where an application says which rooms there are, by `declare module 'roomful/react'`: `rooms` is the type of their definitions. */
// biome-ignore lint/suspicious/noEmptyInterface: applications fill it.
export interface Register {}

/** The rooms that an application has registered; any, where it has not. */
export type RegisteredRooms = Register extends {
  /** What is registered. */
  rooms: infer Rooms extends RoomCollection
}
  ? Rooms
  : readonly TypedRoom<UntypedRoom>[]

/** How the connection is. */
export interface Connection {
  /** Whether it is there, or what is done about it. */
  readonly status: ConnectionStatus
  /** Undefined until the server has welcomed it. */
  readonly client: Client<RegisteredRooms> | undefined
  /** Why it was lost, or closed without anyone's wish. */
  readonly error: RoomfulError | undefined
}

/** What `RoomfulProvider` takes. */
export interface RoomfulProviderProps {
  /** Address of a node, `ws://` or `wss://`. Default: that of `roomful dev`, with `dev` in the options. */
  readonly url?: string | URL
  /** As for `connect`. Those of the first render hold: for another player give the provider another React `key`. */
  readonly options: ConnectOptions
  /** Shown while rooms below are being joined; default: nothing. A `<Suspense>` nearer to them goes first. */
  readonly fallback?: ReactNode
  /** The components that are in rooms. */
  readonly children?: ReactNode
}

/**
 * How long a room is kept that no component uses, in milliseconds: React may render without mounting, and StrictMode and a change of the
 * page unmount what is mounted again at once.
 */
const UNUSED_MS = 1000

/** A room that components use. */
interface SharedRoom {
  readonly id: string
  /** The `Room`. */
  readonly joined: Promise<unknown>
  readonly leave: () => void
  users: number
  unused: ReturnType<typeof setTimeout> | undefined
  over: boolean
  /** Why it was over without this client's wish. */
  error: RoomfulError | undefined
  readonly listeners: Set<() => void>
  readonly end: (error: RoomfulError | undefined) => void
}

type TypeName = RoomIn<RegisteredRooms>['type']

/** One connection and its rooms, for all components below a provider. */
class Rooms {
  readonly #connect: () => Promise<Client<RegisteredRooms>>
  readonly #rooms = new Map<string, SharedRoom>()
  readonly #listeners = new Set<() => void>()
  #client: Promise<Client<RegisteredRooms>> | undefined
  #closing: ReturnType<typeof setTimeout> | undefined
  /** So many joins are under way. */
  #joining = 0
  connection: Connection = { status: 'connecting', client: undefined, error: undefined }

  constructor(url: string | URL | undefined, options: ConnectOptions) {
    this.#connect = () => connect<RegisteredRooms>(url as string | URL, options)
  }

  /** Joins at the first call for a room; the same afterwards, so that a render can wait for it. */
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
    // A page that is left closes its client, which is no failure.
    const ended = (error: RoomfulError | undefined) =>
      shared.end(error?.code === 'client_closed' ? undefined : error)
    joined.then((room) => void room.onLeave((_reason, error) => ended(error))).then(release, release)
    return shared
  }

  /** A component uses the room, until the function that it gets is called. */
  retain(shared: SharedRoom): () => void {
    shared.users++
    clearTimeout(shared.unused)
    return () => {
      shared.users--
      this.#releaseUnused(shared)
    }
  }

  /** The provider is mounted, until the function that it gets is called. */
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
      // React mounts none of the components below one boundary while a room of theirs is still being joined.
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

/** Connects when a room below is joined for the first time, and says goodbye when it is unmounted. */
export function RoomfulProvider({ url, options, fallback, children }: RoomfulProviderProps): ReactNode {
  const [rooms] = useState(() => new Rooms(url, options))
  useEffect(() => rooms.open(), [rooms])
  // What waits below must not take the connection with it: React keeps no state of what has never been mounted.
  return createElement(RoomsContext, { value: rooms }, createElement(Suspense, { fallback }, children))
}

/**
 * Joins a room, and suspends until its first snapshot is here. All components that name the same type and key share one seat, which is
 * left soon after the last of them is unmounted; the options of the first hold. Throws a RoomfulError, for an error boundary: when the
 * room cannot be joined, and when it is over without this client's wish (kicked, say). A boundary that renders again a second later joins
 * again. `useRoom<typeof duel>('duel')` gives the types of a room that is not registered.
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
  // Renders again when it is over, which joins again where it was given up before this component was mounted.
  useSyncExternalStore(subscribe, () => shared.over)
  if (shared.error) throw shared.error
  return room
}

/**
 * What `selector` finds in a room's state; the whole state without one. Renders again when that has changed: by `Object.is`, and for
 * arrays and objects by that of each element, so that a selector may filter, map and pick.
 */
export function useRoomState<R extends TypedRoom, Selected = Immutable<RoomState<R>>>(
  room: Room<R>,
  selector?: (state: Immutable<RoomState<R>>) => Selected,
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

/** Everyone in the room. */
export function useMembers<R extends TypedRoom>(room: Room<R>): readonly Member[] {
  const subscribe = useCallback((listener: () => void) => room.onMembersChange(listener), [room])
  return useSyncExternalStore(subscribe, () => room.members)
}

/**
 * Calls back with the data of every event of this name while the component is mounted, those since the join included; `callback` is that
 * of the last render.
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

/** How the connection is, for a banner while it is lost, and for `client.serverTime()`. Connects nothing by itself. */
export function useConnection(): Connection {
  const rooms = useRooms()
  return useSyncExternalStore(rooms.subscribe, () => rooms.connection)
}

/** Equal, or arrays or objects of equal elements. */
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
