import type { Json, JsonObject } from '../shared/json.ts'
import type { LayerPart } from '../shared/protocol/codec.ts'
import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type {
  DepartureReason,
  Match,
  ResyncReason,
  SeatCode,
  ServerMessage,
  Subprotocol,
} from '../shared/protocol/messages.ts'
import type { Frame } from './frame.ts'

/**
 * Messages between the edge of a client (gateway/) and the owner of a room (room/). They are plain data without return values, so the same
 * messages travel inside one node and between nodes. In cluster/, `Router` routes them to owners and `Router.deliver` to edges.
 */

/** Address of a room, unique in the cluster. */
export interface RoomAddress {
  readonly projectId: string
  readonly roomType: string
  readonly key: string
  /** `project/type:key`: the room's name in the store and in maps. Built once, because every message is looked up by it. */
  readonly name: string
}

/** The room id that clients use: `type:key`, unique within a project. */
export const roomIdOf = (room: RoomAddress): string => `${room.roomType}:${room.key}`

export const roomAddress = (projectId: string, roomType: string, key: string): RoomAddress => ({
  projectId,
  roomType,
  key,
  name: `${projectId}/${roomType}:${key}`,
})

/** Parses a room name. Names of projects and types contain no `/` and no `:`. */
export function roomNamed(name: string): RoomAddress {
  const typeAt = name.indexOf('/') + 1
  const keyAt = name.indexOf(':', typeAt) + 1
  return {
    projectId: name.slice(0, typeAt - 1),
    roomType: name.slice(typeAt, keyAt - 1),
    key: name.slice(keyAt),
    name,
  }
}

/** Name of a player in a project: the token's `sub`, else the session. Rates and the watchdog's suspects are counted by it. */
export const playerOf = (sub: string | null, sessionId: string): string =>
  sub === null ? `session:${sessionId}` : `sub:${sub}`

/** A player who sends messages, as suspects are counted. */
export interface Sender {
  readonly projectId: string
  /** Its name in the project: `playerOf`. */
  readonly principal: string
  /** Start of its session, in milliseconds since 1970. */
  readonly since: number
}

/** Action that a backend, an operator or another room requests. The room runs it in one turn. */
export type RoomAction =
  | {
      readonly op: 'call'
      /** Name in the room type's `calls`. */
      readonly name: string
      readonly data: Json
      readonly caller: { readonly key_id: string; readonly call_id: string }
    }
  /** Keeps seats for players, all or none. `players`: the same players, for a match. The room then asks `admit` for each of them first. */
  | {
      readonly op: 'reserve'
      readonly subs: readonly string[]
      readonly seconds: number
      readonly players?: readonly MatchPlayer[]
    }
  /** Ends the reservations that the request with this id made for `subs`. If it made none yet, later requests with this id are refused. */
  | { readonly op: 'cancel'; readonly subs: readonly string[] }
  | { readonly op: 'kick'; readonly sub: string; readonly reason?: string }
  | { readonly op: 'close' }
  /** Creates the room, with `create`, if it does not exist. */
  | { readonly op: 'open' }
  /** Returns the room as of its last update, without a turn and without a stored outcome. */
  | ({ readonly op: 'describe' } & Shown)

/** A player of a match, as its token says. */
export interface MatchPlayer {
  readonly sub: string | null
  readonly data: JsonObject | null
}

/** Parts of a room's state in its description. */
export interface Shown {
  readonly state: boolean
  /** Includes the parts in hidden layers. */
  readonly layers: boolean
}

/** A request to a room. The room runs it once, however often it arrives within 10 minutes. */
export interface RoomRequest {
  /** Idempotency id, unique in the cluster. Starts with the name of its caller. */
  readonly id: string
  /** Hash of the content. A request with a known id and another hash is refused. */
  readonly hash: string
  /** Principal and options of a room that the request creates. Absent: it creates none. */
  readonly create?: { readonly principal: string; readonly options: Json }
  readonly do: RoomAction
}

