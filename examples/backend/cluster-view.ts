import type { NodeState, Nodes } from './nodes.ts'
import { ownersOf } from './nodes.ts'

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
