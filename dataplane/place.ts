import type { Json } from '../shared/json.ts'
import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type { Claim, RoomOwner } from '../shared/store/port.ts'
import type { Inbox } from './inbox.ts'
import { type JoinRequest, type RoomAddress, roomIdOf, type ToEdge, type ToOwner } from './traffic.ts'

/** Principals of the rooms that queues create for reservations or to cancel a match. No player, token or backend has such a principal. */
export const QUEUE_PRINCIPALS = { reserve: 'queue:reserve', cancel: 'queue:cancel' } as const

/** Options of a claim. */
export interface ClaimOptions {
  /** Principal (`Session.principal`) for which the room is created if it does not exist. Undefined: it is not created. */
  readonly creator?: string | undefined
  /** True: the owner counts as dead only after its lease has expired. */
  readonly byLease?: boolean
  /** The version of the room type's state for which the claimant has code. Default 1. */
  readonly stateVersion?: number
  /** The record that `inspect` has returned. If it names another owner, the first attempt does not read it again. */
  readonly seen?: RoomOwner | undefined
  /** Returns the spans of the joins and attaches that wait for the room at the moment. */
  readonly askedBy?: () => readonly string[]
}

/** The part of a room type (`RoomDefinition`) that a claim depends on. */
export interface ClaimedType {
  readonly version: number
  readonly durability: string
  readonly load?: unknown
}

/** Location of a room: this node, which has claimed it, another node, or no node. */
export type Place<W extends Why = Why> =
  | Claimed
  /** `opens`: the node does not have the room yet, and should open it. */
  | { readonly at: 'node'; readonly nodeId: string; readonly opens?: true }
  | Nowhere<W>

/** This node has claimed the room. */
export interface Claimed {
  readonly at: 'here'
  readonly claim: Claim
  /** True: the room may be created if it does not exist. It then counts in the quota of its creator. */
  readonly mayMake: boolean
  /** The dead node that owned the room before. */
  readonly from?: string
}

/** True if the claimed room has no content, as if it was just created. */
export const isEmpty = ({ snapshot, journal }: Claim): boolean => !snapshot && journal.length === 0

/** No node has the room, or the room cannot be served now. */
export interface Nowhere<W extends Why = Why> {
  readonly at: 'nowhere'
  readonly why: W
  /** Text for the client. */
  readonly text: string
  /** Error code for the client, if it differs from the one in `REFUSALS`. */
  readonly code?: ErrorCode
  /** `member_id` of the message for which the room should have been created. Absent: that of `firstMaker`. */
  readonly maker?: string
}

/** Answers to the messages of a room that cannot be served. */
interface Refusal {
  readonly code: ErrorCode
  /**
   * Joins, and requests with `create`, that are refused. The others search for the room again, because each of them may create it. `first`: the one
   * for which the room should have been created. `finding`: joins that do not create a room (`create: false`).
   */
  readonly joins: 'all' | 'first' | 'finding'
  /**
   * Answer to other messages. `retry`: a client that waits for an answer gets an error, and edges send the other messages again. `no_seat`: the
   * room has no members. `again`: the messages search for the room again.
   */
  readonly others: 'retry' | 'no_seat' | 'retry_or_no_seat' | 'again'
}

/** All reasons why a room cannot be served, with the answers to its messages. */
export const REFUSALS = {
  /** The room does not exist, and no join creates it. Messages behind a join that may create it share the result of that join. */
  absent: { code: 'room_not_found', joins: 'finding', others: 'no_seat' },
  /** The first join may not create the room, or `create` has failed. */
  rate_limited: { code: 'rate_limited', joins: 'first', others: 'again' },
  project_full: { code: 'project_full', joins: 'first', others: 'again' },
  too_many_rooms: { code: 'too_many_rooms', joins: 'first', others: 'again' },
  not_created: { code: 'room_logic_failed', joins: 'first', others: 'again' },
  /** The room may exist. The store does not answer or has lost data, or the room cannot be opened. */
  unavailable: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** No node, or not the node that was asked, has code for the version of its state. */
  newer: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** No node accepts another room. */
  no_node: { code: 'overloaded', joins: 'all', others: 'retry' },
  /** The room's inbox is full. */
  busy: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** The room has ended, and its last save fails. */
  unsaved: { code: 'room_unavailable', joins: 'all', others: 'retry_or_no_seat' },
  /** The record was damaged and is in quarantine, so the room has no members. */
  quarantined: { code: 'room_unavailable', joins: 'all', others: 'no_seat' },
  unknown_type: { code: 'unknown_room_type', joins: 'all', others: 'no_seat' },
} as const satisfies Record<string, Refusal>

