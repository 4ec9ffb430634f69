import type { ClusterNodeDescription } from './api.ts'
import { bytes, count, counted, duration, pageOf, percent, timeOfDay } from './format.ts'
import { useModel } from './model.ts'
import { type Column, Order, Table, useSteadyRows } from './table.tsx'

/** The node at a glance: the figures below its header. */
export function Glance() {
  const { busy, heard } = useModel()
  const { node, totals } = heard!.runtime
  const { event_loop_utilisation: share, event_loop_delay_ms: delay, rss_bytes: memory } = node.load
  const points = busy.map(
    (value, i) => `${(100 * (60 - busy.length + i)) / 59},${(23 - 22 * value).toFixed(1)}`,
  )
  return (
    <dl id="glance" class="card">
      <Figure id="rooms-total" label="Rooms" value={count(totals.rooms)} />
      <Figure id="members-total" label="Members" value={count(totals.members)} />
      <Figure id="sessions-total" label="Sessions" value={count(totals.sessions)} />
      <div>
        <dt>Event loop</dt>
        <dd>{percent(share)}</dd>
        <svg id="loop-line" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
          <polyline points={points.join(' ')} />
        </svg>
      </div>
      <Figure label="Longest delay" value={`${Math.round(delay)} ms`} />
      <Figure label="Memory" value={bytes(memory)} />
    </dl>
  )
}

/** A figure with its name. */
export const Figure = ({ id, label, value }: { id?: string; label: string; value: string }) => (
  <div>
    <dt>{label}</dt>
    <dd id={id}>{value}</dd>
  </div>
)

type Node = ClusterNodeDescription

/** What state a node is in. */
const wordOf = (node: Node) => (node.alive ? (node.draining ? 'draining' : 'serving') : 'gone')

const COLUMNS: readonly Column<Node>[] = [
  {
    name: 'node',
    label: 'Node',
    key: (node) => node.node_id,
    cell: (node) => (
      <>
        <a class="mono name" href={node.self || !node.alive ? undefined : pageOf(node)}>
          {node.node_id}
        </a>
        {node.self && <span class="tag">this node</span>}
      </>
    ),
  },
  {
    name: 'state',
    label: 'State',
    key: wordOf,
    cell: (node) => <span class={`state ${wordOf(node)}`}>{wordOf(node)}</span>,
  },
  {
    name: 'load',
    label: 'Load',
    key: (node) => node.load,
    first: 'descending',
    cell: (node) => <Gauge share={node.load} text={percent(node.load)} />,
  },
  {
    name: 'rooms',
    label: 'Rooms',
    key: (node) => node.rooms,
    first: 'descending',
    title: (node) => mostOf(node.max_rooms),
    cell: (node) => <Gauge share={shareOf(node.rooms, node.max_rooms)} text={count(node.rooms)} />,
  },
  {
    name: 'sessions',
    label: 'Sessions',
    key: (node) => node.sessions,
    first: 'descending',
    title: (node) => mostOf(node.max_sessions),
    cell: (node) => <Gauge share={shareOf(node.sessions, node.max_sessions)} text={count(node.sessions)} />,
  },
  {
    name: 'version',
    label: 'Version',
    key: (node) => node.version,
    title: (node) => `commit ${node.commit ?? 'unknown'}`,
    cell: (node) => node.version,
  },
  {
    name: 'rooms_hash',
    label: 'Room code',
    key: (node) => node.rooms_hash ?? '',
    title: () => 'hash of the code of its room types',
    cell: (node) => node.rooms_hash ?? '–',
  },
  {
    name: 'started',
    label: 'Up',
    key: (node) => node.started_at,
    look: 'number',
    isAge: true,
    first: 'descending',
    cell: (node) => (node.alive ? <Age of={node.started_at} /> : '–'),
  },
]

export const nodeOrder = () => new Order('nodes', COLUMNS, 'node', 'ascending')

