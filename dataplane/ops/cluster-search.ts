import * as v from 'valibot'
import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import type { Bus } from '../../shared/store/port.ts'
import type { ClusterNodeDescription } from '../descriptions.ts'
import { NodeCalls } from '../node-calls.ts'
import { LONGEST_TEXT } from './query.ts'
import type { RuntimeSource } from './runtime.ts'

/** So many rooms, and so many sessions, a node tells of at most when it is asked what matches. */
export const MOST_MATCHES = 200

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

/** What one node is asked. */
const QUESTION = v.object({
  q: v.pipe(v.string(), v.minLength(1), v.maxLength(LONGEST_TEXT)),
  limit: v.pipe(COUNT, v.maxValue(MOST_MATCHES)),
})
/** What one node has that matches, and how much there is beyond the limit. */
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

/** What a search over the cluster is made of. */
export interface ClusterSearchParts extends Pick<RuntimeSource, 'describeRooms' | 'describeSessions'> {
  readonly nodeId: string
  readonly bus: Bus
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly describeCluster: () => readonly ClusterNodeDescription[]
}

/** Where a match is. */
interface Whereabouts {
  readonly node_id: string
  /** Absent: the node tells none. */
  readonly admin_url?: string
}

/** What was found of a text in all nodes. */
export interface ClusterMatches {
  /** Most members first; the first of them only, where there are more than the limit. */
  readonly rooms: readonly (NodeMatches['rooms'][number] & Whereabouts)[]
  readonly sessions: readonly (NodeMatches['sessions'][number] & Whereabouts)[]
  /** How many match. */
  readonly found: NodeMatches['found']
  /** Living nodes that did not answer: too busy, ended meanwhile, or of a version that does not know the question. */
  readonly silent: readonly string[]
}

/** Longer than a busy node needs, and about as long as a person likes to wait. */
const PATIENCE_MS = 1500

/**
 * Looks for rooms and sessions by any text in their names, ids and players, at every node at once. The store has no list of rooms to ask, and
 * each node has all of its own in memory; so each looks through those, once for a question, and tells no more than the limit.
 */
export class ClusterSearch {
  readonly #parts: ClusterSearchParts
  readonly #calls: NodeCalls<Question, NodeMatches>

  constructor(parts: ClusterSearchParts) {
    this.#parts = parts
    const topic = { name: 'search', question: QUESTION, answer: MATCHES }
    this.#calls = new NodeCalls(topic, parts, ({ q, limit }) => this.#look(q, limit))
  }

  /** Resolves when the other nodes can ask this one; rejects when the store cannot be reached. */
  start(): Promise<void> {
    return this.#calls.start()
  }

  /** Waits for no more answers, and gives none. */
  stop(): Promise<void> {
    return this.#calls.stop()
  }

  /** What matches `q` anywhere, `limit` rooms and as many sessions at most. Resolves within 1.5 s; never rejects. */
  async find(q: string, limit: number): Promise<ClusterMatches> {
    const nodes = this.#parts.describeCluster().filter(({ alive }) => alive)
    const others = nodes.filter(({ self }) => !self).map(({ node_id: nodeId }) => nodeId)
    const answers = new Map<string, NodeMatches>()
    const ask = async (nodeId: string): Promise<void> => {
      const answer = await this.#calls.ask(nodeId, { q, limit }, PATIENCE_MS)
      if (answer) answers.set(nodeId, answer)
    }
    await Promise.all(others.map(ask))
    answers.set(this.#parts.nodeId, this.#look(q, limit))
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

  /** What this node has. */
  #look(q: string, limit: number): NodeMatches {
    const rooms = this.#parts.describeRooms({ q, limit, include_state: false })
    const sessions = this.#parts.describeSessions({ q, limit })
    // No more than is declared there.
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
