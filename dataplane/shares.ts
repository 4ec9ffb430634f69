/** Places of one kind at a node, for its sessions or its rooms. */
export interface Places {
  /** Number of places. 0: no limit. */
  readonly max: number
  /** Share of the places in percent, up to which a project also gets spare places. */
  readonly share: number
}

/** Number of spare places of a full node, as a part of its places. */
const SPARE = 0.1

/** Returns the number of places of a node, with the spare ones. */
export const withSpare = ({ max, share }: Places): number =>
  max === 0 ? Number.POSITIVE_INFINITY : max + (share === 0 ? 0 : Math.ceil(max * SPARE))

/**
 * Returns true if a node has a place for one more session or room of a project. `taken`: places that are taken; `ofProject`: those that the
 * project has. Any project gets a free place. If none is free, only a project with less than its share gets a spare one. So a project can use
 * a whole node alone, and when another one comes, that one gets the spare places and then each place that becomes free, up to its share.
 */
export const hasPlace = (places: Places, taken: number, ofProject: number): boolean => {
  const { max, share } = places
  if (max === 0 || taken < max) return true
  return ofProject * 100 < max * share && taken < withSpare(places)
}
