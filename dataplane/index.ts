/** `roomful`: what room authors import, and programs that run a node in their own process. */
import type { NodeOptions, RunningNode } from './node.ts'

export type { NodeOptions, RunningNode } from './node.ts'
export {
  type AdmitContext,
  type Draft,
  type Durability,
  defineRoom,
  type Member,
  type Migration,
  type RoomContext,
  type RoomDefinition,
  RoomDefinitionError,
  type RoomEvents,
  type RoomMessages,
  type RoomOptions,
  type RoomSpec,
  type RoomState,
  type SavedAs,
  type TaskOutcome,
} from './rooms/definition.ts'

/**
 * Starts a node in this process with the given room types; everything else has the defaults of the environment variables. Loaded when
 * called, since room modules import this one too.
 */
export const startNode = async (options: NodeOptions): Promise<RunningNode> =>
  (await import('./node.ts')).startNode(options)
