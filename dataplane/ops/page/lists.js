import { $, make, moveFocus, setAttribute, setText, showKeyed } from './dom.js'
import { bytes, count, counted, since } from './format.js'

const FIRST_LIMIT = 50
const MOST = 1000

/** A room as `project/type:key`, unique in the cluster. */
export const nameOf = (room) => `${room.project_id}/${room.room_id}`

/** The rooms and sessions of the node, one list at a time, with the search above them. */
export class Lists {
  #on_open
  #on_change
  #limit = FIRST_LIMIT
  /** Seqs of the last answer, to tell updates per second from. */
  #seen = { at: 0, seqs: new Map() }
  #open_name

  /** `on_open` is given the room that somebody wants to see; `on_change` is called when the query has changed, and resolves when it is answered. */
  constructor({ on_open, on_change }) {
    this.#on_open = on_open
    this.#on_change = on_change
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

  /** What is to be asked of the node. */
  get query() {
    return { q: $('search').value.trim(), limit: String(this.#limit), members: '0' }
  }

  /** From the beginning, for another search; resolves when it is answered. */
  restart() {
    this.#limit = FIRST_LIMIT
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
    this.#showRooms(rooms)
    this.#showSessions(sessions)
    const on_rooms = !$('rooms-panel').hidden
    const [shown, all, noun] = on_rooms
      ? [rooms.length, found.rooms, 'room']
      : [sessions.length, found.sessions, 'session']
    const none = this.query.q === '' ? `There are no ${noun}s here.` : `No ${noun} here matches.`
    setText($('note'), all === 0 ? none : `${count(shown)} of ${counted(all, noun)}`)
    $('more').hidden = shown >= all || this.#limit >= MOST
    $('elsewhere').hidden = !(on_rooms && found.rooms === 0 && this.query.q !== '')
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
    this.#on_change()
  }

  #showRooms(rooms) {
    const now = performance.now()
    const seconds = (now - this.#seen.at) / 1000
    const rateOf = (room) => {
      const before = this.#seen.seqs.get(nameOf(room))
      return before === undefined || room.seq < before ? '–' : ((room.seq - before) / seconds).toFixed(1)
    }
    showKeyed($('rooms').tBodies[0], rooms, nameOf, createRoom, (row, room) => {
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
      setText(rate, rateOf(room))
      setText(seq, count(room.seq))
    })
    this.#seen = { at: now, seqs: new Map(rooms.map((room) => [nameOf(room), room.seq])) }
  }

  #showSessions(sessions) {
    showKeyed(
      $('sessions').tBodies[0],
      sessions,
      (session) => session.session_id,
      createSession,
      (row, session) => {
        const [id, player, project, key, connected, rooms, queued] = row.cells
        setText(id, session.session_id)
        setText(player, session.sub ?? '–')
        setText(project, session.project_id)
        setText(key, session.key_id ?? '–')
        setText(connected, since(session.connected_at))
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
      },
    )
  }
}

const cell = (label, style = '') => make('td', { 'data-label': label, className: style })

function createRoom() {
  const name = cell('Room')
  name.append(make('button', { type: 'button', className: 'open', 'aria-controls': 'room' }))
  return make(
    'tr',
    {},
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
    {},
    cell('Session'),
    cell('Player'),
    cell('Project', 'soft'),
    cell('Key', 'soft'),
    cell('Connected', 'number'),
    cell('Rooms', 'rooms'),
    cell('Queued', 'number'),
  )
