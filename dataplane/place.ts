import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type { Claim, RoomOwner } from '../shared/store/port.ts'
import type { Inbox } from './inbox.ts'
import {
  type Arrival,
  type JoinRequest,
  type RoomAddress,
  roomIdOf,
  type ToEdge,
  type ToOwner,
} from './traffic.ts'

/** Principals of the rooms that queues make to reserve seats, or to cancel a match. No player, token or backend has one of them. */
export const QUEUE_PRINCIPALS = { reserve: 'queue:reserve', cancel: 'queue:cancel' } as const

/** Options of a claim. */
export interface ClaimOptions {
  /** On whose account (`Session.principal`) the room is made when it is nowhere yet; undefined: it is not to be made. */
  readonly creator?: string | undefined
  /** Whether its owner is dead when its lease has run out, and not before. */
  readonly byLease?: boolean
  /** The version of the room type's state that the claimant has code for; default 1. */
  readonly stateVersion?: number
  /** Record of the room that `inspect` has returned. If it names another owner, the first attempt does not ask again. */
  readonly seen?: RoomOwner | undefined
  /** The spans of the joins and attaches that wait for the room by now. */
  readonly askedBy?: () => readonly string[]
}

/** What a claim has to know of a room type (`RoomDefinition`). */
export interface ClaimedType {
  readonly version: number
  readonly durability: string
  readonly load?: unknown
}

/** Location of a room: this node, which has claimed it, another node, or no node. */
export type Place<W extends Why = Why> =
  | Claimed
  /** `opens`: the node does not have the room, and is to open it. */
  | { readonly at: 'node'; readonly nodeId: string; readonly opens?: true }
  | Nowhere<W>

/** This node has claimed the room. */
export interface Claimed {
  readonly at: 'here'
  readonly claim: Claim
  /** True: the room may be made if there is none. It is counted for its creator. */
  readonly mayMake: boolean
  /** The dead node that owned the room before. */
  readonly from?: string
}

/** Whether a claim found a room without content, as of one that has just been made. */
export const isEmpty = ({ snapshot, journal }: Claim): boolean => !snapshot && journal.length === 0

/** No node has the room, or can have it now. */
export interface Nowhere<W extends Why = Why> {
  readonly at: 'nowhere'
  readonly why: W
  /** Text for the client. */
  readonly text: string
  /** Error code for the client, if it is not that of `REFUSALS`. */
  readonly code?: ErrorCode
  /** `member_id` of the message that the room was to be made for. Absent: that of `firstMaker`. */
  readonly maker?: string
}

/** Answers to the messages of a room that is nowhere. */
interface Refusal {
  readonly code: ErrorCode
  /**
   * Joins, and requests with `create`, that are refused. The others look for the room again: each of them may make it. `first`: the one that
   * the room was to be made for. `finding`: joins that make no room (`create: false`).
   */
  readonly joins: 'all' | 'first' | 'finding'
  /**
   * Answer to other messages. `retry`: a client that waits for an answer gets an error, and edges send the other messages again. `no_seat`: the
   * room has no members. `again`: the messages look for the room again.
   */
  readonly others: 'retry' | 'no_seat' | 'retry_or_no_seat' | 'again'
}

/** Every way in which a room cannot be served, and what its messages get then. */
export const REFUSALS = {
  /** The room does not exist, and no join is there to make it. What waits behind a join that may make it goes with that join. */
  absent: { code: 'room_not_found', joins: 'finding', others: 'no_seat' },
  /** The first join may not make the room, or its code has made none. */
  rate_limited: { code: 'rate_limited', joins: 'first', others: 'again' },
  project_full: { code: 'project_full', joins: 'first', others: 'again' },
  too_many_rooms: { code: 'too_many_rooms', joins: 'first', others: 'again' },
  not_created: { code: 'room_logic_failed', joins: 'first', others: 'again' },
  /** The room may exist. The store is silent or has lost data, or the room cannot be opened. */
  unavailable: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** No node, or not the one that was asked, has code for the version of its state. */
  newer: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** No node takes another room. */
  no_node: { code: 'overloaded', joins: 'all', others: 'retry' },
  /** More messages wait for the room than may wait. */
  busy: { code: 'room_unavailable', joins: 'all', others: 'retry' },
  /** The room has ended, and its last save fails. */
  unsaved: { code: 'room_unavailable', joins: 'all', others: 'retry_or_no_seat' },
  /** The record was damaged, and is put aside: its members are gone. */
  quarantined: { code: 'room_unavailable', joins: 'all', others: 'no_seat' },
  unknown_type: { code: 'unknown_room_type', joins: 'all', others: 'no_seat' },
} as const satisfies Record<string, Refusal>

/** Why a room is nowhere. */
export type Why = keyof typeof REFUSALS

export const nowhere = <W extends Why>(why: W, text: string, code?: ErrorCode): Nowhere<W> => ({
  at: 'nowhere',
  why,
  text,
  ...(code !== undefined && { code }),
})

/** The room does not exist. */
export const ABSENT = nowhere('absent', 'there is no such room')

/** The room cannot be served at the moment; `reason` is for the client. */
export const unavailable = (room: RoomAddress, reason: string): Nowhere<'unavailable'> =>
  nowhere('unavailable', unavailableText(room, reason))

export const unavailableText = (room: RoomAddress, reason: string): string =>
  `${roomIdOf(room)} is not available: ${reason}`

/** A message that can make its room. */
export type Maker = Pick<
  JoinRequest,
  'member_id' | 'session_id' | 'request_id' | 'sub' | 'principal' | 'options' | 'create'
>

/** Returns a join, or a request with `create`, as a maker of its room. Undefined: another message. */
export function makerOf(message: ToOwner): Maker | undefined {
  if (message.kind === 'join') return message
  if (message.kind !== 'request' || !message.request.create) return undefined
  const { member_id, request } = message
  return { ...message.request.create, member_id, session_id: request.id, request_id: 0, sub: null }
}

/** Returns the message that a room is made for: the first that may make one, else the first join. */
export function firstMaker(inbox: Inbox): Maker | undefined {
  const makers = inbox.arrivals.flatMap(({ message }) => makerOf(message) ?? [])
  return makers.find(({ create }) => create !== false) ?? makers[0]
}

/** Returns the answer to one message for a room that is nowhere. Undefined: it gets none, and its edge sends it again where that is of use. */
export function refusalOf(
  { message }: Pick<Arrival, 'message'>,
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

/** Answers the messages of a room that is nowhere, with `deliver`. Those that look for the room again stay in the inbox. */
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
    // The edge keeps it for the owner that attaches the member.
    else if (message.kind === 'message' || message.kind === 'refuse') resending.set(from, message.room)
  }
  for (const [edge, room] of resending) deliver(edge, { room, epoch: 0, kind: 'redirect', owner: null })
}
