import { $, make, setText, showKeyed } from './dom.js'
import { count, counted, hex, timeOfDay } from './format.js'
import { nameOf } from './lists.js'
import { fragmentOf, pageOf, roomOfFragment } from './nodes.js'
import { Tree } from './tree.js'

const MOST_MEMBERS = 100
/** Data of an event that is longer than this is folded. */
const LONG_DATA = 90

/** The room that is open beside the lists: its members, state and last events, or where else it is. Its name is in the page's address. */
export class RoomPanel {
  #api
  #on_change
  #room
  #opener
  #tree = new Tree($('state'))
  #latest = ''
  /** Where the room covers the lists, as narrow.css says. */
  #covers = matchMedia('(max-width: 860px)')

  /** `on_change` is called when another room is to be shown, or none. */
  constructor({ api, on_change }) {
    this.#api = api
    this.#on_change = on_change
    $('close-room').addEventListener('click', () => this.close())
    this.#covers.addEventListener('change', () => this.#shutOff())
    window.addEventListener('hashchange', () => this.#follow())
    this.#choose(roomOfFragment(location.hash))
  }

  /** The open room; undefined: none is. */
  get room() {
    return this.#room
  }

  /** Opens a room, or closes it when it is open; `opener` gets the focus back. */
  toggle(room, opener) {
    if (this.#room && nameOf(this.#room) === nameOf(room)) this.close()
    else this.open(room, opener)
  }

  open({ project_id, room_id }, opener) {
    this.#opener = opener
    this.#choose({ project_id, room_id })
    history.replaceState(null, '', `#${fragmentOf(this.#room)}`)
    this.#on_change()
    $('room-title').focus()
  }

  close() {
    const opener = this.#opener
    this.#choose(undefined)
    history.replaceState(null, '', location.pathname)
    this.#on_change()
    if (opener?.isConnected) opener.focus()
    else $('search').focus()
  }

  /** Asks the node for the open room; undefined: none is. */
  async ask() {
    const room = this.#room
    if (!room) return undefined
    const query = {
      ...room,
      include_state: '1',
      include_events: '1',
      members: String(MOST_MEMBERS),
      limit: '1',
    }
    const { rooms } = await this.#api.get('runtime', query)
    return rooms[0] ? { here: rooms[0] } : { there: await this.#api.get('owner', room) }
  }

  /** What `ask` was answered. */
  show(answer) {
    if (!answer || !this.#room) return
    const { here, there } = answer
    if (nameOf(here ?? there) !== nameOf(this.#room)) return
    $('room-here').hidden = !here
    $('room-there').hidden = !there
    if (here) this.#showHere(here)
    else showThere(there)
  }

  #follow() {
    const room = roomOfFragment(location.hash)
    if ((room && nameOf(room)) === (this.#room && nameOf(this.#room))) return
    this.#choose(room)
    this.#on_change()
  }

  #choose(room) {
    this.#room = room
    this.#latest = ''
    this.#tree.restart()
    $('events').replaceChildren()
    $('members').replaceChildren()
    $('room').hidden = !room
    $('room-here').hidden = true
    $('room-there').hidden = false
    setText($('room-there').firstElementChild, 'Asking the node…')
    $('there-link').replaceChildren()
    document.body.classList.toggle('with-room', room !== undefined)
    this.#shutOff()
    setText($('room-title'), room?.room_id ?? '')
    setText($('room-project'), room?.project_id ?? '')
  }

  /** What the room covers cannot be reached with the keyboard either. */
  #shutOff() {
    $('overview').inert = this.#room !== undefined && this.#covers.matches
  }

  #showHere(room) {
    setText($('room-seq'), count(room.seq))
    setText($('room-epoch'), String(room.epoch))
    setText($('room-checksum'), hex(room.checksum))
    setText($('members-title'), `Members ${count(room.member_count)}`)
    showKeyed($('members'), room.members, (member) => member.member_id, createMember, updateMember)
    const more = room.member_count - room.members.length
    setText(
      $('members-note'),
      more > 0 ? `and ${count(more)} more` : room.member_count === 0 ? 'Nobody is here.' : '',
    )
    this.#tree.show(room.state)
    this.#showEvents(room)
  }

  #showEvents({ events, epoch }) {
    const seen = new Map()
    const keyed = events.toReversed().map((event) => {
      const at = `${event.epoch}.${event.seq}`
      seen.set(at, (seen.get(at) ?? 0) + 1)
      return { ...event, key: `${at}.${seen.get(at)}` }
    })
    const mark = this.#latest !== ''
    const lines = keyed.toReversed()
    // The store keeps no times: what a former owner told is known without.
    const before = lines.findIndex(({ at }) => at === null)
    if (before >= 0) lines.splice(before, 0, { kind: 'taken', key: `taken.${epoch}`, at: takenAt(epoch) })
    showKeyed(
      $('events'),
      lines,
      (event) => event.key,
      (event) => (event.kind === 'taken' ? createTaken(event) : createEvent(event)),
      (line, _, is_new) => line.classList.toggle('changed', is_new && mark),
    )
    this.#latest = keyed.at(-1)?.key ?? 'none'
    setText($('events-note'), events.length === 0 ? 'None that is still known.' : '')
  }
}

const createMember = () =>
  make('li', {}, make('span', { className: 'who' }), make('span', { className: 'soft' }))

function updateMember(line, member) {
  const [who, where] = line.children
  line.className = member.connected ? 'connected' : 'away'
  setText(who, member.sub ?? member.member_id)
  setText(
    where,
    `${member.connected ? '' : 'away, '}${member.sub === null ? '' : `${member.member_id}, `}${member.session_id} at ${member.node_id}`,
  )
}

/** When the room came to its owner: an epoch is the time of its claim, unless it had to be larger. */
const takenAt = (epoch) => (epoch > 1e12 ? epoch : undefined)

function createTaken({ at }) {
  const when = at === undefined ? '' : ` at ${timeOfDay(at)}`
  return make(
    'li',
    { className: 'taken soft' },
    `This node took the room over${when}. When the events below were is not known.`,
  )
}

const WORDS = { joined: 'joined', left: 'left' }

function createEvent({ kind, name, seq, at, to, data, cut }) {
  const text = cut === undefined ? JSON.stringify(data) : `${cut}…`
  const line = make('li', {})
  line.append(
    make('span', { className: 'when' }, at === null ? 'earlier' : timeOfDay(Date.parse(at))),
    make('span', { className: 'seq' }, `seq ${count(seq)}`),
    make(
      'span',
      { className: kind === 'event' ? 'name' : 'name presence' },
      `${name}${WORDS[kind] ? ` ${WORDS[kind]}` : ''}`,
    ),
  )
  if (to)
    line.append(
      make('span', { className: 'tag' }, `to ${to.length === 1 ? to[0] : counted(to.length, 'member')}`),
    )
  if (text.length > LONG_DATA)
    line.append(make('details', {}, make('summary', {}, text.slice(0, LONG_DATA)), make('code', {}, text)))
  else line.append(make('code', {}, text))
  return line
}

/** The room is not at this node. */
function showThere({ owner, epoch }) {
  setText($('room-there').firstElementChild, whereabouts(owner, epoch))
  const place = $('there-link')
  const href = owner?.alive && !owner.self ? pageOf(owner, roomOfFragment(location.hash)) : undefined
  if (!href) place.replaceChildren()
  else if (place.firstElementChild?.href !== href)
    place.replaceChildren(make('a', { href, className: 'button' }, `Open it at ${owner.node_id}`))
}

function whereabouts(owner, epoch) {
  if (epoch === null) return 'There is no such room, here or anywhere in the cluster.'
  if (!owner) return 'Nobody has this room at the moment. Whoever joins it next has it opened.'
  if (owner.self) return 'This node has just claimed the room, or has just given it up.'
  if (!owner.alive)
    return `Its last owner ${owner.node_id} is gone. Whoever is still in it has it taken over.`
  return pageOf(owner)
    ? `This room is at ${owner.node_id}.`
    : `This room is at ${owner.node_id}, which does not tell an address of its admin page that can be opened from here.`
}
