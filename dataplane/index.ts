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
 * Starts a node in this process with the given room types. Every other option has the default of its environment variable or limit;
 * the environment is not read. Only this call loads the node's code, so importing `roomful` in a room module does not.
 */
export const startNode = async (options: NodeOptions): Promise<RunningNode> =>
  (await import('./node.ts')).startNode(options)
