import type { Context } from 'hono'
import * as v from 'valibot'
import type { Slices } from '../../shared/slices.ts'
import { validate } from '../../shared/validate.ts'
import type {
  ClusterNodeDescription,
  Found,
  ProblemDescription,
  Query,
  RoomDescription,
  RoomQuery,
  SessionDescription,
} from '../descriptions.ts'
import { type CallsEnvironment, NodeCalls } from '../node-calls.ts'
import { countUpTo, LONGEST_TEXT, ROOM_ID, SEARCH_TEXT } from './http.ts'
import type { Load } from './overload.ts'

/**
 * Answer of `GET /admin/runtime`: a node, its rooms and its sessions. Times are RFC 3339. The set of rooms and sessions is of one moment. Each
 * is described when the answer reaches it. For thousands of them this is some turns of the event loop later.
 */
export interface Runtime {
  readonly node: NodeDescription
  readonly rooms: Iterable<RoomDescription>
  readonly sessions: Iterable<SessionDescription>
  /** Number of rooms and sessions that match the query, also beyond its limit. */
  readonly found: { readonly rooms: number; readonly sessions: number }
  /** Current problems of the node. */
  readonly problems: readonly ProblemDescription[]
  /** Number of rooms, members and sessions at this node. */
  readonly totals: { readonly rooms: number; readonly members: number; readonly sessions: number }
}

/** Parsed `Runtime`. */
export type RuntimeAnswer = Omit<Runtime, 'rooms' | 'sessions'> & {
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

interface NodeDescription {
  readonly node_id: string
  readonly version: string
  readonly commit: string
  readonly rooms_hash: string
  readonly started_at: string
  readonly draining: boolean
  readonly cordoned: boolean
  /** Room types with a list. */
  readonly listed_types: readonly string[]
  readonly load: Load
}

/** The rooms and sessions of this node. */
interface FoundHere {
  readonly describeRooms: (query: RoomQuery) => Found<RoomDescription>
  readonly describeSessions: (query: Query) => Found<SessionDescription>
}

/** Dependencies of `GET /admin/runtime`. */
export interface RuntimeSource extends FoundHere {
  /** Returns the current problems of the node. */
  readonly problems: () => Promise<readonly ProblemDescription[]>
  readonly describeNode: () => NodeDescription
  /** Returns the number of members of all rooms of this node. */
  readonly members: () => number
}

const MOST = 1000

/** An optional parameter with its help. */
const parameter = <const S extends v.GenericSchema>(help: string, schema: S) =>
  v.exactOptional(v.pipe(schema, v.description(help)))

/** The parameters of `GET /admin/runtime`. docs/reference.md has their descriptions. */
export const RUNTIME_PARAMETERS = {
  include_state: parameter(
    '1: with the state of each room, including hidden parts',
    v.picklist(['0', '1'], 'must be 1 or 0'),
  ),
  room_id: parameter(
    'only rooms with this id (`type:key`), with their last 50 `events`, and the sessions in them',
    ROOM_ID,
  ),
  q: parameter(
    'only rooms and sessions with this text in their names, ids or members; case-insensitive',
    SEARCH_TEXT,
  ),
  limit: parameter(
    `maximum number of rooms, and of sessions, 0–${MOST}. The largest rooms and the newest sessions come first`,
    countUpTo(MOST),
  ),
}

/** Answers `GET /admin/runtime`: the node, the selected rooms, and the sessions in them. `slices`, `onBreak`: see `answerInSlices`. */
export async function runtime(
  c: Context,
  source: RuntimeSource,
  slices: Slices,
  onBreak: (error: unknown) => void,
): Promise<Response> {
  const { include_state: includeState, ...which } = validate(
    v.object(RUNTIME_PARAMETERS),
    c.req.query(),
    'query',
  )
  const problems = await source.problems()
  const rooms = source.describeRooms({ ...which, include_state: includeState === '1' })
  const sessions = source.describeSessions(which)
  const answer: Runtime = {
    node: source.describeNode(),
    problems,
    rooms: rooms.items,
    sessions: sessions.items,
    found: { rooms: rooms.found, sessions: sessions.found },
    totals: { rooms: rooms.total, members: source.members(), sessions: sessions.total },
  }
  return answerInSlices(c, piecesOf(answer), slices, onBreak)
}

/** Encodes the answer as JSON, one room or session at a time. */
function* piecesOf({ node, problems, rooms, sessions, found, totals }: Runtime): Iterable<string> {
  yield `{"node":${JSON.stringify(node)},"problems":${JSON.stringify(problems)},"rooms":[`
  yield* listOf(rooms)
  yield '],"sessions":['
  yield* listOf(sessions)
  yield `],"found":${JSON.stringify(found)},"totals":${JSON.stringify(totals)}}`
}

function* listOf(items: Iterable<unknown>): Iterable<string> {
  let between = ''
  for (const item of items) {
    yield between + JSON.stringify(item)
    between = ','
  }
}

/** Number of characters that are encoded in one turn of the event loop: less than a millisecond of work. */
const SLICE = 32_768

/**
 * Answers with JSON that consists of `pieces`. If they exceed one slice, each further slice is made in one of `slices`, and only as fast as the
 * client reads. Other work of the node runs in between. If the client disconnects, the remaining pieces are not requested.
 * Throws an error of the first slice. An error of a later one breaks the connection, because the answer has started; `onBreak` gets it.
 */
export function answerInSlices(
  c: Context,
  pieces: Iterable<string>,
  slices: Slices,
  onBreak: (error: unknown) => void,
): Response {
  const texts = slicesOf(pieces)
  const first = texts.next()
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' }
  if (first.done || first.value.length < SLICE) return c.body(first.value ?? '', 200, headers)
  const encoder = new TextEncoder()
  let isCancelled = false
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(encoder.encode(first.value)),
    cancel: () => {
      isCancelled = true
    },
    pull: async (controller) => {
      try {
        const next = await slices.run(() => texts.next())
        // The client has disconnected.
        if (isCancelled) return
        if (next.done) controller.close()
        else controller.enqueue(encoder.encode(next.value))
      } catch (error) {
        onBreak(error)
        throw error
      }
    },
  })
  return c.body(body, 200, headers)
}

