import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type Bus, type Store, StoreUnavailable } from '../../shared/store/port.ts'
import type { StoreSwitch } from '../chaos/harness/system.ts'
import { type Conditions, Gate, Lane } from './network.ts'

/** Timeout of a command, first for its connection and then for its answer. As in the Redis adapter. */
const TIMEOUT_MS = 2000
/** Delay of a reconnect: `AGAIN_MS`, and at random up to `MORE_MS` more. */
const AGAIN_MS = 25
const MORE_MS = 75
/** Uptime of the server at the start of a run. */
const AGE_MS = 3_600_000

/** A listener on a channel, and its connection. */
interface Listener {
  readonly connection: StoreConnection
  readonly deliver: (message: Uint8Array) => void
}

/** Server of the store: the memory adapter, which can be stopped, paused and emptied. */
export class SimStoreServer implements StoreSwitch {
  readonly clock: Clock
  readonly #gate = new Gate()
  readonly #connections = new Set<StoreConnection>()
  readonly #channels = new Map<string, Set<Listener>>()
  #data: Store
  #up = true
  #paused = false
  #startedAt = -AGE_MS

  constructor(clock: Clock) {
    this.clock = clock
    this.#data = memoryStore({ clock })
  }

  /** Present data of the server. */
  get data(): Store {
    return this.#data
  }

  /** True while the server accepts connections. */
  get accepts(): boolean {
    return this.#up && !this.#paused
  }

  get uptimeMs(): number {
    return this.clock.monotonic() - this.#startedAt
  }

