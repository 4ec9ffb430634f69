import type { Codec } from '../messages.ts'
import type { Peer } from '../peer.ts'
import type { RoomView } from '../room-view.ts'
import type { Stage } from '../stage.ts'

/** The number of a counter. */
export const counted = (view: RoomView): number => (view.state as { count: number }).count

/** Two clients in one room. */
export interface Pair {
  peer: Peer
  view: RoomView
  other: Peer
  witness: RoomView
  room_id: string
}

/** A client in `codec` and a JSON witness, both at the same seq of a new room. */
export async function pair(stage: Stage, codec: Codec, roomType = 'counter'): Promise<Pair> {
  const key = stage.key()
  const peer = await stage.connect(codec, { sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join(roomType, key)
  const witness = await other.join(roomType, key)
  await peer.until('both stand at one seq', () => view.seq === witness.seq)
  return { peer, view, other, witness, room_id: view.roomId }
}
