import type { Frame } from '../frame.ts'
import type { Outbox } from './outbox.ts'

/** Frames that wait until the client of a stalled seat has its state; they count towards what its outbox may hold. */
export class HeldFrames {
  #frames: Frame[] = []
  #bytes = 0
  #ack: number | undefined

  /** Keeps a frame, in order; when the outbox's limit is reached, the connection is over and nothing is kept. */
  add(frame: Frame, outbox: Outbox): void {
    if (!outbox.hold(frame.length)) return
    this.#frames.push(frame)
    this.#bytes += frame.length
  }

  /** Keeps the highest ack. */
  ack(ref: number): void {
    this.#ack = Math.max(this.#ack ?? 0, ref)
  }

  /** Gives everything to the outbox; returns the ack that comes after it. */
  release(outbox: Outbox): number | undefined {
    const frames = this.#frames
    const ack = this.#ack
    this.drop(outbox)
    for (const frame of frames) outbox.push(frame)
    return ack
  }

  /** Forgets everything. `outbox`: the one it was counted by, unless that is closed. */
  drop(outbox?: Outbox): void {
    outbox?.release(this.#bytes)
    this.#frames = []
    this.#bytes = 0
    this.#ack = undefined
  }
}