/** Error code of a request to a room. */
export type RequestCode = ErrorCode | 'invalid_request' | 'conflict' | 'cancelled' | 'timeout'

/**
 * Answer to a request to a room. `epoch` and `seq` name the update with the request's effect; the flush of that update sets `seq`.
 * `retry_after_seconds`: the request fails again until then.
 */
export type RequestAnswer =
  | { readonly reply: Json; readonly epoch: number; seq: number }
  | { readonly code: RequestCode; readonly message: string; readonly retry_after_seconds?: number }

/** A reliable message of a member. The refs of a member are 1, 2, 3 … The owner applies each once and in order. */
export type ReliableMessage = Extract<ToOwner, { kind: 'message' }> & { readonly ref: number }

/** Messages of a member that its edge has refused. The owner acknowledges their refs in order, with this error as their outcome. */
export type RefusedRange = Extract<ToOwner, { kind: 'refuse' }>

/**
 * From an edge to the owner of `room`. `member_id` names the subscription, also in messages from owners to edges. It equals the id of the
 * member, unless the session has taken the seat over from another session.
 */
export type ToOwner = { readonly room: RoomAddress; readonly member_id: string } & (
  | {
      readonly kind: 'join'
      readonly request_id: number
      /** Id of the node that holds the connection. Answers and updates go there. */
      readonly edge: string
      /** Number of resumes of the session. The owner ignores messages of edges with a lower turn. */
      readonly turn: number
      readonly codec: Subprotocol
      readonly session_id: string
      readonly sub: string | null
      /** The token's claim `data`, for room code. Absent: the token has none. */
      readonly data?: JsonObject | undefined
      /** Principal whose quota counts a room that the join creates. Unique within the project. */
      readonly principal: string
      /** Join options without `key`, not yet validated. */
      readonly options: Json
      /** True if the client has had a seat in the room, and joins again because its session was lost. */
      readonly rejoin?: boolean
      /** False: the join does not create a room. If there is none, it is refused with `room_not_found`. */
      readonly create?: false
      /** True: the client joins as a spectator. `create` is false then. */
      readonly watch?: boolean
      /** Code by which the client joins. If the room has another code, the join is refused with `room_not_found`. */
      readonly code?: string
      /** True if the client supports the feature `layers`. */
      readonly layers?: boolean
      /** The edge's span of the join (W3C), if it is recorded, and the `tracestate` of its trace. */
      readonly traceparent?: string | undefined
      readonly tracestate?: string | undefined
    }
  /** `kicked`: the player is banned from the room type. */
  | {
      readonly kind: 'leave'
      readonly reason: 'left' | 'session_ended' | 'kicked'
      readonly request_id?: number
    }
  | ({ readonly kind: 'message' } & MemberMessage)
  /** The edge refuses the messages with these refs. */
  | {
      readonly kind: 'refuse'
      readonly from: number
      readonly through: number
      readonly code: ErrorCode
      readonly message: string
    }
  /** `stalled`: the edge has dropped patches for a slow consumer, which has now caught up. */
  | { readonly kind: 'resync'; readonly reason: ResyncReason | 'stalled' }
  /** The session has lost its connection, and its member stays. `moves`: the edge expects that the session resumes at another edge. */
  | { readonly kind: 'detach'; readonly moves?: boolean }
  /** Here `member_id` is the id of this attempt, not of a member. The answer repeats it. */
  | { readonly kind: 'request'; readonly request: RoomRequest }
  /** The session has a fresh token, with this claim `data`. */
  | { readonly kind: 'renew'; readonly data?: JsonObject | undefined }
  /** The session is at `edge`, and has everything up to `seq` of `epoch`. The answer repeats `ask`. */
  | {
      readonly kind: 'attach'
      readonly ask: number
      readonly edge: string
      readonly turn: number
      readonly codec: Subprotocol
      readonly session_id: string
      /** The claim `data` of the current token. */
      readonly data?: JsonObject | undefined
      /** Member id that the client knows. If it differs, the client's refs belong to a seat that has ended. */
      readonly seat?: string
      readonly epoch: number
      readonly seq: number
      /** The highest ref up to which the client knows every outcome. */
      readonly settled: number
      /** The edge has dropped the messages up to this ref, so it cannot send them to the owner again. */
      readonly through: number
      /** The span of the session's handshake (W3C), if there is one. */
      readonly traceparent?: string | undefined
    }
)

