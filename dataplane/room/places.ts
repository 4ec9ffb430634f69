import type { JoinRequest } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import { type Limited, mayHave } from './limits.ts'
import type { Membership, Memberships } from './memberships.ts'
import { seatName, type Tables } from './table.ts'

/** The places of a room: who has one, for whom one is kept, and how many are free. */

/** The room whose places are counted. */
export interface PlacesRoom {
  readonly definition: RoomDefinition
  readonly memberships: Memberships
  readonly tables: Tables
  /** Joins whose `admit` is running. */
  readonly joining: ReadonlyMap<string, JoinRequest>
}

/** Returns the seat of another session of the player that a join may take over. It has the role for which the join asks. */
export function ownSeat(
  { definition: { sameSub }, memberships }: PlacesRoom,
  { sub, rejoin = false, watch = false }: JoinRequest,
): Membership | undefined {
  if (sub === null || sameSub === 'refuse') return undefined
  const fromConnected = sameSub === 'replace' && !rejoin
  for (const membership of memberships.ofPlayer(sub)) {
    const { connected, spectator } = membership.member
    if (spectator === watch && (fromConnected || !connected)) return membership
  }
  return undefined
}

/** Number of free places for players, for the player called `name` (`seatName`): a place that is kept for it counts as free. */
export function freePlaces(room: PlacesRoom, name: string): number {
  const { definition, joining, memberships } = room
  const { reservations } = room.tables
  // A player that is joining may be about to take the place that is kept for it.
  const taking = new Set<string>()
  let places = memberships.playerCount
  for (const request of joining.values()) {
    if (request.watch) continue
    const joins = seatName(request.sub, request.session_id)
    if (reservations.has(joins)) taking.add(joins)
    if (!ownSeat(room, request)) places++
  }
  const kept = reservations.size - taking.size - (reservations.has(name) && !taking.has(name) ? 1 : 0)
  return definition.maxPlayers - places - kept
}

/** True if one more member may watch. */
export function mayWatch(room: PlacesRoom): boolean {
  const { definition, joining, memberships } = room
  const max = definition.spectators?.max ?? 0
  let watching = memberships.spectatorCount
  // Usually true, and independent of the number of joins.
  if (watching + joining.size < max) return true
  for (const request of joining.values()) if (request.watch && !ownSeat(room, request)) watching++
  return watching < max
}

/** True if the player has a seat as a player. */
export function isPlaying({ memberships }: { readonly memberships: Memberships }, sub: string): boolean {
  for (const { member } of memberships.ofPlayer(sub)) if (!member.spectator) return true
  return false
}

/**
 * Keeps a seat for each player in `subs` until `due` (milliseconds since 1970), or for none of them. Players who have a seat need none. An
 * earlier reservation of a player can become longer, but not shorter, and stays admitted. `admitted`: see `Reservation`. Returns false if
 * the room has too few free seats, if it would have too many reservations, or if it has banned one of the players.
 */
export function reserve(
  subs: readonly string[],
  due: number,
  { type, maxPlayers }: { readonly type: string; readonly maxPlayers: number },
  room: { readonly memberships: Memberships; readonly tables: Tables },
  needs: Limited,
  admitted?: string,
): boolean {
  const { bans, reservations } = room.tables
  const absent = [...new Set(subs)].filter((sub) => !isPlaying(room, sub))
  const fresh = absent.filter((sub) => !reservations.has(sub))
  const number = reservations.size + fresh.length
  if (fresh.length > 0) {
    if (room.memberships.playerCount + number > maxPlayers) return false
    if (!mayHave(needs, type, 'reservations', number)) return false
  }
  for (const sub of absent) if (bans.has(sub)) return false
  for (const sub of absent) {
    const before = reservations.get(sub)
    if (due > (before?.due ?? 0)) reservations.set({ id: sub, due, admitted: admitted ?? before?.admitted })
  }
  return true
}
