import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { QueueDescription, RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'
import type {
  DeadLetterDescription,
  NoticesDescription,
} from '../../dataplane/features/notices/dead-letters.ts'
import type { ClusterNode } from '../../dataplane/ops/admin.ts'
import type { ClusterMatches } from '../../dataplane/ops/runtime.ts'
import type { Json } from '../../shared/json.ts'
import { Act, ban, endSession, type Project, resend, show, switchProject, unban } from './actions.tsx'
import { nameOf, pageOf, stateOf, type Tab, useModel } from './model.ts'
import { OpenRoom } from './room.tsx'
import {
  age,
  bytes,
  type Column,
  count,
  counted,
  duration,
  moveFocus,
  number,
  percent,
  Table,
  text,
} from './table.tsx'

/** Maximum number of shown rooms of a list, and of dead letters: the largest page of the node. */
const MOST_ROWS = 100
const LONGEST_DATA = 300

/** Shows the age of an RFC 3339 time of the node. */
const Age = ({ of }: { of: string }) => <>{duration(useModel().api.age(of))}</>

const sayAge = (since: string) => <Age of={since} />

/** Returns a column of JSON. */
const data = <T extends { readonly data: Json }>(): Column<T> => ({
  label: 'Data',
  key: (item) => JSON.stringify(item.data),
  look: 'wide',
  cell: (item) => {
    const text = JSON.stringify(item.data)
    return <code>{text.length <= LONGEST_DATA ? text : `${text.slice(0, LONGEST_DATA)}…`}</code>
  },
})

/** A limit of 0 means no limit. */
const ofMost = (used: number, limit: number) => count(used) + (limit === 0 ? '' : ` of ${count(limit)}`)

/** A node that runs from source knows no commit. */
const versionOf = ({ version, commit = 'unknown' }: ClusterNode): string =>
  commit === 'unknown' ? version : `${version} ${commit}`

const NODES: readonly Column<ClusterNode>[] = [
  {
    label: 'Node',
    // This node comes first.
    key: (node) => `${node.self ? 0 : 1}${node.node_id}`,
    cell: (node) => (
      <>
        <a class="mono" href={node.self || !node.alive ? undefined : pageOf(node)}>
          {node.node_id}
        </a>
        {node.self && <span class="tag">this node</span>}
      </>
    ),
  },
  {
    label: 'State',
    key: stateOf,
    cell: (node) => (
      <>
        <span class={`state ${stateOf(node).replace(' ', '-')}`}>{stateOf(node)}</span>
        {stateOf(node) === 'not ready' && (
          <span class="soft">{node.not_ready.map(({ detail }) => detail).join('; ')}</span>
        )}
      </>
    ),
  },
  number('Load', 'load', ({ load }) => percent(load)),
  number('Rooms', 'rooms', (node) => ofMost(node.rooms, node.max_rooms)),
  number('Sessions', 'sessions', (node) => ofMost(node.sessions, node.max_sessions)),
  { label: 'Version', key: versionOf, cell: versionOf },
  text('Room code', 'rooms_hash'),
  age('Up', 'started_at', (since, node) => (node.alive ? sayAge(since) : '–'), true),
]

/** The nodes of the cluster. */
export function Nodes() {
  const { nodes } = useModel().heard!
  return (
    <section class="card" aria-labelledby="nodes-title">
      <h2 id="nodes-title">
        Cluster <span class="soft">{counted(nodes.filter(({ alive }) => alive).length, 'node')}</span>
      </h2>
      <Table id="nodes" name="Nodes" columns={NODES} items={nodes} keyOf={(node) => node.node_id} by="Node" />
    </section>
  )
}

const ROOMS: readonly Column<RoomDescription>[] = [
  { label: 'Room', key: (room) => room.room_id, cell: (room) => <OpenRoom room={room} /> },
  text('Project', 'project_id', 'soft'),
  number('Members', 'member_count', ({ member_count: members, connected_count: connected }) =>
    members > connected ? `${count(members)} (${count(members - connected)} away)` : count(members),
  ),
  number('Spectators', 'spectator_count'),
  number('Updates/s', 'updates_per_second', ({ updates_per_second: rate }) => rate?.toFixed(1) ?? '–'),
  number('Seq', 'seq'),
]

const SESSIONS: readonly Column<SessionDescription>[] = [
  text('Session', 'session_id'),
  text('Player', 'sub'),
  text('Project', 'project_id', 'soft'),
  text('Key', 'key_id', 'soft'),
  age('Connected', 'connected_at', sayAge),
  {
    label: 'Rooms',
    key: (session) => session.rooms.length,
    look: 'rooms',
    cell: ({ project_id, rooms }) =>
      rooms.map((room_id) => <OpenRoom key={room_id} room={{ project_id, room_id }} />),
  },
  number('Queued', 'queued_bytes', (session) => bytes(session.queued_bytes)),
  {
    label: 'Actions',
    cell: (session) => (
      <>
        <Act label="End…" action={endSession(session)} />
        {session.sub !== null && <Act label="Ban…" action={ban({ ...session, sub: session.sub })} />}
      </>
    ),
  },
]

/** The rooms and sessions of the node, one list at a time, with the search above them; and the lists of other tabs. */
export function Lists() {
  const model = useModel()
  const { rooms, sessions, found } = model.heard!.runtime
  const { tab } = model
  const isSearched = tab === 'rooms' || tab === 'sessions'
  const onTab = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const next = moveFocus(event, '[role=tab]', ['ArrowLeft', 'ArrowRight'])
    if (next) model.choose({ tab: next.id.replace('-tab', '') as Tab })
  }
  const submit = async (event: Event) => {
    event.preventDefault()
    // The list may answer an earlier text of the search.
    await model.refresh()
    const first = document.querySelector<HTMLElement>('[role=tabpanel] .open')
    if (first) first.click()
    else if (model.search.trim() !== '') void model.lookElsewhere()
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
          <TabButton tab="bans" label="Bans" />
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
            columns={ROOMS}
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
            columns={SESSIONS}
            items={sessions}
            keyOf={(session) => session.session_id}
            by="Connected"
          />
        )}
        {tab === 'listed' && <ListedRooms />}
        {tab === 'queues' && <Queues />}
        {tab === 'notices' && <Notices />}
        {tab === 'bans' && <Bans />}
        {tab === 'projects' && <Projects />}
      </div>
      {isSearched && <SearchFoot tab={tab} shown={tab === 'rooms' ? rooms.length : sessions.length} />}
      {isSearched && model.found !== undefined && <Found found={model.found} />}
    </section>
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
      onClick={() => model.choose({ tab })}
    >
      {label} {items !== undefined && <span class="soft">{count(items)}</span>}
    </button>
  )
}

