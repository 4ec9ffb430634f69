import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Json } from '../../../shared/json.ts'
import type { QueueDescription } from '../../descriptions.ts'
import type { DeadLetterDescription, NoticesDescription } from '../../notices/operations.ts'
import { type Project, resend, showProjects, switchProject } from './actions.ts'
import { count, counted, nameOf } from './format.ts'
import { useModel } from './model.ts'
import { Age } from './overview.tsx'
import { OpenRoom } from './room.tsx'
import { type Column, Table } from './table.tsx'

/** Rooms of a list, and dead letters, that are shown at most: as many as the node gives at once. */
const MOST_ROWS = 100
const LONGEST_DATA = 300

/** An answer of the node or of control. */
interface Loaded<T> {
  readonly answer: T | undefined
  readonly error: string
  reload(): void
}

/**
 * Loads an answer when the tab appears, when `question` changes, and, unless a load of the same question is pending, when `at` changes. The last
 * answer to the question stays during the next load, and when that fails.
 */
function useAnswer<T>(load: () => Promise<T | undefined>, question: string, at = 0): Loaded<T> {
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
  useEffect(
    () => () => {
      pending.current = ''
    },
    [],
  )
  const { answer, error = '' } = (loaded?.question === question && loaded) || {}
  return { answer, error, reload: () => setReloads((times) => times + 1) }
}

const shorten = (data: Json): string => {
  const text = JSON.stringify(data)
  return text.length <= LONGEST_DATA ? text : `${text.slice(0, LONGEST_DATA)}…`
}

/** What a tab says besides its table. */
const Foot = ({ error, children }: { error: string; children?: ComponentChildren }) => (
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
          model.chooseProject(currentTarget.value.trim())
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

/** A row of a list, as `GET /internal/listings` has it. */
interface ListedRoom {
  readonly room_id: string
  readonly members: number
  readonly max_members: number | null
  readonly reserved: number
  readonly created_at: string
  readonly data: Json
}

/** The rooms of a type that players find in lists. */
export function ListedRooms() {
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
    {
      label: 'Room',
      key: (room) => room.room_id,
      cell: (room) => <OpenRoom room={{ project_id: project, room_id: room.room_id }} />,
    },
    {
      label: 'Members',
      key: (room) => room.members,
      look: 'number',
      cell: ({ members, max_members: most }) => count(members) + (most === null ? '' : ` of ${count(most)}`),
    },
    { label: 'Reserved', key: (room) => room.reserved, look: 'number', cell: (room) => count(room.reserved) },
    {
      label: 'Created',
      key: (room) => Date.parse(room.created_at),
      look: 'number',
      cell: (room) => <Age of={room.created_at} />,
    },
    {
      label: 'Data',
      key: (room) => JSON.stringify(room.data),
      look: 'wide',
      cell: (room) => <code>{shorten(room.data)}</code>,
    },
  ]
  if (types.length === 0) return <Foot error="">No room type of this node has a list (listing).</Foot>
  return (
    <>
      <div class="fields">
        <ProjectInput />
        <label>
          Room type
          <select value={type} onChange={({ currentTarget }) => model.chooseListedType(currentTarget.value)}>
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
        by="Members"
      />
      <Foot error={error}>
        {answer?.next_cursor
          ? `The ${MOST_ROWS} fullest rooms. The control API lists all.`
          : answer && `${counted(answer.rooms.length, 'listed room')} of this project, at all nodes.`}
      </Foot>
    </>
  )
}

