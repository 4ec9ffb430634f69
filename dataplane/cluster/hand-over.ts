import type { RoomAddress } from '../traffic.ts'

/** A room of this node that is to go on elsewhere. */
export interface LeavingRoom {
  readonly address: RoomAddress
  /** The node with most of its members' sockets. */
  readonly mostly_at: string | undefined
  /** Saves the room and gives it up; `take` is called when the successor can claim it. */
  handOver(successor?: { readonly node_id: string; readonly take: () => void }): Promise<void>
}

/** What handing rooms over takes. */
export interface HandOverParts {
  /** The node that is to have a room; undefined: there is none. */
  readonly place: (preferred: string | undefined) => string | undefined
  /** Asks a node to claim a room that was given up for it. */
  readonly ask: (node_id: string, room: RoomAddress) => void
  /** A room was handed over to a node, or to nobody, after so many seconds without an owner that acts. */
  readonly handed: (seconds: number, room: RoomAddress, node_id: string | undefined) => void
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** Rooms on their way at once: each is without an owner for a few round trips to the store only, and the store is not flooded. */
const AT_ONCE = 8

/** Hands every room over to a living node, a few at a time; one that nobody can take is saved for whoever asks for it first. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { place, ask, handed, now }: HandOverParts,
): Promise<void> {
  const waiting = [...rooms]
  const work = async (): Promise<void> => {
    for (let room = waiting.shift(); room; room = waiting.shift()) {
      const { address } = room
      const node_id = place(room.mostly_at)
      const began = now()
      await room.handOver(node_id === undefined ? undefined : { node_id, take: () => ask(node_id, address) })
      handed((now() - began) / 1000, address, node_id)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}