/** The number of matching rooms or sessions, and buttons for more. */
function SearchFoot({ tab, shown }: { tab: 'rooms' | 'sessions'; shown: number }) {
  const model = useModel()
  const found = model.heard!.runtime.found[tab]
  const searches = model.search.trim() !== ''
  const noun = tab.slice(0, -1)
  return (
    <div class="foot">
      <p class="soft" role="status">
        {found > 0 || !searches ? `${count(shown)} of ${counted(found, noun)}` : `No ${noun} here matches.`}
      </p>
      {shown < found && model.canListMore && (
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

/** Matches of a search at all nodes. */
function Found({ found }: { found: NonNullable<ReturnType<typeof useModel>['found']> }) {
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

/**
 * Loads an answer when the tab appears, when `question` changes, and, unless a load of the same question is pending, when `at` changes. The last
 * answer to the question stays during the next load, and when that fails.
 */
function useAnswer<T>(load: () => Promise<T | undefined>, question: string, at = 0) {
  const [loaded, setLoaded] = useState<{ question: string; answer?: T | undefined; error: string }>()
  const [reloads, setReloads] = useState(0)
  const pending = useRef('')
  const turn = `${reloads} ${question}`
  // biome-ignore lint/correctness/useExhaustiveDependencies: the question says what the answer depends on
  useEffect(() => {
    if (pending.current === turn) return
    pending.current = turn
    const keep = (next: { answer?: T | undefined; error: string }) => {
      if (pending.current !== turn) return
      pending.current = ''
      setLoaded((before) => ({ ...(before?.question === question && before), ...next, question }))
    }
    load().then(
      (answer) => keep({ answer, error: '' }),
      (error: Error) => keep({ error: error.message }),
    )
  }, [turn, at])
  const { answer, error = '' } = (loaded?.question === question && loaded) || {}
  return { answer, error, reload: () => setReloads((times) => times + 1) }
}

/** Texts of a tab around its table. */
const Foot = ({ error = '', children }: { error?: string; children?: ComponentChildren }) => (
  <div class="foot">
    {error !== '' ? (
      <p class="alarm" role="alert">
        {error}
      </p>
    ) : (
      <p class="soft" role="status">
        {children}
      </p>
    )}
  </div>
)

/** Asks for the project of a tab. It offers those that have rooms or sessions here. */
function ProjectInput() {
  const model = useModel()
  // The page renders about once a second, which must not undo what the operator types.
  const [typed, setTyped] = useState<string>()
  return (
    <label>
      Project
      <input
        list="projects-here"
        value={typed ?? model.project}
        onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        onChange={({ currentTarget }) => {
          setTyped(undefined)
          model.choose({ project: currentTarget.value.trim() })
        }}
        autoComplete="off"
        spellcheck={false}
      />
      <datalist id="projects-here">
        {model.projectsHere.map((id) => (
          <option key={id} value={id} />
        ))}
      </datalist>
    </label>
  )
}

/** A row in the answer of `GET /internal/listings`. */
interface ListedRoom {
  readonly room_id: string
  readonly players: number
  readonly max_players: number | null
  readonly reserved: number
  readonly created_at: string
  readonly data: Json
  /** Absent: the room type has no spectators. */
  readonly spectators?: number
}

/** Returns a column of the rooms of a project. */
const roomsOf = (project: string): Column<{ readonly room_id: string }> => ({
  label: 'Room',
  key: (item) => item.room_id,
  cell: (item) => <OpenRoom room={{ project_id: project, room_id: item.room_id }} />,
})

/** The listed rooms of a type. */
function ListedRooms() {
  const model = useModel()
  const { project, heard } = model
  const types = heard!.runtime.node.listed_types
  const type = model.listedType ?? types[0] ?? ''
  const { answer, error } = useAnswer(
    async () =>
      project === '' || type === ''
        ? undefined
        : model.api.ask<{ rooms: readonly ListedRoom[]; next_cursor: string | null }>('internal/listings', {
            project_id: project,
            room_type: type,
            full: '1',
            limit: String(MOST_ROWS),
          }),
    `${project} ${type}`,
    heard!.at,
  )
  const columns: readonly Column<ListedRoom>[] = [
    roomsOf(project),
    number('Players', 'players', (room) => ofMost(room.players, room.max_players ?? 0)),
    number('Reserved', 'reserved'),
    {
      label: 'Spectators',
      key: ({ spectators = -1 }) => spectators,
      look: 'number',
      cell: ({ spectators }) => (spectators === undefined ? '–' : count(spectators)),
    },
    age('Created', 'created_at', sayAge),
    data(),
  ]
  if (types.length === 0) return <Foot>No room type of this node has a list (listing).</Foot>
  return (
    <>
      <div class="fields">
        <ProjectInput />
        <label>
          Room type
          <select
            value={type}
            onChange={({ currentTarget }) => model.choose({ listedType: currentTarget.value })}
          >
            {types.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Table
        id="listed"
        name="Listed rooms"
        columns={columns}
        items={error === '' ? (answer?.rooms ?? []) : []}
        keyOf={(room) => room.room_id}
        by="Players"
      />
      <Foot error={error}>
        {answer?.next_cursor
          ? `The ${MOST_ROWS} fullest rooms. The control API lists all.`
          : answer && `${counted(answer.rooms.length, 'listed room')} of this project, at all nodes.`}
      </Foot>
    </>
  )
}

const QUEUES: readonly Column<QueueDescription>[] = [
  { label: 'Queue', key: (queue) => queue.room_id, cell: (queue) => <OpenRoom room={queue} /> },
  text('Project', 'project_id', 'soft'),
  number('Waiting', 'waiting'),
  age('Oldest wait', 'oldest_since', sayAge, true),
  number('Pending matches', 'pending_matches'),
  number('Matches', 'matches'),
  number('Failures', 'failures'),
]

/** The queues of the node. */
function Queues() {
  const model = useModel()
  const { answer, error } = useAnswer(
    () => model.api.ask<{ queues: readonly QueueDescription[] }>('admin/queues'),
    'queues',
    model.heard!.at,
  )
  return (
    <>
      <Table
        id="queues"
        name="Queues"
        columns={QUEUES}
        items={answer?.queues ?? []}
        keyOf={nameOf}
        by="Waiting"
      />
      <Foot error={error}>
        {answer &&
          `${counted(answer.queues.length, 'queue')} at this node. Matches and failures count since this node has the queue.`}
      </Foot>
    </>
  )
}

/** The notices of a project that its backend has not accepted. */
function Notices() {
  const model = useModel()
  const { project } = model
  const query = { project_id: project, limit: String(MOST_ROWS) }
  const { answer, error, reload } = useAnswer(
    async () => (project === '' ? undefined : model.api.ask<NoticesDescription>('admin/notices', query)),
    project,
  )
  const columns: readonly Column<DeadLetterDescription>[] = [
    text('Notice', 'type'),
    roomsOf(project),
    age('Dead since', 'died_at', sayAge),
    text('Last answer', 'reason'),
    data(),
    {
      label: 'Actions',
      cell: (letter) => <Act label="Resend…" action={resend(project, reload, letter.id)} />,
    },
  ]
  const letters = answer?.dead_letters ?? []
  return (
    <>
      <div class="fields">
        <ProjectInput />
        <button type="button" onClick={reload}>
          Refresh
        </button>
        <Act label="Resend all…" look="" disabled={letters.length === 0} action={resend(project, reload)} />
      </div>
      <Table
        id="notices"
        name="Dead letters"
        columns={columns}
        items={letters}
        keyOf={(letter) => letter.id}
        by="Dead since"
      />
      <Foot error={error}>
        {answer &&
          [
            letters.length === 0
              ? 'This project has no dead letters.'
              : answer.next_cursor === null
                ? `${counted(letters.length, 'dead letter')}.`
                : `The newest ${MOST_ROWS} dead letters.`,
            `${counted(answer.pending.notices, 'notice')} of ${counted(answer.pending.rooms, 'room')} wait to be delivered.`,
          ].join(' ')}
      </Foot>
    </>
  )
}

/** Asks for the operator token of a list that control has. */
const Locked = ({ list }: { list: 'projects' | 'bans' }) => (
  <div class="fields">
    <p class="soft">{`Control has the ${list}. To see them, the page needs an operator token.`}</p>
    <Act label={`Show the ${list}…`} look="" action={show(list)} />
  </div>
)

/** A ban in the answer of `GET /projects/:id/bans`. */
interface Ban {
  readonly sub: string
  readonly until: string | null
  readonly room_types: readonly string[] | null
  readonly reason: string | null
}

/** Shows the time that is left until an RFC 3339 time of the node. */
const Left = ({ until }: { until: string }) => <>{`in ${duration(-useModel().api.age(until))}`}</>

const sayTypes = ({ room_types: types }: Ban): string => types?.join(', ') ?? 'the whole project'

/** The bans of a project, from control. */
function Bans() {
  const { control, project } = useModel()
  const query = { limit: String(MOST_ROWS) }
  type Answer = { readonly bans: readonly Ban[]; readonly next_cursor: string | null }
  const { answer, error, reload } = useAnswer(
    async () =>
      control.isOpen && project !== ''
        ? control.ask<Answer>('GET', ['projects', project, 'bans'], { query })
        : undefined,
    `${control.isOpen} ${project}`,
  )
  const columns: readonly Column<Ban>[] = [
    text('Player', 'sub'),
    {
      label: 'Ends',
      key: ({ until }) => until ?? '9999',
      cell: ({ until }) => (until === null ? 'never' : <Left until={until} />),
    },
    { label: 'From', key: sayTypes, cell: sayTypes },
    text('Reason', 'reason'),
    {
      label: 'Actions',
      cell: ({ sub }) => <Act label="End…" action={unban({ project_id: project, sub }, reload)} />,
    },
  ]
  if (!answer && !control.isOpen) return <Locked list="bans" />
  return (
    <>
      <div class="fields">
        <ProjectInput />
        <button type="button" onClick={reload}>
          Refresh
        </button>
      </div>
      <Table
        id="bans"
        name="Bans"
        columns={columns}
        items={error === '' ? (answer?.bans ?? []) : []}
        keyOf={(one) => one.sub}
        by="Player"
      />
      <Foot error={error}>
        {answer &&
          (answer.bans.length === 0
            ? 'No player of this project is banned.'
            : answer.next_cursor === null
              ? `${counted(answer.bans.length, 'banned player')}.`
              : `The first ${MOST_ROWS} bans. The command roomful admin bans lists all.`)}
      </Foot>
    </>
  )
}

/** The projects of the deployment, from control. */
function Projects() {
  const { control } = useModel()
  const query = { limit: String(MOST_ROWS) }
  type Answer = { readonly projects: readonly Project[]; readonly next_cursor: string | null }
  const { answer, error, reload } = useAnswer(
    async () => (control.isOpen ? control.ask<Answer>('GET', ['projects'], { query }) : undefined),
    String(control.isOpen),
  )
  const columns: readonly Column<Project>[] = [
    text('Project', 'name'),
    text('Id', 'id', 'soft'),
    {
      label: 'State',
      key: (project) => project.disabled_at ?? '',
      cell: ({ disabled_at: disabledAt }) => (
        <span class={`state ${disabledAt === null ? 'serving' : 'gone'}`}>
          {disabledAt === null ? 'enabled' : 'disabled'}
        </span>
      ),
    },
    age('Created', 'created_at', sayAge),
    {
      label: 'Actions',
      cell: (project) => (
        <Act
          label={project.disabled_at === null ? 'Disable…' : 'Enable…'}
          action={switchProject(project, reload)}
        />
      ),
    },
  ]
  if (!answer && !control.isOpen) return <Locked list="projects" />
  return (
    <>
      <Table
        id="projects"
        name="Projects"
        columns={columns}
        items={answer?.projects ?? []}
        keyOf={(project) => project.id}
        by="Created"
      />
      <Foot error={error}>
        {answer &&
          (answer.next_cursor === null
            ? `${counted(answer.projects.length, 'project')}.`
            : `The newest ${MOST_ROWS} projects. The command roomful admin projects lists all.`)}
      </Foot>
    </>
  )
}
