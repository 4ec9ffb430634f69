import { once } from 'node:events'
import { MessageChannel, Worker } from 'node:worker_threads'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { ClientSettings, Credentials } from './client.ts'
import type { LoopReading } from './loop.ts'
import { newestOf } from './member.ts'
import type {
  LoadWorker,
  Pause,
  WorkerAnswer,
  WorkerCall,
  WorkerMethod,
  WorkerReport,
  WorkerSettings,
} from './worker.ts'

/** So many clients make another thread worth its while. */
const CLIENTS_PER_THREAD = 250

/** Where credentials come from. */
export interface Issuer {
  /** For ordinary clients. */
  issue(): Promise<Credentials>
  /** Under a key of its own, and what revokes that. */
  issueUnderKey(): Promise<{ readonly credentials: Credentials; readonly revoke: () => Promise<void> }>
}

/** When a session was closed, in milliseconds since its key was revoked. */
export interface Closed {
  /** When the generator saw it. */
  readonly seenMs: number
  /** When the generator had polled before that, and it was open still: what is between the two may be the generator's own delay. */
  readonly openMs: number
}

interface ClientsOptions {
  readonly settings: ClientSettings
  /** At most so many threads. */
  readonly threads: number
  readonly issuer: Issuer
  readonly clock: Clock
  /** Rejects when the run is interrupted: so does everything a scenario waits for. */
  readonly interrupted: Promise<never>
}

type Result<K extends WorkerMethod> = Awaited<ReturnType<LoadWorker[K]>>

/**
 * All clients of a run, spread over threads evenly; they are numbered from 0. What a scenario does with them is told to every thread at
 * once, resolves when all have done it, and rejects when the run is interrupted.
 */
export class Clients {
  readonly #options: ClientsOptions
  readonly #threads: Thread[] = []
  #credentials: Promise<Credentials> | undefined
  #revokedAt = 0

  constructor(options: ClientsOptions) {
    this.#options = options
  }

  /** Starts the threads for so many clients; resolves when they answer, so that no client comes late because of that. To be called first. */
  async open(clients: number): Promise<void> {
    const { settings, threads } = this.#options
    const of = Math.min(threads, Math.max(1, Math.ceil(clients / CLIENTS_PER_THREAD)))
    for (let index = 0; index < of; index++)
      this.#threads.push(new Thread({ ...settings, place: { index, of } }))
    await this.#each('stop')
  }

  /** Connects `count` more players, `perSecond` of them each second. Resolves when all are connected or have failed. */
  async connect({ count, perSecond }: { count: number; perSecond: number }): Promise<void> {
    await this.#each('connect', count, perSecond, await this.#present())
  }

  /**
   * Connects spectators: they read what arrives and look at the sequence numbers, but keep no state and send nothing; many fit in one
   * thread. Each joins the room `room` right away; with `rooms`, spectator i joins `room-<i mod rooms>`.
   */
  async watch({
    count,
    perSecond,
    room,
    rooms,
  }: {
    count: number
    perSecond: number
    room: string
    rooms?: number
  }): Promise<void> {
    await this.#each('watch', count, perSecond, await this.#present(), room, rooms)
  }

  /** Player i joins the room i mod `rooms` (key `load-<n>`, or `<room>-<n>`). Resolves when all have joined or failed. */
  readonly join = this.#forward('join')
  /**
   * Each player sends `rate` messages per second, reliable unless told otherwise, evenly spread, until `stop`. Each carries `bytes` of
   * text for all members to see; default 0.
   */
  readonly start = this.#forward('start')
  readonly stop = this.#forward('stop')
  /**
   * Each player (or the one whose number is `of`) sends one message after the other, each when the one before is acked, for `seconds` or
   * so many `messages`.
   */
  readonly loop = this.#forward('loop')
  /** Players leave their room and join the next one, `perSecond` of them each second, for `seconds`. */
  readonly churn = this.#forward('churn')
  /** Cuts the sockets of this share (0–1) of all clients at once, without a goodbye. Resolves when all of them are back or have given up. */
  readonly cut = this.#forward('cut')
  /** Forgets the longest pause of each player: the next `takePauses` counts from here. */
  readonly markPauses = this.#forward('markPauses')
  /** Waits until everything sent is acked, and looks whether the rooms have applied each message once. Resolves after `withinSeconds` at most. */
  readonly settle = this.#forward('settle')
  /** All connections break, and no client comes back: sessions and memberships stay for as long as the service keeps them. */
  readonly abandon = this.#forward('abandon')
  /** All clients say goodbye; others may come. */
  readonly leave = this.#forward('leave')

