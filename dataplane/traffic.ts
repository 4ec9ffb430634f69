import type { Json, JsonObject } from '../shared/json.ts'
import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type {
  DepartureReason,
  ResyncReason,
  ServerMessage,
  Subprotocol,
} from '../shared/protocol/messages.ts'
import type { Frame } from './frame.ts'

/**
 * What the edge of a client (gateway/) and the owner of a room (rooms/) say to each other. Plain data both ways and no return values,
 * so that the same messages travel inside one node and between nodes. In cluster/, `Router` takes them to owners and
 * `Router.deliver` to edges.
 */

/** Which room: unique within the cluster. */
export interface RoomAddress {
  readonly projectId: string
  readonly roomType: string
  readonly key: string
  /** `project/type:key`; unique in the cluster, the name of the room in the store and in maps. Made once, since every message is looked up by it. */
  readonly name: string
}

/** `type:key`, as clients see it; unique within a project. */
export const roomIdOf = (room: RoomAddress): string => `${room.roomType}:${room.key}`

export const roomAddress = (projectId: string, roomType: string, key: string): RoomAddress => ({
  projectId,
  roomType,
  key,
  name: `${projectId}/${roomType}:${key}`,
})

/** The room of this name: neither projects nor types have these separators in their names. */
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

/** Name of a player in a project: that of the token, else the session. Rates and turns that did not return are counted by it. */
export const playerOf = (sub: string | null, sessionId: string): string =>
  sub === null ? `session:${sessionId}` : `sub:${sub}`

/** What a backend, an operator or another room asks of a room. The room carries it out in one turn. */
export type RoomAction =
  | {
      readonly op: 'call'
      /** Name in the room type's `calls`. */
      readonly name: string
      readonly data: Json
      readonly caller: { readonly key_id: string; readonly call_id: string }
    }
  /** Keeps seats for players, all or none. */
  | { readonly op: 'reserve'; readonly subs: readonly string[]; readonly seconds: number }
  /** Ends the reservations that the request with this id has made for `subs`. If there was none, later requests with this id are refused. */
  | { readonly op: 'cancel'; readonly subs: readonly string[] }
  | { readonly op: 'kick'; readonly sub: string; readonly reason?: string }
  | { readonly op: 'close' }
  /** Makes the room, with `create`, if it does not exist. */
  | { readonly op: 'open' }
  /** No turn, and no outcome: the room as of its last update. */
  | ({ readonly op: 'describe' } & Shown)

/** Parts of a room's state in its description. */
export interface Shown {
  readonly state: boolean
  /** With what is hidden in layers. */
  readonly layers: boolean
}

/** A request to a room, which carries it out once, however often it arrives within 10 minutes. */
export interface RoomRequest {
  /** Idempotency id, unique in the cluster: it begins with the name of its caller. */
  readonly id: string
  /** Hash of the content. A request with a known id and another hash is refused. */
  readonly hash: string
  /** Principal and options of the room that the request makes if there is none. Absent: it makes none. */
  readonly create?: { readonly principal: string; readonly options: Json }
  readonly do: RoomAction
}

/** Error code of a request to a room. */
export type RequestCode = ErrorCode | 'invalid_request' | 'conflict' | 'cancelled' | 'timeout'

/**
 * Answer to a request to a room. `epoch` and `seq`: of the update that has its effect. The flush of that update sets `seq`.
 * `retry_after_seconds`: the request fails again until then.
 */
export type RequestAnswer =
  | { readonly reply: Json; readonly epoch: number; seq: number }
  | { readonly code: RequestCode; readonly message: string; readonly retry_after_seconds?: number }

/** A reliable message of a member. The refs of a member are 1, 2, 3 …: the owner handles each once and in order. */
export type ReliableMessage = Extract<ToOwner, { kind: 'message' }> & { readonly ref: number }

/** Messages of a member that its edge has refused: the owner settles their refs in turn. */
export type RefusedRange = Extract<ToOwner, { kind: 'refuse' }>

/**
 * From an edge to the owner of `room`. `member_id` names the subscription, here and in what owners send to edges. It is the id of the member
 * as well, unless the session has taken the seat over from another one.
 */
