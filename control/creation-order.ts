import type { Clock } from '../shared/clock.ts'
import type { Records, StoredRecord, Write } from '../shared/store/port.ts'

/** Hands out members of an ordered set that sort by time of creation, also within one millisecond of one process. */
export class CreationOrder {
  readonly #clock: Clock
  #ms = 0
  #count = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `<milliseconds, 15 digits>.<count, 6 digits>:<id>`. */
  member(id: string): string {
    const now = this.#clock.now()
    this.#count = now === this.#ms ? this.#count + 1 : 0
    this.#ms = now
    return `${String(now).padStart(15, '0')}.${String(this.#count).padStart(6, '0')}:${id}`
  }
}

/** What a member of such a set looks like. */
export const MEMBER_PATTERN = /^\d{15}\.\d{6}:[\w-]+$/

/** The start and the length of a page. */
export interface PageRequest {
  /** Records at most. */
  readonly limit: number
  /** The `next` of the page before; undefined: the newest record comes first. */
  readonly before: string | undefined
}

/** Reads one page of the records that `index` lists, newest first. `keyOf` gives the store key of an id; `next` continues, undefined at the end. */
export async function readPage(
  records: Records,
  index: string,
  keyOf: (id: string) => string,
  { limit, before }: PageRequest,
): Promise<{ page: StoredRecord[]; next: string | undefined }> {
  const members = await records.page(index, { limit: limit + 1, ...(before !== undefined && { before }) })
  const shown = members.slice(0, limit)
  const found = await records.read(shown.map((member) => keyOf(idOf(member))))
  const page = found.filter((record) => record !== undefined)
  return { page, next: members.length > limit ? shown.at(-1) : undefined }
}

/** The id inside a member. */
const idOf = (member: string): string => member.slice(member.indexOf(':') + 1)

/** How many entries of an index are read or removed at once. */
const BATCH = 500

/** Removes the entries of an index whose ids `fits` accepts, with the record of each if `keyOf` gives its store key. In batches. */
export async function removeFromIndex(
  records: Records,
  index: string,
  fits: (id: string) => boolean,
  keyOf?: (id: string) => string,
): Promise<void> {
  for (let before: string | undefined; ; ) {
    const members = await records.page(index, { limit: BATCH, ...(before !== undefined && { before }) })
    const dropped = members.filter((member) => fits(idOf(member)))
    const writes = dropped.flatMap((member): Write[] => [
      ...(keyOf ? [{ remove: keyOf(idOf(member)) }] : []),
      { index, drop: member },
    ])
    if (writes.length > 0) await records.write(writes)
    if (members.length < BATCH) return
    before = members.at(-1)
  }
}
