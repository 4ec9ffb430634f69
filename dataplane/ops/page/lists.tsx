import type { ClusterMatches, RoomDescription, SessionDescription } from './api.ts'
import { bytes, count, counted, nameOf, type RoomName } from './format.ts'
import { focusOn, type Tab, useModel } from './model.ts'
import { Age } from './overview.tsx'
import { type Column, moveFocus, Order, Table, useSteadyRows } from './table.tsx'

/** A button that opens a room. */
function OpenRoom({ room, toggles = false }: { room: RoomName; toggles?: boolean }) {
  const model = useModel()
  const isOpen = model.isOpen(room)
  return (
    <button
      type="button"
      class="open"
      {...(toggles && { 'aria-controls': 'room', 'aria-expanded': isOpen })}
      onClick={({ currentTarget }) => (toggles && isOpen ? model.close() : model.open(room, currentTarget))}
    >
      {room.room_id}
    </button>
  )
}

const ROOM_COLUMNS: readonly Column<RoomDescription>[] = [
  { name: 'room', label: 'Room', cell: (room) => <OpenRoom room={room} toggles /> },
  { name: 'project', label: 'Project', look: 'soft', cell: (room) => room.project_id },
  {
    name: 'members',
    label: 'Members',
    look: 'number',
    first: 'descending',
    cell: ({ member_count: memberCount, connected_count: connectedCount }) => {
      const away = memberCount - connectedCount
      return count(memberCount) + (away > 0 ? ` (${count(away)} away)` : '')
    },
  },
  {
    name: 'updates',
    label: 'Updates/s',
    look: 'number',
    first: 'descending',
    cell: ({ updates_per_second: rate }) => (rate === null ? '–' : rate.toFixed(1)),
  },
  { name: 'seq', label: 'Seq', look: 'number', first: 'descending', cell: ({ seq }) => count(seq) },
]

const SESSION_COLUMNS: readonly Column<SessionDescription>[] = [
  { name: 'session', label: 'Session', cell: ({ session_id: sessionId }) => sessionId },
  { name: 'player', label: 'Player', cell: ({ sub }) => sub ?? '–' },
  { name: 'project', label: 'Project', look: 'soft', cell: ({ project_id: projectId }) => projectId },
  { name: 'key', label: 'Key', look: 'soft', cell: ({ key_id: keyId }) => keyId ?? '–' },
  {
    name: 'connected',
    label: 'Connected',
    look: 'number',
    isAge: true,
    cell: ({ connected_at: connectedAt }) => <Age of={connectedAt} />,
  },
  {
    name: 'rooms',
    label: 'Rooms',
    look: 'rooms',
    first: 'descending',
    cell: ({ project_id: projectId, rooms }) =>
      rooms.map((roomId) => <OpenRoom key={roomId} room={{ project_id: projectId, room_id: roomId }} />),
  },
  {
    name: 'queued',
    label: 'Queued',
    look: 'number',
    first: 'descending',
    cell: ({ queued_bytes: queuedBytes }) => bytes(queuedBytes),
  },
]

/** Where most is going on, and who came last. */
export const listOrders = () => ({
  rooms: new Order('rooms', ROOM_COLUMNS, 'members', 'descending'),
  sessions: new Order('sessions', SESSION_COLUMNS, 'connected', 'ascending'),
})

/** The rooms and sessions of the node, one list at a time, with the search above them. */
export function Lists({ orders }: { orders: ReturnType<typeof listOrders> }) {
  const model = useModel()
  const { rooms, sessions, found } = model.heard!.runtime
  const onTab = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const tab = moveFocus(event, '[role=tab]', ['ArrowLeft', 'ArrowRight'])
    if (tab) model.choose(tab.id === 'rooms-tab' ? 'rooms' : 'sessions')
  }
  return (
    <section id="lists" class="card" aria-label="Rooms and sessions of this node">
      <div class="toolbar">
        <div role="tablist" aria-label="What to list" onKeyDown={onTab}>
          <TabButton tab="rooms" label="Rooms" found={found.rooms} />
          <TabButton tab="sessions" label="Sessions" found={found.sessions} />
        </div>
        <Search />
      </div>
      {model.tab === 'rooms' ? (
        <List
          key="rooms"
          noun="room"
          items={rooms}
          all={found.rooms}
          order={orders.rooms}
          keyOf={nameOf}
          rowClass={(room) => (model.isOpen(room) ? 'chosen' : '')}
        />
      ) : (
        <List
          key="sessions"
          noun="session"
          items={sessions}
          all={found.sessions}
          order={orders.sessions}
          keyOf={(session) => session.session_id}
        />
      )}
      {model.found !== undefined && <Found />}
    </section>
  )
}

function TabButton({ tab, label, found }: { tab: Tab; label: string; found: number }) {
  const model = useModel()
  const isChosen = model.tab === tab
  return (
    <button
      type="button"
      role="tab"
      id={`${tab}-tab`}
      aria-selected={isChosen}
      aria-controls={`${tab}-panel`}
      tabIndex={isChosen ? 0 : -1}
      onClick={() => model.choose(tab)}
    >
      {label} <span>{count(found)}</span>
    </button>
  )
}

