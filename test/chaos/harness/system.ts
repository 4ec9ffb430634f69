import type { Duplex } from 'node:stream'
import type { RoomDescription } from '../../../dataplane/descriptions.ts'
import type { Clock } from '../../../shared/clock.ts'
import type { Store } from '../../../shared/store/port.ts'
import type { End, Fault, History, LobbyRoom } from '../checker/history.ts'
import type { Notices } from './backends.ts'
import type { Door } from './player.ts'

/** A deployment that a run plays on and breaks: real processes over a real Redis, or a simulated world. */
export interface System {
  /** Clock of players, faults and the history. Its monotonic time is the time of the history. */
  readonly clock: Clock
  /** Opens a connection to a node. Undefined: over the network. */
  readonly dial: ((door: Door) => Duplex) | undefined
  readonly store: StoreSwitch
  /** Undefined: there is no control that backends could call. */
  readonly control?: SystemControl
  /** A project with a token that lives as long as any run. */
  login(): Promise<{ projectId: string; token: string }>
  /** A token of a player of this project. */
  tokenOf(projectId: string, sub: string): Promise<string>
  /** The nodes that live. */
  doors(): Door[]
  /** The node in a slot, if it lives. */
  node(slot: number): SystemNode | undefined
  /** The connection between a slot's node and the store. */
  link(slot: number): SystemLink
  /** Starts a node in a slot that has none. Tries again when it ends at once, as a supervisor would. */
  startNode(slot: number): Promise<void>
  /** Kills every node and waits until they are gone. */
  killNodes(): Promise<void>
  /** Everything that the nodes say they run, with states. Rejects when a node does not answer. */
  owners(): Promise<readonly OwnedRoom[]>
  /** What every node did with the store, which tasks it began, what it ran without a lease, and when it did not get on. */
  history(): SystemHistory
  /** The store as an auditor reaches it, who closes it. */
  openStore(): Promise<Store>
}

/** The control plane. */
export interface SystemControl {
  readonly url: string
  /** Receives the notices of all nodes. */
  readonly notices: Notices
  /** Sends a request. Undefined: over the network. */
  readonly fetch?: typeof fetch
  /** Ends it as `kill -9` does. */
  kill(): Promise<void>
  start(): Promise<void>
}

/** A room that a node runs. */
export type OwnedRoom = End['owners'][number] & Pick<LobbyRoom, 'members' | 'reserved'>

export const ownedRoom = (
  { room_id: room, epoch, seq, checksum, state = null, member_count: members, reservations }: RoomDescription,
  node: string,
): OwnedRoom => ({ room, node, epoch, seq, checksum, state, members, reserved: reservations.length })

export type SystemHistory = Pick<History, 'store' | 'sessions' | 'tasks' | 'late'> & {
  readonly stalls: readonly Fault[]
}

/** One life of a node. */
export interface SystemNode {
  /** Its name, of this one life. */
  readonly node: string
  /** Ends it as `kill -9` does. */
  kill(): Promise<void>
  /** Ends it as SIGTERM does; kills it when that takes longer. */
  endWithin(ms: number): Promise<void>
  /** It stands still until `resume`, as after SIGSTOP. */
  pause(): void
  resume(): void
  /** Its wall clock jumps. */
  jump(ms: number): void
}

/** A connection that can be disturbed. */
export interface SystemLink {
  /** Breaks it. It may be made again at once. */
  cut(): void
  /** From now on everything takes longer by so many milliseconds. */
  delay(ms: number): void
  /** Nothing arrives, in either direction, while it is held. */
  hold(held: boolean): void
}

/** The server of the store. */
export interface StoreSwitch {
  /** Ends it. `keep`: everything that was ever answered is there after `start`; otherwise it comes back empty. */
  stop(keep: boolean): Promise<void>
  start(): Promise<void>
  /** It stands still until `resume`. */
  pause(): Promise<void>
  resume(): Promise<void>
}
