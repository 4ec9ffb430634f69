/**
 * `roomful`: defines rooms, and starts a server process (a node) inside another program.
 * @module roomful
 */
import type { NodeOptions, RunningNode } from './node.ts'

export type {
  RoomCalls,
  RoomEvents,
  RoomMessages,
  RoomOptions,
  RoomState,
  VisibleState,
} from '../shared/room-types.ts'
export { defineQueue, type QueueTypes } from './features/queues/queue.ts'
export type { EntryContext, QueueSpec, TicketPlayer } from './features/queues/tickets.ts'
export type { NodeOptions, RunningNode } from './node.ts'
export { type Durability, defineRoom, type RoomDefinition, type RoomSpec } from './room/definition.ts'
export { RoomDefinitionError } from './room/definition-check.ts'
export type {
  Admission,
  AdmitContext,
  ContextOf,
  Draft,
  DraftJson,
  HandlerResult,
  ListedRoomFacts,
  ListingSpec,
  Member,
  MessageContext,
  MessageInput,
  MessageRate,
  MessageSpecs,
  Migration,
  OutgoingEvent,
  Recipients,
  RoomContext,
  RoomInput,
  RoomLog,
  RoomSave,
  SavedAs,
  StartedTask,
  StartTask,
  TaskOutcome,
  TaskRun,
  TaskSpecs,
  TimerInput,
  TimerSpecs,
  TurnContext,
} from './room/definition-types.ts'
export type { LayerRule, LayerRules } from './room/layer-rules.ts'
export { plain } from './room/plain.ts'

/**
 * Starts a node, a server process that runs rooms, inside this process. Options that are not given have their default values. Environment
 * variables are not read.
 */
export const startNode = async (options: NodeOptions): Promise<RunningNode> =>
  (await import('./node.ts')).startNode(options)
