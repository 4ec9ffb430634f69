import type { RedisView } from '../../deploy/local/redis.ts'
import type { Clock } from '../../shared/clock.ts'
import type { LocalService } from '../scenario.ts'

/** Something that has happened to a service, and that nobody here wanted. */
export interface Mishap {
  readonly text: string
  /** Whether no service could keep its promises after it. */
  readonly grave: boolean
}

/** A service that tells what happens to it. */
export interface WatchedService extends LocalService {
  /** What has happened since the last call. */
  mishaps(): Promise<readonly Mishap[]>
}

/** For so long a store may be silent on a busy machine before that is worth a word. */
const SILENCE_MS = 5000

/** Looks after a service that a load test has started: whether its processes go on, and whether its store answers and keeps what it is given. */
export class Mishaps {
  readonly #store: Pick<RedisView, 'mark' | 'marked'>
  readonly #clock: Clock
  #news: Mishap[] = []
  #marked = false
  #silent_since: number | undefined
  #silence_told = false

  constructor(store: Pick<RedisView, 'mark' | 'marked'>, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** A process has ended by itself, or not as it was told to. */
  ended(text: string): void {
    this.#news.push({ text, grave: true })
  }

  /** What has happened since the last look. To be called about once a second. */
  async look(): Promise<readonly Mishap[]> {
    const kept = this.#marked ? await this.#store.marked() : await this.#mark()
    if (kept === undefined) this.#silent()
    else this.#answered(kept)
    return this.#news.splice(0)
  }

  /** Leaves the mark by which a loss is seen; undefined when the store does not answer. */
  async #mark(): Promise<true | undefined> {
    this.#marked = await this.#store.mark()
    return this.#marked || undefined
  }

  #silent(): void {
    const now = this.#clock.monotonic()
    this.#silent_since ??= now
    if (this.#silence_told || now - this.#silent_since < SILENCE_MS) return
    this.#silence_told = true
    this.#news.push({ text: `the store has not answered for ${SILENCE_MS / 1000} s`, grave: false })
  }

  #answered(kept: boolean): void {
    if (this.#silence_told) {
      const seconds = ((this.#clock.monotonic() - this.#silent_since!) / 1000).toFixed(1)
      this.#news.push({ text: `the store answers again, after ${seconds} s`, grave: false })
    }
    this.#silent_since = undefined
    this.#silence_told = false
    if (kept) return
    this.#news.push({ text: 'the store has lost what was in it', grave: true })
    this.#marked = false
  }
}