  /** Times each player's longest pause since the mark as `pause`; resolves with them. */
  async takePauses(): Promise<Pause[]> {
    return (await this.#each('takePauses')).flat()
  }

  /**
   * This share of the clients stops reading, and sending, for `seconds`. Resolves with how many the service closed for it (4007), which
   * is no failure.
   */
  async stall(options: { share: number; seconds: number }): Promise<number> {
    return (await this.#each('stall', options)).reduce((total, dropped) => total + dropped, 0)
  }

  /** `start`, and `stop` after `seconds`. */
  async play({ rate, seconds }: { rate: number; seconds: number }): Promise<void> {
    await this.start({ rate })
    await this.#unlessInterrupted(sleep(this.#options.clock, seconds * 1000))
    await this.stop()
  }

  /**
   * Issues the tokens of what connects from here on under a key of its own; resolves with what revokes it. Sessions that end by it are
   * expected, and no failures.
   */
  async underKey(): Promise<{ revoke(): Promise<void> }> {
    const { issuer, clock } = this.#options
    const { credentials, revoke } = await this.#unlessInterrupted(issuer.issueUnderKey())
    this.#credentials = Promise.resolve(credentials)
    return {
      revoke: () => {
        this.#revokedAt = clock.now()
        return this.#unlessInterrupted(revoke())
      },
    }
  }

  /** Waits until every client of the revoked key is closed; resolves with how long each took. */
  async awaitRevoked(options: { withinSeconds: number }): Promise<readonly Closed[]> {
    const closings = await this.#each('awaitRevoked', options)
    return closings.flat().map(({ seenAt, openAt }) => ({
      seenMs: seenAt - this.#revokedAt,
      openMs: Math.max(0, openAt - this.#revokedAt),
    }))
  }

  /** What each thread did since the last call; also when the run is interrupted. */
  report(): Promise<WorkerReport[]> {
    return this.#all('report')
  }

  /** How busy each thread was since the last call. */
  loopReadings(): Promise<LoopReading[]> {
    return this.#all('loopReading')
  }

  /** Also when the run is interrupted: nothing more is sent, and what was sent is waited for, and seen by all. */
  async finish(withinSeconds: number): Promise<void> {
    await this.#all('stop')
    await this.#all('settle', { withinSeconds })
    const seen = await this.#all('newest')
    await this.#all('catchUp', newestOf(seen.flatMap((each) => Object.values(each))), withinSeconds)
    await this.#all('giveUp')
  }

  /** All clients say goodbye, also when the run is interrupted. */
  async close(): Promise<void> {
    await this.#all('close')
  }

  /** Ends the threads. */
  async end(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.end()))
  }

  #present(): Promise<Credentials> {
    this.#credentials ??= this.#options.issuer.issue()
    return this.#unlessInterrupted(this.#credentials)
  }

  #forward<K extends WorkerMethod>(name: K): (...args: Parameters<LoadWorker[K]>) => Promise<void> {
    return async (...args) => {
      await this.#each(name, ...args)
    }
  }

  #each<K extends WorkerMethod>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>[]> {
    return this.#unlessInterrupted(this.#all(name, ...args))
  }

  #all<K extends WorkerMethod>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>[]> {
    return Promise.all(this.#threads.map((thread) => thread.call(name, ...args)))
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}

const CODE = new URL('./worker.mjs', import.meta.url)

/** A LoadWorker in a thread of its own. */
class Thread {
  readonly #worker: Worker
  /** Rejects with what the thread broke with, or when it has ended. */
  readonly #broken: Promise<never>

  constructor(settings: WorkerSettings) {
    this.#worker = new Worker(CODE, { execArgv: [], workerData: settings })
    this.#broken = once(this.#worker, 'exit').then(() => {
      throw new Error('a thread of the load test has ended')
    })
    this.#broken.catch(() => undefined)
  }

  /** Calls a method of the worker. */
  async call<K extends WorkerMethod>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>> {
    const { port1, port2 } = new MessageChannel()
    try {
      this.#worker.postMessage({ name, args, port: port2 } satisfies WorkerCall, [port2])
      const [answer] = (await Promise.race([once(port1, 'message'), this.#broken])) as [WorkerAnswer]
      if ('error' in answer) throw new Error(answer.error)
      return answer.value as Result<K>
    } finally {
      port1.close()
    }
  }

  async end(): Promise<void> {
    await this.#worker.terminate()
  }
}
