import type { Clock } from '../../shared/clock.ts'
import type { Closed, Crowd, RevocableKey } from '../scenario.ts'
import { unlessAborted } from '../unless-aborted.ts'
import type { Credentials, CrowdSettings } from './client-parts.ts'
import { type Findings, together } from './findings.ts'
import type { LoopReading } from './loop-watch.ts'
import { newestOf } from './seen.ts'
import type { SquadReport } from './squad.ts'
import { SquadThread } from './squad-thread.ts'

/** So many clients make another thread worth its while. */
const PLENTY = 250

/** Where credentials come from. */
export interface Issuer {
  /** For ordinary clients. */
  issue(): Promise<Credentials>
  /** Under a key of its own, and what revokes that. */
  issueUnderKey(): Promise<{ readonly credentials: Credentials; readonly revoke: () => Promise<void> }>
}

export interface CrowdParts {
  readonly settings: CrowdSettings
  /** At most so many threads. */
  readonly threads: number
  readonly issuer: Issuer
  readonly clock: Clock
  /** Fires when the run is interrupted; its reason is what everything rejects with. */
  readonly signal: AbortSignal
}

/** All clients of a run, spread over threads. */
export class ThreadedCrowd implements Crowd {
  readonly #parts: CrowdParts
  readonly #threads: SquadThread[] = []
  #credentials: Promise<Credentials> | undefined
  #clients = 0
  #revoke_at = 0

  constructor(parts: CrowdParts) {
    this.#parts = parts
  }

  /** Starts the threads for so many clients; resolves when they answer, so that no client comes late because of that. To be called first. */
  async open(clients: number): Promise<void> {
    const { settings, threads } = this.#parts
    const wanted = Math.min(threads, Math.ceil(clients / PLENTY))
    for (let index = 0; index < wanted; index++)
      this.#threads.push(new SquadThread({ ...settings, seed: settings.seed + index }))
    await this.#each((thread) => thread.call('stop'))
  }

