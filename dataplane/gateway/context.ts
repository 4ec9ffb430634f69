import type { RequestListener } from 'node:http'
import type { Clock } from '../../shared/clock.ts'
import { type Defaults, defaultConfig } from '../../shared/config.ts'
import { type NodeLimits, nodeLimits } from '../../shared/limits.ts'
import type { Logger } from '../../shared/log.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { LocalSeat, RoomAddress, Sender, ToOwner } from '../traffic.ts'
import type { PlayerBudgets } from './budget.ts'
import type { Polling } from './fast-socket.ts'
import type { GatewayMetrics } from './metrics.ts'

/**
 * Dependencies of a gateway from outside: clock and other services of the process, and the cluster. A comment ends with the class or method
 * that `node.ts` passes.
 */
export interface GatewayServices {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: GatewayMetrics
  readonly tracer: Tracer
  /** Answers HTTP requests without a websocket upgrade. Default: an answer that a websocket is required. */
  readonly answer?: RequestListener
  /** Maximum number of connections that the process can open. Default: no maximum. */
  readonly maxConnections?: number
  /** Load of this node. `LoadMeter`. */
  readonly load: {
    /** True while this node is overloaded, so that it refuses new sessions. */
    readonly overloaded: boolean
    /** Minimum time between two reads of a socket, in milliseconds; 0: none. One message without `ref` is handled per read. */
    readonly inputIntervalMs: number
  }
  /** Messages that did not return. `Suspects`. */
  readonly suspects: {
    /** Returns how a player's message of a type is handled, or its join (without a type), after earlier ones did not return. */
    verdict(sender: Sender, roomType: string, messageType?: string): 'pass' | 'refuse' | 'wait'
  }
  readonly cluster: GatewayCluster
  /** Room type of the matches of a queue. Undefined: the room type is no queue, or is not installed. `InstalledTypes`. */
  readonly matchType: (roomType: string) => string | undefined
}

/** Dependencies of all parts of a gateway. */
export interface GatewayContext extends GatewayServices {
  readonly options: GatewayOptions
  /** Decides when sockets are read. */
  readonly polling: Polling
  readonly budgets: PlayerBudgets
}

/** The part of `Ownership` that a gateway uses. */
export interface GatewayCluster {
  /** True: this node accepts no new sessions. */
  readonly cordoned: boolean
  readonly nodes: {
    /** Returns true if a node is known to have ended. */
    isGone(nodeId: string): boolean
    /** Resolves to true if the lease of a node has expired. A node that is only presumed dead may hold a socket. Rejects with `StoreUnavailable`. */
    isDead(nodeId: string): Promise<boolean>
    /**
     * Resolves to true if the store came back empty less than `ms` ago, so that records of other nodes may still be missing. Rejects with
     * `StoreUnavailable`.
     */
    storeIsBehind(ms: number): Promise<boolean>
  }
  readonly router: {
    /** Sends a message to the owner of its room. `Edge.receive` may be called with the answer before this returns. */
    send(message: ToOwner): void
    /** Returns the seat of a member whose room runs at this node. Undefined: the room is elsewhere, or does not know the member. */
    seat(room: RoomAddress, memberId: string): LocalSeat | undefined
    /** Drops what the router knows of the room, because no session of this node is in it. */
    forget(room: RoomAddress): void
  }
  /** Notifies another node that a session of that node was resumed here, or that an operator has ended it here (`ended`). */
  notifyTaken(nodeId: string, sessionId: string, ended: boolean): void
  /** Returns true if another node has an `ADVERTISE_URL`, so that sessions can move there. */
  reroutes(): boolean
  /**
   * Returns the other node that owns all these rooms, as far as this node knows. Undefined: there is none, it has no `ADVERTISE_URL`, or no space
   * for sessions.
   */
  nearerNode(rooms: readonly RoomAddress[]): { readonly nodeId: string; readonly url: string } | undefined
}

/** Options of a gateway: the configuration and limits of its node, and times that only tests change. */
export interface GatewayOptions extends Defaults<'dataplane'>, NodeLimits {
  /** Limits of a client, sent in `welcome`. */
  readonly limits: Limits
  /** Time for a client to send `hello`, and to send a fresh token after a resume with an expired one. */
  readonly handshakeMs: number
  /** Time after which an unanswered question to an owner is sent again. */
  readonly attachWaitMs: number
  /** Time after which an unanswered join fails with `room_unavailable`. */
  readonly joinWaitMs: number
}

/** Returns the given options, with the defaults of the variables and limits for the others. */
export function gatewayOptions(given: Partial<GatewayOptions> = {}): GatewayOptions {
  const config = { ...defaultConfig('dataplane'), ...nodeLimits(), ...given }
  return {
    limits: {
      max_message_bytes: config.maxMessageBytes,
      messages_per_second: config.sessionMessagesPerSecond,
      message_burst: 2 * config.sessionMessagesPerSecond,
      max_rooms: config.maxRoomsPerSession,
    },
    handshakeMs: 5000,
    attachWaitMs: 2000,
    joinWaitMs: 10_000,
    ...config,
  }
}
