import type { RoomAddress } from '../traffic.ts'

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

/** What handing rooms over takes. */
interface HandOverParts {
  /** The node that is to have a room; undefined: there is none. */
  readonly place: (room: LeavingRoom) => string | undefined
  /** Asks a node to claim a room that was given up for it. */
  readonly ask: (nodeId: string, room: RoomAddress) => void
  /** A room was handed over to a node, or to none, after so many seconds without an owner that acts. */
  readonly handed: (seconds: number) => void
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** Rooms on their way at once: each is without an owner for a few round trips to the store only, and the store is not flooded. */
const AT_ONCE = 8

/** Hands every room over to a living node, a few at a time; one that no node can take is saved for the first that asks for it. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { place, ask, handed, now }: HandOverParts,
): Promise<void> {
  const waiting = [...rooms]
  const work = async (): Promise<void> => {
    for (let room = waiting.shift(); room; room = waiting.shift()) {
      const { address } = room
      const nodeId = place(room)
      const began = now()
      if ((await room.handOver(nodeId)) && nodeId !== undefined) ask(nodeId, address)
      handed((now() - began) / 1000)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}
