/**
 * `roomful/client`: the client SDK for browsers and Node.
 * @module roomful/client
 */
import type { RoomCollection, TypedRoom, UntypedRoom } from '../shared/room-types.ts'
import { Client, type ConnectOptions } from './client.ts'
import type { DevTokens } from './token-source.ts'

export type {
  Condition,
  Immutable,
  NumberRange,
  RoomCollection,
  RoomEvents,
  RoomListing,
  RoomMessages,
  RoomOptions,
  RoomReplies,
  RoomState,
  RoomTypes,
  RoomWhere,
  TypedRoom,
  UntypedRoom,
  VisibleState,
} from '../shared/room-types.ts'
export type { Client, ConnectOptions } from './client.ts'
export type { WebSocketConstructor, WebSocketLike } from './connection.ts'
export { type LocalErrorCode, RoomfulError, type RoomfulErrorCode } from './errors.ts'
export type { ListedRoom, RoomQuery } from './finding.ts'
export type { Unsubscribe } from './listeners.ts'
export type { Member } from './replica.ts'
export type {
  CreateArguments,
  JoinArguments,
  JoinOrCreateArguments,
  RequestArguments,
  Room,
  RoomJoinOptions,
  RoomOf,
  RoomStatus,
  SendArguments,
  SendOptions,
  StateSubscription,
} from './room.ts'
export type { JoinTarget, LeaveReason } from './seat.ts'
export type { ConnectionStatus } from './session.ts'
export type { ClientStats } from './stats.ts'
export type { EarlierSeat } from './tab.ts'

/** Address of `roomful dev` at its default port. */
const DEV_URL = 'ws://localhost:4000'

/** The Node process; undefined in browsers. */
const node = globalThis as { readonly process?: { readonly env?: { readonly ROOMFUL_URL?: string } } }

/**
 * Connects to the server at `url` (`ws://` or `wss://`). Resolves when the server has accepted the client. Rejects with a RoomfulError if
 * the server rejects the client, or if it cannot be reached within `connectTimeoutMs`. With `connect<typeof rooms>`, TypeScript knows the
 * types of your rooms, so that `client.join('duel')` needs no type argument.
 */
export function connect<Rooms extends RoomCollection = readonly TypedRoom<UntypedRoom>[]>(
  url: string | URL,
  options: ConnectOptions,
): Promise<Client<Rooms>>
/**
 * Connects to `roomful dev` on this machine, for development. In Node, the address is the environment variable `ROOMFUL_URL`, by default
 * `ws://localhost:4000`.
 */
export function connect<Rooms extends RoomCollection = readonly TypedRoom<UntypedRoom>[]>(
  options: ConnectOptions & DevTokens,
): Promise<Client<Rooms>>
export function connect<Rooms extends RoomCollection>(
  ...given: [url: string | URL, options: ConnectOptions] | [options: ConnectOptions & DevTokens]
): Promise<Client<Rooms>> {
  const [url, options] = given.length === 2 ? given : [undefined, ...given]
  return Client.open<Rooms>(String(url ?? node.process?.env?.ROOMFUL_URL ?? DEV_URL), options)
}
