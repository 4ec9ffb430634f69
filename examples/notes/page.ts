import { byId, create } from '../ui/dom.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import type notes from './room.ts'

/** Number of paper colours in page.css. */
const PAPERS = 4

function play({ room, toasts }: Stage<typeof notes>): void {
  const refuse = (error: unknown) => toasts.refuse(error)
  const text = byId('text', HTMLInputElement)
  const board = byId('board', HTMLUListElement)
  const shown = new Map<string, HTMLElement>()
  const add = (id: string, note: string) => {
    const label = `Take down: ${note}`
    const take = create('button', { type: 'button', text: '×', title: 'Take down', 'aria-label': label })
    take.addEventListener('click', () => void room.send('take', { id }).catch(refuse))
    const paper = String(Number(id) % PAPERS)
    const item = create('li', { class: 'note', text: note, 'data-paper': paper }, take)
    shown.set(id, item)
    board.prepend(item)
  }
  const show = () => {
    const { notes } = room.state
    for (const [id, item] of shown) {
      if (Object.hasOwn(notes, id)) continue
      item.remove()
      shown.delete(id)
    }
    for (const [id, note] of Object.entries(notes)) if (!shown.has(id)) add(id, note)
    byId('blank', HTMLElement).hidden = shown.size > 0
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
