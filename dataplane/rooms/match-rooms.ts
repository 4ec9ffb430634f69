import type { JsonObject } from '../../shared/json.ts'

/** Result of a request to the room of a match: it was carried out, refused for good, or neither is known. */
export type Answer = 'done' | 'refused' | 'unknown'

/** What the task of a queue may ask of the room of a match. */
export interface MatchRooms {
  /** Creates the room if it does not exist, and reserves a seat for each player, or none. */
  reserve(order: MatchOrder, id: string): Promise<Answer>
  /** Ends the seats that `reserve` with this id has reserved. A `reserve` that arrives later is refused. */
  cancel(order: MatchOrder, id: string): Promise<Answer>
}

/** A match for its room. */
export interface MatchOrder {
  readonly room: string
  readonly players: readonly string[]
  readonly options: JsonObject
}
