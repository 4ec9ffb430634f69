import { type Room, RoomfulError, type TypedRoom } from 'roomful/client'
import type { QueueTicket } from 'roomful/client/queue'
import { create } from './dom.ts'

/** A room in a list. */
export interface Choice<R extends TypedRoom> {
  readonly key: string
  readonly name: string
  /** Short facts about the room, such as the number of players. */
  readonly facts: readonly string[]
  readonly join: () => Promise<Room<R>>
}

/** Panel between the bar and the dock, in which the player chooses a room. It disappears when the client has joined one. */
export class Lobby<R extends TypedRoom> {
  /** Resolves when the client has joined a room. Never rejects: the panel shows errors, and the player can try again. */
  readonly joined: Promise<Room<R>>
  readonly #ways = create('div', { class: 'ways' })
  readonly #alarm = create('p', { class: 'alarm', role: 'alert' })
  readonly #panel: HTMLElement
  #resolve: (room: Room<R>) => void = () => {}
  #joining = false

  /** `footer`: the element after the panel. The panel shows the picture of the game. */
  constructor(footer: HTMLElement, game: string, title: string) {
    this.joined = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.#panel = create(
      'div',
      { class: 'lobby', role: 'main' },
      create('img', { class: 'picture', src: `/${game}/picture.svg`, alt: '', width: '320', height: '180' }),
      create('h1', { text: title }),
      this.#ways,
      this.#alarm,
    )
    document.body.classList.add('choosing')
    footer.before(this.#panel)
  }

  /** Adds a button that joins a room. */
  offer(text: string, note: string, join: () => Promise<Room<R>>): void {
    const button = create('button', { class: 'button primary', type: 'button', text })
    button.addEventListener('click', () => void this.#attempt(join))
    this.#add(button, note)
  }

  /** Adds a button that puts the player into a queue. Until there is a match, the panel shows the waiting time, and a button to cancel. */
  queue(text: string, note: string, enter: () => QueueTicket<R>): void {
    this.offer(text, note, async () => {
      const ticket = enter()
      const cancel = create('button', { class: 'button', type: 'button', text: 'Cancel' })
      const status = create('p', { role: 'status', text: 'Looking for an opponent …' })
      const facts = create('p', { class: 'quiet' })
      const waiting = create('div', { class: 'way' }, cancel, status, facts)
      const show = () => {
        const seconds = Math.round(ticket.waitedMs / 1000)
        const others = ticket.waiting - 1
        facts.textContent = `${seconds} s${others > 0 ? `, ${others} more waiting` : ''}`
      }
      show()
      const timer = setInterval(show, 1000)
      cancel.addEventListener('click', () => void ticket.cancel())
      this.#panel.ariaBusy = 'false'
      this.#ways.replaceWith(waiting)
      cancel.focus()
      try {
        return await ticket.matched
      } finally {
        clearInterval(timer)
        waiting.replaceWith(this.#ways)
      }
    })
  }

  /** Adds a link to a public room. */
  link(text: string, note: string, href: string): void {
    this.#add(create('a', { class: 'button', href, text }), note)
  }

  /** Adds a field for the code of a room. */
  askCode(join: (code: string) => Promise<Room<R>>): void {
    const field = create('input', {
      id: 'code',
      class: 'code',
      required: '',
      maxlength: '16',
      size: '8',
      autocomplete: 'off',
      autocapitalize: 'characters',
      spellcheck: 'false',
      placeholder: 'K7QX2M',
      'aria-label': 'Code of the room',
    })
    const button = create('button', { class: 'button', type: 'submit', text: 'Join by code' })
    const form = create('form', {}, field, button)
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      void this.#attempt(() => join(field.value)).then(() => field.select())
    })
    this.#add(form, 'Your friend sees the code at the table.')
  }

  /**
   * Adds a list of rooms. Returns a function that shows the present rooms. A room keeps its place while it is listed, so that a click hits
   * what the player aimed at. `empty`: text for a list without rooms.
   */
  list(title: string, empty: string): (choices: readonly Choice<R>[]) => void {
    const note = create('p', { class: 'quiet', text: 'Loading the list …' })
    const items = create('ul', { class: 'choices' })
    const shown = new Map<string, { button: HTMLButtonElement; join: Choice<R>['join'] }>()
    const section = create('section', { 'aria-label': title }, create('h2', { text: title }), note, items)
    this.#alarm.after(section)
    return (choices) => {
      note.textContent = choices.length === 0 ? empty : ''
      for (const [key, { button }] of shown) {
        if (choices.some((choice) => choice.key === key)) continue
        button.parentElement?.remove()
        shown.delete(key)
      }
      for (const { key, name, facts, join } of choices) {
        const button = shown.get(key)?.button ?? create('button', { class: 'choice', type: 'button' })
        const texts = facts.map((text) => create('span', { class: 'quiet', text }))
        button.replaceChildren(create('strong', { text: name }), ...texts)
        if (!shown.has(key)) {
          button.addEventListener('click', () => void this.#attempt(() => shown.get(key)!.join()))
          items.append(create('li', {}, button))
        }
        shown.set(key, { button, join })
      }
    }
  }

  /** Shows an error. */
  readonly refuse = (error: unknown): void => {
    this.#alarm.textContent = error instanceof Error ? error.message : String(error)
  }

  #add(control: HTMLElement, note: string): void {
    this.#ways.append(create('div', { class: 'way' }, control, create('p', { class: 'quiet', text: note })))
  }

  /** One join at a time. */
  async #attempt(join: () => Promise<Room<R>>): Promise<void> {
    if (this.#joining) return
    this.#joining = true
    this.#panel.ariaBusy = 'true'
    this.#alarm.textContent = ''
    try {
      this.#resolve(await join())
      this.#panel.remove()
      document.body.classList.remove('choosing')
    } catch (error) {
      if (!(error instanceof RoomfulError) || error.code !== 'cancelled') this.refuse(error)
    }
    this.#panel.ariaBusy = 'false'
    this.#joining = false
  }
}
