/** How far somebody has seen a room. */
export interface Seen {
  readonly room_id: string
  readonly epoch: number
  readonly seq: number
}

/** How far anybody has seen each room, by its id. Plain data. */
export type Newest = Readonly<Record<string, Seen>>

/** The furthest of each room. */
export function newestOf(all: readonly Seen[]): Newest {
  const newest: Record<string, Seen> = {}
  for (const seen of all) {
    const known = newest[seen.room_id]
    if (!known || seen.epoch > known.epoch || (seen.epoch === known.epoch && seen.seq > known.seq))
      newest[seen.room_id] = seen
  }
  return newest
}

/**
 * By how many flushes this is behind the newest; 0: it is not. A room that has moved goes on where it was, and who came back without
 * having missed anything has not heard of its new epoch.
 */
export function behind({ room_id, epoch, seq }: Seen, newest: Newest): number {
  const known = newest[room_id]
  return known && epoch <= known.epoch ? Math.max(0, known.seq - seq) : 0
}
