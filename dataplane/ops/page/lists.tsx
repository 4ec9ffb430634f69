import type { RoomDescription, SessionDescription } from '../../descriptions.ts'
import type { ClusterMatches } from '../cluster-search.ts'
import { ban, endSession } from './actions.ts'
import { bytes, count, counted, nameOf } from './format.ts'
import { type Tab, useModel } from './model.ts'
import { Age } from './overview.tsx'
import { OpenRoom } from './room.tsx'
import { type Column, moveFocus, Table } from './table.tsx'
import { ListedRooms, Notices, Projects, Queues } from './tabs.tsx'

const ROOM_COLUMNS: readonly Column<RoomDescription>[] = [
  { label: 'Room', key: (room) => room.room_id, cell: (room) => <OpenRoom room={room} /> },
  { label: 'Project', key: (room) => room.project_id, look: 'soft', cell: (room) => room.project_id },
  {
    label: 'Members',
    key: (room) => room.member_count,
    look: 'number',
    cell: ({ member_count: members, connected_count: connected }) =>
      count(members) + (members > connected ? ` (${count(members - connected)} away)` : ''),
  },
  {
    label: 'Updates/s',
    key: (room) => room.updates_per_second ?? -1,
    look: 'number',
    cell: ({ updates_per_second: rate }) => (rate === null ? '–' : rate.toFixed(1)),
  },
  { label: 'Seq', key: (room) => room.seq, look: 'number', cell: ({ seq }) => count(seq) },
]

const SESSION_COLUMNS: readonly Column<SessionDescription>[] = [
  { label: 'Session', key: (session) => session.session_id, cell: (session) => session.session_id },
  { label: 'Player', key: (session) => session.sub ?? '', cell: (session) => session.sub ?? '–' },
  {
    label: 'Project',
    key: (session) => session.project_id,
    look: 'soft',
    cell: (session) => session.project_id,
  },
  {
    label: 'Key',
    key: (session) => session.key_id ?? '',
    look: 'soft',
    cell: (session) => session.key_id ?? '–',
  },
  {
    label: 'Connected',
    key: (session) => Date.parse(session.connected_at),
    look: 'number',
    cell: (session) => <Age of={session.connected_at} />,
  },
  {
    label: 'Rooms',
    key: (session) => session.rooms.length,
    look: 'rooms',
    cell: ({ project_id: projectId, rooms }) =>
      rooms.map((roomId) => <OpenRoom key={roomId} room={{ project_id: projectId, room_id: roomId }} />),
  },
  {
    label: 'Queued',
    key: (session) => session.queued_bytes,
    look: 'number',
    cell: (session) => bytes(session.queued_bytes),
  },
  { label: 'Actions', cell: (session) => <SessionActions session={session} /> },
]

function SessionActions({ session }: { session: SessionDescription }) {
  const model = useModel()
  const { sub } = session
  return (
    <>
      <button type="button" class="act" onClick={() => model.act(endSession(model, session))}>
        End…
      </button>
      {sub !== null && (
        <button type="button" class="act" onClick={() => model.act(ban(model, { ...session, sub }))}>
          Ban…
        </button>
      )}
    </>
  )
}

