import type { ClusterNodeDescription } from '../../descriptions.ts'
import { bytes, count, counted, duration, pageOf, percent, timeOfDay } from './format.ts'
import { useModel } from './model.ts'
import { type Column, Table } from './table.tsx'

/** The figures of the node. */
export function Glance() {
  const { node, totals } = useModel().heard!.runtime
  const { event_loop_utilisation: share, event_loop_delay_ms: delay, rss_bytes: memory } = node.load
  return (
    <dl id="glance" class="card">
      <Figure label="Rooms" value={count(totals.rooms)} />
      <Figure label="Members" value={count(totals.members)} />
      <Figure label="Sessions" value={count(totals.sessions)} />
      <Figure label="Event loop" value={percent(share)} />
      <Figure label="Longest delay" value={`${Math.round(delay)} ms`} />
      <Figure label="Memory" value={bytes(memory)} />
    </dl>
  )
}

/** A figure with its name. */
export const Figure = ({ label, value }: { label: string; value: string }) => (
  <div>
    <dt>{label}</dt>
    <dd>{value}</dd>
  </div>
)

/** Problems of this node now, and nodes that died or are overloaded. */
export function Problems() {
  const { runtime, nodes } = useModel().heard!
  const others = nodes
    .filter((node) => !node.self && (!node.alive || node.overloaded))
    .map((node) => ({
      code: node.alive ? 'overloaded' : 'gone',
      detail: `${node.node_id} ${node.alive ? 'is overloaded' : 'has ended or died'}`,
    }))
  const problems = [...runtime.problems, ...others]
  if (problems.length === 0) return null
  return (
    <section id="problems" class="card" aria-labelledby="problems-title">
      <h2 id="problems-title">What is wrong now</h2>
      <ul>
        {problems.map(({ code, detail }) => (
          <li key={`${code} ${detail}`}>
            <span class="tag">{code}</span> {detail}
          </li>
        ))}
      </ul>
    </section>
  )
}

type Node = ClusterNodeDescription

function wordOf({ alive, draining, cordoned }: Node): string {
  if (!alive) return 'gone'
  if (draining) return 'draining'
  return cordoned ? 'cordoned' : 'serving'
}
/** A limit of 0 is none. */
const ofMost = (used: number, limit: number) => count(used) + (limit === 0 ? '' : ` of ${count(limit)}`)

const COLUMNS: readonly Column<Node>[] = [
  {
    label: 'Node',
    // The own node comes first.
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
    key: wordOf,
    cell: (node) => <span class={`state ${wordOf(node)}`}>{wordOf(node)}</span>,
  },
  { label: 'Load', key: (node) => node.load, look: 'number', cell: (node) => percent(node.load) },
  {
    label: 'Rooms',
    key: (node) => node.rooms,
    look: 'number',
    cell: (node) => ofMost(node.rooms, node.max_rooms),
  },
  {
    label: 'Sessions',
    key: (node) => node.sessions,
    look: 'number',
    cell: (node) => ofMost(node.sessions, node.max_sessions),
  },
  { label: 'Version', key: (node) => node.version, cell: (node) => `${node.version} ${node.commit ?? ''}` },
  { label: 'Room code', key: (node) => node.rooms_hash ?? '', cell: (node) => node.rooms_hash ?? '–' },
  {
    label: 'Up',
    key: (node) => -Date.parse(node.started_at),
    look: 'number',
    cell: (node) => (node.alive ? <Age of={node.started_at} /> : '–'),
  },
]

/** The age of an RFC 3339 time of the node. */
export const Age = ({ of }: { of: string }) => <>{duration(useModel().api.age(of))}</>

/** The nodes of the cluster. */
export function Nodes() {
  const { nodes } = useModel().heard!
  return (
    <section class="card" aria-labelledby="nodes-title">
      <h2 id="nodes-title">
        Cluster <span class="soft">{counted(nodes.filter(({ alive }) => alive).length, 'node')}</span>
      </h2>
      <Table
        id="nodes"
        name="Nodes"
        columns={COLUMNS}
        items={nodes}
        keyOf={(node) => node.node_id}
        by="Node"
      />
    </section>
  )
}

/** Progress of the drain, and where to continue when the process has ended. */
export function DrainProgress() {
  const { drain, heard, status } = useModel()
  if (!drain || !heard) return null
  const { node, totals } = heard.runtime
  const ended = status.word === 'ended'
  const others = heard.nodes.filter((other) => other.alive && !other.self && pageOf(other))
  const moved = (noun: 'room' | 'session') => {
    const left = totals[`${noun}s`]
    const all = Math.max(drain[`${noun}s`], left)
    return `${count(all - left)} of ${counted(all, noun)} moved`
  }
  return (
    <section id="drain-progress" class="card" aria-labelledby="drain-title">
      <h2 id="drain-title">{`${node.node_id} ${ended ? 'has drained and ended' : 'is draining'}`}</h2>
      <p class="soft">
        {ended
          ? `When it last answered, at ${timeOfDay(heard.at)}, it still had ${counted(totals.rooms, 'room')} and ${counted(totals.sessions, 'session')}.`
          : `${moved('room')}, ${moved('session')} in ${duration(Date.now() - drain.at)}; then its process ends.`}
      </p>
      {ended && others.length > 0 && (
        <p>
          Continue at{' '}
          {others.map((other) => (
            <a key={other.node_id} href={pageOf(other)} class="mono">
              {other.node_id}
            </a>
          ))}
        </p>
      )}
    </section>
  )
}
