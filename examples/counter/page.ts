import { Confetti } from '../ui/confetti.ts'
import { byId, create } from '../ui/dom.ts'
import { coloursOf, nameOf } from '../ui/identity.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import type counter from './room.ts'

const MOST_FACES = 12
const BUBBLE_MS = 1100

const dial = () => byId('progress', SVGCircleElement).closest('.dial')

/** Shows the number and animates changed digits. */
function showCount(count: number): void {
  const output = byId('digits', HTMLOutputElement)
  const before = output.textContent ?? ''
  const text = String(count)
  output.classList.toggle('long', text.length > 3)
  const digits = [...text].map((digit, index) => {
    const old = before[before.length - text.length + index]
    return create('span', { class: digit === old ? 'digit' : 'digit rolled', text: digit })
  })
  output.replaceChildren(...digits)

  const done = count % 10
  const progress = byId('progress', SVGCircleElement)
  progress.style.strokeDasharray = `${done} 10`
  progress.classList.toggle('empty', done === 0)
  byId('ahead', HTMLElement).textContent = `next confetti at ${count - done + 10}`
}

function showBubble(by: number): void {
  const bubble = create('span', { class: 'bubble', text: `+${by}`, 'aria-hidden': 'true' })
  bubble.style.left = `${30 + Math.random() * 36}%`
  bubble.style.setProperty('--bubble', `hsl(${Math.floor(Math.random() * 360)} 80% 72%)`)
  dial()?.append(bubble)
  setTimeout(() => bubble.remove(), BUBBLE_MS)
}

function showCrowd({ room }: Stage<typeof counter>): void {
  const colours = coloursOf(room.members.map(({ id }) => id))
  const faces = room.members.slice(0, MOST_FACES).map(({ id, sub }) => {
    const me = id === room.memberId
    const face = create('li', { text: me ? `${nameOf(id, sub)} (you)` : nameOf(id, sub) })
    face.style.setProperty('--colour', colours.get(id) ?? null)
    return face
  })
  const more = room.members.length - faces.length
  if (more > 0) faces.push(create('li', { text: `and ${more} more` }))
  byId('crowd', HTMLElement).replaceChildren(...faces)
}

function play(stage: Stage<typeof counter>): void {
  const { room, toasts } = stage
  const confetti = new Confetti(document.body)

  showCount(room.state.count)
  room.onStateChange((state, previous) => {
    showCount(state.count)
    if (state.count > previous.count) showBubble(state.count - previous.count)
  })
  room.on('milestone', ({ count }) => {
    toasts.show(`${count}!`)
    const box = dial()?.getBoundingClientRect()
    if (box) confetti.burst(box.x + box.width / 2, box.y + box.height / 2)
    dial()?.animate([{ scale: 1 }, { scale: 1.08 }, { scale: 1 }], { duration: 420, easing: 'ease-out' })
  })
  showCrowd(stage)
  room.onMembersChange(() => showCrowd(stage))

  for (const [id, by] of [
    ['one', 1],
    ['five', 5],
  ] as const) {
    const key = byId(id, HTMLButtonElement)
    key.disabled = false
    key.addEventListener('click', () => {
      room.send('inc', { by }).catch((error: unknown) => toasts.refuse(error))
    })
  }
}

void startGame<typeof counter>('counter', play)
