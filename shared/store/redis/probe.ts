import type { Clock } from '../../clock.ts'
import type { RedisBus } from './bus.ts'
import type { Server } from './server.ts'
import { nameAt, type Servers } from './servers.ts'

/** How often the bus sends itself a probe, milliseconds. */
const PROBE_EVERY_MS = 500

/**
 * Finds a bus that looks connected but hears nothing (after a fail-over, behind a dead proxy): two probes in a row that the
 * server took but this process did not hear, or that it counted no listener for, so about a second, and the listening connection
 * is made anew. One probe watches one server, by a channel whose slot lies there.
 */
export class Probe {
  readonly #bus: RedisBus
  readonly #servers: Servers
  readonly #server: Server
  readonly #token: string
  readonly #clock: Clock
  #channel: string | undefined
  #end: () => Promise<void> = async () => undefined
  /** Probes in a row without effect. */
  #unheard = 0
  #stopped = false
  #cancel: () => void = () => undefined

  /** `token` is a name that no other probe has. */
  constructor(options: { bus: RedisBus; servers: Servers; server: Server; token: string; clock: Clock }) {
    this.#bus = options.bus
    this.#servers = options.servers
    this.#server = options.server
    this.#token = options.token
    this.#clock = options.clock
  }

  /** Whether it has ended: it does so by itself when its server is none any more. */
  get stopped(): boolean {
    return this.#stopped
  }

  async start(): Promise<void> {
    try {
      await this.#settle()
    } finally {
      this.#schedule()
    }
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  #schedule(): void {
    if (!this.#stopped) this.#cancel = this.#clock.schedule(PROBE_EVERY_MS, () => void this.#turn())
  }

  async #turn(): Promise<void> {
    if (!this.#servers.all().includes(this.#server)) {
      this.stop()
      return this.#end()
    }
    if (this.#unheard >= 2) {
      this.#unheard = 0
      this.#server.listener.rebuild('the bus does not hear its own probes')
    }
    try {
      await this.#settle()
      if (this.#channel !== undefined && this.#server.listener.ready) await this.#publish(this.#channel)
    } catch {
      this.#unheard = 0 // Nothing was sent that could be heard; the connection for commands reports its own trouble.
    }
    this.#schedule()
  }

  async #publish(channel: string): Promise<void> {
    this.#unheard++
    const before = this.#unheard
    if ((await this.#bus.publish(channel, new Uint8Array())) === 0) this.#unheard = before
  }

  /** Listens to a channel of this server, and to another one once the slot of the first has moved away. */
  async #settle(): Promise<void> {
    if (this.#channel !== undefined && this.#bus.home(this.#channel) === this.#server) return
    const channel = nameAt(`probe:${this.#token}`, (name) => this.#bus.home(name) === this.#server)
    await this.#end()
    this.#channel = undefined
    if (channel === undefined) return
    const heard = () => {
      this.#unheard = 0
    }
    this.#end = await this.#bus.subscribe(channel, heard, heard)
    this.#channel = channel
  }
}
