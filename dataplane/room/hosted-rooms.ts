import { ProjectCounts } from '../metrics.ts'
import type { Room } from './room.ts'
import type { RoomSlot } from './slot.ts'

/** The rooms that this node has claimed: those that it runs, and those that it opens. */
export class HostedRooms {
  /** By room name (`project/type:key`). */
  readonly #slots = new Map<string, RoomSlot>()
  readonly #running = new Map<string, Room>()
  /** Numbers of rooms that this node has claimed, by project. */
  readonly projects = new ProjectCounts()
  #closed = false

  /** True if this node takes rooms. */
  get accepts(): boolean {
    return !this.#closed
  }

  /** Takes no more rooms. */
  refuseMore(): void {
    this.#closed = true
  }

  /** Rooms that run here. */
  get running(): readonly Room[] {
    return [...this.#running.values()]
  }

  /** Number of rooms that run here. */
  get size(): number {
    return this.#running.size
  }

  /** Frozen rooms. */
  get frozen(): readonly Room[] {
    return this.running.filter((room) => room.frozen)
  }

  /** Number of members of all rooms that run here. */
  get members(): number {
    let members = 0
    for (const { core } of this.#running.values()) members += core.memberships.size
    return members
  }

  /** Number of rooms that this node has claimed. */
  get claimed(): number {
    return this.#slots.size
  }

  /** Returns the room of a name that runs here. */
  get(name: string): Room | undefined {
    return this.#running.get(name)
  }

  /** Returns the receiver of messages for a room: the room if it runs, or else its slot. Undefined: the room is not here. */
  receiver(name: string): Room | RoomSlot | undefined {
    return this.#running.get(name) ?? this.#slots.get(name)
  }

  /** Returns true if a room runs here, or is being opened under the claim of this node. */
  has(name: string): boolean {
    return this.#slots.has(name)
  }

  /** Adds the slot of a claimed room. */
  claim(slot: RoomSlot): void {
    const { name, projectId } = slot.address
    this.#slots.set(name, slot)
    this.projects.add(projectId, 1)
  }

  /** Adds a running room. */
  add(room: Room): void {
    this.#running.set(room.core.name, room)
  }

  /** Removes a slot, and its room if it ran. */
  remove({ address: { name, projectId } }: RoomSlot): void {
    if (this.#slots.delete(name)) this.projects.add(projectId, -1)
    this.#running.delete(name)
  }
}
