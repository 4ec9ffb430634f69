import type { RequestListener } from 'node:http'
import type { Clock } from '../../shared/clock.ts'
import { type Defaults, defaultConfig } from '../../shared/config.ts'
import { type NodeLimits, nodeLimits } from '../../shared/limits.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Records } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { Directory } from '../directory/directory.ts'
import type { Placing } from '../directory/placing.ts'
import type { RoomAddress, ToOwner } from '../traffic.ts'
import type { PlayerBudgets } from './budget.ts'
import type { Polling } from './fast-socket.ts'
import type { AskKeyStatus } from './key-cache.ts'
import type { GatewayMetrics } from './metrics.ts'

/**
 * What a gateway works with, and every part of it: how it behaves, the machine it runs on, and the cluster behind it. The comment of each
 * function ends with what `node.ts` puts there.
 */
export interface GatewayContext {
  readonly nodeId: string
  readonly options: GatewayOptions
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: GatewayMetrics
  readonly tracer: Tracer
  /** Answers what comes to the websocket's port and wants no websocket; default: it is told to. */
  readonly answer?: RequestListener
  /** Most connections that the process can open; default: as many as are configured. */
  readonly maxConnections?: number
  /** When sockets are read. */
  readonly polling: Polling
  readonly budgets: PlayerBudgets
  /** Whether this node is asked for more than it can do, so that newcomers are refused. `LoadMeter.overloaded`. */
  readonly overloaded: () => boolean
  /** Whether a player's messages of a type, or without a type its joins, are refused, since too many of them did not return. `Suspects.blocks`. */
  readonly blocks: (projectId: string, principal: string, roomType: string, messageType?: string) => boolean
  /**
   * How often each socket is read at most, and one message without `ref` of it handled, in milliseconds; 0: whenever they come.
   * `LoadMeter.inputIntervalMs`.
   */
  readonly inputIntervalMs: () => number
  readonly cluster: GatewayCluster
  /** Lists of rooms. `Directory`. */
  readonly directory: Pick<Directory, 'rooms' | 'watch'>
  /** Chooses rooms for players. `Placing`. */
  readonly placing: Placing
  /** Maximum number of members of a room type; undefined: no limit, or the type is not installed. `RoomHost.maxMembers`. */
  readonly maxMembers: (roomType: string) => number | undefined
  /** Room type of the matches of a queue. Undefined: the room type is no queue, or is not installed. `RoomHost.matchType`. */
  readonly matchType: (roomType: string) => string | undefined
}

/** The cluster, as the gateway of a node uses it (`Ownership`). */
export interface GatewayCluster {
  /** True: this node takes no new sessions. */
  readonly cordoned: boolean
  readonly nodes: {
    /** Returns true if a node is known to have ended. */
    isGone(nodeId: string): boolean
    /** Resolves to true if the lease of a node has expired. A node that only seems to have ended may hold a socket. Rejects with `StoreUnavailable`. */
    isDead(nodeId: string): Promise<boolean>
    /**
     * Resolves to true if the store came back empty less than `ms` ago, and may lack what nodes have not written again. Rejects with
     * `StoreUnavailable`.
     */
    storeIsBehind(ms: number): Promise<boolean>
  }
  readonly router: {
    /** Sends a message to the owner of its room. `Edge.receive` may be called with the answer before this returns. */
    send(message: ToOwner): void
    /** No session of this node is in the room any more. */
    forget(room: RoomAddress): void
  }
  /** Tells another node that a session of that node was resumed here, or that an operator has `ended` it here. */
  tellTaken(nodeId: string, sessionId: string, ended: boolean): void
  /** Returns true if some other node has an address of its own, so that sessions may move there. */
  reroutes(): boolean
  /**
   * Returns the other node that has all these rooms, as far as this node knows. Undefined: there is none, it has no address of its own, or no space
   * for sessions.
   */
  nearerNode(rooms: readonly RoomAddress[]): { readonly nodeId: string; readonly url: string } | undefined
}

/** Dependencies of a gateway. */
export interface GatewayEnvironment extends Omit<GatewayContext, 'options' | 'polling' | 'budgets'> {
  /** Default: the defaults of the variables and the limits. */
  readonly options?: Partial<GatewayOptions>
  /** Asks control about keys; see `askControl`. */
  readonly askKeyStatus: AskKeyStatus
  /** The first one is for clients that name no subprotocol. */
  readonly codecs: readonly [Codec, ...Codec[]]
  /** Where sessions are written down, for whichever node they are resumed at. */
  readonly records: Records
}

/** Options of a gateway: the configuration and limits of its node, and times that only tests change. */
export interface GatewayOptions extends Defaults<'dataplane'>, NodeLimits {
  /** What clients are told and held to. */
  readonly limits: Limits
  /** How long a client may take to say `hello`, and to send a fresh token after a resume with an expired one. */
  readonly handshakeMs: number
  /** After so long a question to an owner that has no answer is asked again. */
  readonly attachWaitMs: number
  /** How long a join may stay without an answer before it fails with `room_unavailable`. */
  readonly joinWaitMs: number
}

/** Returns the given options, and for the rest the defaults of the variables and the limits. */
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