function Search() {
  const model = useModel()
  const submit = async (event: Event) => {
    event.preventDefault()
    // What is listed may be the answer to what was typed before.
    await model.restart()
    const first = document.querySelector<HTMLElement>('[role=tabpanel] .open')
    if (!first) {
      if (model.search.trim() !== '') void model.lookElsewhere()
    } else if (first.getAttribute('aria-expanded') !== 'true') first.click()
  }
  return (
    <search id="search-area">
      <form id="search-form" onSubmit={submit}>
        <label for="search" class="unseen">
          Search
        </label>
        <input
          id="search"
          type="search"
          placeholder="Search rooms, players, sessions"
          maxLength={200}
          autoComplete="off"
          spellcheck={false}
          aria-keyshortcuts="/"
          value={model.search}
          onInput={({ currentTarget }) => model.type(currentTarget.value)}
        />
        {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: it takes no focus */}
        <kbd aria-hidden="true">/</kbd>
      </form>
    </search>
  )
}

interface ListProps<T> {
  readonly noun: 'room' | 'session'
  readonly items: readonly T[]
  /** How many there are, listed or not. */
  readonly all: number
  readonly order: Order<T>
  readonly keyOf: (item: T) => string
  readonly rowClass?: (item: T) => string
}

function List<T>({ noun, items, all, order, keyOf, ...rest }: ListProps<T>) {
  const model = useModel()
  const rows = useSteadyRows(items, keyOf, model.heard!.version)
  const hasMore = items.length < all
  const held = rows.isHeld ? '; no row moves while you are among them' : ''
  const cut = hasMore && !model.canListMore ? '; search to see others' : ''
  const none = model.search.trim() === '' ? `There are no ${noun}s here.` : `No ${noun} here matches.`
  return (
    <>
      <div id={`${noun}s-panel`} role="tabpanel" aria-labelledby={`${noun}s-tab`}>
        <Table
          id={`${noun}s`}
          name={{ 'aria-label': noun === 'room' ? 'Rooms' : 'Sessions' }}
          order={order}
          rows={rows}
          keyOf={keyOf}
          onSort={(words) => model.sorted(words)}
          {...rest}
        />
      </div>
      <div class="foot">
        <p class="soft">
          {all === 0 ? none : `${count(items.length)} of ${counted(all, noun)}${held}${cut}`}
        </p>
        {hasMore && model.canListMore && (
          <button type="button" onClick={() => model.listMore()}>
            Show more
          </button>
        )}
        {model.search.trim() !== '' && (
          <button type="button" onClick={() => model.lookElsewhere()}>
            Look in the whole cluster
          </button>
        )}
      </div>
    </>
  )
}

/** What a search over the whole cluster found. */
function Found() {
  const found = useModel().found!
  const matches = typeof found === 'object' && 'rooms' in found ? found : undefined
  const toSearch = ({ key }: KeyboardEvent) => {
    if (key === 'Escape') focusOn('search')
  }
  return (
    <section id="found" aria-labelledby="found-title">
      <h3 id="found-title">In the whole cluster</h3>
      <p id="found-note" role="status">
        {found === 'asking'
          ? 'Asking every node…'
          : 'error' in found
            ? `The cluster could not be searched: ${found.error}`
            : sumUp(found)}
      </p>
      <ul id="found-list" onKeyDown={toSearch}>
        {matches?.rooms.map((room) => (
          <li key={nameOf(room)}>
            <OpenRoom room={room} />
            <span class="soft">
              {`${room.project_id}, ${counted(room.member_count, 'member')}, at ${room.node_id}`}
            </span>
          </li>
        ))}
        {matches?.sessions.map(
          ({ session_id: sessionId, sub, project_id: projectId, rooms, node_id: nodeId }) => (
            <li key={sessionId}>
              {sub !== null && <span class="who">{sub}</span>}
              <span class="soft">{sessionId}</span>
              <span class="soft">{rooms.length > 0 ? 'in' : 'in no room'}</span>
              {rooms.map((roomId) => (
                <OpenRoom key={roomId} room={{ project_id: projectId, room_id: roomId }} />
              ))}
              <span class="soft">{`at ${nodeId}`}</span>
            </li>
          ),
        )}
      </ul>
    </section>
  )
}

/** What there is, how much of it is shown, and who was not asked. */
function sumUp({ rooms, sessions, found, silent }: ClusterMatches): string {
  const shown = (list: readonly unknown[], all: number, noun: string) =>
    list.length < all ? `the first ${count(list.length)} of ${counted(all, noun)}` : counted(all, noun)
  const parts: string[] = []
  if (found.rooms > 0) parts.push(shown(rooms, found.rooms, 'room'))
  if (found.sessions > 0) parts.push(shown(sessions, found.sessions, 'session'))
  let text = parts.length === 0 ? 'Nothing matches.' : `${parts.join(' and ')}.`
  text = text.charAt(0).toUpperCase() + text.slice(1)
  if (rooms.length < found.rooms || sessions.length < found.sessions) text += ' More letters find fewer.'
  if (silent.length > 0) text += ` No answer from ${silent.join(', ')}: what is there is not among these.`
  return text
}
