import { connect } from 'roomful/client'
import type board from '../rooms/board.ts'

const find = <T extends Element>(selector: string) => document.querySelector<T>(selector)!
const canvas = find<HTMLCanvasElement>('#board')
const pen = canvas.getContext('2d')!
const tell = (text: string) => {
  find('#status').textContent = text
}
const fail = (error: Error): never => {
  tell(error.message)
  throw error
}

// `dev` works on your machine only. In production use getToken instead.
const name = `player-${Math.floor(Math.random() * 1000)}`
const client = await connect(import.meta.env.VITE_ROOMFUL_URL, { dev: name }).catch(fail)
client.onConnectionChange((status) =>
  tell(status === 'online' ? `you are ${name}` : status),
)
const room = await client.join<typeof board>('board').catch(fail)
room.onLeave((reason, error) => tell(error?.message ?? reason))
tell(`you are ${name}`)

function draw(): void {
  const { dots, players } = room.state
  pen.clearRect(0, 0, canvas.width, canvas.height)
  for (const { x, y, color } of dots) {
    pen.fillStyle = color
    pen.beginPath()
    pen.arc(x * canvas.width, y * canvas.height, 12, 0, 2 * Math.PI)
    pen.fill()
  }
  find('#players').replaceChildren(
    ...Object.values(players).map(({ name, color, score }) => {
      const item = document.createElement('li')
      item.textContent = `${name}: ${score}`
      item.style.borderColor = color
      return item
    }),
  )
}

draw()
room.onStateChange(draw)
canvas.addEventListener('pointerdown', ({ offsetX, offsetY }) => {
  room
    .send('dot', { x: offsetX / canvas.clientWidth, y: offsetY / canvas.clientHeight })
    .catch((error: Error) => tell(error.message))
})
