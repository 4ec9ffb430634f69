import { $, make, moveFocus, setAttribute, setText, showKeyed } from './dom.js'
import { bytes, count, counted, duration } from './format.js'
import { asTheyStand, isInUse, Order } from './order.js'

const FIRST_LIMIT = 50
const MOST = 1000

/** A room as `project/type:key`, unique in the cluster. */
export const nameOf = (room) => `${room.project_id}/${room.room_id}`

/** The rooms and sessions of the node, one list at a time, with the search above them. */
export class Lists {
  #on_open
  #on_change
  #clock
  #limit = FIRST_LIMIT
  #open_name
  /** Whether what is asked for is not what is shown yet. */
  #is_new = false
  #rooms_order
  #sessions_order

  /** `on_open` is given the room that somebody wants to see; `on_change` is called when the query has changed, and resolves when it is answered. */
  constructor({ clock, on_open, on_change }) {
    this.#clock = clock
    this.#on_open = on_open
    this.#on_change = on_change
    // Where most is going on, and who came last.
    const chosen = () => {
      this.#is_new = true
      on_change()
    }
    this.#rooms_order = new Order($('rooms'), { by: 'members', way: 'descending', on_change: chosen })
    this.#sessions_order = new Order($('sessions'), {
      by: 'connected',
      way: 'ascending',
      on_change: chosen,
    })
    const tabs = [$('rooms-tab'), $('sessions-tab')]
    for (const tab of tabs) {
      tab.addEventListener('click', () => this.#choose(tab))
      tab.addEventListener('keydown', (event) => {
        if (moveFocus(event, tabs, ['ArrowLeft', 'ArrowRight'])) this.#choose(document.activeElement)
      })
    }
    $('more').addEventListener('click', () => {
      this.#limit = Math.min(MOST, 2 * this.#limit)
      on_change()
    })
    for (const id of ['rooms', 'sessions'])
      $(id).addEventListener('keydown', (event) => moveFocus(event, [...$(id).querySelectorAll('.open')]))
  }

  get #on_rooms() {
    return !$('rooms-panel').hidden
  }

  /** What is to be asked of the node; only the list that is shown has to be in order. */
  get query() {
    return {
      q: $('search').value.trim(),
      limit: String(this.#limit),
      members: '0',
      ...(this.#on_rooms
        ? { sort_rooms: this.#rooms_order.query }
        : { sort_sessions: this.#sessions_order.query }),
    }
  }

  /** From the beginning, for another search; resolves when it is answered. */
  restart() {
    this.#limit = FIRST_LIMIT
    this.#is_new = true
    return this.#on_change()
  }

  /** Opens the first room that is listed; false: there is none. */
  openFirst() {
    const first = document.querySelector('[role=tabpanel]:not([hidden]) .open')
    if (first && first.getAttribute('aria-expanded') !== 'true') first.click()
    return first !== null
  }

  show({ rooms, sessions, found }, open) {
    this.#open_name = open && nameOf(open)
    setText($('rooms-count'), count(found.rooms))
    setText($('sessions-count'), count(found.sessions))
    const is_held = [
      this.#lay($('rooms').tBodies[0], rooms, nameOf, createRoom, (row, room) => this.#updateRoom(row, room)),
      this.#lay(
        $('sessions').tBodies[0],
        sessions,
        (session) => session.session_id,
        createSession,
        (row, session) => this.#updateSession(row, session),
      ),
    ]
    this.#is_new = false
    const on_rooms = this.#on_rooms
    const [shown, all, noun] = on_rooms
      ? [rooms.length, found.rooms, 'room']
      : [sessions.length, found.sessions, 'session']
    const none = this.query.q === '' ? `There are no ${noun}s here.` : `No ${noun} here matches.`
    const held = is_held[on_rooms ? 0 : 1] ? '; no row moves while you are among them' : ''
    const cut = shown < all && this.#limit >= MOST ? '; search to see others' : ''
    setText($('note'), all === 0 ? none : `${count(shown)} of ${counted(all, noun)}${held}${cut}`)
    $('more').hidden = shown >= all || this.#limit >= MOST
    $('elsewhere').hidden = this.query.q === ''
  }

  #choose(tab) {
    for (const [id, panel] of [
      ['rooms-tab', 'rooms-panel'],
      ['sessions-tab', 'sessions-panel'],
    ]) {
      setAttribute($(id), 'aria-selected', String(id === tab.id))
      $(id).tabIndex = id === tab.id ? 0 : -1
      $(panel).hidden = id !== tab.id
    }
    this.#is_new = true
    this.#on_change()
  }

  /** Shows a list in its order, unless somebody is in it; true: the rows stand in another. */
  #lay(rows, items, keyOf, create, update) {
    const laid = isInUse(rows) && !this.#is_new ? asTheyStand(rows, items, keyOf) : items
    showKeyed(rows, laid, keyOf, create, update)
    return laid.some((item, at) => item !== items[at])
  }

  #updateRoom(row, room) {
    const [name, project, members, rate, seq] = row.cells
    const button = name.firstElementChild
    setText(button, room.room_id)
    button.onclick = () => this.#on_open(room, button)
    const is_open = nameOf(room) === this.#open_name
    setAttribute(button, 'aria-expanded', String(is_open))
    row.classList.toggle('chosen', is_open)
    setText(project, room.project_id)
    const away = room.member_count - room.connected_count
    setText(members, count(room.member_count) + (away > 0 ? ` (${count(away)} away)` : ''))
    setText(rate, room.updates_per_second === null ? '–' : room.updates_per_second.toFixed(1))
    setText(seq, count(room.seq))
  }

  #updateSession(row, session) {
    const [id, player, project, key, connected, rooms, queued] = row.cells
    setText(id, session.session_id)
    setText(player, session.sub ?? '–')
    setText(project, session.project_id)
    setText(key, session.key_id ?? '–')
    setText(connected, duration(this.#clock.age(session.connected_at)))
    setText(queued, bytes(session.queued_bytes))
    const { project_id } = session
    showKeyed(
      rooms,
      session.rooms,
      (room_id) => room_id,
      () => make('button', { type: 'button', className: 'open' }),
      (button, room_id) => {
        setText(button, room_id)
        button.onclick = () => this.#on_open({ project_id, room_id }, button)
      },
    )
  }
}

const cell = (label, style = '') => make('td', { role: 'cell', 'data-label': label, className: style })

function createRoom() {
  const name = cell('Room')
  name.append(make('button', { type: 'button', className: 'open', 'aria-controls': 'room' }))
  return make(
    'tr',
    { role: 'row' },
    name,
    cell('Project', 'soft'),
    cell('Members', 'number'),
    cell('Updates/s', 'number'),
    cell('Seq', 'number'),
  )
}

const createSession = () =>
  make(
    'tr',
    { role: 'row' },
    cell('Session'),
    cell('Player'),
    cell('Project', 'soft'),
    cell('Key', 'soft'),
    cell('Connected', 'number'),
    cell('Rooms', 'rooms'),
    cell('Queued', 'number'),
  )