function* slicesOf(pieces: Iterable<string>): Generator<string, undefined> {
  let slice = ''
  for (const piece of pieces) {
    slice += piece
    if (slice.length < SLICE) continue
    yield slice
    slice = ''
  }
  if (slice !== '') yield slice
}

/** Maximum number of rooms, and of sessions, in a node's answer. */
export const MOST_MATCHES = 200

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

/** A question to one node. */
const QUESTION = v.object({
  q: v.pipe(v.string(), v.minLength(1), v.maxLength(LONGEST_TEXT)),
  limit: v.pipe(COUNT, v.maxValue(MOST_MATCHES)),
})
/** Matches at one node. `found`: their numbers, also beyond the limit. */
const MATCHES = v.object({
  rooms: v.array(
    v.object({
      project_id: v.string(),
      room_id: v.string(),
      member_count: COUNT,
      connected_count: COUNT,
    }),
  ),
  sessions: v.array(
    v.object({
      project_id: v.string(),
      session_id: v.string(),
      sub: v.nullable(v.string()),
      rooms: v.array(v.string()),
    }),
  ),
  found: v.object({ rooms: COUNT, sessions: COUNT }),
})
type Question = v.InferOutput<typeof QUESTION>
type NodeMatches = v.InferOutput<typeof MATCHES>

/** Dependencies of ClusterSearch. */
interface ClusterSource extends CallsEnvironment, FoundHere {
  readonly describeCluster: () => readonly ClusterNodeDescription[]
}

