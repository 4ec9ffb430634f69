import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomAddress } from '../traffic.ts'
import type { RoomCore } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import type { FailureLog } from './failures.ts'
import type { Update } from './journal.ts'
import type { RoomLimits } from './limits.ts'
import type { RoomCode } from './room-code.ts'
import type { Scheduler } from './scheduler.ts'

/**
 * How a room ended on this node. `disposed`: for good. `released`: for another owner. `asleep`: stored until the next join. `fenced`:
 * another node owns it.
 */
export type RoomEnd = 'disposed' | 'released' | 'asleep' | 'fenced'

/**
 * How a room is about to end on this node. `disposed`: it has ended. `dropped`: the node stops, and nothing keeps the room. `released`:
 * another owner continues it, or it sleeps.
 */
export type Leaving = 'disposed' | 'dropped' | 'released'

/** When the observation of a room began. `made`: with the room. `claimed`: after an earlier owner. `redefined`: with its new definition. */
export type Since = 'made' | 'claimed' | 'redefined'

/** What a node gives to its features. */
export interface FeatureNeeds {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly scheduler: Scheduler
  readonly limits: RoomLimits
  readonly code: RoomCode
  /** Failures of room logic that runs outside of a room's turns. */
  readonly failures: FailureLog
}

/** A running room, for an observer. */
export interface RoomView<Core = RoomCore> {
  readonly core: Core
  /** What members have received. */
  readonly delivery: { readonly delivered: { readonly playerCount: number; readonly spectatorCount: number } }
  readonly record: {
    /** How long the store keeps the room without an owner, in milliseconds. */
    readonly lifeMs: number
    /** When this node last owned the released room, milliseconds since 1970. */
    readonly ownedAt: number
  }
  /** Runs work in the time of the room, and fulfils its wishes. */
  timed<T>(run: () => T): T
  /** The observer keeps the room no longer awake, or has failed to. */
  progressed(): void
}

/** Adds something to rooms from outside. The core does not know its features: `node.ts` passes them. */
export interface RoomFeature {
  /** Returns the observer of a room that begins here or has a new definition. Undefined: its type does not use the feature. */
  observe(room: RoomView, definition: RoomDefinition, since: Since): RoomObserver | undefined
  /** Returns the code of a new room, before it runs. Rejects with `StoreUnavailable`. */
  codeFor?(address: RoomAddress, definition: RoomDefinition): Promise<string | undefined>
  /** A room is gone that this node has claimed under `epoch`, and that did not run here. */
  gone?(address: RoomAddress, epoch: number): void
}

/** Observes one running room. */
export interface RoomObserver {
  /** The last attempt of `leaving` failed. This can last for any time, so messages for the ended room are refused. */
  readonly failing?: boolean
  /** The room has another definition. Returns false if the observation has ended, because the type no longer uses the feature. */
  redefined(definition: RoomDefinition): boolean
  /** Turns have changed the state. The update is not stored yet. */
  changed?(): void
  /** An update is stored and delivered. */
  committed?(update: Update): void
  /** The store may have lost what the feature wrote. */
  repair?(): void
  /** The empty room would end or sleep now. True: it stays until `progressed`. */
  keepsAwake?(): boolean
  /** The last step before the release. Resolves to false if a room that has ended cannot be forgotten yet. */
  leaving?(how: Leaving): Promise<boolean>
  /** The room is about to be released. Later work is part of `ended` only. */
  stop?(): void
  /** The room has left this node, and its slot is still there. Not called if a known successor continues the room. */
  ended?(how: RoomEnd): Promise<void>
  /** Stops waiting for a store or a database that does not answer. */
  giveUp?(): void
}
