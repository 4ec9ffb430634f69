import { $, make, setAttribute, setText, showKeyed } from './dom.js'
import { count, counted, duration, percent } from './format.js'
import { asTheyStand, isInUse, Order } from './order.js'

/** Where a node's own page is; undefined where the address it tells is no address to open. */
export function pageOf(node, room) {
  let url
  try {
    url = new URL('/admin', node.admin_url)
  } catch {
    return undefined
  }
  if (!/^https?:$/.test(url.protocol) || /^(0\.0\.0\.0|\[::\])$/.test(url.hostname)) return undefined
  if (room) url.hash = fragmentOf(room)
  return url.href
}

/** The part of the address behind `#` that opens a room. */
export const fragmentOf = ({ project_id, room_id }) =>
  `room=${encodeURIComponent(`${project_id}/${room_id}`)}`

/** The room that `fragmentOf` is for; undefined for anything else. */
export function roomOfFragment(fragment) {
  const [, name] = /^#room=(.+)$/.exec(fragment) ?? []
  if (name === undefined) return undefined
  let text
  try {
    text = decodeURIComponent(name)
  } catch {
    return undefined
  }
  const slash = text.indexOf('/')
  const room = { project_id: text.slice(0, slash), room_id: text.slice(slash + 1) }
  return slash > 0 && /^[^:]+:./.test(room.room_id) ? room : undefined
}

const HEADS = ['Node', 'State', 'Load', 'Rooms', 'Sessions', 'Version', 'Up']

const KEYS = {
  node: (node) => node.node_id,
  state: wordOf,
  load: (node) => node.load,
  rooms: (node) => node.rooms,
  sessions: (node) => node.sessions,
  version: (node) => node.version,
  started: (node) => node.started_at,
}

/** The table of the nodes of the cluster. */
export class Nodes {
  #clock
  #nodes = []
  #order = new Order($('nodes'), { by: 'node', way: 'ascending', on_change: () => this.#lay(false) })

  constructor(clock) {
    this.#clock = clock
  }

  show(nodes) {
    this.#nodes = nodes
    const living = nodes.filter((node) => node.alive)
    setText($('nodes-count'), counted(living.length, 'node'))
    this.#lay(isInUse($('nodes').tBodies[0]))
  }

  #lay(hold) {
    const rows = $('nodes').tBodies[0]
    const sorted = this.#nodes.toSorted((a, b) => this.#compare(a, b))
    const laid = hold ? asTheyStand(rows, sorted, (node) => node.node_id) : sorted
    showKeyed(
      rows,
      laid,
      (node) => node.node_id,
      createRow,
      (row, node) => updateRow(row, node, this.#clock),
    )
  }

  /** By name, the own node comes before all others, whichever way. */
  #compare(a, b) {
    const { by, descending } = this.#order
    if (by === 'node' && a.self !== b.self) return b.self - a.self
    const [left, right] = [KEYS[by](a), KEYS[by](b)]
    if (left !== right) return left < right === descending ? 1 : -1
    return a.node_id < b.node_id ? -1 : 1
  }
}

function createRow() {
  const row = make('tr', { role: 'row' })
  for (const head of HEADS) row.append(make('td', { role: 'cell', 'data-label': head }))
  const [name, state, load, rooms, sessions, , up] = row.cells
  up.className = 'number'
  name.append(make('a', { className: 'mono name' }), make('span', { className: 'tag' }))
  state.append(make('span', { className: 'state' }))
  for (const cell of [load, rooms, sessions])
    cell.append(
      make('span', { className: 'gauge' }, make('span', { className: 'bar' }, make('i')), make('b')),
    )
  return row
}

function updateRow(row, node, clock) {
  const [name, state, load, rooms, sessions, version, up] = row.cells
  const [link, tag] = name.children
  setText(link, node.node_id)
  setText(tag, node.self ? 'this node' : '')
  setAttribute(link, 'href', node.self || !node.alive ? null : (pageOf(node) ?? null))
  const word = wordOf(node)
  setText(state.firstElementChild, word)
  state.firstElementChild.className = `state ${word}`
  row.classList.toggle('gone', !node.alive)
  showGauge(load, node.load, percent(node.load))
  showGauge(rooms, node.rooms / node.max_rooms, count(node.rooms), count(node.max_rooms))
  showGauge(sessions, node.sessions / node.max_sessions, count(node.sessions), count(node.max_sessions))
  setText(version, node.version)
  setText(up, node.alive ? duration(clock.age(node.started_at)) : '–')
}

/** A bar that is full at a share of 1, and its figure. */
function showGauge(cell, share, text, most) {
  const [bar, figure] = cell.firstElementChild.children
  bar.firstElementChild.style.width = `${Math.min(100, 100 * share).toFixed(1)}%`
  bar.classList.toggle('high', share >= 0.85)
  setText(figure, text)
  if (most) setAttribute(cell, 'title', `of at most ${most}`)
}

/** What state a node is in. */
function wordOf(node) {
  if (!node.alive) return 'gone'
  return node.draining ? 'draining' : 'serving'
}