/** Location of a match. */
interface MatchedAt {
  readonly node_id: string
  /** Absent: the node has no such address. */
  readonly admin_url?: string
}

/** Matches of a text at all nodes. */
export interface ClusterMatches {
  /** The rooms with the most members first, up to the limit. */
  readonly rooms: readonly (NodeMatches['rooms'][number] & MatchedAt)[]
  readonly sessions: readonly (NodeMatches['sessions'][number] & MatchedAt)[]
  /** Number of matches, also beyond the limit. */
  readonly found: NodeMatches['found']
  /** Living nodes that did not answer: too busy, ended in the meantime, or of a version without this question. */
  readonly silent: readonly string[]
}

/** Timeout of a search: longer than a busy node needs. */
const PATIENCE_MS = 1500

/**
 * Searches the rooms and sessions of all nodes for a text in their names, ids and players. The store has no list of all rooms, but each node has
 * its rooms in memory. Each node therefore searches these for every question, and answers with no more than the limit.
 */
export class ClusterSearch {
  readonly #source: ClusterSource
  readonly #calls: NodeCalls<Question, NodeMatches>

  constructor(source: ClusterSource) {
    this.#source = source
    const topic = { name: 'search', question: QUESTION, answer: MATCHES }
    this.#calls = new NodeCalls(topic, source, ({ q, limit }) => this.#look(q, limit))
  }

  /** Resolves when other nodes can ask this one. Rejects if the store cannot be reached. */
  start(): Promise<void> {
    return this.#calls.start()
  }

  /** Stops answering. Open questions end without an answer. */
  stop(): Promise<void> {
    return this.#calls.stop()
  }

  /** Returns the matches of `q` at all nodes, at most `limit` rooms and as many sessions. Resolves within 1.5 s; never rejects. */
  async find(q: string, limit: number): Promise<ClusterMatches> {
    const nodes = this.#source.describeCluster().filter(({ alive }) => alive)
    const others = nodes.filter(({ self }) => !self).map(({ node_id: nodeId }) => nodeId)
    const answers = new Map<string, NodeMatches>()
    const ask = async (nodeId: string): Promise<void> => {
      const answer = await this.#calls.ask(nodeId, { q, limit }, PATIENCE_MS)
      if (answer) answers.set(nodeId, answer)
    }
    await Promise.all(others.map(ask))
    answers.set(this.#source.nodeId, this.#look(q, limit))
    const found = { rooms: 0, sessions: 0 }
    const rooms: ClusterMatches['rooms'][number][] = []
    const sessions: ClusterMatches['sessions'][number][] = []
    for (const [nodeId, answer] of answers) {
      const adminUrl = nodes.find((node) => node.node_id === nodeId)?.admin_url
      const where = { node_id: nodeId, ...(adminUrl !== undefined && { admin_url: adminUrl }) }
      found.rooms += answer.found.rooms
      found.sessions += answer.found.sessions
      rooms.push(...answer.rooms.map((room) => ({ ...room, ...where })))
      sessions.push(...answer.sessions.map((session) => ({ ...session, ...where })))
    }
    return {
      rooms: rooms.sort(byMembers).slice(0, limit),
      sessions: sessions.slice(0, limit),
      found,
      silent: others.filter((nodeId) => !answers.has(nodeId)),
    }
  }

  /** Returns the matches at this node. */
  #look(q: string, limit: number): NodeMatches {
    const rooms = this.#source.describeRooms({ q, limit, include_state: false })
    const sessions = this.#source.describeSessions({ q, limit })
    // Only the declared fields.
    return v.parse(MATCHES, {
      rooms: [...rooms.items],
      sessions: [...sessions.items],
      found: { rooms: rooms.found, sessions: sessions.found },
    })
  }
}

/** Most members first, then by id. */
const byMembers = (a: NodeMatches['rooms'][number], b: NodeMatches['rooms'][number]): number =>
  b.member_count - a.member_count || (a.room_id < b.room_id ? -1 : 1)