/** The rooms and sessions of the node, one list at a time, with the search above them. */
export function Lists() {
  const model = useModel()
  const { rooms, sessions, found } = model.heard!.runtime
  const { tab } = model
  const isSearched = tab === 'rooms' || tab === 'sessions'
  const searches = model.search.trim() !== ''
  const onTab = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const next = moveFocus(event, '[role=tab]', ['ArrowLeft', 'ArrowRight'])
    if (next) model.choose(next.id.replace('-tab', '') as Tab)
  }
  const submit = async (event: Event) => {
    event.preventDefault()
    // The list may answer an earlier text of the search.
    await model.refresh()
    const first = document.querySelector<HTMLElement>('[role=tabpanel] .open')
    if (first) first.click()
    else if (searches) void model.lookElsewhere()
  }
  return (
    <section id="lists" class="card" aria-label="Rooms and sessions of this node">
      <div class="toolbar">
        <div role="tablist" aria-label="What to list" onKeyDown={onTab}>
          <TabButton tab="rooms" label="Rooms" count={found.rooms} />
          <TabButton tab="sessions" label="Sessions" count={found.sessions} />
          <TabButton tab="listed" label="Listings" />
          <TabButton tab="queues" label="Queues" />
          <TabButton tab="notices" label="Notices" />
          <TabButton tab="projects" label="Projects" />
        </div>
        {isSearched && (
          <form id="search-form" onSubmit={submit}>
            <input
              id="search"
              type="search"
              aria-label="Search"
              placeholder="Search rooms, players, sessions"
              maxLength={200}
              autoComplete="off"
              spellcheck={false}
              aria-keyshortcuts="/"
              value={model.search}
              onInput={({ currentTarget }) => model.type(currentTarget.value)}
            />
          </form>
        )}
      </div>
      <div role="tabpanel" aria-labelledby={`${tab}-tab`}>
        {tab === 'rooms' && (
          <Table
            key="rooms"
            id="rooms"
            name="Rooms"
            columns={ROOM_COLUMNS}
            items={rooms}
            keyOf={nameOf}
            by="Members"
            rowClass={(room) => (model.isOpen(room) ? 'chosen' : '')}
          />
        )}
        {tab === 'sessions' && (
          <Table
            key="sessions"
            id="sessions"
            name="Sessions"
            columns={SESSION_COLUMNS}
            items={sessions}
            keyOf={(session) => session.session_id}
            by="Connected"
          />
        )}
        {tab === 'listed' && <ListedRooms />}
        {tab === 'queues' && <Queues />}
        {tab === 'notices' && <Notices />}
        {tab === 'projects' && <Projects />}
      </div>
      {isSearched && <SearchFoot tab={tab} shown={tab === 'rooms' ? rooms.length : sessions.length} />}
      {isSearched && model.found !== undefined && <Found />}
    </section>
  )
}

/** How many rooms or sessions match, and the ways to more. */
function SearchFoot({ tab, shown }: { tab: 'rooms' | 'sessions'; shown: number }) {
  const model = useModel()
  const { found } = model.heard!.runtime
  const searches = model.search.trim() !== ''
  return (
    <div class="foot">
      <p class="soft" role="status">
        {found[tab] > 0 || !searches
          ? `${count(shown)} of ${counted(found[tab], tab.slice(0, -1))}`
          : `No ${tab.slice(0, -1)} here matches.`}
      </p>
      {shown < found[tab] && model.canListMore && (
        <button type="button" onClick={() => model.listMore()}>
          Show more
        </button>
      )}
      {searches && (
        <button type="button" onClick={() => model.lookElsewhere()}>
          Look in the whole cluster
        </button>
      )}
    </div>
  )
}

function TabButton({ tab, label, count: items }: { tab: Tab; label: string; count?: number }) {
  const model = useModel()
  const isChosen = model.tab === tab
  return (
    <button
      type="button"
      role="tab"
      id={`${tab}-tab`}
      aria-selected={isChosen}
      tabIndex={isChosen ? 0 : -1}
      onClick={() => model.choose(tab)}
    >
      {label} {items !== undefined && <span class="soft">{count(items)}</span>}
    </button>
  )
}

/** Matches of a search at all nodes. */
function Found() {
  const found = useModel().found!
  const matches = typeof found === 'object' && 'rooms' in found ? found : undefined
  return (
    <section id="found" aria-labelledby="found-title">
      <h3 id="found-title">In the whole cluster</h3>
      <p role="status">
        {found === 'asking'
          ? 'Asking every node…'
          : 'error' in found
            ? `The cluster could not be searched: ${found.error}`
            : sumUp(found)}
      </p>
      <ul id="found-list">
        {matches?.rooms.map((room) => (
          <li key={nameOf(room)}>
            <OpenRoom room={room} />{' '}
            <span class="soft">
              {`${room.project_id}, ${counted(room.member_count, 'member')}, at ${room.node_id}`}
            </span>
          </li>
        ))}
        {matches?.sessions.map((session) => (
          <li key={session.session_id}>
            {session.sub ?? ''} <span class="soft">{`${session.session_id} at ${session.node_id}`}</span>{' '}
            {session.rooms.map((roomId) => (
              <OpenRoom key={roomId} room={{ project_id: session.project_id, room_id: roomId }} />
            ))}
          </li>
        ))}
      </ul>
    </section>
  )
}

/** The number of matches, how many of them are shown, and the nodes that did not answer. */
function sumUp({ rooms, sessions, found, silent }: ClusterMatches): string {
  const isCut = rooms.length < found.rooms || sessions.length < found.sessions
  return [
    `${counted(found.rooms, 'room')} and ${counted(found.sessions, 'session')} match.`,
    isCut ? `The first ${count(rooms.length)} and ${count(sessions.length)} are shown.` : '',
    silent.length > 0 ? `No answer from ${silent.join(', ')}: what is there is not among these.` : '',
  ].join(' ')
}
