import { $, make, setText, showKeyed } from './dom.js'
import { count, counted } from './format.js'
import { nameOf } from './lists.js'

/** What a search over the whole cluster found: asked for once, when somebody wants it, and never by itself. */
export class ClusterSearch {
  #api
  #on_open
  #turn = 0

  /** `on_open` is given the room that somebody wants to see, and what is to have the focus afterwards. */
  constructor({ api, on_open }) {
    this.#api = api
    this.#on_open = on_open
    $('found-list').addEventListener('keydown', (event) => {
      if (event.key === 'Escape') $('search').focus()
    })
  }

  /** Nothing is searched for any more, or something else. */
  clear() {
    this.#turn++
    $('found').hidden = true
  }

  /** Looks for `q` at every node; resolves with the rooms that were found, undefined when that is of no interest any more. Rejects as `Api.get` does. */
  async look(q) {
    const turn = ++this.#turn
    $('found').hidden = false
    $('found-list').replaceChildren()
    setText($('found-note'), 'Asking every node…')
    let answer
    try {
      answer = await this.#api.get('search', { q })
    } catch (error) {
      if (turn === this.#turn) setText($('found-note'), `The cluster could not be searched: ${error.message}`)
      throw error
    }
    if (turn !== this.#turn) return undefined
    this.#show(answer)
    $('found').scrollIntoView({ block: 'nearest' })
    return answer.rooms
  }

  #show({ rooms, sessions, found, silent }) {
    setText($('found-note'), sumUp(rooms, sessions, found, silent))
    const matches = [...rooms.map(ofRoom), ...sessions.map(ofSession)]
    showKeyed(
      $('found-list'),
      matches,
      (match) => match.key,
      () => make('li'),
      (line, { parts, where }) => {
        line.replaceChildren(
          ...parts.map((part) => this.#part(part)),
          make('span', { className: 'soft' }, where),
        )
      },
    )
  }

  #part({ room, player, text }) {
    if (player) return make('span', { className: 'who' }, player)
    if (!room) return make('span', { className: 'soft' }, text)
    const button = make('button', { type: 'button', className: 'open' }, room.room_id)
    button.onclick = () => this.#on_open(room, button)
    return button
  }
}

const ofRoom = (room) => ({
  key: `room ${nameOf(room)}`,
  parts: [{ room }],
  where: `${room.project_id}, ${counted(room.member_count, 'member')}, at ${room.node_id}`,
})

const ofSession = ({ session_id, sub, project_id, rooms, node_id }) => ({
  key: `session ${session_id}`,
  parts: [
    ...(sub === null ? [] : [{ player: sub }]),
    { text: session_id },
    { text: rooms.length > 0 ? 'in' : 'in no room' },
    ...rooms.map((room_id) => ({ room: { project_id, room_id } })),
  ],
  where: `at ${node_id}`,
})

/** What there is, how much of it is shown, and who was not asked. */
function sumUp(rooms, sessions, found, silent) {
  const shown = (list, all, noun) =>
    list.length < all ? `the first ${count(list.length)} of ${counted(all, noun)}` : counted(all, noun)
  const parts = []
  if (found.rooms > 0) parts.push(shown(rooms, found.rooms, 'room'))
  if (found.sessions > 0) parts.push(shown(sessions, found.sessions, 'session'))
  let text = parts.length === 0 ? 'Nothing matches.' : `${parts.join(' and ')}.`
  text = text[0].toUpperCase() + text.slice(1)
  if (rooms.length < found.rooms || sessions.length < found.sessions) text += ' More letters find fewer.'
  if (silent.length > 0) text += ` No answer from ${silent.join(', ')}: what is there is not among these.`
  return text
}
