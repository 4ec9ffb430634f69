import type { Duplex } from 'node:stream'
import type { RoomDescription } from '../../../dataplane/descriptions.ts'
import type { Clock } from '../../../shared/clock.ts'
import type { Store } from '../../../shared/store/port.ts'
import type { Door } from '../../players/player.ts'
import type { End, Fault, History, LobbyRoom } from '../checker/history.ts'

/** Deployment under test: real processes with a real Redis, or a simulated world. */
export interface System {
  /** Clock of players and faults. The times in the history are its monotonic time. */
  readonly clock: Clock
  /** Opens a connection to a node. Undefined: connections use the network. */
  readonly dial: ((door: Door) => Duplex) | undefined
  readonly store: StoreSwitch
  /** Control plane that backends call. Undefined: the deployment has none. */
  readonly control?: SystemControl
  /** Creates a project, and a token that is valid longer than any run. */
  login(): Promise<{ projectId: string; token: string }>
  /** Creates a token for a player of this project. */
  tokenOf(projectId: string, sub: string): Promise<string>
  /** Running nodes. */
  doors(): Door[]
  /** The running node of a slot. Undefined: the slot has none. */
  node(slot: number): SystemNode | undefined
  /** Connection between the node of a slot and the store. */
  link(slot: number): SystemLink
  /** Starts a node in an empty slot. If the process exits during its start, tries again, as a supervisor does. */
  startNode(slot: number): Promise<void>
  /** Kills all nodes. Resolves when the processes have ended. */
  killNodes(): Promise<void>
  /** All rooms that the nodes run, with their states. Rejects when a node does not answer. */
  owners(): Promise<readonly OwnedRoom[]>
  /** Store calls, tasks, handler calls without a lease, and stalls of all nodes. */
  history(): SystemHistory
  /** Opens the store for an auditor. The caller closes it. */
  openStore(): Promise<Store>
}

/** Reaction of the webhook to a notice. */
export type Mood = 'accepts' | 'fails' | 'silent' | 'late'

/** The webhook of the backends of a run. */
export interface Notices {
  /** Called with each notice that has a valid signature. */
  onNotice: (id: string, body: string, accepted: boolean) => void
  mood: () => Mood
}

/** Control plane of a deployment. */
export interface SystemControl {
  readonly url: string
  /** Receives the notices of all nodes. */
  readonly notices: Notices
  /** Sends a request. Undefined: requests use the network. */
  readonly fetch?: typeof fetch
  /** Ends the process as `kill -9` does. */
  kill(): Promise<void>
  start(): Promise<void>
}

/** A room with the node that runs it. */
export type OwnedRoom = End['owners'][number] & Pick<LobbyRoom, 'players' | 'reserved'>

export const ownedRoom = (
  {
    room_id: room,
    epoch,
    seq,
    checksum,
    state = null,
    member_count: members,
    spectator_count: spectators,
    reservations,
  }: RoomDescription,
  node: string,
): OwnedRoom => ({
  room,
  node,
  epoch,
  seq,
  checksum,
  state,
  players: members - spectators,
  reserved: reservations.length,
})

export type SystemHistory = Pick<History, 'store' | 'sessions' | 'tasks' | 'late'> & {
  readonly stalls: readonly Fault[]
}

/** One process of a node, from its start to its end. */
export interface SystemNode {
  /** Node id. Each start has a new id. */
  readonly node: string
  /** Ends the process as `kill -9` does. */
  kill(): Promise<void>
  /** Ends the process as SIGTERM does. Kills it after `ms`. */
  endWithin(ms: number): Promise<void>
  /** Suspends the process until `resume`, as SIGSTOP does. */
  pause(): void
  resume(): void
  /** Adds `ms` to the wall clock of the node. */
  jump(ms: number): void
}

/** A connection with injectable faults. */
export interface SystemLink {
  /** Breaks the connection. Both sides may reconnect immediately. */
  cut(): void
  /** Adds `ms` of latency to everything sent from now on. 0 ends the delay. */
  delay(ms: number): void
  /** While held, nothing arrives in either direction. */
  hold(held: boolean): void
}

/** Server of the store. */
export interface StoreSwitch {
  /** Ends the server. `keep`: after `start`, all acknowledged writes are present. Otherwise the store is then empty. */
  stop(keep: boolean): Promise<void>
  start(): Promise<void>
  /** Suspends the server until `resume`. */
  pause(): Promise<void>
  resume(): Promise<void>
}
