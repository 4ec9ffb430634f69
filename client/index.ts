/**
 * `roomful/client`: the client SDK for browsers and Node.
 * @module roomful/client
 */
import type { RoomCollection, TypedRoom, UntypedRoom } from '../shared/room-types.ts'
import { Client, type ConnectOptions } from './client.ts'

export type {
  Immutable,
  RoomCollection,
  RoomEvents,
  RoomMessages,
  RoomOptions,
  RoomReplies,
  RoomState,
  RoomTypes,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
export type { Client, ConnectOptions, JoinArguments, RoomJoinOptions } from './client.ts'
export type { WebSocketConstructor, WebSocketLike } from './connection.ts'
export { type LocalErrorCode, RoomfulError, type RoomfulErrorCode } from './errors.ts'
export type { Unsubscribe } from './listeners.ts'
export type { Member } from './replica.ts'
export type {
  RequestArguments,
  Room,
  RoomStatus,
  SendArguments,
  SendOptions,
  StateSubscription,
} from './room.ts'
export type { LeaveReason } from './seat.ts'
export type { ConnectionStatus } from './session.ts'
export type { ClientStats } from './stats.ts'

/**
 * Connects to a data-plane node at `url` (`ws://` or `wss://`). Resolves when the server has accepted the client. Rejects with a
 * RoomfulError if the server rejects it or cannot be reached in time. `connect<typeof rooms>` types the rooms by their definitions, so that
 * `client.join('duel')` needs no type argument.
 */
export const connect = <Rooms extends RoomCollection = readonly TypedRoom<UntypedRoom>[]>(
  url: string | URL,
  options: ConnectOptions,
): Promise<Client<Rooms>> => Client.open<Rooms>(String(url), options)
