import { Component, type PointerEvent, type ReactNode, StrictMode, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { RoomfulProvider, useConnection, useRoom, useRoomState } from 'roomful/react'
import type board from '../rooms/board.ts'

// Types all hooks for your rooms.
declare module 'roomful/react' {
  interface Register {
    rooms: { board: typeof board }
  }
}

// `dev` works on your machine only. In production use getToken instead.
const name = `player-${Math.floor(Math.random() * 1000)}`

function Board() {
  const room = useRoom('board')
  const { dots, players } = useRoomState(room)
  const { status } = useConnection()
  const [problem, setProblem] = useState('')

  function leaveDot({ clientX, clientY, currentTarget }: PointerEvent<SVGSVGElement>): void {
    const { left, top, width, height } = currentTarget.getBoundingClientRect()
    room
      .send('dot', { x: (clientX - left) / width, y: (clientY - top) / height })
      .then(() => setProblem(''))
      .catch((error: Error) => setProblem(error.message))
  }

  return (
    <>
      <p role="status">{problem || (status === 'online' ? `you are ${name}` : status)}</p>
      <svg id="board" viewBox="0 0 800 500" onPointerDown={leaveDot}>
        <title>The board: click or tap to leave a dot</title>
        {dots.map(({ x, y, color }, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a dot has no id and no component state.
          <circle key={index} cx={x * 800} cy={y * 500} r={12} fill={color} />
        ))}
      </svg>
      <ul id="players">
        {Object.entries(players).map(([id, { name, color, score }]) => (
          <li key={id} style={{ borderColor: color }}>
            {name}: {score}
          </li>
        ))}
      </ul>
    </>
  )
}

/** Shows the error instead of the board if the join fails or if the room removes the player. */
class Problem extends Component<{ children: ReactNode }, { error?: Error }> {
  static getDerivedStateFromError = (error: Error) => ({ error })
  override state: { error?: Error } = {}
  override render() {
    return this.state.error ? <p role="alert">{this.state.error.message}</p> : this.props.children
  }
}

createRoot(document.querySelector('#page')!).render(
  <StrictMode>
    <h1>A board for everyone</h1>
    <RoomfulProvider
      url={import.meta.env.VITE_ROOMFUL_URL}
      options={{ dev: name }}
      fallback={<p role="status">connecting …</p>}
    >
      <Problem>
        <Board />
      </Problem>
    </RoomfulProvider>
    <p>Click or tap the board to leave a dot. Open this page in another tab to add a player.</p>
  </StrictMode>,
)
