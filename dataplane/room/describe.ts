import { type Clock, timestamp } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import {
  type Found,
  type MemberDescription,
  type RoomDescription,
  type RoomEventDescription,
  type RoomQuery,
  select,
  textFinder,
} from '../descriptions.ts'
import { payloadsOf } from '../frame.ts'
import type { RoomAddress, Shown } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member } from './definition-types.ts'
import type { History, KeptUpdate } from './history.ts'
import type { JournalFormat, RoomEvent } from './journal.ts'
import type { Grants } from './layer-rules.ts'
import type { Membership, Memberships } from './memberships.ts'
import type { RestoredRoom } from './restore.ts'
import type { LiveState } from './state.ts'
import type { Reservation, Tables } from './table.ts'

/** Shortest time between two samples. Rates over less time are inaccurate. */
const SHORTEST_MS = 900

/** Position of a flush, with the checksum of the state after it. */
interface Shot {
  readonly seq: number
  readonly checksum: number
}

/** A room of a node, as far as it is described. */
interface DescribedRoom {
  readonly core: DescribedCore
  readonly delivery: { readonly delivered: Shot }
}

interface DescribedCore {
  readonly name: string
  readonly roomId: string
  readonly address: RoomAddress
  readonly epoch: number
  readonly state: LiveState
  readonly tables: Tables
  readonly memberships: Memberships
  readonly grants: Grants
  readonly history: History
  /** Seq of the last flush, which may still be in flight. */
  readonly seq: number
}

