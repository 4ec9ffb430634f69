import type { Member } from './definition.ts'
import type { Tables } from './table.ts'

/** Maximum number of reservations of a room. */
const MAX_RESERVATIONS = 1000

/** Name of a player in the reservations of a room: its `sub`. A token without `sub` counts by its session. */
export const seatName = (sub: string | null, sessionId: string): string => sub ?? `session:${sessionId}`

/**
 * Keeps a seat for each player in `subs` until `due` (milliseconds since 1970), or none of them. Members need none. A reservation that a
 * player has already can become longer, not shorter. Returns false if the room has too few free seats, or has banned one of the players.
 */
export function reserve(
  subs: readonly string[],
  due: number,
  maxMembers: number,
  members: readonly Member[],
  { bans, reservations }: Tables,
): boolean {
  const absent = new Set(subs)
  for (const { sub } of members) if (sub !== null) absent.delete(sub)
  const fresh = [...absent].filter((sub) => !reservations.has(sub))
  const free = Math.min(maxMembers - members.length, MAX_RESERVATIONS) - reservations.size
  if (fresh.length > 0 && fresh.length > free) return false
  for (const sub of absent) if (bans.has(sub)) return false
  for (const sub of absent) if (due > (reservations.get(sub)?.due ?? 0)) reservations.set({ id: sub, due })
  return true
}
