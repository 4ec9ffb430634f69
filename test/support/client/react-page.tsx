/** @jsxImportSource react */
import { Component, type ReactNode, StrictMode, Suspense, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { type Room, RoomfulError, type TypedRoom } from '../../../client/index.ts'
import {
  RoomfulProvider,
  useConnection,
  useEvent,
  useQueue,
  useRoom,
  useRoomState,
  useRooms,
  useSpectators,
} from '../../../client/react.ts'

interface Arena {
  readonly state: { count: number }
  readonly messages: { readonly shout: string }
  readonly events: { readonly shouted: string }
  readonly options: Record<never, never>
}

interface Ranked {
  readonly state: { waiting: number }
  readonly messages: Record<never, never>
  readonly events: Record<never, never>
  readonly options: { readonly ticket: { readonly elo: number } }
}

/** Global `setup` of the test. */
interface Setup {
  readonly url: string
  readonly token: string
  /** True: the page only waits in a queue. */
  readonly queues: boolean
}

const renders = { constant: 0, counting: 0 }

/** Selects a value that never changes, in a new array each time. Names the default key. */
function Constant() {
  const room = useRoom<TypedRoom<Arena>>('arena', { key: 'default' })
  const [word] = useRoomState(room, () => ['count'])
  renders.constant += 1
  return <p>{word}</p>
}

function Counting() {
  const room = useRoom<TypedRoom<Arena>>('arena')
  const count = useRoomState(room, (state) => state.count)
  renders.counting += 1
  return (
    <button type="button" onClick={() => void room.send('shout', 'hello')}>
      <output>{count}</output>
    </button>
  )
}

function Hearing() {
  const [heard, setHeard] = useState<readonly string[]>([])
  useEvent(useRoom<TypedRoom<Arena>>('arena'), 'shouted', (word) => setHeard((heard) => [...heard, word]))
  return (
    <p>
      {useConnection().status}, heard [{heard.join()}]
    </p>
  )
}

function Role() {
  const room = useRoom<TypedRoom<Arena>>('arena')
  return (
    <p>
      {room.spectator ? 'watching' : 'playing'} with <Audience room={room} />
    </p>
  )
}

const Audience = ({ room }: { readonly room: Room<TypedRoom<Arena>> }) => `${useSpectators(room)} spectators`

function Lobby() {
  const rooms = useRooms<TypedRoom<Arena>>('arena', { order: 'newest' })
  return <p>rooms: {rooms.map(({ key }) => key).join() || 'none'}</p>
}

function Oldest() {
  useRooms<TypedRoom<Arena>>('arena', { order: 'oldest' })
  return 'oldest'
}

/** Uses the room until the test calls `finish`, and then another list. */
function Game() {
  const [finished, setFinished] = useState(false)
  Object.assign(globalThis, { finish: () => setFinished(true) })
  if (finished)
    return (
      <Suspense>
        <Oldest />
      </Suspense>
    )
  return (
    <>
      <Constant />
      <Counting />
      <Hearing />
      <Role />
    </>
  )
}

function Searching() {
  const { room, waitedMs, waiting } = useQueue<TypedRoom<Ranked>, TypedRoom<Arena>>('ranked', { elo: 1200 })
  if (room) return <p>playing in {room.id}</p>
  return (
    <p>
      {waiting} waiting, {waitedMs >= 1000 ? 'long' : 'short'}
    </p>
  )
}

/** Waits in the queue until the test calls `finish`. */
function Queue() {
  const [finished, setFinished] = useState(false)
  Object.assign(globalThis, { finish: () => setFinished(true) })
  return finished ? null : <Searching />
}

/** Joins a room type that does not exist. */
function Nowhere(): ReactNode {
  useRoom<TypedRoom>('nowhere')
  return 'joined'
}

class Boundary extends Component<{ readonly children: ReactNode }, { readonly error?: unknown }> {
  static getDerivedStateFromError = (error: unknown) => ({ error })
  override state: { readonly error?: unknown } = {}
  override render() {
    const { error } = this.state
    return error instanceof RoomfulError ? <p>refused: {error.code}</p> : this.props.children
  }
}

const { url, token, queues } = Reflect.get(globalThis, 'setup') as Setup
const root = createRoot(document.querySelector('div')!)
root.render(
  <StrictMode>
    <RoomfulProvider url={url} options={{ projectId: 'prj_one', token }}>
      {queues ? (
        <Boundary>
          <Queue />
        </Boundary>
      ) : (
        <>
          <Game />
          <Lobby />
          <Lobby />
          <Boundary>
            <Nowhere />
          </Boundary>
        </>
      )}
    </RoomfulProvider>
  </StrictMode>,
)
Object.assign(globalThis, { renders, unmount: () => root.unmount() })
