import type { RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'
import type { Runtime } from '../../dataplane/ops/runtime.ts'
import type { Clock } from '../../shared/clock.ts'

/** Where a node can be asked. */
export interface NodeAddress {
  /** Of its admin port, such as `http://127.0.0.1:9100`. */
  readonly admin_url: string
  /** Its name, where that is known before it has said it. */
  readonly node_id?: string
}

/** Which nodes to ask, and the secret that lets one ask. */
export interface NodesOptions {
  readonly addresses: readonly NodeAddress[]
  readonly internal_token: string
  readonly clock: Clock
}

/** `silent`: it takes connections and does not answer; `gone`: there is no one at its address. */
type NodeState = 'ready' | 'draining' | 'silent' | 'gone'

/** What a node last said of itself. */
export interface NodeView {
  /** Its name; its address while no one has said one. */
  readonly node_id: string
  readonly state: NodeState
  /** The rooms it owns; of a silent node those it owned when it last spoke, of one that is gone none. */
  readonly rooms: readonly RoomDescription[]
  /** How many sessions it keeps, those that may still be resumed included. */
  readonly sessions: number
}

/** An answer this young is as good as a new one: many pages ask at once. */
const FRESH_MS = 100
/** How long one look waits for answers. */
const LOOK_MS = 250
/** Who has not answered for so long is silent. */
const SILENT_MS = 1000
const TIMEOUT_MS = 2000

/** The nodes of a deployment, seen from outside: asks each of them at `/admin/runtime`. */
export class Nodes {
  readonly #watches: readonly NodeWatch[]
  readonly #clock: Clock

  constructor({ addresses, ...options }: NodesOptions) {
    this.#clock = options.clock
    this.#watches = addresses.map((address) => new NodeWatch({ ...options, ...address }))
  }

  /** All nodes, in the order of their addresses, within a quarter of a second: a node that takes longer is shown as it last was. */
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

/** What a node answers, read from JSON. */
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

  /** Asks, unless it was just asked; resolves in any case. */
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

  /** How long ago it last spoke. */
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
      // Everything but a timeout is a connection that was refused or broken.
      this.#gone = !(error instanceof Error && error.name === 'TimeoutError')
    }
  }
}

/** Who owns a room: the node that runs it under the highest epoch; a node that lost it may not know yet. */
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

/** What `GET /api/cluster` tells a page: only what every player may know. */
export interface ClusterView {
  /** Empty where the backend was not told of any. */
  readonly nodes: readonly {
    readonly node_id: string
    readonly state: NodeState
    /** How many rooms of this project it owns. */
    readonly rooms: number
    /** How many players in them are connected to it. */
    readonly players: number
  }[]
  /** The room that was asked for; null: no one owns it at this moment. */
  readonly room: {
    readonly owner: string
    readonly epoch: number
    /** Member id → the node that holds the member's socket. */
    readonly edges: Readonly<Record<string, string>>
  } | null
}

/** The cluster as the games of `project_id` see it, with the room `room_id` (`type:key`) where one is named. */
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