/** The rooms of a node as operators see them. */
export class RoomDescriptions {
  readonly #clock: Clock
  readonly #format: JournalFormat
  /** Seq of each room at the last sample, and its updates per second then. Rooms count nothing for this. */
  readonly #seen = new WeakMap<DescribedRoom, { seq: number; perSecond: number | null }>()
  #sampledAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock, format: JournalFormat) {
    this.#clock = clock
    this.#format = format
  }

  /** Returns the rooms that match a query, those with the most members first. */
  of(rooms: readonly DescribedRoom[], query: RoomQuery): Found<RoomDescription> {
    const { room_id: roomId, q, limit } = query
    if (roomId === undefined) this.#sample(rooms)
    const hasText = textFinder(q)
    return select(rooms, {
      fits: ({ core }) =>
        (roomId === undefined || core.roomId === roomId) && (hasText === undefined || hasName(core, hasText)),
      order: byMembers,
      limit,
      describe: (room) => this.#describe(room, query),
    })
  }

  /**
   * Describes a room as its members see it. Seq and checksum are those of the last delivered flush. With the state, they are those of the
   * last flush, which may still be in flight.
   */
  #describe(room: DescribedRoom, query: RoomQuery): RoomDescription {
    const { address, epoch, grants, history, memberships, roomId, state, tables } = room.core
    const { projectId, roomType, key } = address
    const { seq, checksum } = query.include_state
      ? { seq: room.core.seq, checksum: state.checksum }
      : room.delivery.delivered
    const members: MemberDescription[] = []
    let connectedCount = 0
    for (const membership of memberships) {
      if (!membership.detached) connectedCount++
      members.push(describeMember(membership, state.layers && grants))
    }
    return {
      room_id: roomId,
      project_id: projectId,
      room_type: roomType,
      key,
      epoch,
      seq,
      checksum,
      members,
      member_count: memberships.size,
      spectator_count: memberships.spectatorCount,
      reservations: tables.reservations.rows.map(({ id, due }) => ({ sub: id, expires_at: timestamp(due) })),
      connected_count: connectedCount,
      // Null: the room was not here at the first of the last two samples.
      updates_per_second: this.#seen.get(room)?.perSecond ?? null,
      ...(query.include_state && { state: state.flushed }),
      ...(query.room_id !== undefined && { events: recentEvents(history, this.#format, this.#clock) }),
    }
  }

  /** Samples all rooms, unless that was just done: several operators may ask at the same time. */
  #sample(rooms: Iterable<DescribedRoom>): void {
    const now = this.#clock.monotonic()
    const seconds = (now - this.#sampledAt) / 1000
    if (seconds * 1000 < SHORTEST_MS) return
    this.#sampledAt = now
    for (const room of rooms) {
      const { seq } = room.delivery.delivered
      const seen = this.#seen.get(room)
      // A resync may take a room back.
      const perSecond = seen ? Math.max(0, Math.round((10 * (seq - seen.seq)) / seconds) / 10) : null
      this.#seen.set(room, { seq, perSecond })
    }
  }
}

/** Most members first, then by name: a room with an unchanged count keeps its place. */
const byMembers = ({ core: a }: DescribedRoom, { core: b }: DescribedRoom): number =>
  b.memberships.size - a.memberships.size || (a.name < b.name ? -1 : 1)

function hasName({ name, memberships }: DescribedCore, hasText: (text: string) => boolean): boolean {
  if (hasText(name)) return true
  for (const { member, sessionId } of memberships)
    if (hasText(member.id) || hasText(sessionId) || (member.sub !== null && hasText(member.sub))) return true
  return false
}

const describeMember = (
  { member, sessionId, detached, edge }: Membership,
  grants: Grants | undefined,
): MemberDescription => ({
  member_id: member.id,
  session_id: sessionId,
  sub: member.sub,
  connected: detached === undefined,
  spectator: member.spectator,
  node_id: nodeName(edge),
  ...(grants && { layers: grants.of(member.id) }),
})

/** Maximum number of events in a description. */
const MOST = 50
/** Longer data, as JSON, is cut to this many characters. */
const LONGEST_DATA = 1000

/** An event without its update. */
type Described = Omit<RoomEventDescription, 'epoch' | 'seq' | 'at'>

/**
 * Returns the latest events, joins and leaves of a room, the latest first, at most 50. They are read from the history for resumes, so
 * nothing else is kept. The list reaches back as far as the history, and ends where the room was empty.
 */
function recentEvents(history: History, format: JournalFormat, clock: Clock): RoomEventDescription[] {
  const wallOffset = clock.now() - clock.monotonic()
  const recent: RoomEventDescription[] = []
  for (const kept of history.latest) {
    const { epoch, seq, since } = kept
    const at = since === undefined ? null : timestamp(wallOffset + since)
    for (const event of describedBy(kept, format).toReversed()) recent.push({ ...event, epoch, seq, at })
    if (recent.length >= MOST) break
  }
  return recent.slice(0, MOST)
}

/** Returns events, joins and leaves of an update, in its order. */
function describedBy(update: KeptUpdate, format: JournalFormat): Described[] {
  const moves = update.moves.map(({ memberId, ...about }) =>
    described(about.reason === undefined ? 'joined' : 'left', memberId, about),
  )
  return [...sharedEvents(update, format), ...moves, ...update.targeted.map(ofEvent)]
}

/** Returns the events of an update for all members. */
function sharedEvents({ frames, packed }: KeptUpdate, format: JournalFormat): Described[] {
  const { 'roomful.v1.json': json, 'roomful.v1.msgpack': msgpack } = frames.rest ?? {}
  const sent = json ?? msgpack
  if (sent) {
    // Decoding does not depend on the room.
    const msgpackCodec = new MsgpackClientCodec('')
    const decode = (payload: Uint8Array): DecodedMessage =>
      json ? JSON.parse(Buffer.from(payload).toString()) : msgpackCodec.decode(payload)
    return payloadsOf(sent).flatMap((payload) => {
      const message = decode(payload)
      return message.t === 'event' ? described('event', message.name, message.data) : []
    })
  }
  // An update that was sent has no other parts for all members.
  if (Object.keys(frames.patch).length > 0 || !packed) return []
  return format
    .readEntry(packed)
    .events.filter(({ to }) => !to)
    .map(ofEvent)
}

const ofEvent = ({ name, data, to }: RoomEvent): Described => described('event', name, data, to)

function described(kind: Described['kind'], name: string, data: Json, to?: readonly string[]): Described {
  const text = JSON.stringify(data)
  return {
    kind,
    name,
    to: to ?? null,
    ...(text.length <= LONGEST_DATA ? { data } : { cut: text.slice(0, LONGEST_DATA) }),
  }
}

/** The part of a room that its backends see. */
interface ViewedRoom {
  readonly members: Iterable<Member>
  readonly reservations: readonly Reservation[]
  readonly state: LiveState | undefined
}

/** Returns members, reservations and, if asked, the state of a room: that which all members see, or with `layers` all of it. */
export function viewOf({ members, reservations, state }: ViewedRoom, shown: Shown): JsonObject {
  const value: Json | undefined = state && (shown.layers ? state.flushed : state.base)
  return {
    members: [...members].map(({ id, sub, connected, spectator, data }) => ({
      member_id: id,
      sub,
      connected,
      spectator,
      data,
    })),
    reservations: reservations.map(({ id, due }) => ({ sub: id, expires_at: timestamp(due) })),
    ...(shown.state && value !== undefined && { state: value }),
  }
}

/**
 * As `viewOf`, for a room that no node runs. `definition` undefined: its hidden parts are not known, so only the whole state can be shown.
 */
export function recordedView(
  { memberships, tables, state: stateOf }: RestoredRoom,
  definition: RoomDefinition | undefined,
  shown: Shown,
): JsonObject {
  const known = definition !== undefined || shown.layers
  const rules = definition?.layers
  const state = known ? stateOf(Number.POSITIVE_INFINITY, rules) : undefined
  const members = memberships.map(({ member }) => member)
  return viewOf({ members, reservations: tables.reservations.rows, state }, shown)
}
