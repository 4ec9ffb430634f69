import { timestamp } from '../../shared/clock.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { Shown } from '../traffic.ts'
import type { Member, RoomDefinition } from './definition.ts'
import type { RestoredRoom } from './restore.ts'
import { LiveState } from './state.ts'
import type { Reservation } from './table.ts'

/** The part of a room that its backends see. */
interface ViewedRoom {
  readonly members: Iterable<Member>
  readonly reservations: readonly Reservation[]
  readonly state: Pick<LiveState, 'flushed' | 'base'> | undefined
}

/** Returns members, reservations and, if asked, the state of a room: that which all members see, or with `layers` all of it. */
export function viewOf({ members, reservations, state }: ViewedRoom, shown: Shown): JsonObject {
  const value: Json | undefined = state && (shown.layers ? state.flushed : state.base)
  return {
    members: [...members].map(({ id, sub, connected, data }) => ({ member_id: id, sub, connected, data })),
    reservations: reservations.map(({ id, due }) => ({ sub: id, expires_at: timestamp(due) })),
    ...(shown.state && value !== undefined && { state: value }),
  }
}

/** The same of a record that no node runs. `definition` undefined: its hidden parts are not known, so that only all of the state can be shown. */
export function recordedView(
  { memberships, tables, tree }: RestoredRoom,
  definition: RoomDefinition | undefined,
  shown: Shown,
): JsonObject {
  const known = definition !== undefined || shown.layers
  const ignore = () => {}
  const state = known
    ? new LiveState(tree, Number.POSITIVE_INFINITY, ignore, ignore, definition?.layers)
    : undefined
  const members = memberships.map(({ member }) => member)
  return viewOf({ members, reservations: tables.reservations.rows, state }, shown)
}
