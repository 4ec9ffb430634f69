/**
 * `roomful`: defines rooms, and starts a server process (a node) inside another program.
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
  type ListedRoomFacts,
  type ListingSpec,
  type Member,
  type MessageContext,
  type MessageInput,
  type MessageRate,
  type MessageSpecs,
  type Migration,
  type OutgoingEvent,
  type Recipients,
  type RoomCalls,
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
  type StartedTask,
  type StartTask,
  type TaskOutcome,
  type TaskRun,
  type TaskSpecs,
  type TimerInput,
  type TimerSpecs,
  type TurnContext,
  type VisibleState,
} from './rooms/definition.ts'
export { RoomDefinitionError } from './rooms/definition-check.ts'
export { defineQueue, type QueueTypes } from './rooms/queue.ts'
export type { QueueSpec } from './rooms/tickets.ts'

/**
 * Starts a node, a server process that runs rooms, inside this process. Options that are not given have their default values. Environment
 * variables are not read.
 */
export const startNode = async (options: NodeOptions): Promise<RunningNode> =>
  (await import('./node.ts')).startNode(options)