  async stop(keep: boolean): Promise<void> {
    this.#up = false
    if (!keep) this.#data = memoryStore({ clock: this.clock })
    for (const connection of this.#connections) connection.lose()
  }

  async start(): Promise<void> {
    this.#up = true
    this.#startedAt = this.clock.monotonic()
  }

  async pause(): Promise<void> {
    this.#paused = true
    this.#gate.pause()
  }

  async resume(): Promise<void> {
    this.#paused = false
    this.#gate.resume()
  }

  /** Executes a command that has arrived. */
  receive(command: () => void): void {
    if (this.#up) this.#gate.pass(() => this.#up && command())
  }

  connected(connection: StoreConnection): void {
    this.#connections.add(connection)
  }

  /** Removes a connection and its subscriptions. */
  disconnected(connection: StoreConnection): void {
    this.#connections.delete(connection)
    for (const listeners of this.#channels.values())
      for (const listener of listeners) if (listener.connection === connection) listeners.delete(listener)
  }

  subscribe(channel: string, listener: Listener): void {
    const listeners = this.#channels.get(channel) ?? new Set()
    this.#channels.set(channel, listeners)
    listeners.add(listener)
  }

  unsubscribe(channel: string, listener: Listener): void {
    this.#channels.get(channel)?.delete(listener)
  }

  publish(channel: string, message: Uint8Array): number {
    const listeners = [...(this.#channels.get(channel) ?? [])]
    for (const { deliver } of listeners) deliver(new Uint8Array(message))
    return this.listeners(channel)
  }

  /** Returns the number of connections that listen on a channel. */
  listeners(channel: string): number {
    return new Set([...(this.#channels.get(channel) ?? [])].map(({ connection }) => connection)).size
  }
}

/** Both directions of one TCP connection. */
interface Lanes {
  readonly there: Lane
  readonly back: Lane
}

/** A subscription of a process. The connection repeats it after a reconnect. */
interface Subscription {
  readonly channel: string
  readonly listener: Listener
  readonly onGap: () => void
}

interface ConnectionOptions {
  readonly server: SimStoreServer
  readonly random: Random
  /** Conditions of the network between the process and the server. */
  readonly conditions: Conditions
  /** Gate of the process. */
  readonly gate: Gate
}

function methodsOf(part: object): string[] {
  const prototype: object = Object.getPrototypeOf(part)
  if (prototype === Object.prototype) return []
  const own = Object.getOwnPropertyNames(prototype).filter((name) => name !== 'constructor')
  return [...own, ...methodsOf(prototype)]
}

/**
 * Connection of one process to the store. Commands take time and wait while there is no connection. They are rejected when the connection is
 * lost or the answer times out. As in a network, a rejected command may still take effect.
 */
export class StoreConnection {
  readonly #options: ConnectionOptions
  readonly #clock: Clock
  /** Functions that reject the sent commands without an answer. */
  readonly #unanswered = new Set<() => void>()
  /** Functions that send the commands that wait for the connection. */
  readonly #waiting = new Set<() => void>()
  readonly #subscriptions = new Set<Subscription>()
  readonly #returns = new Set<() => void>()
  #commands: Lanes
  #messages: Lanes
  #connected = false
  /** True from the loss of the connection until the process has noticed the reconnect. */
  #away = false
  #closed = false

  constructor(options: ConnectionOptions) {
    this.#options = options
    this.#clock = options.server.clock
    this.#commands = this.#newLanes()
    this.#messages = this.#newLanes()
    this.#connect()
  }

  /** Store that uses this connection. */
  get store(): Store {
    const { server, gate } = this.#options
    const commands = <T extends object>(name: string, target: (data: Store) => T): T =>
      Object.fromEntries(
        methodsOf(target(server.data)).map((method) => [
          method,
          (...words: unknown[]) =>
            this.#command(`${name}.${method}`, () => {
              const part = target(server.data)
              return Reflect.apply(Reflect.get(part, method) as () => Promise<unknown>, part, words)
            }),
        ]),
      ) as T
    return {
      kind: 'memory',
      records: commands('records', ({ records }) => records),
      rooms: {
        ...commands('rooms', ({ rooms }) => rooms),
        open: (room, opening, mayClaim) => {
          let may = false
          const lanes = (): Lanes => {
            may = !this.#away && mayClaim()
            return this.#commands
          }
          return this.#call('rooms.open', lanes, () => server.data.rooms.open(room, opening, () => may))
        },
      },
      wakeups: commands('wakeups', ({ wakeups }) => wakeups),
      notices: commands('notices', ({ notices }) => notices),
      listings: commands('listings', ({ listings }) => listings),
      bus: this.#bus,
      locks: {
        withLock: (name, options, work) =>
          server.data.locks.withLock(name, options, () => this.#gated(() => work(), gate)),
      },
      vitals: {
        reachable: true,
        observe: () => () => undefined,
        servers: async () => [],
      },
      time: () => this.#command('time', () => server.data.time()),
      uptime: () => this.#command('uptime', async () => server.uptimeMs),
      ping: () => this.#command('ping', async () => undefined),
      onReturn: (callback) => {
        this.#returns.add(callback)
        return () => void this.#returns.delete(callback)
      },
      close: async () => this.abandon(),
    }
  }

  /** Breaks the connection. It reconnects after a delay. */
  lose(): void {
    if (!this.#connected) return
    this.#connected = false
    this.#away = true
    for (const { there, back } of [this.#commands, this.#messages]) {
      there.cut()
      back.cut()
    }
    this.#options.server.disconnected(this)
    for (const reject of [...this.#unanswered]) reject()
    this.#connectSoon()
  }

  /** To be called when the network's conditions have changed. */
  changed(): void {
    for (const { there, back } of [this.#commands, this.#messages]) {
      there.release()
      back.release()
    }
  }

  /** Closes the connection as the end of the process does: sent commands still arrive. */
  abandon(): void {
    this.#closed = true
    this.#options.server.disconnected(this)
  }

  get #bus(): Bus {
    const { server, gate } = this.#options
    return {
      publish: (channel, message) => {
        const bytes = new Uint8Array(message)
        return this.#call(
          'publish',
          () => this.#messages,
          async () => server.publish(channel, bytes),
        )
      },
      subscribe: async (channel, onMessage, onGap = () => undefined) => {
        const listener: Listener = {
          connection: this,
          deliver: (message) => this.#messages.back.send(() => gate.pass(() => onMessage(message))),
        }
        const subscription = { channel, listener, onGap }
        await this.#call(
          'subscribe',
          () => this.#messages,
          async () => server.subscribe(channel, listener),
        )
        this.#subscriptions.add(subscription)
        return async () => {
          this.#subscriptions.delete(subscription)
          server.unsubscribe(channel, listener)
        }
      },
      listeners: (channels) =>
        this.#command('listeners', async () => channels.map((channel) => server.listeners(channel))),
    }
  }

  #command<T>(name: string, perform: () => Promise<T>): Promise<T> {
    return this.#call(name, () => this.#commands, perform)
  }

  /** `lanes` is called when the command is sent, because a reconnect creates new lanes. */
  #call<T>(name: string, lanes: () => Lanes, perform: () => Promise<T>): Promise<T> {
    const { server, gate } = this.#options
    return new Promise((resolve, reject) => {
      let over = false
      const end = (how: () => void): void => {
        if (over) return
        over = true
        cancel()
        this.#unanswered.delete(lost)
        this.#waiting.delete(send)
        gate.pass(how)
      }
      const fail = (reason: string): void =>
        end(() => reject(new StoreUnavailable(`the store gave no answer to ${name}: ${reason}`)))
      const lost = (): void => fail('the connection was lost')
      const send = (): void => {
        cancel()
        cancel = this.#clock.schedule(TIMEOUT_MS, () => fail('it took too long'))
        this.#waiting.delete(send)
        this.#unanswered.add(lost)
        const { there, back } = lanes()
        there.send(() =>
          server.receive(() => {
            perform().then(
              (value) => back.send(() => end(() => resolve(value))),
              (error: unknown) => back.send(() => end(() => reject(error as Error))),
            )
          }),
        )
      }
      let cancel = this.#clock.schedule(TIMEOUT_MS, () => fail('there was no connection'))
      if (this.#connected) send()
      else this.#waiting.add(send)
    })
  }

  #connectSoon(): void {
    if (this.#closed) return
    this.#clock.schedule(AGAIN_MS + MORE_MS * this.#options.random.float(), () => this.#connect())
  }

  #connect(): void {
    const { server, conditions, gate } = this.#options
    if (this.#closed) return
    if (!server.accepts || conditions.held) {
      this.#connectSoon()
      return
    }
    const again = this.#subscriptions.size > 0
    this.#commands = this.#newLanes()
    this.#messages = this.#newLanes()
    this.#connected = true
    server.connected(this)
    for (const { channel, listener } of this.#subscriptions) server.subscribe(channel, listener)
    if (again) {
      for (const callback of this.#returns) gate.pass(callback)
      for (const { onGap } of this.#subscriptions) gate.pass(onGap)
    }
    gate.pass(() => {
      this.#away = false
    })
    for (const send of [...this.#waiting]) send()
  }

  #newLanes(): Lanes {
    const { random, conditions } = this.#options
    return {
      there: new Lane(this.#clock, random, conditions),
      back: new Lane(this.#clock, random, conditions),
    }
  }

  #gated<T>(work: () => Promise<T>, gate: Gate): Promise<T> {
    return new Promise((resolve, reject) => gate.pass(() => void work().then(resolve, reject)))
  }
}