/** Reason why a room cannot be served. */
export type Why = keyof typeof REFUSALS

export const nowhere = <W extends Why>(why: W, text: string, code?: ErrorCode): Nowhere<W> => ({
  at: 'nowhere',
  why,
  text,
  ...(code !== undefined && { code }),
})

/** The room does not exist. */
export const ABSENT = nowhere('absent', 'there is no such room')

/** The room cannot be served at the moment. `reason` is for the client. */
export const unavailable = (room: RoomAddress, reason: string): Nowhere<'unavailable'> =>
  nowhere('unavailable', unavailableText(room, reason))

export const unavailableText = (room: RoomAddress, reason: string): string =>
  `${roomIdOf(room)} is not available: ${reason}`

/** A join, or the part of a request that can create its room. */
export type Maker =
  | JoinRequest
  | {
      readonly kind: 'request'
      readonly member_id: string
      readonly session_id: string
      readonly request_id: number
      readonly sub: null
      readonly principal: string
      readonly options: Json
      readonly create?: undefined
    }

/** True if the message creates its room for a match. */
export const isForMatch = ({ principal }: Maker): boolean =>
  principal === QUEUE_PRINCIPALS.reserve || principal === QUEUE_PRINCIPALS.cancel

/** Returns a join, or a request with `create`, as a `Maker`. Undefined: the message cannot create a room. */
export function makerOf(message: ToOwner): Maker | undefined {
  if (message.kind === 'join') return message
  if (message.kind !== 'request' || !message.request.create) return undefined
  const { kind, member_id, request } = message
  return { ...request.create!, kind, member_id, session_id: request.id, request_id: 0, sub: null }
}

/** Returns the message for which a room is created: the first that may create one, else the first join. */
export function firstMaker(inbox: Inbox): Maker | undefined {
  const makers = inbox.arrivals.flatMap(({ message }) => makerOf(message) ?? [])
  return makers.find(({ create }) => create !== false) ?? makers[0]
}

/** Returns the answer to one message for a room that cannot be served. Undefined: no answer; its edge sends it again if needed. */
export function refusalOf(
  { message }: { readonly message: ToOwner },
  place: Nowhere,
  epoch = 0,
): ToEdge | undefined {
  const { kind, room, member_id } = message
  const refusal: Refusal = REFUSALS[place.why]
  const { others } = refusal
  const answer = { room, epoch, member_id, code: place.code ?? refusal.code, message: place.text }
  if (kind === 'join') return { ...answer, kind: 'refused', request_id: message.request_id }
  if ((others === 'again' && !makerOf(message)) || kind === 'detach') return undefined
  if (kind === 'request') {
    const { code } = answer
    return { room, epoch, kind: 'answer', member_id, answer: { code, message: place.text } }
  }
  const request_id = kind === 'leave' ? message.request_id : undefined
  const waits = request_id !== undefined || (kind === 'message' && message.ref === undefined)
  if (others !== 'no_seat' && waits)
    return { ...answer, kind: 'error', ...(request_id !== undefined && { request_id }) }
  return others === 'retry' ? undefined : { room, epoch, member_id, kind: 'no_seat' }
}

/** Answers the messages of a room that cannot be served, through `deliver`. Messages that search for the room again stay in the inbox. */
export function refuseAll(
  inbox: Inbox,
  place: Nowhere,
  deliver: (edge: string, message: ToEdge) => void,
): void {
  const { joins, others }: Refusal = REFUSALS[place.why]
  const first = place.maker ?? firstMaker(inbox)?.member_id
  let making = false
  const refused = inbox.remove(({ message }) => {
    const maker = makerOf(message)
    const makes = maker !== undefined && maker.create !== false
    making ||= makes
    if (maker) return joins === 'all' || (joins === 'first' ? message.member_id === first : !makes)
    return others !== 'again' && (joins !== 'finding' || !making)
  })
  const resending = new Map<string, RoomAddress>()
  for (const arrival of refused) {
    const { message, from } = arrival
    const answer = refusalOf(arrival, place)
    if (answer) deliver(from, answer)
    // The edge keeps the message, and sends it to the owner that attaches the member.
    else if (message.kind === 'message' || message.kind === 'refuse') resending.set(from, message.room)
  }
  for (const [edge, room] of resending) deliver(edge, { room, epoch: 0, kind: 'redirect', owner: null })
}
