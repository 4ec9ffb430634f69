import type { Clock } from '../../shared/clock.ts'
import type { LogLevel } from '../../shared/log.ts'

/**
 * What a worker and the process that has started it say to each other, over the channel that Node keeps between them. Each may ask the
 * other for metrics in Prometheus' text format: the process for those of this worker, the worker for those of all. A worker that is to
 * change the level of the log tells the process, which tells all workers.
 */
type Message =
  | { readonly t: 'ready'; readonly addresses: Addresses }
  | { readonly t: 'metrics.get'; readonly id: number }
  | { readonly t: 'metrics'; readonly id: number; readonly text: string }
  | { readonly t: 'log_level'; readonly level: LogLevel }

/** Where a worker can be reached, by what is there. */
export type Addresses = Readonly<Record<string, string>>

/** The other side: `process`, or a child process. */
export interface Peer {
  send?(message: Message, callback: (error: Error | null) => void): boolean
  on(event: 'message', listener: (message: Message) => void): unknown
}

/** Called for what the other side says. */
interface Listeners {
  readonly onReady?: (where: Addresses) => void
  readonly onLogLevel: (level: LogLevel) => void
}

/** How long the other side may take to answer. */
const TIMEOUT_MS = 2000

/** One side of the channel. */
export class WorkerChannel {
  readonly #peer: Peer
  readonly #clock: Clock
  readonly #waiting = new Map<number, (text: string) => void>()
  #lastId = 0

  /** `metrics`: what this side answers with. `onLogLevel`: the other side asks for another level of the log. */
  constructor(peer: Peer, clock: Clock, metrics: () => Promise<string>, { onReady, onLogLevel }: Listeners) {
    this.#peer = peer
    this.#clock = clock
    peer.on('message', (message) => {
      switch (message.t) {
        case 'ready':
          return onReady?.(message.addresses)
        case 'log_level':
          return onLogLevel(message.level)
        case 'metrics.get':
          return void metrics().then((text) => this.#send({ t: 'metrics', id: message.id, text }))
        case 'metrics':
          this.#waiting.get(message.id)?.(message.text)
          this.#waiting.delete(message.id)
      }
    })
  }

  /** Says that this worker serves. */
  ready(addresses: Addresses): void {
    this.#send({ t: 'ready', addresses })
  }

  /** Asks the other side for another level of the log. */
  setLogLevel(level: LogLevel): void {
    this.#send({ t: 'log_level', level })
  }

  /** The metrics of the other side; empty when it does not answer in time. */
  metrics(): Promise<string> {
    this.#lastId += 1
    const id = this.#lastId
    return new Promise((resolve) => {
      const cancel = this.#clock.schedule(TIMEOUT_MS, () => {
        this.#waiting.delete(id)
        resolve('')
      })
      this.#waiting.set(id, (text) => {
        cancel()
        resolve(text)
      })
      this.#send({ t: 'metrics.get', id })
    })
  }

  /** One that is ending hears nothing more, and its end is told otherwise. */
  #send(message: Message): void {
    this.#peer.send?.(message, () => undefined)
  }
}

/** The expositions of several processes as one, with all series of a metric together; each process has a label of its own on its series. */
export function mergeExpositions(texts: readonly string[]): string {
  const families = new Map<string, { readonly head: string[]; readonly samples: string[] }>()
  for (const text of texts) {
    let family: { readonly head: string[]; readonly samples: string[] } | undefined
    let known = false
    for (const line of text.split('\n')) {
      const [, name] = /^# HELP (\S+)/.exec(line) ?? []
      if (name !== undefined) {
        family = families.get(name)
        known = family !== undefined
        if (!family) {
          family = { head: [], samples: [] }
          families.set(name, family)
        }
      }
      if (line === '' || !family) continue
      if (!line.startsWith('#')) family.samples.push(line)
      else if (!known) family.head.push(line)
    }
  }
  return [...families.values()]
    .flatMap(({ head, samples }) => [...head, ...samples])
    .map((line) => `${line}\n`)
    .join('')
}
