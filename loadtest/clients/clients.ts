import { once } from 'node:events'
import { MessageChannel, Worker } from 'node:worker_threads'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { Credentials, Issuer } from '../issuer.ts'
import { type ClientSettings, newestOf } from './client.ts'
import type { LoadWorker, Pause, WorkerAnswer, WorkerCall, WorkerSettings } from './worker.ts'

/** Number of clients for which one more thread is worth its cost. */
const CLIENTS_PER_THREAD = 250

interface ClientsOptions {
  readonly settings: ClientSettings
  /** Maximum number of threads. */
  readonly threads: number
  readonly issuer: Issuer
  readonly clock: Clock
  /** Rejects when the run is interrupted, and with it every call of a scenario. */
  readonly interrupted: Promise<never>
}

type Method = keyof LoadWorker
type Result<K extends Method> = Awaited<ReturnType<LoadWorker[K]>>
type WithoutCredentials<K extends 'connect' | 'watch'> = Omit<Parameters<LoadWorker[K]>[0], 'credentials'>

/**
 * All clients of a run, in threads. A method of the same name in LoadWorker documents each method. It is called in every thread, and
 * rejects when the run is interrupted.
 */
export class Clients {
  readonly join = this.#everywhere('join')
  readonly start = this.#everywhere('start')
  readonly stop = this.#everywhere('stop')
  readonly loop = this.#everywhere('loop')
  readonly churn = this.#everywhere('churn')
  readonly cut = this.#everywhere('cut')
  readonly markPauses = this.#everywhere('markPauses')
  readonly settle = this.#everywhere('settle')
  readonly abandon = this.#everywhere('abandon')
  readonly leave = this.#everywhere('leave')
  readonly #options: ClientsOptions
  readonly #threads: Thread[] = []
  #credentials: Promise<Credentials> | undefined
  #revokedAt = 0

  constructor(options: ClientsOptions) {
    this.#options = options
  }

  /** Starts the threads for so many clients. Resolves when they answer, so that the first clients are not late. Called first. */
  async open(clients: number): Promise<void> {
    const { settings, threads } = this.#options
    const of = Math.min(threads, Math.max(1, Math.ceil(clients / CLIENTS_PER_THREAD)))
    for (let index = 0; index < of; index++)
      this.#threads.push(new Thread({ ...settings, place: { index, of } }))
    await this.stop()
  }

  async connect(options: WithoutCredentials<'connect'>): Promise<void> {
    await this.#each('connect', { ...options, credentials: await this.#present() })
  }

  async watch(options: WithoutCredentials<'watch'>): Promise<void> {
    await this.#each('watch', { ...options, credentials: await this.#present() })
  }

  async takePauses(): Promise<Pause[]> {
    return (await this.#each('takePauses')).flat()
  }

  async stall(options: { share: number; seconds: number }): Promise<number> {
    return (await this.#each('stall', options)).reduce((total, closed) => total + closed, 0)
  }

  /** `start`, and `stop` after `seconds`. */
  async play({ rate, seconds }: { rate: number; seconds: number }): Promise<void> {
    await this.start({ rate })
    await this.#unlessInterrupted(sleep(this.#options.clock, seconds * 1000))
    await this.stop()
  }

  /** Gives later clients tokens under a new key. Resolves with a function that revokes it. Sessions that end by it are no failures. */
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

  /** Resolves with the milliseconds from the revocation to the close of each client of the key. */
  async awaitRevoked(options: { withinSeconds: number }): Promise<readonly number[]> {
    const closings = await this.#each('awaitRevoked', options)
    return closings.flat().map((at) => at - this.#revokedAt)
  }

  // The methods below also work when the run is interrupted.

  report() {
    return this.#all('report')
  }

  loopReadings() {
    return this.#all('loopReading')
  }

  /** Sends nothing more, and waits until every answer and update has arrived. */
  async finish(withinSeconds: number): Promise<void> {
    await this.#all('stop')
    await this.#all('settle', { withinSeconds })
    await this.#all('catchUp', newestOf(await this.#all('newest')), withinSeconds)
    await this.#all('giveUp')
  }

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

  #everywhere<K extends Method>(name: K): (...args: Parameters<LoadWorker[K]>) => Promise<void> {
    return async (...args) => {
      await this.#each(name, ...args)
    }
  }

  #each<K extends Method>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>[]> {
    return this.#unlessInterrupted(this.#all(name, ...args))
  }

  #all<K extends Method>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>[]> {
    return Promise.all(this.#threads.map((thread) => thread.call(name, ...args)))
  }

  #unlessInterrupted<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#options.interrupted])
  }
}

const CODE = new URL('./worker.mjs', import.meta.url)

/** A LoadWorker in a thread. */
class Thread {
  readonly #worker: Worker
  /** Rejects when the thread has ended, or with its error. */
  readonly #ended: Promise<never>

  constructor(settings: WorkerSettings) {
    this.#worker = new Worker(CODE, { execArgv: [], workerData: settings })
    this.#ended = once(this.#worker, 'exit').then(() => {
      throw new Error('a thread of the load test has ended')
    })
    this.#ended.catch(() => undefined)
  }

  async call<K extends Method>(name: K, ...args: Parameters<LoadWorker[K]>): Promise<Result<K>> {
    const { port1, port2 } = new MessageChannel()
    try {
      this.#worker.postMessage({ name, args, port: port2 } satisfies WorkerCall, [port2])
      const [answer] = (await Promise.race([once(port1, 'message'), this.#ended])) as [WorkerAnswer]
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