export type ToOwner = { readonly room: RoomAddress; readonly member_id: string } & (
  | {
      readonly kind: 'join'
      readonly request_id: number
      /** The node that holds the socket: where answers and updates go. */
      readonly edge: string
      /** How often the session was resumed: an edge that had it before is not heard any more. */
      readonly turn: number
      readonly codec: Subprotocol
      readonly session_id: string
      readonly sub: string | null
      /** The claim of the token, for room code; absent: it has none. */
      readonly data?: JsonObject | undefined
      /** On whose account a room counts that the join makes: unique within the project. */
      readonly principal: string
      /** Join options besides `key`, not yet validated. */
      readonly options: Json
      /** True if the client had a seat there, and joins again because its session is lost. */
      readonly rejoin?: boolean
      /** False: the join does not make a room. If there is none, it is refused with `room_not_found`. */
      readonly create?: false
      /** Code that the client joins by. If the room has another code, the join is refused with `room_not_found`. */
      readonly code?: string
      /** Whether the client has named the feature `layers`. */
      readonly layers?: boolean
      /** The edge's span of the join (W3C), where that is recorded, and what came with its trace. */
      readonly traceparent?: string | undefined
      readonly tracestate?: string | undefined
    }
  /** `kicked`: the player is banned from the room type. */
  | {
      readonly kind: 'leave'
      readonly reason: 'left' | 'session_ended' | 'kicked'
      readonly request_id?: number
    }
  | {
      readonly kind: 'message'
      readonly type: string
      readonly data: Json
      readonly ref?: number
      /** The highest ref up to which the client knows every outcome. */
      readonly settled?: number
    }
  /** The edge refuses the messages with these refs. */
  | {
      readonly kind: 'refuse'
      readonly from: number
      readonly through: number
      readonly code: ErrorCode
      readonly message: string
    }
  /** `stalled`: the edge dropped patches of a slow reader, which reads again. */
  | { readonly kind: 'resync'; readonly reason: ResyncReason | 'stalled' }
  /** The session's socket is gone; its member stays. `moves`: the session goes on at another edge, as far as is known. */
  | { readonly kind: 'detach'; readonly moves?: boolean }
  /** `member_id` names this attempt, and no member: the answer has it. */
  | { readonly kind: 'request'; readonly request: RoomRequest }
  /** The session has a fresh token, with this claim. */
  | { readonly kind: 'renew'; readonly data?: JsonObject | undefined }
  /** The session is at `edge`, and has everything up to `seq` of `epoch`. `ask` comes back with the answer. */
  | {
      readonly kind: 'attach'
      readonly ask: number
      readonly edge: string
      readonly turn: number
      readonly codec: Subprotocol
      readonly session_id: string
      /** The claim of the token in force. */
      readonly data?: JsonObject | undefined
      /** Id of the member that the client believes to be. If it is another, its refs are those of a seat that has ended. */
      readonly seat?: string
      readonly epoch: number
      readonly seq: number
      /** The highest ref up to which the client knows every outcome. */
      readonly settled: number
      /** The highest ref whose message the edge does not have any more: the owner cannot get those up to it again. */
      readonly through: number
      /** The span of the session's handshake (W3C), where that is known. */
      readonly traceparent?: string | undefined
    }
)

/** A request to a room. */
export type RequestMessage = Extract<ToOwner, { kind: 'request' }>

/** True for a request that ends its room. */
export const isClose = (message: ToOwner): boolean =>
  message.kind === 'request' && message.request.do.op === 'close'

/** A session asks to join. */
export type JoinRequest = Extract<ToOwner, { kind: 'join' }>

/** What spans say of the room they have to do with. */
export const roomAttributes = (room: RoomAddress) => ({
  'roomful.room_id': roomIdOf(room),
  'roomful.room_type': room.roomType,
  'roomful.project_id': room.projectId,
})

/** The span that asked, where the message tells of one. */
export const traceOf = (message: ToOwner): string | undefined =>
  'traceparent' in message ? message.traceparent : undefined

/** A message and the edge it came from. */
export interface Arrival {
  readonly message: ToOwner
  readonly from: string
  /** When it began to wait at its room, on the monotonic clock. */
  readonly at?: number
}

/** Ready websocket frames of the same messages, for each codec that some member at that edge speaks. */
export type Frames = { readonly [codec in Subprotocol]?: Frame }

/** A join that took effect with an update. */
export interface JoinedMember {
  readonly member_id: string
  /** Id of the member, if it differs from `member_id`: the session has taken the seat over from another session of the player. */
  readonly seat?: string | undefined
  readonly request_id: number
  /** Code of the room. Absent: its type has no codes, or the code is not claimed yet. */
  readonly code?: string | undefined
  /** `state.snapshot` at the update's seq. */
  readonly snapshot: Frames
  /** `layer.state` of each hidden layer that the member has, where there is something in one. */
  readonly layers?: Frames | undefined
}