/** A message of a member. */
export interface MemberMessage {
  readonly type: string
  readonly data: Json
  readonly ref?: number | undefined
  /** The highest ref up to which the client knows every outcome. */
  readonly settled?: number | undefined
}

/** A member whose session and room are at one node: its messages bypass the router. */
export interface LocalSeat {
  /** Handles a message as its owner. False: it has to go through the router, because the room cannot act, or the room or the session has moved. */
  receive(message: MemberMessage): boolean
}

/** A request to a room. */
export type RequestMessage = Extract<ToOwner, { kind: 'request' }>

/** True for a request that ends its room. */
export const isClose = (message: ToOwner): boolean =>
  message.kind === 'request' && message.request.do.op === 'close'

/** A session asks to join. */
export type JoinRequest = Extract<ToOwner, { kind: 'join' }>

/** Span attributes of a room. */
export const roomAttributes = (room: RoomAddress) => ({
  'roomful.room_id': roomIdOf(room),
  'roomful.room_type': room.roomType,
  'roomful.project_id': room.projectId,
})

/** The trace context of a message, if it has one. */
export const traceOf = (message: ToOwner): string | undefined =>
  'traceparent' in message ? message.traceparent : undefined

/** A message and the edge it came from. */
export interface Arrival {
  readonly message: ToOwner
  readonly from: string
  /** Time at which it was queued for its room, on the monotonic clock. */
  readonly at?: number
}

/** Encoded websocket frames of the same messages, for each codec that some member at the edge uses. */
export type Frames = { readonly [codec in Subprotocol]?: Frame }

/** A frame with the state of a room, for one member, and the frames behind it. */
export interface StateFrames {
  /** Absent: there are only frames behind it. In a room with layers: payloads that `Codec.ending` completes with `layers`. */
  readonly patch?: Frames | undefined
  /** Absent: the room has no layers. */
  readonly layers?: readonly LayerPart[] | undefined
  readonly rest?: Frames | undefined
}

/** A join that took effect with an update. */
export interface JoinedMember {
  readonly member_id: string
  /** Id of the member, if it differs from `member_id`: the session has taken the seat over from another session of the player. */
  readonly seat?: string | undefined
  readonly request_id: number
  /** Code of the room. Absent: the room type has no codes, or the code is not claimed yet. */
  readonly code?: string | undefined
  /** `state.snapshot` at the update's seq. */
  readonly snapshot: StateFrames
}

/** Changed layers of an update, for the members at one edge. */
export interface EdgeLayers {
  readonly parts: readonly LayerPart[]
  /** By member, the indexes in `parts`. */
  readonly members: readonly { readonly member_id: string; readonly own: readonly number[] }[]
}

/** A reliable message that was refused. It is acknowledged and will never be applied. */
export interface RefusedRef {
  readonly ref: number
  readonly code: ErrorCode
  readonly message: string
}

/** A reliable message that was applied, and its reply. */
export interface RepliedRef {
  readonly ref: number
  readonly reply: Json
}

/** Outcome of a reliable message, unless it was applied without a reply. */
export type Outcome = RefusedRef | RepliedRef

/** How far the owner has handled the messages of a member. */
export interface Acknowledgement {
  /** The highest ref that was applied or refused; 0: none. */
  readonly ack: number
  /** Outcomes of refs up to `ack`, ascending. Absent: none. All other refs up to `ack` were applied without a reply. */
  readonly outcomes?: readonly Outcome[]
  /** The highest ref whose outcome the room has forgotten although the client may not know it. All refs in `outcomes` are higher. */
  readonly forgotten?: number
}

