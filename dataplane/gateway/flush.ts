import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'

/** What one flush of a room has for everybody: the same bytes for every member that speaks a codec. */
export class Flush {
  readonly seq: number
  readonly #patch: Frames | undefined
  readonly #rest: Frames | undefined
  readonly #joined = new Map<Subprotocol, Frame>()

  constructor(seq: number, patch: Frames | undefined, rest: Frames | undefined) {
    this.seq = seq
    this.#patch = patch
    this.#rest = rest
  }

  /** The patch and what follows it, as one buffer; undefined when there is nothing in this codec. */
  whole(codec: Subprotocol): Frame | undefined {
    const patch = this.#patch?.[codec]
    const rest = this.#rest?.[codec]
    if (!patch || !rest) return patch ?? rest
    let both = this.#joined.get(codec)
    if (!both) {
      both = joinFrames([patch, rest])
      this.#joined.set(codec, both)
    }
    return both
  }

  /** Events and presence only. */
  rest(codec: Subprotocol): Frame | undefined {
    return this.#rest?.[codec]
  }
}
