/** @jsxImportSource react */
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import type { TypedRoom } from '../../../client/index.ts'
import { RoomfulProvider, useRoom, useRoomState } from '../../../client/react.ts'

interface Arena {
  readonly state: { count: number }
  readonly messages: { readonly shout: string }
  readonly events: Record<never, never>
  readonly options: Record<never, never>
}

/** What the test gives the page. */
interface Setup {
  readonly url: string
  readonly token: string
}

const renders = { constant: 0, counting: 0 }

/** Selects what never changes, as another array each time, and names the default key. */
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

const { url, token } = Reflect.get(globalThis, 'setup') as Setup
const root = createRoot(document.querySelector('div')!)
root.render(
  <StrictMode>
    <RoomfulProvider url={url} options={{ projectId: 'prj_one', token }}>
      <Constant />
      <Counting />
    </RoomfulProvider>
  </StrictMode>,
)
Object.assign(globalThis, { renders, unmount: () => root.unmount() })
