import type { RoomAddress } from '../traffic.ts'
import type { ClusterEnvironment } from './environment.ts'
import type { NodeLinks } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'
import type { Ownership } from './ownership.ts'

/** A room of this node that is to go on elsewhere. */
export interface LeavingRoom {
  readonly address: RoomAddress
  /** Of its state, as its type counts. */
  readonly stateVersion: number
  /** The node with most of its members' sockets. */
  readonly mostlyAt: string | undefined
  /** Saves the room and releases it. Resolves with true if the node `successor` can claim it. */
  handOver(successor?: string): Promise<boolean>
}

interface HandOverEnvironment extends Pick<ClusterEnvironment, 'clock'> {
  readonly links: Pick<NodeLinks, 'send'>
  readonly metrics: Pick<ClusterMetrics, 'handOverDuration'>
}

/** Rooms on their way at once: each is without an owner for a few round trips to the store only, and the store is not flooded. */
const AT_ONCE = 8

/** Hands every room over to a living node, a few at a time; one that no node can take is saved for the first that asks for it. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { links, clock, metrics }: HandOverEnvironment,
  ownership: Pick<Ownership, 'place'>,
): Promise<void> {
  const waiting = [...rooms]
  const work = async (): Promise<void> => {
    for (let room = waiting.shift(); room; room = waiting.shift()) {
      const { address, stateVersion, mostlyAt } = room
      const nodeId = ownership.place('hand_over', { roomType: address.roomType, stateVersion }, mostlyAt)
      const began = clock.monotonic()
      if ((await room.handOver(nodeId)) && nodeId !== undefined)
        links.send(nodeId, { to: 'host', room: address })
      metrics.handOverDuration.observe((clock.monotonic() - began) / 1000)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}
