import type { Span, Tracer } from '../../shared/tracing/tracer.ts'
import { nodeName } from '../node-id.ts'
import { type RoomAddress, roomAttributes } from '../traffic.ts'

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
  /** A room was handed over to a node, or to none, after so many seconds without an owner that acts. */
  readonly handed: (seconds: number) => void
  readonly tracer: Tracer
  /** The rooms' part of the drain. */
  readonly span: Span
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/** Rooms on their way at once: each is without an owner for a few round trips to the store only, and the store is not flooded. */
const AT_ONCE = 8
/** Rooms with a span of their own; a node may have ten thousand. */
const MOST_SPANS = 100

/** Hands every room over to a living node, a few at a time; one that nobody can take is saved for whoever asks for it first. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { place, ask, handed, tracer, span: parent, now }: HandOverParts,
): Promise<void> {
  const waiting = [...rooms]
  let count = 0
  const work = async (): Promise<void> => {
    for (let room = waiting.shift(); room; room = waiting.shift()) {
      const { address } = room
      const node_id = place(room.mostly_at)
      const began = now()
      await room.handOver(node_id === undefined ? undefined : { node_id, take: () => ask(node_id, address) })
      handed((now() - began) / 1000)
      if (++count > MOST_SPANS) continue
      const attributes = { ...roomAttributes(address), 'roomful.to_node_id': node_id && nodeName(node_id) }
      tracer.span('room.hand_over', { parent, began_at: began, attributes }).end()
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}
