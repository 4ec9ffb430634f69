import type { RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'
import type { Runtime } from '../../dataplane/ops/runtime.ts'
import type { Clock } from '../../shared/clock.ts'

/** Address of a node. */
export interface NodeAddress {
  /** Address of the admin port, such as `http://127.0.0.1:9100`. */
  readonly admin_url: string
  /** Name to use until the node has reported its name. */
  readonly node_id?: string
}

/** Nodes to query, and the secret for the queries. */
export interface NodesOptions {
  readonly addresses: readonly NodeAddress[]
  readonly internal_token: string
  readonly clock: Clock
}

/** `silent`: the node accepts connections but does not answer; `gone`: nothing listens at its address. */
type NodeState = 'ready' | 'draining' | 'silent' | 'gone'

/** Last report of a node. */
export interface NodeView {
  /** Name of the node, or its address while the name is unknown. */
  readonly node_id: string
  readonly state: NodeState
  /** Rooms that the node runs. If the node is silent, the rooms of its last report. If the node is gone, none. */
  readonly rooms: readonly RoomDescription[]
  /** Number of sessions, including disconnected ones that can be resumed. */
  readonly sessions: number
}

/** Reports are cached this long, because many pages ask at the same time. */
const FRESH_MS = 100
/** Time limit for one round of queries. */
const LOOK_MS = 250
/** A node without a report for this long is silent. */
const SILENT_MS = 1000
const TIMEOUT_MS = 2000

/** Queries the nodes of a deployment at `/admin/runtime`. */
export class Nodes {
  readonly #watches: readonly NodeWatch[]
  readonly #clock: Clock

  constructor({ addresses, ...options }: NodesOptions) {
    this.#clock = options.clock
    this.#watches = addresses.map((address) => new NodeWatch({ ...options, ...address }))
  }

  /** Returns all nodes in the order of their addresses, within 0.25 s. If a node is slower, returns its last report. */
  async look(): Promise<NodeView[]> {
    const answers = Promise.all(this.#watches.map((watch) => watch.ask()))
    let cancel = (): void => {}
    const late = new Promise<void>((resolve) => {
      cancel = this.#clock.schedule(LOOK_MS, resolve)
    })
    await Promise.race([answers, late])
    cancel()
    return this.#watches.map((watch) => watch.view())
  }
}

/** Response of a node, parsed from JSON. */
interface Answer extends Pick<Runtime, 'node'> {
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

type WatchOptions = Omit<NodesOptions, 'addresses'> & NodeAddress

class NodeWatch {
  readonly #options: WatchOptions
  #asking: Promise<void> | undefined
  #heard: { readonly runtime: Answer; readonly at: number } | undefined
  #gone = false

  constructor(options: WatchOptions) {
    this.#options = options
  }

  /** Queries the node unless its report is cached. Always resolves. */
  ask(): Promise<void> {
    if (this.#age() < FRESH_MS) return Promise.resolve()
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined
    })
    return this.#asking
  }

  view(): NodeView {
    const { node, rooms = [], sessions = [] } = this.#heard?.runtime ?? {}
    const nodeId = node?.node_id ?? this.#options.node_id ?? new URL(this.#options.admin_url).host
    if (this.#gone) return { node_id: nodeId, state: 'gone', rooms: [], sessions: 0 }
    const speaks = node?.draining ? 'draining' : 'ready'
    return {
      node_id: nodeId,
      state: this.#age() > SILENT_MS ? 'silent' : speaks,
      rooms,
      sessions: sessions.length,
    }
  }

  /** Milliseconds since the last report. */
  #age(): number {
    return this.#options.clock.monotonic() - (this.#heard?.at ?? Number.NEGATIVE_INFINITY)
  }

  async #ask(): Promise<void> {
    const { admin_url: adminUrl, internal_token: internalToken, clock } = this.#options
    try {
      const response = await fetch(`${adminUrl}/admin/runtime`, {
        headers: { 'x-service-internal-token': internalToken },
        signal: AbortSignal.timeout(TIMEOUT_MS),
      })
      if (!response.ok) return
      this.#heard = { runtime: (await response.json()) as Answer, at: clock.monotonic() }
      this.#gone = false
    } catch (error) {
      // Any error except a timeout is a refused or broken connection.
      this.#gone = !(error instanceof Error && error.name === 'TimeoutError')
    }
  }
}

/** Owner of a room. If two nodes report the room, the owner is the node with the larger epoch: the other node lost the room. */
export function ownersOf(views: readonly NodeView[]): Map<string, OwnedRoom> {
  const owners = new Map<string, OwnedRoom>()
  for (const { node_id: nodeId, rooms } of views)
    for (const room of rooms) {
      const id = `${room.project_id} ${room.room_id}`
      const known = owners.get(id)
      if (!known || known.room.epoch < room.epoch) owners.set(id, { owner: nodeId, room })
    }
  return owners
}

/** A room, and the node that owns it. */
interface OwnedRoom {
  readonly owner: string
  readonly room: RoomDescription
}

/** Response of `GET /api/cluster`. Contains only what every player may know. */
export interface ClusterView {
  /** Empty if the backend has no configured nodes. */
  readonly nodes: readonly {
    readonly node_id: string
    readonly state: NodeState
    /** Number of rooms of this project that the node owns. */
    readonly rooms: number
    /** Number of players of this project's rooms that are connected to the node. */
    readonly players: number
  }[]
  /** The requested room, or null if it has no owner now. */
  readonly room: {
    readonly owner: string
    readonly epoch: number
    /** The node to which each member is connected, by member id. */
    readonly edges: Readonly<Record<string, string>>
  } | null
}

/** Returns the cluster for the games of `project_id`, with the room `room_id` (`type:key`) if given. */
export async function clusterView(nodes: Nodes, projectId: string, roomId?: string): Promise<ClusterView> {
  const views = await nodes.look()
  const owned = [...ownersOf(views).values()].filter(({ room }) => room.project_id === projectId)
  const players = owned.flatMap(({ room }) => room.members).filter((member) => member.connected)
  const asked = owned.find(({ room }) => room.room_id === roomId)
  return {
    nodes: views.map(({ node_id: nodeId, state }) => ({
      node_id: nodeId,
      state,
      rooms: owned.filter(({ owner }) => owner === nodeId).length,
      players: players.filter((member) => member.node_id === nodeId).length,
    })),
    room: asked
      ? {
          owner: asked.owner,
          epoch: asked.room.epoch,
          edges: Object.fromEntries(
            asked.room.members.map(({ member_id: memberId, node_id: nodeId }) => [memberId, nodeId]),
          ),
        }
      : null,
  }
}
