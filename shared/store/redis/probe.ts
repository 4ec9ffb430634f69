import type { Clock } from '../../clock.ts'
import type { Bus } from '../port.ts'
import type { Connection } from './connection.ts'

/** How often the bus sends itself a probe, milliseconds. */
const PROBE_EVERY_MS = 500

/**
 * Finds a bus that looks connected but hears nothing (after a fail-over, behind a dead proxy): two probes in a row that the
 * store took but this process did not hear, so about a second, and the listening connection is made anew.
 */
export class Probe {
  readonly #bus: Bus
  readonly #listener: Connection
  readonly #channel: string
  readonly #clock: Clock
  #unheard = 0
  #stopped = false
  #cancel: () => void = () => undefined

  constructor(options: { bus: Bus; listener: Connection; channel: string; clock: Clock }) {
    this.#bus = options.bus
    this.#listener = options.listener
    this.#channel = options.channel
    this.#clock = options.clock
  }

  async start(): Promise<void> {
    const heard = () => {
      this.#unheard = 0
    }
    await this.#bus.subscribe(this.#channel, heard, heard)
    this.#schedule()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  #schedule(): void {
    if (!this.#stopped) this.#cancel = this.#clock.schedule(PROBE_EVERY_MS, () => void this.#send())
  }

  async #send(): Promise<void> {
    if (this.#unheard >= 2) {
      this.#unheard = 0
      this.#listener.rebuild('the bus does not hear its own probes')
    }
    if (this.#listener.ready) await this.#publish()
    this.#schedule()
  }

  async #publish(): Promise<void> {
    this.#unheard++
    try {
      await this.#bus.publish(this.#channel, new Uint8Array())
    } catch {
      this.#unheard = 0 // Nothing was sent that could be heard; the connection for commands reports its own trouble.
    }
  }
}
