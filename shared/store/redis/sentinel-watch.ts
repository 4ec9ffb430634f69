import type { Redis } from 'ioredis'
import type { Clock } from '../../clock.ts'
import type { Endpoint } from './address.ts'

/** What a Sentinel publishes once it has another master: `<name> <old host> <old port> <new host> <new port>`. */
const CHANNEL = '+switch-master'

/** How long Sentinels may be behind each other, milliseconds. After that what they say holds: a switch may have gone unheard. */
const BEHIND_MS = 5000

/**
 * Hears when Sentinels appoint another master: sooner than a connection to one that hangs, or was cut off, would show it. Sentinels
 * learn of it one after the other, so that one may still name the old master, which may still believe that it is: `successorOf`
 * puts that right. `sentinels` are clients that reconnect by themselves.
 */
export class SentinelWatch {
  readonly #sentinels: readonly Redis[]
  readonly #masterName: string
  readonly #clock: Clock
  /** Masters that were replaced, by which, and when (monotonic milliseconds). */
  readonly #successors = new Map<string, { readonly master: Endpoint; readonly at: number }>()
  /** The last one that was told of; every Sentinel tells of each. */
  #last = ''
  #onSwitch: () => void = () => undefined

  constructor(sentinels: readonly Redis[], { masterName, clock }: { masterName: string; clock: Clock }) {
    this.#sentinels = sentinels
    this.#masterName = masterName
    this.#clock = clock
    for (const sentinel of sentinels) {
      sentinel.on('error', () => undefined) // Who asks for the master meets the same, and reports it.
      sentinel.on('message', (_channel: string, message: string) => this.#hear(message))
      sentinel.subscribe(CHANNEL).catch(() => undefined)
    }
  }

  /** Calls back once for each new master. */
  onSwitch(callback: () => void): void {
    this.#onSwitch = callback
  }

  /** The master that took the place of the one at `address` (`host:port`) a moment ago; undefined when none did. */
  successorOf(address: string): Endpoint | undefined {
    const found = this.#successors.get(address)
    return found && this.#clock.monotonic() - found.at < BEHIND_MS ? found.master : undefined
  }

  close(): void {
    for (const sentinel of this.#sentinels) sentinel.disconnect()
  }

  #hear(message: string): void {
    const [name, oldHost, oldPort, host = '', port] = message.split(' ')
    const there = `${host}:${port}`
    if (name !== this.#masterName || there === this.#last) return
    this.#last = there
    const master = { host, port: Number(port) }
    this.#successors.delete(there)
    this.#successors.set(`${oldHost}:${oldPort}`, { master, at: this.#clock.monotonic() })
    this.#onSwitch()
  }
}
