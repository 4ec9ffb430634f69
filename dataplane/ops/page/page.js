// The script of GET /admin: asks /admin/runtime every second and shows the answer. Text only ever goes in through textContent.

const EVERY_MS = 1000
const MOST_ROWS = 200
const TOKEN = 'roomful.internal_token'
const HISTORY = 60

const $ = (id) => document.getElementById(id)
const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text
}

const bytes = (count) => {
  if (count < 1024) return `${count} B`
  if (count < 1024 ** 2) return `${(count / 1024).toFixed(1)} KB`
  return count < 1024 ** 3 ? `${(count / 1024 ** 2).toFixed(0)} MB` : `${(count / 1024 ** 3).toFixed(2)} GB`
}

const since = (stamp) => {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(stamp)) / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

/** The open room, of which members and state are shown. */
let open = null
/** Seqs of the last answer, to tell updates per second from. */
let seen = { at: 0, seqs: new Map() }
const busy = []

const roomKey = (room) => `${room.project_id}/${room.room_id}`

/** Asks the node; throws with `status` where it does not answer 200. */
async function ask(path, options = {}) {
  const response = await fetch(path, {
    ...options,
    headers: { 'x-service-internal-token': sessionStorage.getItem(TOKEN) ?? '' },
    cache: 'no-store',
  })
  if (!response.ok)
    throw Object.assign(new Error(`the node answered ${response.status}`), { status: response.status })
  return response.json()
}

function showStatus(word, mood) {
  setText($('status'), word)
  $('status').className = `pill ${mood}`
}

function showGate(error) {
  sessionStorage.removeItem(TOKEN)
  $('node').hidden = true
  $('actions').hidden = true
  $('gate').hidden = false
  setText($('token-error'), error)
  showStatus('locked', '')
  $('token').focus()
}

function showNode({ node, rooms, sessions }) {
  $('gate').hidden = true
  $('node').hidden = false
  $('actions').hidden = false
  setText($('node-id'), node.node_id)
  setText($('about'), `${node.version}, up ${since(node.started_at)}`)
  document.title = `${node.node_id} – roomful`
  if (node.draining) showStatus('draining', 'warn')
  else showStatus('serving', 'good')
  $('drain').disabled = node.draining
  setText($('rooms-count'), String(rooms.length))
  setText($('members-count'), String(rooms.reduce((sum, room) => sum + room.members.length, 0)))
  setText($('sessions-count'), String(sessions.length))
  const { event_loop_utilisation: share, event_loop_delay_ms: delay, rss_bytes: memory } = node.load
  setText($('loop'), `${Math.round(share * 100)} %`)
  setText($('delay'), `${Math.round(delay)} ms`)
  setText($('memory'), bytes(memory))
  busy.push(share)
  if (busy.length > HISTORY) busy.shift()
  const points = busy.map(
    (value, i) => `${((100 * i) / (HISTORY - 1)).toFixed(1)},${(23 - 22 * value).toFixed(1)}`,
  )
  $('loop-line').firstElementChild.setAttribute('points', points.join(' '))
}

/**
 * Brings a table's rows in line with `items`, keeping the rows that stay, so that selections and focus survive. Cells are
 * `[label, text, class?]`.
 */
function showRows(table, items, keyOf, cellsOf, dress = () => {}) {
  const body = table.tBodies[0]
  const rows = new Map([...body.rows].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]))
  let place = body.firstElementChild
  for (const item of items.slice(0, MOST_ROWS)) {
    const key = keyOf(item)
    const row = rows.get(key) ?? document.createElement('tr')
    rows.delete(key)
    row.dataset.key = key
    cellsOf(item).forEach(([label, text, style], i) => {
      const cell = row.cells[i] ?? row.insertCell()
      cell.dataset.label = label
      if (style) cell.className = style
      setText(cell.querySelector('button') ?? cell, text)
    })
    dress(row, item)
    if (row === place) place = place.nextElementSibling
    else body.insertBefore(row, place)
    if (place?.classList.contains('details')) place = place.nextElementSibling
  }
  for (const row of rows.values()) row.remove()
  const more = items.length - MOST_ROWS
  const note = table.nextElementSibling
  setText(note, items.length === 0 ? 'None.' : more > 0 ? `${more} more; filter to find one.` : '')
}

const matches = (texts) => {
  const wanted = $('filter').value.trim().toLowerCase()
  return wanted === '' || texts.some((text) => text?.toLowerCase().includes(wanted))
}

function showRooms(rooms) {
  const now = performance.now()
  const seconds = (now - seen.at) / 1000
  const rate = (room) => {
    const before = seen.seqs.get(roomKey(room))
    return before === undefined || room.seq < before ? '–' : ((room.seq - before) / seconds).toFixed(1)
  }
  const shown = rooms.filter((room) =>
    matches([
      room.room_id,
      room.project_id,
      ...room.members.flatMap((member) => [member.sub, member.session_id]),
    ]),
  )
  const number = 'number'
  showRows(
    $('rooms'),
    shown,
    roomKey,
    (room) => [
      ['Room', room.room_id],
      ['Project', room.project_id],
      [
        'Members',
        `${room.members.filter((member) => member.connected).length}/${room.members.length}`,
        number,
      ],
      ['Updates/s', rate(room), number],
      ['Seq', String(room.seq), number],
      ['Epoch', String(room.epoch), number],
      ['Checksum', room.checksum.toString(16).padStart(8, '0'), number],
    ],
    (row, room) => dressRoom(row, room),
  )
  seen = { at: now, seqs: new Map(rooms.map((room) => [roomKey(room), room.seq])) }
}

