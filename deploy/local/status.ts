import { type NodeView, ownersOf } from '../../examples/backend/nodes.ts'
import { type Child, describeExit } from './child.ts'
import type { LocalCluster } from './local-cluster.ts'
import { table } from './table.ts'

/** Above this many rooms only the first are listed. */
const MOST_ROOMS = 20

/** Every process and every room at this moment, as tables. */
export async function statusText(cluster: LocalCluster): Promise<string> {
  const views = await cluster.nodes.look()
  const rows = [['process', 'pid', 'state', 'rooms', 'sessions', 'members', 'lease']]
  for (const child of cluster.children.values()) {
    const view = views.find(({ node_id }) => node_id === child.name)
    const own = child.name.startsWith('node-') ? await nodeCells(cluster, child.name, views, view) : []
    rows.push([child.name, String(child.pid ?? '–'), stateOf(child, view), ...own])
  }
  return [table(rows, [false, true, false, true, true, true, true]), roomsTable(views)].join('\n\n')
}

async function nodeCells(
  cluster: LocalCluster,
  name: string,
  views: readonly NodeView[],
  view: NodeView | undefined,
): Promise<string[]> {
  const owned = [...ownersOf(views).values()].filter(({ owner }) => owner === name)
  const members = owned.reduce((sum, { room }) => sum + room.members.length, 0)
  const left = await cluster.redis.leaseLeft(name)
  return [String(owned.length), String(view?.sessions ?? 0), String(members), leaseText(left)]
}

function leaseText(left_ms: number | undefined): string {
  if (left_ms === undefined) return '?'
  return left_ms === 0 ? 'none' : `${(left_ms / 1000).toFixed(1)} s left`
}

function stateOf(child: Child, view: NodeView | undefined): string {
  if (child.state === 'ended') return child.exit ? `ended (${describeExit(child.exit)})` : 'not started'
  if (child.state === 'ready' && view?.state === 'silent') return 'ready, but silent'
  if (child.state === 'ending' && child.name.startsWith('node-')) return 'draining'
  return child.state
}

function roomsTable(views: readonly NodeView[]): string {
  const rooms = [...ownersOf(views).values()].sort((a, b) => (a.room.room_id < b.room.room_id ? -1 : 1))
  if (rooms.length === 0) return '  no rooms'
  const rows = rooms.slice(0, MOST_ROOMS).map(({ owner, room }) => {
    const edges = new Map<string, number>()
    for (const { node_id, connected } of room.members) {
      const edge = connected ? node_id : 'nowhere'
      edges.set(edge, (edges.get(edge) ?? 0) + 1)
    }
    const connected = [...edges].sort().map(([edge, count]) => `${count} by ${edge}`)
    return [room.room_id, owner, String(room.epoch), String(room.seq), connected.join(', ') || 'nobody']
  })
  const more = rooms.length > MOST_ROOMS ? `\n  … and ${rooms.length - MOST_ROOMS} more` : ''
  return table([['room', 'owner', 'epoch', 'seq', 'members'], ...rows]) + more
}
