import { byId, create } from '../ui/dom.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import type notes from './room.ts'

function play({ room, toasts }: Stage<typeof notes>): void {
  const refuse = (error: unknown) => toasts.refuse(error)
  const text = byId('text', HTMLInputElement)
  const show = () => {
    const all = Object.entries(room.state.notes).map(([id, note]) => {
      const button = create('button', { type: 'button', text: note, title: 'Take it down' })
      button.addEventListener('click', () => void room.send('take', { id }).catch(refuse))
      const item = create('li', {})
      item.append(button)
      return item
    })
    byId('board', HTMLUListElement).replaceChildren(...all)
  }
  show()
  room.onStateChange(show)
  text.disabled = false
  byId('pin', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault()
    room.send('pin', { text: text.value }).catch(refuse)
    text.value = ''
  })
}

void startGame<typeof notes>('notes', play)
