import { Worker } from 'node:worker_threads'
import type { CrowdSettings } from './client-parts.ts'
import type { Squad } from './squad.ts'

/** What a squad can be told. */
export type SquadMethod = {
  [K in keyof Squad]: Squad[K] extends (...args: never[]) => Promise<unknown> ? K : never
}[keyof Squad]

/** One call, and its answer under the same id. */
export interface Order {
  readonly id: number
  readonly name: SquadMethod
  readonly args: readonly unknown[]
}
export interface Answer {
  readonly id: number
  readonly value?: unknown
  readonly error?: string
}

interface Call {
  readonly resolve: (value: never) => void
  readonly reject: (error: Error) => void
}

const CODE = new URL('./squad-worker.mjs', import.meta.url)

/** A squad in a thread of its own. */
export class SquadThread {
  readonly #worker: Worker
  readonly #calls = new Map<number, Call>()
  #last_id = 0
  #broken: Error | undefined

  constructor(settings: CrowdSettings) {
    this.#worker = new Worker(CODE, { execArgv: [], workerData: settings })
    this.#worker.on('message', ({ id, value, error }: Answer) => {
      const call = this.#calls.get(id)
      this.#calls.delete(id)
      if (error === undefined) call?.resolve(value as never)
      else call?.reject(new Error(error))
    })
    this.#worker.on('error', (error) => this.#break(error))
    this.#worker.on('exit', () => this.#break(new Error('a thread of the load test has ended')))
  }

  /** Calls a method of the squad. Rejects with what the thread broke with. */
  call<K extends SquadMethod>(name: K, ...args: Parameters<Squad[K]>): ReturnType<Squad[K]> {
    const answer = new Promise((resolve, reject) => {
      if (this.#broken) {
        reject(this.#broken)
        return
      }
      const id = ++this.#last_id
      this.#calls.set(id, { resolve, reject })
      this.#worker.postMessage({ id, name, args } satisfies Order)
    })
    return answer as ReturnType<Squad[K]>
  }

  async end(): Promise<void> {
    await this.#worker.terminate()
  }

  #break(error: Error): void {
    this.#broken ??= error
    for (const { reject } of this.#calls.values()) reject(error)
    this.#calls.clear()
  }
}