/** Hidden layers of an update, for the members at one edge. They come before the patch. */
export interface EdgeLayers {
  readonly frames: readonly Frames[]
  /** Which of `frames` a member gets. */
  readonly members: readonly { readonly member_id: string; readonly own: readonly number[] }[]
}

/** A reliable message that was refused: its ref is settled, and it will never be applied. */
export interface RefusedRef {
  readonly ref: number
  readonly code: ErrorCode
  readonly message: string
}

/** A reliable message that was applied, and answered. */
export interface RepliedRef {
  readonly ref: number
  readonly reply: Json
}

/** How a reliable message ended, where there is more to say than that it was applied. */
export type Outcome = RefusedRef | RepliedRef

/** How far the messages of a member are settled. */
export interface Settled {
  /** The highest ref that is settled; 0: none. */
  readonly ack: number
  /** Of refs up to `ack`, ascending: those that were refused or answered. Absent: none. The others were applied. */
  readonly outcomes?: readonly Outcome[]
  /** The highest ref whose outcome is not known any more, where the client may not know it. All of `outcomes` are higher. */
  readonly forgotten?: number
}

/** What an update has for one member alone, in the order it is sent: targeted events, outcomes, then the ack. */
export interface PersonalPart extends Partial<Settled> {
  readonly member_id: string
  readonly events: readonly Extract<ServerMessage, { t: 'event' }>[]
}

/** How a seat ended, for the client that had it. */
export interface Farewell {
  /** The flush that it ended with. */
  readonly epoch: number
  readonly seq: number
  readonly reason: DepartureReason
  /** Why, in words for the player. */
  readonly message?: string
}

/** From the owner of `room` to one edge that has members in it. Edges drop what comes with a lower epoch than they have seen. */
export type ToEdge = { readonly room: RoomAddress; readonly epoch: number } & EdgeMessage

type EdgeMessage =
  /** `owner` has the room, as far as the sender knows; null: it does not know who. What is open is to be asked again, there. */
  | { readonly kind: 'redirect'; readonly owner: string | null }
  /** The sender has the room, and something of this edge may be lost on the way to it: what is open is to be asked again. */
  | { readonly kind: 'resend' }
  /** One flush, committed where the room type asks for it. Goes to every attached member at the edge except those in `joined`. */
  | {
      readonly kind: 'update'
      readonly seq: number
      /** Whether acks wait until it is committed: then neither is to wait on the way between nodes. */
      readonly durable?: true | undefined
      /** `state.patch` for everyone; undefined when the flush carries acks only. */
      readonly patch: Frames | undefined
      /** Events and presence for everyone, behind the patch; undefined when there are none. */
      readonly rest: Frames | undefined
      /** Absent: no one here has anything of what changed. */
      readonly layers?: EdgeLayers | undefined
      readonly personal: readonly PersonalPart[]
      readonly joined: readonly JoinedMember[]
      /**
       * Members at this edge that leave with the update. They get all of it but `rest`: `personal` has the events they may see. A `left` for each
       * follows. Absent: no member leaves.
       */
      readonly leaving?: readonly string[] | undefined
    }
  /** The answer to `resync`: a `state.resync` frame, behind `layer.state` of each hidden layer of the member. */
  | { readonly kind: 'state'; readonly member_id: string; readonly seq: number; readonly state: Frames }
  /**
   * The answer to `attach`. `resumed`: `frames` are all that was missed, in order. Otherwise `frames` is one `state.resync`.
   * `outcomes` are all of which the client has not said that it knows them.
   */
  | ({
      readonly kind: 'attached'
      readonly member_id: string
      readonly ask: number
      readonly seq: number
      readonly resumed: boolean
      readonly frames: readonly Frames[]
    } & Settled)
  /** The answer to a request, once its outcome is committed. */
  | { readonly kind: 'answer'; readonly member_id: string; readonly answer: RequestAnswer }
  /** The member holds no seat (any more): the answer to attach, message, leave or resync of a stranger. */
  | { readonly kind: 'no_seat'; readonly member_id: string }
  /** A join that did not take place. */
  | {
      readonly kind: 'refused'
      readonly member_id: string
      readonly request_id: number
      readonly code: ErrorCode
      readonly message: string
    }
  /** A leave failed (`request_id`), or a message without a ref. */
  | {
      readonly kind: 'error'
      readonly member_id: string
      readonly code: ErrorCode
      readonly message: string
      readonly request_id?: number
    }
  /** The seat has ended: its client has left, or the room has ended it. */
  | { readonly kind: 'left'; readonly member_id: string; readonly farewell: Farewell }
