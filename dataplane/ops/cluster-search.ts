import * as v from 'valibot'
import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import type { Bus } from '../../shared/store/port.ts'
import type { ClusterNodeDescription } from '../descriptions.ts'
import { LONGEST_TEXT } from './query.ts'
import type { RuntimeSource } from './runtime.ts'

/** So many rooms, and so many sessions, a node tells of at most when it is asked what matches. */
export const MOST_MATCHES = 200

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

const FOUND = {
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
}

/** What is said between nodes: a question with a number of its own, and the answer to it. JSON in UTF-8. */
const MESSAGE = v.variant('kind', [
  v.object({
    kind: v.literal('ask'),
    search: v.string(),
    from: v.string(),
    q: v.pipe(v.string(), v.minLength(1), v.maxLength(LONGEST_TEXT)),
    limit: v.pipe(COUNT, v.maxValue(MOST_MATCHES)),
  }),
  v.object({ kind: v.literal('answer'), search: v.string(), from: v.string(), ...FOUND }),
])
const FOUND_OBJECT = v.object(FOUND)

type SearchMessage = v.InferOutput<typeof MESSAGE>
/** What one node has that matches, and how much there is beyond the limit. */
type NodeMatches = v.InferOutput<typeof FOUND_OBJECT>

const encodeSearch = (message: SearchMessage): Uint8Array => new TextEncoder().encode(JSON.stringify(message))

/** Throws for what is no such message; the error says where it is wrong, not what it is: there are players in it. */
function decodeSearch(bytes: Uint8Array): SearchMessage {
  const read = v.safeParse(MESSAGE, JSON.parse(new TextDecoder().decode(bytes)))
  if (read.success) return read.output
  const [issue] = read.issues
  throw new TypeError(`${v.getDotPath(issue) ?? 'the message'}: ${issue.message}`)
}

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

/** A search that waits for answers. */
interface Open {
  readonly waiting: Set<string>
  readonly answers: Map<string, NodeMatches>
  readonly end: () => void
}

/** Longer than a busy node needs, and about as long as a person likes to wait. */
const PATIENCE_MS = 1500
const NUMBER_LENGTH = 16

const channelOf = (nodeId: string): string => `search:${nodeId}`

/**
 * Looks for rooms and sessions by any text in their names, ids and players, at every node at once. The store has no list of rooms to ask, and
 * each node has all of its own in memory; so each looks through those, once for a question, and tells no more than the limit. They talk on
 * channels of their own: nodes of a version without it neither hear nor miss anything.
 */
export class ClusterSearch {
  readonly #parts: ClusterSearchParts
  readonly #open = new Map<string, Open>()
  #unsubscribe: (() => Promise<void>) | undefined

  constructor(parts: ClusterSearchParts) {
    this.#parts = parts
  }

  /** Resolves when the other nodes can ask this one; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    const { bus, nodeId } = this.#parts
    this.#unsubscribe = await bus.subscribe(channelOf(nodeId), (bytes) => this.#hear(bytes))
  }

  /** Waits for no more answers, and gives none. */
  async stop(): Promise<void> {
    for (const { end } of this.#open.values()) end()
    await this.#unsubscribe?.()
  }

  /** What matches `q` anywhere, `limit` rooms and as many sessions at most. Resolves within 1.5 s; never rejects. */
  async find(q: string, limit: number): Promise<ClusterMatches> {
    const nodes = this.#parts.describeCluster().filter(({ alive }) => alive)
    const others = nodes.filter(({ self }) => !self).map(({ node_id: nodeId }) => nodeId)
    const answers = new Map(await this.#ask(others, q, limit))
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
    return v.parse(FOUND_OBJECT, {
      rooms: [...rooms.items],
      sessions: [...sessions.items],
      found: { rooms: rooms.found, sessions: sessions.found },
    })
  }

  /** The answers of those that gave one in time. */
  async #ask(others: readonly string[], q: string, limit: number): Promise<ReadonlyMap<string, NodeMatches>> {
    const { nodeId, clock, random } = this.#parts
    const answers = new Map<string, NodeMatches>()
    if (others.length === 0) return answers
    const search = randomToken(random, NUMBER_LENGTH)
    await new Promise<void>((resolve) => {
      const cancel = clock.schedule(PATIENCE_MS, resolve)
      const end = () => {
        cancel()
        resolve()
      }
      this.#open.set(search, { waiting: new Set(others), answers, end })
      for (const other of others)
        void this.#say(other, { kind: 'ask', search, from: nodeId, q, limit }).then((isHeard) => {
          if (!isHeard) this.#settle(search, other)
        })
    })
    this.#open.delete(search)
    return answers
  }

  /** A node has answered, or will not. */
  #settle(search: string, nodeId: string, answer?: NodeMatches): void {
    const open = this.#open.get(search)
    if (!open?.waiting.delete(nodeId)) return
    if (answer) open.answers.set(nodeId, answer)
    if (open.waiting.size === 0) open.end()
  }

  #hear(bytes: Uint8Array): void {
    const { nodeId, log } = this.#parts
    let message: SearchMessage
    try {
      message = decodeSearch(bytes)
    } catch (error) {
      log.warn({ err: error }, 'what another node said of a search cannot be read')
      return
    }
    const { search, from } = message
    if (message.kind === 'answer') this.#settle(search, from, message)
    else
      void this.#say(from, {
        kind: 'answer',
        search,
        from: nodeId,
        ...this.#look(message.q, message.limit),
      })
  }

  /** Whether a node heard it. None does at a node of an older version, and none while the store is away. */
  async #say(to: string, message: SearchMessage): Promise<boolean> {
    try {
      return (await this.#parts.bus.publish(channelOf(to), encodeSearch(message))) > 0
    } catch {
      return false
    }
  }
}

/** Most members first, then by id. */
const byMembers = (a: NodeMatches['rooms'][number], b: NodeMatches['rooms'][number]): number =>
  b.member_count - a.member_count || (a.room_id < b.room_id ? -1 : 1)