/** Makes the room's name a button that opens it. */
function dressRoom(row, room) {
  const cell = row.cells[0]
  let button = cell.querySelector('button')
  if (!button) {
    button = Object.assign(document.createElement('button'), { type: 'button', className: 'open' })
    button.textContent = room.room_id
    button.addEventListener('click', () => {
      open =
        open && roomKey(open) === row.dataset.key
          ? null
          : { room_id: room.room_id, project_id: room.project_id }
      poll()
    })
    cell.replaceChildren(button)
  }
  button.setAttribute('aria-expanded', String(open !== null && roomKey(open) === row.dataset.key))
}

/** Shows the open room under its row. */
function showDetails(room) {
  const body = $('rooms').tBodies[0]
  let details = body.querySelector('.details')
  const row = room && [...body.rows].find((each) => each.dataset.key === roomKey(room))
  if (!row) {
    details?.remove()
    return
  }
  if (!details) {
    details = document.createElement('tr')
    details.className = 'details'
    const cell = details.insertCell()
    cell.colSpan = 7
    const columns = cell.appendChild(document.createElement('div'))
    for (const [title, element] of [
      ['Members', 'ul'],
      ['State', 'pre'],
    ]) {
      const column = columns.appendChild(document.createElement('div'))
      column.appendChild(document.createElement('h3')).textContent = title
      column.appendChild(document.createElement(element))
    }
  }
  if (row.nextElementSibling !== details) row.after(details)
  const list = details.querySelector('ul')
  const lines = room.members.map((member) => [
    `${member.sub ?? member.member_id} · ${member.session_id} at ${member.node_id}`,
    member.connected ? '' : 'away',
  ])
  while (list.children.length > lines.length) list.lastElementChild.remove()
  lines.forEach(([text, style], i) => {
    const line = list.children[i] ?? list.appendChild(document.createElement('li'))
    line.className = style
    setText(line, text)
  })
  setText(details.querySelector('pre'), JSON.stringify(room.state, null, 2) ?? '')
}

function showSessions(sessions) {
  const shown = sessions.filter((session) =>
    matches([session.session_id, session.sub, session.project_id, session.key_id, ...session.rooms]),
  )
  showRows(
    $('sessions'),
    shown,
    (session) => session.session_id,
    (session) => [
      ['Session', session.session_id],
      ['Player', session.sub ?? '–'],
      ['Project', session.project_id],
      ['Key', session.key_id ?? '–'],
      ['Connected', since(session.connected_at), 'number'],
      ['Rooms', session.rooms.join(', ') || '–'],
      ['Queued', bytes(session.queued_bytes), 'number'],
    ],
  )
}

async function detailsOfOpen() {
  if (!open) return null
  const query = new URLSearchParams({ ...open, include_state: '1' })
  const { rooms } = await ask(`/admin/runtime?${query}`)
  return rooms[0] ?? null
}

let timer = 0
let round = 0

/** Asks and shows once, then again a second later; much later where the node takes long to answer. */
async function poll() {
  clearTimeout(timer)
  round += 1
  const mine = round
  const started = performance.now()
  try {
    const [runtime, details] = await Promise.all([ask('/admin/runtime'), detailsOfOpen()])
    if (mine !== round) return
    showNode(runtime)
    showRooms(runtime.rooms)
    showDetails(details)
    showSessions(runtime.sessions)
  } catch (error) {
    if (mine !== round) return
    if (error.status === 401) {
      const tried = sessionStorage.getItem(TOKEN) !== null
      showGate(tried ? 'The node does not accept this token. Is INTERNAL_TOKEN set there?' : '')
      return
    }
    showStatus(error.status ? error.message : 'unreachable', 'bad')
  }
  if (document.hidden) return
  timer = setTimeout(poll, Math.max(EVERY_MS, 5 * (performance.now() - started)))
}

$('token-form').addEventListener('submit', (event) => {
  event.preventDefault()
  sessionStorage.setItem(TOKEN, $('token').value.trim())
  $('token').value = ''
  poll()
})
$('forget').addEventListener('click', () => {
  round += 1
  clearTimeout(timer)
  showGate('')
})
$('drain').addEventListener('click', () => $('drain-dialog').showModal())
$('drain-dialog').addEventListener('close', async () => {
  if ($('drain-dialog').returnValue !== 'drain') return
  $('drain-dialog').returnValue = ''
  try {
    await ask('/admin/drain', { method: 'POST' })
    poll()
  } catch (error) {
    showStatus(`draining failed: ${error.message}`, 'bad')
  }
})
$('filter').addEventListener('input', poll)
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && $('gate').hidden) poll()
})

if (sessionStorage.getItem(TOKEN) === null) showGate('')
else poll()
