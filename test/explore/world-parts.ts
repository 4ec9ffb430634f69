import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import type { RoomLimits } from '../../dataplane/rooms/environment.ts'
import type { RoomAddress } from '../../dataplane/traffic.ts'
import type { Fault } from './choice.ts'
import type { Mutation } from './model-node.ts'
import type { World } from './world.ts'

/** Something the members or operators of a world do, at a time after the beginning. */
export interface Act {
  readonly at: number
  readonly what: string
  readonly run: (world: World) => void
}

/** One member, and how it behaves. */
export interface Member {
  readonly memberId: string
  /** The nodes its edge may ask; the first is asked first. */
  readonly nodes: readonly string[]
  /** It says nothing of its own accord, and has to hear of everything all the same. */
  readonly watches?: boolean
}

/** What a world is made of. */
export interface WorldParts {
  readonly room: RoomAddress
  readonly definition: RoomDefinition
  /** Each has an edge of its own. */
  readonly edges: readonly Member[]
  /** Before anything goes wrong. */
  readonly before: readonly Act[]
  /** While things go wrong. */
  readonly script: readonly Act[]
  readonly faults: readonly Fault[]
  /** Whether the store can tell who listens, so that a dead node is noticed before its lease has run out. */
  readonly hints?: boolean
  readonly limits?: Partial<RoomLimits>
  readonly recordTtlMs?: number
  readonly mutation?: Mutation | undefined
}
