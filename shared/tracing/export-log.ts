import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'

/** A collector can be away for days, or take every other batch: more often than this nobody needs to hear of it. */
const EVERY_MS = 60_000

/** Says when spans are lost, once a minute at most, and when they are taken again. */
export class ExportLog {
  readonly #clock: Clock
  readonly #log: Logger
  /** Since it was last said that they are taken. */
  #lost = 0
  #said = false
  #said_at = Number.NEGATIVE_INFINITY

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock
    this.#log = log
  }

  /** So many spans are lost; `why` is a sentence without secrets. */
  lost(spans: number, why: string | undefined): void {
    this.#lost += spans
    const now = this.#clock.monotonic()
    if (now - this.#said_at < EVERY_MS) return
    this.#said = true
    this.#said_at = now
    this.#log.warn({ lost: this.#lost, why }, 'traces cannot be exported, and are lost until they can')
  }

  /** Somebody took spans. */
  taken(): void {
    if (!this.#said) return
    this.#log.info({ lost: this.#lost }, 'traces are exported again')
    this.#said = false
    this.#lost = 0
  }
}