/** The part of an update for one member, in sending order: targeted events, outcomes, then the ack. */
export interface PersonalPart extends Partial<Acknowledgement> {
  readonly member_id: string
  readonly events: readonly Extract<ServerMessage, { t: 'event' }>[]
}

/** Why a seat has ended, for its client. */
export interface SeatEnd {
  /** Text for the player. */
  readonly message?: string
  /** Set by queues, as `match`. */
  readonly code?: SeatCode
  readonly match?: Match
}

/** Code of the error for a join whose seat a queue has ended. Undefined: another room has ended it. */
export const refusalCode = ({ code, match }: SeatEnd): ErrorCode | undefined => (match ? 'matched' : code)

/** End of a seat, for its client. */
export interface Farewell extends SeatEnd {
  readonly reason: DepartureReason
}

/** From the owner of `room` to one edge with members in it. Edges drop messages with a lower epoch than they have seen. */
export type ToEdge = { readonly room: RoomAddress; readonly epoch: number } & EdgeMessage

type EdgeMessage =
  /** The room's owner is `owner`, as far as the sender knows; null: unknown. The edge sends its open questions again. */
  | { readonly kind: 'redirect'; readonly owner: string | null }
  /** The sender owns the room, and messages of this edge may have been lost on the way. The edge sends its open questions again. */
  | { readonly kind: 'resend' }
  /** One flush, committed if the room type is durable. Goes to every attached member at the edge except those in `joined`. */
  | {
      readonly kind: 'update'
      readonly seq: number
      /** True if acks wait for the commit. Links then send the update without delay. */
      readonly durable?: true | undefined
      /** `state.patch` for all members, as in StateFrames. Undefined: the flush has no seq. */
      readonly patch: Frames | undefined
      /** Events and presence for all members, behind the patch. Undefined: none. */
      readonly rest: Frames | undefined
      /** Absent: the room has no layers. */
      readonly layers?: EdgeLayers | undefined
      readonly personal: readonly PersonalPart[]
      readonly joined: readonly JoinedMember[]
      /**
       * Members at this edge that leave with the update. They get all of it except `rest`; `personal` has the events that they may see. A
       * `left` for each follows. Absent: no member leaves.
       */
      readonly leaving?: readonly string[] | undefined
    }
  /** The number of spectators in the room has changed. Goes to every attached member at the edge. */
  | { readonly kind: 'spectators'; readonly frames: Frames }
  /** Answer to `resync`: a `state.resync`. */
  | { readonly kind: 'state'; readonly member_id: string; readonly seq: number; readonly state: StateFrames }
  /**
   * Answer to `attach`. `resumed` true: `frames` are all missed updates, in order. False: `frames` is one `state.resync`.
   * `outcomes` are all outcomes that the client has not confirmed.
   */
  | ({
      readonly kind: 'attached'
      readonly member_id: string
      readonly ask: number
      readonly seq: number
      readonly resumed: boolean
      readonly frames: readonly StateFrames[]
    } & Acknowledgement)
  /** Answer to a request, after its outcome is committed. */
  | { readonly kind: 'answer'; readonly member_id: string; readonly answer: RequestAnswer }
  /** The member has no seat (any more). Answers attach, message, leave and resync. */
  | { readonly kind: 'no_seat'; readonly member_id: string }
  /** A refused join. */
  | {
      readonly kind: 'refused'
      readonly member_id: string
      readonly request_id: number
      readonly code: ErrorCode
      readonly message: string
      readonly match?: Match | undefined
    }
  /** A failed leave (`request_id`), or a failed message without a ref. */
  | {
      readonly kind: 'error'
      readonly member_id: string
      readonly code: ErrorCode
      readonly message: string
      readonly request_id?: number
    }
  /** The seat has ended: its client has left, or the room has ended it. */
  | { readonly kind: 'left'; readonly member_id: string; readonly farewell: Farewell }
