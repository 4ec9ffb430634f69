import type { Context } from 'hono'
import * as v from 'valibot'
import type { ClusterNodeDescription } from '../descriptions.ts'
import type { ClusterMatches } from './cluster-search.ts'
import { problem } from './problem.ts'
import { countUpTo, notUnderstood, ROOM_ID, SEARCH_TEXT } from './query.ts'
import { LONGEST_TEXT, MOST_MATCHES } from './search-message.ts'

/** What `GET /admin/cluster` answers: the nodes as the one that is asked sees them, itself first. */
export interface ClusterView {
  readonly nodes: readonly ClusterNodeDescription[]
}

/** What `GET /admin/owner` answers. */
export interface RoomWhereabouts {
  readonly project_id: string
  readonly room_id: string
  /** Of its last owner; null: the store knows of no such room. */
  readonly epoch: number | null
  /** Null: nobody has the room now; whoever joins next opens it. */
  readonly owner: {
    readonly node_id: string
    readonly self: boolean
    readonly alive: boolean
    readonly admin_url?: string
  } | null
}

/** Where the answers come from. */
export interface ClusterSource {
  readonly describeCluster: () => readonly ClusterNodeDescription[]
  /** Who owns a room, as recorded; undefined: there is no record of it. Rejects when the store cannot be reached. */
  readonly findOwner: (
    project_id: string,
    room_id: string,
  ) => Promise<{ readonly epoch: number; readonly owner: string | null } | undefined>
  /** Looks for rooms and sessions at all nodes; never rejects. */
  readonly searchCluster: (q: string, limit: number) => Promise<ClusterMatches>
}

/** What is missing is refused as what is empty. */
const OWNER_QUERY = v.object({
  project_id: v.optional(v.pipe(v.string(), v.minLength(1, 'must name the project of the room')), ''),
  room_id: v.optional(ROOM_ID, ''),
})

const SEARCH_QUERY = v.object({
  q: v.optional(v.pipe(SEARCH_TEXT, v.minLength(1, `must have 1 to ${LONGEST_TEXT} characters`)), ''),
  limit: countUpTo(MOST_MATCHES),
})
const MATCHES = 50

/** Answers `GET /admin/cluster`. */
export function cluster(c: Context, source: ClusterSource): Response {
  const answer: ClusterView = { nodes: source.describeCluster() }
  return c.json(answer, 200, { 'cache-control': 'no-store' })
}

/** Answers `GET /admin/owner`: which node has a room, wherever in the cluster it is. */
export async function owner(c: Context, source: ClusterSource): Promise<Response> {
  const parsed = v.safeParse(OWNER_QUERY, c.req.query())
  if (!parsed.success) return notUnderstood(c, parsed.issues)
  const { project_id, room_id } = parsed.output
  const record = await source.findOwner(project_id, room_id).catch(() => 'unavailable' as const)
  if (record === 'unavailable')
    return problem(c, {
      status: 503,
      code: 'store_unavailable',
      title: 'The store cannot be reached',
      detail: 'who owns the room is recorded in the store, which does not answer; try again',
    })
  const node = source.describeCluster().find(({ node_id }) => node_id === record?.owner)
  const answer: RoomWhereabouts = {
    project_id,
    room_id,
    epoch: record?.epoch ?? null,
    owner: record?.owner
      ? {
          node_id: record.owner,
          self: node?.self ?? false,
          alive: node?.alive ?? false,
          ...(node?.admin_url !== undefined && { admin_url: node.admin_url }),
        }
      : null,
  }
  return c.json(answer, 200, { 'cache-control': 'no-store' })
}

/** Answers `GET /admin/search`: what matches a text, at whichever node it is. */
export async function search(c: Context, source: ClusterSource): Promise<Response> {
  const parsed = v.safeParse(SEARCH_QUERY, c.req.query())
  if (!parsed.success) return notUnderstood(c, parsed.issues)
  const { q, limit = MATCHES } = parsed.output
  return c.json(await source.searchCluster(q, limit), 200, { 'cache-control': 'no-store' })
}