  async connect({
    count,
    per_second,
  }: {
    readonly count: number
    readonly per_second: number
  }): Promise<void> {
    const credentials = await this.#unlessInterrupted(this.#present())
    await this.#eachNew(count, per_second, (thread, numbers, pace) =>
      thread.call('connect', numbers, pace, credentials),
    )
  }

  async watch(options: {
    readonly count: number
    readonly per_second: number
    readonly room: string
  }): Promise<void> {
    const credentials = await this.#unlessInterrupted(this.#present())
    await this.#eachNew(options.count, options.per_second, (thread, numbers, pace) =>
      thread.call('watch', numbers, pace, credentials, options.room),
    )
  }

  async join({ rooms, per_second }: { readonly rooms: number; readonly per_second: number }): Promise<void> {
    await this.#each((thread, offset, share) =>
      thread.call('join', rooms, { per_second: per_second * share, offset }),
    )
  }

  async play({ rate, seconds }: { readonly rate: number; readonly seconds: number }): Promise<void> {
    await this.start({ rate })
    await this.#unlessInterrupted(
      new Promise<void>((resolve) => this.#parts.clock.schedule(seconds * 1000, resolve)),
    )
    await this.stop()
  }

  async start({ rate, bytes = 0 }: { readonly rate: number; readonly bytes?: number }): Promise<void> {
    await this.#each((thread, offset) => thread.call('start', rate, offset, bytes))
  }

  async stop(): Promise<void> {
    await this.#each((thread) => thread.call('stop'))
  }

  async churn(options: {
    readonly per_second: number
    readonly rooms: number
    readonly seconds: number
  }): Promise<void> {
    const { per_second, rooms, seconds } = options
    await this.#each((thread, offset, share) =>
      thread.call('churn', rooms, seconds, { per_second: per_second * share, offset }),
    )
  }

  async cut({ share }: { readonly share: number }): Promise<void> {
    await this.#each((thread) => thread.call('cut', share))
  }

  async stall({ share, seconds }: { readonly share: number; readonly seconds: number }): Promise<number> {
    const dropped = await this.#each((thread) => thread.call('stall', share, seconds))
    return dropped.reduce((sum, count) => sum + count, 0)
  }

  async markPauses(): Promise<void> {
    await this.#each((thread) => thread.call('markPauses'))
  }

  async takePauses(): Promise<void> {
    await this.#each((thread) => thread.call('takePauses'))
  }

  async settle({ within_seconds }: { readonly within_seconds: number }): Promise<void> {
    await this.#each((thread) => thread.call('settle', within_seconds))
  }

  async underKey(): Promise<RevocableKey> {
    const { issuer, clock } = this.#parts
    const { credentials, revoke } = await this.#unlessInterrupted(issuer.issueUnderKey())
    this.#credentials = Promise.resolve(credentials)
    return {
      revoke: () => {
        this.#revoke_at = clock.now()
        return this.#unlessInterrupted(revoke())
      },
    }
  }

  async awaitRevoked({ within_seconds }: { readonly within_seconds: number }): Promise<readonly Closed[]> {
    const closings = await this.#each((thread) => thread.call('awaitRevoked', within_seconds))
    return closings.flat().map(({ seen_at, open_at }) => ({
      seen_ms: seen_at - this.#revoke_at,
      open_ms: Math.max(0, open_at - this.#revoke_at),
    }))
  }

  /** What each thread did since the last call. */
  report(): Promise<SquadReport[]> {
    return Promise.all(this.#threads.map((thread) => thread.call('report')))
  }

  /** How busy each thread was since the last call. */
  strain(): Promise<LoopReading[]> {
    return Promise.all(this.#threads.map((thread) => thread.call('strain')))
  }

  async findings(): Promise<Findings> {
    return together(await Promise.all(this.#threads.map((thread) => thread.call('findings'))))
  }

  /** Also when the run is interrupted: nobody says anything more, and what was said is waited for, and seen by all. */
  async finish(within_seconds: number): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.call('stop')))
    await Promise.all(this.#threads.map((thread) => thread.call('settle', within_seconds)))
    const seen = await Promise.all(this.#threads.map((thread) => thread.call('newest')))
    const newest = newestOf(seen.flatMap((each) => Object.values(each)))
    await Promise.all(this.#threads.map((thread) => thread.call('catchUp', newest, within_seconds)))
    await Promise.all(this.#threads.map((thread) => thread.call('giveUp')))
  }

  /** Everybody says goodbye. */
  async leave(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.call('close')))
  }

  async end(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.end()))
  }

  #present(): Promise<Credentials> {
    this.#credentials ??= this.#parts.issuer.issue()
    return this.#credentials
  }

  /** Gives `count` new clients to the threads in turn; `pace`: what comes to each. */
  async #eachNew(
    count: number,
    per_second: number,
    order: (
      thread: SquadThread,
      numbers: readonly number[],
      pace: { readonly per_second: number; readonly offset: number },
    ) => Promise<void>,
  ): Promise<void> {
    const first = this.#clients
    this.#clients += count
    const threads = this.#threads.length
    await this.#each((thread, offset, share, index) => {
      const numbers = Array.from(
        { length: Math.ceil((count - index) / threads) },
        (_, turn) => first + turn * threads + index,
      )
      return order(thread, numbers, { per_second: per_second * share, offset })
    })
  }

  /** `share`: of what all do together, this much is the thread's. `offset`: so much of its own pace it begins after the first. */
  #each<T>(
    order: (thread: SquadThread, offset: number, share: number, index: number) => Promise<T>,
  ): Promise<T[]> {
    const all = this.#threads
    const orders = all.map((thread, index) => order(thread, index / all.length, 1 / all.length, index))
    return this.#unlessInterrupted(Promise.all(orders))
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return unlessAborted(this.#parts.signal, work)
  }
}