const QUEUE_COLUMNS: readonly Column<QueueDescription>[] = [
  { label: 'Queue', key: (queue) => queue.room_id, cell: (queue) => <OpenRoom room={queue} /> },
  { label: 'Project', key: (queue) => queue.project_id, look: 'soft', cell: (queue) => queue.project_id },
  { label: 'Waiting', key: (queue) => queue.waiting, look: 'number', cell: (queue) => count(queue.waiting) },
  {
    label: 'Oldest wait',
    key: (queue) => -Date.parse(queue.oldest_since ?? '9999-01-01'),
    look: 'number',
    cell: ({ oldest_since: since }) => (since === null ? '–' : <Age of={since} />),
  },
  {
    label: 'Pending matches',
    key: (queue) => queue.pending_matches,
    look: 'number',
    cell: (queue) => count(queue.pending_matches),
  },
  { label: 'Matches', key: (queue) => queue.matches, look: 'number', cell: (queue) => count(queue.matches) },
  {
    label: 'Failures',
    key: (queue) => queue.failures,
    look: 'number',
    cell: (queue) => count(queue.failures),
  },
]

/** The queues of the node. */
export function Queues() {
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
        columns={QUEUE_COLUMNS}
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
export function Notices() {
  const model = useModel()
  const { project } = model
  const { answer, error, reload } = useAnswer(
    async () =>
      project === ''
        ? undefined
        : model.api.ask<NoticesDescription>('admin/notices', {
            project_id: project,
            limit: String(MOST_ROWS),
          }),
    project,
  )
  const columns: readonly Column<DeadLetterDescription>[] = [
    { label: 'Notice', key: (letter) => letter.type, cell: (letter) => letter.type },
    {
      label: 'Room',
      key: (letter) => letter.room_id,
      cell: (letter) => <OpenRoom room={{ project_id: project, room_id: letter.room_id }} />,
    },
    {
      label: 'Dead since',
      key: (letter) => Date.parse(letter.died_at),
      look: 'number',
      cell: (letter) => <Age of={letter.died_at} />,
    },
    { label: 'Last answer', key: (letter) => letter.reason, cell: (letter) => letter.reason },
    {
      label: 'Data',
      key: (letter) => JSON.stringify(letter.data),
      look: 'wide',
      cell: (letter) => <code>{shorten(letter.data)}</code>,
    },
    {
      label: 'Actions',
      cell: (letter) => (
        <button
          type="button"
          class="act"
          onClick={() => model.act(resend(model, project, reload, letter.id))}
        >
          Resend…
        </button>
      ),
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
        <button
          type="button"
          disabled={letters.length === 0}
          onClick={() => model.act(resend(model, project, reload))}
        >
          Resend all…
        </button>
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

/** The projects of the deployment, which control has. */
export function Projects() {
  const model = useModel()
  const { control } = model
  const { answer, error, reload } = useAnswer(
    async () =>
      control.isOpen
        ? control.ask<{ projects: readonly Project[]; next_cursor: string | null }>('GET', ['projects'], {
            query: { limit: String(MOST_ROWS) },
          })
        : undefined,
    String(control.isOpen),
  )
  const columns: readonly Column<Project>[] = [
    { label: 'Project', key: (project) => project.name, cell: (project) => project.name },
    { label: 'Id', key: (project) => project.id, look: 'soft', cell: (project) => project.id },
    {
      label: 'State',
      key: (project) => project.disabled_at ?? '',
      cell: ({ disabled_at: disabledAt }) => (
        <span class={`state ${disabledAt === null ? 'serving' : 'gone'}`}>
          {disabledAt === null ? 'enabled' : 'disabled'}
        </span>
      ),
    },
    {
      label: 'Created',
      key: (project) => Date.parse(project.created_at),
      look: 'number',
      cell: (project) => <Age of={project.created_at} />,
    },
    {
      label: 'Actions',
      cell: (project) => (
        <button type="button" class="act" onClick={() => model.act(switchProject(model, project, reload))}>
          {project.disabled_at === null ? 'Disable…' : 'Enable…'}
        </button>
      ),
    },
  ]
  if (!answer && !control.isOpen)
    return (
      <div class="fields">
        <p class="soft">Control has the projects. To see them, the page needs an operator token.</p>
        <button type="button" onClick={() => model.act(showProjects(model))}>
          Show the projects…
        </button>
      </div>
    )
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
