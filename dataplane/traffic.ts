import type { Json } from '../shared/json.ts'
import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type { MemberInfo, ResyncReason, ServerMessage, Subprotocol } from '../shared/protocol/messages.ts'
import type { Frame } from './frame.ts'

/**
 * What the edge of a client (gateway/) and the owner of a room (rooms/) say to each other. Plain data both ways and no return values,
 * so that the same messages travel inside one node and between nodes. `node.ts` connects the two.
 */

/** Which room: unique within the cluster. */
export interface RoomAddress {
  readonly project_id: string
  readonly room_type: string
  readonly key: string
}

/** `type:key`, as clients see it; unique within a project. */
export const roomId = (room: RoomAddress): string => `${room.room_type}:${room.key}`

/** `project/type:key`; unique in the cluster, the name of the room in the store and in maps. */
export const roomName = (room: RoomAddress): string => `${room.project_id}/${roomId(room)}`

/** From an edge to the owner of `room`. */
export type ToOwner = { readonly room: RoomAddress; readonly member_id: string } & (
  | {
      readonly kind: 'join'
      readonly ref: number
      /** The node that holds the socket: where answers and updates go. */
      readonly edge: string
      readonly codec: Subprotocol
      readonly session_id: string
      readonly sub: string | null
      /** Join options besides `key`, not yet validated. */
      readonly options: Json
    }
  | { readonly kind: 'leave'; readonly reason: 'left' | 'session_ended'; readonly ref?: number }
  | { readonly kind: 'message'; readonly type: string; readonly data: Json; readonly ref?: number }
  /** `stalled`: the edge dropped patches of a slow reader, which reads again. */
  | { readonly kind: 'resync'; readonly have_seq: number; readonly reason: ResyncReason | 'stalled' }
  /** The session's socket is gone; its seat stays. */
  | { readonly kind: 'detach' }
  /** The session is back, at `edge`, and has everything up to `seq` of `epoch`. */
  | {
      readonly kind: 'attach'
      readonly edge: string
      readonly codec: Subprotocol
      readonly session_id: string
      readonly epoch: number
      readonly seq: number
    }
)

/** Ready websocket frames of the same messages, for each codec that some member at that edge speaks. */
export type Frames = { readonly [codec in Subprotocol]?: Frame }

/** A join that took effect with an update. */
export interface JoinedSeat {
  readonly member_id: string
  readonly ref: number
  readonly members: readonly MemberInfo[]
  /** `state.snapshot` at the update's seq. */
  readonly snapshot: Frames
}

/** What an update has for one member alone, in the order it is sent: targeted events, then the ack. */
export interface PersonalPart {
  readonly member_id: string
  readonly events: readonly Extract<ServerMessage, { t: 'event' }>[]
  /** The highest ref applied. */
  readonly ack?: number
}

/** From the owner of `room` to one edge that has members in it. Edges drop what comes with a lower epoch than they have seen. */
export type ToEdge = { readonly room: RoomAddress; readonly epoch: number } & EdgeMessage

type EdgeMessage =
  /** One flush, committed where the room type asks for it. Goes to every attached member at the edge except those in `joined`. */
  | {
      readonly kind: 'update'
      readonly seq: number
      /** `state.patch` for everyone; undefined when the flush carries acks only. */
      readonly patch: Frames | undefined
      /** Events and presence for everyone, behind the patch; undefined when there are none. */
      readonly rest: Frames | undefined
      readonly personal: readonly PersonalPart[]
      readonly joined: readonly JoinedSeat[]
    }
  /** The answer to `resync`: a `state.resync` frame. */
  | { readonly kind: 'state'; readonly member_id: string; readonly seq: number; readonly state: Frames }
  /**
   * The answer to `attach`. `resumed`: `frames` are all that was missed, in order. Otherwise `frames` is one `state.resync`. With
   * `ack`, the highest ref applied, so that the client knows what not to resend.
   */
  | {
      readonly kind: 'attached'
      readonly member_id: string
      readonly seq: number
      readonly resumed: boolean
      readonly frames: readonly Frames[]
      readonly ack?: number
    }
  /** The member holds no seat (any more): the answer to attach, message, leave or resync of a stranger. */
  | { readonly kind: 'no_seat'; readonly member_id: string; readonly ref?: number }
  /** A join that did not take place. */
  | {
      readonly kind: 'refused'
      readonly member_id: string
      readonly ref: number
      readonly code: ErrorCode
      readonly message: string
    }
  | {
      readonly kind: 'error'
      readonly member_id: string
      readonly code: ErrorCode
      readonly message: string
      readonly ref?: number
    }
  /** The seat is given up. `ref`: the client asked for it. Otherwise kicked, or the room closed: `farewell` is its `room.left`. */
  | {
      readonly kind: 'left'
      readonly member_id: string
      readonly ref?: number
      readonly farewell?: ServerMessage
    }
