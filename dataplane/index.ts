/** `roomful`: what room authors import. */

export { type NodeOptions, type RunningNode, startNode } from './node.ts'
export {
  type AdmitContext,
  type Draft,
  type Durability,
  defineRoom,
  type Member,
  type RoomContext,
  type RoomDefinition,
  type RoomEvents,
  type RoomMessages,
  type RoomOptions,
  type RoomSpec,
  type RoomState,
  type TaskOutcome,
} from './rooms/definition.ts'
export { RoomDefinitionError } from './rooms/definition-check.ts'
