import type { Claimed } from '../../../dataplane/cluster/claims.ts'
import type { LocalRooms } from '../../../dataplane/cluster/router.ts'
import { type Arrival, type RoomAddress, roomName, type ToOwner } from '../../../dataplane/traffic.ts'

/** The rooms of this node: what was taken to them, and what they were told to open. Claims that they make become what `claimed` says. */
export class TestRooms implements LocalRooms {
  readonly running = new Set<string>()
  readonly received: Arrival[] = []
  readonly opened: Arrival[][] = []
  claimed: Claimed | undefined
  accepts = true

  has(name: string): boolean {
    return this.running.has(name)
  }

  receive(message: ToOwner, from: string): void {
    this.received.push({ message, from })
  }

  open(room: RoomAddress, arrivals: readonly Arrival[]): Promise<Claimed> | undefined {
    this.running.add(roomName(room))
    this.opened.push([...arrivals])
    return this.claimed && Promise.resolve(this.claimed)
  }
}
