/**
 * `roomful`: defines rooms, and starts a node inside another program.
 * @module roomful
 */
import type { NodeOptions, RunningNode } from './node.ts'

export type { NodeOptions, RunningNode } from './node.ts'
export {
  type Admission,
  type AdmitContext,
  type ContextOf,
  type Draft,
  type DraftJson,
  type Durability,
  defineRoom,
  type HandlerResult,
  type LayerRule,
  type LayerRules,
  type Member,
  type MessageContext,
  type MessageInput,
  type MessageRate,
  type MessageSpecs,
  type Migration,
  type OutgoingEvent,
  type Recipients,
  type RoomContext,
  type RoomDefinition,
  type RoomEvents,
  type RoomInput,
  type RoomLog,
  type RoomMessages,
  type RoomOptions,
  type RoomSave,
  type RoomSpec,
  type RoomState,
  type SavedAs,
  type TaskOutcome,
  type TaskSpecs,
  type TimerInput,
  type TimerSpecs,
  type TurnContext,
  type VisibleState,
} from './rooms/definition.ts'
export { RoomDefinitionError } from './rooms/definition-check.ts'

/**
 * Starts a node in this process with the given room types. Other options default to those of the environment variables. The node's
 * code is loaded by this call, so that room modules can import `roomful` without it.
 */
export const startNode = async (options: NodeOptions): Promise<RunningNode> =>
  (await import('./node.ts')).startNode(options)