/** How long ago an RFC 3339 time of the node was. */
export const Age = ({ of }: { of: string }) => <>{duration(useModel().api.age(of))}</>

/** A limit of 0 is none. */
const mostOf = (limit: number): string => (limit === 0 ? 'no limit' : `of at most ${count(limit)}`)
const shareOf = (used: number, limit: number): number => (limit === 0 ? 0 : used / limit)

/** A bar that is full at a share of 1, and its figure. */
const Gauge = ({ share, text }: { share: number; text: string }) => (
  <span class="gauge">
    <Bar share={share} high={share >= 0.85} />
    <b>{text}</b>
  </span>
)

const Bar = ({ share, high = false }: { share: number; high?: boolean }) => (
  <span class={high ? 'bar high' : 'bar'}>
    <i style={{ width: `${Math.min(100, 100 * share).toFixed(1)}%` }} />
  </span>
)

/** The nodes of the cluster. */
export function Nodes({ order }: { order: Order<Node> }) {
  const model = useModel()
  const { nodes } = model.heard!
  const sorted = nodes.toSorted((a, b) => compare(order, a, b))
  const rows = useSteadyRows(sorted, (node) => node.node_id, order.query)
  return (
    <section class="card" aria-labelledby="nodes-title">
      <h2 id="nodes-title">
        Cluster <span class="soft">{counted(nodes.filter(({ alive }) => alive).length, 'node')}</span>
      </h2>
      <div class="scroll">
        <Table
          id="nodes"
          name={{ 'aria-labelledby': 'nodes-title' }}
          order={order}
          rows={rows}
          keyOf={(node) => node.node_id}
          rowClass={(node) => (node.alive ? '' : 'gone')}
          onSort={(words) => model.sorted(words)}
        />
      </div>
    </section>
  )
}

/** By name, the own node comes before all others, whichever way. */
function compare({ by, descending }: Order<Node>, a: Node, b: Node): number {
  if (by.name === 'node' && a.self !== b.self) return Number(b.self) - Number(a.self)
  const [left, right] = [by.key!(a), by.key!(b)]
  if (left !== right) return left < right === descending ? 1 : -1
  return a.node_id < b.node_id ? -1 : 1
}

/** How the drain goes, and where to go on once the process has ended. */
export function DrainProgress() {
  const { drain, heard, status } = useModel()
  if (!drain || !heard) return null
  const { node, totals } = heard.runtime
  const ended = status.word === 'ended'
  const others = heard.nodes.filter((other) => other.alive && !other.self && pageOf(other))
  return (
    <section id="drain-progress" class="card" aria-labelledby="drain-title">
      <h2 id="drain-title">{`${node.node_id} ${ended ? 'has drained and ended' : 'is draining'}`}</h2>
      {ended ? (
        <>
          <p class="soft">
            {`When it last answered, at ${timeOfDay(heard.at)}, it still had ${counted(totals.rooms, 'room')} and ${counted(totals.sessions, 'session')}.`}
          </p>
          {others.length > 0 && (
            <p id="drain-links">
              Go on at{' '}
              {others.map((other) => (
                <a key={other.node_id} href={pageOf(other)} class="mono">
                  {other.node_id}
                </a>
              ))}
            </p>
          )}
        </>
      ) : (
        <>
          <p class="soft">{`for ${duration(Date.now() - drain.at)}; its process ends when it is done.`}</p>
          <div class="progress">
            <Moved noun="room" left={totals.rooms} of={Math.max(drain.rooms, totals.rooms)} />
            <Moved noun="session" left={totals.sessions} of={Math.max(drain.sessions, totals.sessions)} />
          </div>
        </>
      )}
    </section>
  )
}

const Moved = ({ noun, left, of }: { noun: string; left: number; of: number }) => (
  <>
    <Bar share={of === 0 ? 1 : (of - left) / of} />
    <span>{`${count(of - left)} of ${counted(of, noun)} moved`}</span>
  </>
)
