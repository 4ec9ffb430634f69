/** A point of the floor. */
export interface Point {
  x: number
  y: number
}

interface Sample extends Point {
  atMs: number
}

/** Where a player was last seen to move, with the newest sample last. */
type Track = Sample[]

/** Updates come 20 times a second; a player drawn this much in the past is always between two of them. */
export const DELAY_MS = 110
/** A step longer than this is a new place, not a walk. */
const LEAP = 220
/** How long one step takes when a standing player sets off: one update. */
const STEP_MS = 50
const KEPT_MS = 1000

const distance = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y)

/** Turns positions that arrive 20 times a second into movement that a screen can show at any moment. */
export class Motion {
  readonly #tracks = new Map<string, Track>()

  /** Notes that player `id` was at `point` in an update that arrived at `nowMs`. */
  see(id: string, point: Point, nowMs: number): void {
    const track = this.#tracks.get(id) ?? []
    const last = track.at(-1)
    if (last && distance(last, point) < 0.01) return
    if (last && distance(last, point) > LEAP) track.length = 0
    else if (last && nowMs - last.atMs > 2 * STEP_MS) track.push({ ...last, atMs: nowMs - STEP_MS })
    track.push({ x: point.x, y: point.y, atMs: nowMs })
    while (track.length > 2 && nowMs - (track[1]?.atMs ?? nowMs) > KEPT_MS) track.shift()
    this.#tracks.set(id, track)
  }

  /** Forgets everyone who is not in `present`. */
  keep(present: { readonly [id: string]: unknown }): void {
    for (const id of this.#tracks.keys()) if (!Object.hasOwn(present, id)) this.#tracks.delete(id)
  }

  /** Where to draw player `id` at `nowMs`: a little in the past, and never beyond what was seen. */
  at(id: string, nowMs: number): Point | undefined {
    const track = this.#tracks.get(id)
    const last = track?.at(-1)
    if (!track || !last) return undefined
    const shownMs = nowMs - DELAY_MS
    const next = track.findIndex((sample) => sample.atMs > shownMs)
    const after = next < 0 ? last : (track[next] ?? last)
    const before = next > 0 ? (track[next - 1] ?? after) : after
    const span = after.atMs - before.atMs
    const part = span > 0 ? (shownMs - before.atMs) / span : 1
    return { x: before.x + (after.x - before.x) * part, y: before.y + (after.y - before.y) * part }
  }
}
