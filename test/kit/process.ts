import { type EventEmitter, once } from 'node:events'
import { type Duplex, duplexPair } from 'node:stream'
import { pino } from 'pino'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { type NodeOptions, startNode } from '../../dataplane/node.ts'
import type { InternalCallsSource } from '../../dataplane/ops/internal.ts'
import type { Clock } from '../../shared/clock.ts'
import type { Store } from '../../shared/store/port.ts'
import type { TestTime } from './time.ts'

/** Options of a test's node. */
export interface ProcessOptions
  extends Required<Pick<NodeOptions, 'rooms' | 'random' | 'askKeyStatus' | 'postNotice'>> {
  readonly nodeId: string
  readonly time: TestTime
  /** Shared by all nodes. */
  readonly store: Store
  /** Receives ended processes. Shared by all nodes. */
  readonly ends: EventEmitter
  readonly log?: NodeOptions['log']
}

/** Nodes renew their leases and read those of others four times per lease. With the default of 2 s, that would dominate a simulated day. */
const LEASE_MS = 120_000

/**
 * A node that behaves as a separate process. After a kill none of its timers runs, none of its store requests takes effect, and its sockets
 * are closed.
 */
export class TestProcess {
  readonly nodeId: string
  readonly #time: TestTime
  readonly #ends: EventEmitter
  readonly #sockets = new Set<Duplex>()
  readonly #subscriptions: Promise<() => Promise<void>>[] = []
  #accept: (socket: Duplex) => void = () => {}
  #describe: (roomId: string) => RoomDescription | undefined = () => undefined
  #request: InternalCallsSource['requestRoom'] | undefined
  #drain: () => Promise<void> = async () => undefined
  #alive = true
  #killed: () => void = () => undefined
  /** Resolves when the process has ended. */
  readonly ended = new Promise<void>((resolve) => {
    this.#killed = resolve
  })

  private constructor({ nodeId, time, ends }: ProcessOptions) {
    this.nodeId = nodeId
    this.#time = time
    this.#ends = ends
  }

  /** Starts a node. Resolves when it accepts clients. */
  static async start(options: ProcessOptions): Promise<TestProcess> {
    const { log = pino({ level: 'silent' }), store, time, ends: _, ...node } = options
    const process = new TestProcess(options)
    const running = await startNode({
      ...node,
      log,
      clock: process.#clock(time.clock),
      store: process.#reach(store),
      nodeLeaseMs: LEASE_MS,
      revealFailures: true,
      // Load is never measured: all nodes share the test's process, and the clock is simulated.
      loadClock: { now: () => 0, monotonic: () => 0, schedule: () => () => undefined },
      listen: async (gateway, admin) => {
        process.#accept = gateway.listenInProcess()
        process.#request = admin.requestRoom
        process.#describe = (roomId) => {
          const { items } = admin.describeRooms({
            room_id: roomId,
            include_state: true,
          })
          return [...items][0]
        }
        return { wsUrl: 'ws://node.test', adminUrl: 'http://node.test', close: async () => undefined }
      },
    })
    process.#drain = () => running.close()
    return process
  }

  get alive(): boolean {
    return this.#alive
  }

  /** Returns the client's end of a new connection. */
  connect(): Duplex {
    const [near, far] = duplexPair()
    this.#sockets.add(far)
    // Closing one side closes the other.
    near.once('close', () => far.destroy())
    far.once('close', () => {
      this.#sockets.delete(far)
      near.destroy()
    })
    this.#time.happened()
    this.#accept(far)
    return near
  }

  /** Sends a request to a room, as control does. */
  request(
    ...request: Parameters<InternalCallsSource['requestRoom']>
  ): ReturnType<InternalCallsSource['requestRoom']> {
    return this.#request!(...request)
  }

  /** Describes a room of this node, as for operators. */
  describe(roomId: string): RoomDescription | undefined {
    return this.#describe(roomId)
  }

  /** Hands off the rooms, moves the clients, and ends, as after SIGTERM. */
  async drain(): Promise<void> {
    await this.#drain()
    this.kill()
  }

  /** Ends as after `kill -9`. */
  kill(): void {
    this.#alive = false
    this.#killed()
    for (const socket of this.#sockets) socket.destroy()
    const ended = this.#subscriptions.map(async (subscription) => (await subscription)())
    void Promise.all(ended).then(() => this.#ends.emit('end'))
  }

  #clock(clock: Clock): Clock {
    return {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      schedule: (delayMs, callback) => clock.schedule(delayMs, () => this.#alive && callback()),
    }
  }

  /** Wraps `target` and its properties so that calls have no effect after the kill. */
  #reach<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (_, name) => {
        const value: unknown = Reflect.get(target, name, target)
        if (typeof value === 'object' && value !== null) return this.#reach(value)
        if (typeof value !== 'function') return value
        return (...args: unknown[]): unknown => {
          if (!this.#alive) return new Promise(() => undefined)
          if (name === 'listeners') return this.#silence(() => Reflect.apply(value, target, args))
          this.#time.happened()
          const result: unknown = Reflect.apply(value, target, args)
          if (name === 'subscribe') this.#subscriptions.push(result as Promise<() => Promise<void>>)
          return result
        }
      },
    })
  }

  /** Nodes count the subscribers ten times a second to detect dead nodes. The answer is delayed until a node has ended. */
  async #silence(count: () => Promise<readonly number[] | undefined>) {
    for (;;) {
      const counts = await count()
      if (!counts?.every((listeners) => listeners > 0)) return counts
      await once(this.#ends, 'end')
    }
  }
}
