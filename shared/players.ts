import type { JsonObject } from './json.ts'
import type { StoredRecord } from './store/port.ts'

/** A ban of a player from its project. */
export interface Ban {
  /** End of the ban, milliseconds since 1970. Null: it does not end. */
  readonly until: number | null
  /** Room types that the player cannot join. Null: the player gets no session. */
  readonly room_types: readonly string[] | null
  /** Text for the player. */
  readonly reason: string | null
}

/** Decisions of a project's backend about a player (`sub`). Control writes this record. Nodes only read it. */
export interface PlayerRecord {
  /** Tokens that were issued up to this time are refused; milliseconds since 1970. */
  readonly revoked_at?: number
  readonly ban?: Ban
  /** Value of `member.data`, instead of the claim `data` of the token. */
  readonly data?: JsonObject
}

/** Maximum size of the reason of a ban, in bytes: a close frame can hold 123, and `banned: ` precedes the reason. */
export const MAX_BAN_REASON_BYTES = 100

/** Returns the text for a player who is banned: the reason of the ban. Without a reason, `from` is what the player cannot join. */
export const banText = (reason: string | null | undefined, from: string): string =>
  reason ?? `the player is banned from ${from}`

/** Returns the store key of a player's record. */
export const playerKey = (projectId: string, sub: string): string => `{control}:player:${projectId}:${sub}`

/** Returns the record in a stored value. Without a value: an empty record. */
export const decodePlayer = (stored: StoredRecord | undefined): PlayerRecord =>
  stored ? JSON.parse(new TextDecoder().decode(stored.value)) : {}
