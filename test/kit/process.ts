import { type EventEmitter, once } from 'node:events'
import { type Duplex, duplexPair } from 'node:stream'
import { pino } from 'pino'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import type { AdminOptions } from '../../dataplane/ops/admin.ts'
import type { InternalCallsSource } from '../../dataplane/ops/internal.ts'
import type { RoomCode } from '../../dataplane/room/room-code.ts'
import type { Clock } from '../../shared/clock.ts'
import type { Store } from '../../shared/store/port.ts'
import type { TestTime } from './fake-clock.ts'
import type { RoomDate } from './room-date.ts'

/** A running node without ports. */
export interface NodeInProcess extends RunningNode {
  /** Accepts a connection of a client. */
  readonly accept: (socket: Duplex) => void
  /** Functions that answer the requests of operators and of control. */
  readonly admin: AdminOptions
}

/** `loadClock` of a node that shares its process with tests or other nodes: the load of the process is not its own. */
export const NO_LOAD: Clock = { now: () => 0, monotonic: () => 0, schedule: () => () => undefined }

/** Starts a node without ports, for simulated time. By default it writes no logs. The node `a` has the host name `a.test`. */
export async function startInProcess(
  options: Omit<NodeOptions, 'loadClock' | 'listen'> & { readonly nodeId: string },
): Promise<NodeInProcess> {
  let accept: NodeInProcess['accept'] | undefined
  let admin: AdminOptions | undefined
  const running = await startNode({
    log: pino({ level: 'silent' }),
    ...options,
    loadClock: NO_LOAD,
    listen: async (gateway, source) => {
      accept = gateway.listenInProcess()
      admin = source
      const host = `${options.nodeId}.test`
      return { wsUrl: `ws://${host}`, adminUrl: `http://${host}`, close: async () => undefined }
    },
  })
  return { ...running, accept: accept!, admin: admin! }
}

/** Options of a test's node. */
export interface ProcessOptions
  extends Required<Pick<NodeOptions, 'rooms' | 'random' | 'askKeyStatus' | 'postNotice'>>,
    Pick<NodeOptions, 'log'> {
  readonly nodeId: string
  readonly time: TestTime
  readonly date: RoomDate
  /** Shared by all nodes. */
  readonly store: Store
  /** Receives ended processes. Shared by all nodes. */
  readonly ends: EventEmitter
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
  /** By the node's end of a connection, the client's end. */
  readonly #sockets = new Map<Duplex, Duplex>()
  readonly #subscriptions: Promise<() => Promise<void>>[] = []
  #node: NodeInProcess | undefined
  #alive = true
  #clockAhead = 0
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
    const { store, time, date, ends: _, ...node } = options
    const process = new TestProcess(options)
    const clock = process.#clock(time.clock)
    process.#node = await startInProcess({
      ...node,
      clock,
      turns: date.observer(clock),
      store: process.#reach(store),
      nodeLeaseMs: LEASE_MS,
      revealFailures: true,
    })
    return process
  }

  get alive(): boolean {
    return this.#alive
  }

  /** The turn that has started the running code, of any node. */
  get turn(): RoomCode['current'] {
    return this.#node?.roomCode.current
  }

  /** Returns the client's end of a new connection. */
  connect(): Duplex {
    const [near, far] = duplexPair()
    this.#sockets.set(far, near)
    // Closing one side closes the other.
    near.once('close', () => far.destroy())
    far.once('close', () => {
      this.#sockets.delete(far)
      near.destroy()
    })
    this.#time.happened()
    this.#node!.accept(far)
    return near
  }

  /** Sends a request to a room, as control does. */
  request(
    ...request: Parameters<InternalCallsSource['requestRoom']>
  ): ReturnType<InternalCallsSource['requestRoom']> {
    return this.#node!.admin.requestRoom(...request)
  }

  /** Describes a room of this node, as for operators. */
  describe(roomId: string): RoomDescription | undefined {
    const { items } = this.#node!.admin.describeRooms({ room_id: roomId, include_state: true })
    return [...items][0]
  }

  /** Moves the wall clock by `ms`. The monotonic clock does not move. */
  jumpClock(ms: number): void {
    this.#clockAhead += ms
  }

  /** Hands off the rooms, moves the clients, and ends, as after SIGTERM. */
  async drain(): Promise<void> {
    await this.#node!.close()
    this.kill()
  }

  /** Ends as after `kill -9`. */
  kill(): void {
    this.#alive = false
    this.#killed()
    for (const [far, near] of this.#sockets) {
      // The node must not notice the end of its connections.
      far.removeAllListeners()
      far.on('error', () => undefined)
      far.destroy()
      near.destroy()
    }
    const ended = this.#subscriptions.map(async (subscription) => (await subscription)())
    void Promise.all(ended).then(() => this.#ends.emit('end'))
  }

  #clock(clock: Clock): Clock {
    return {
      now: () => clock.now() + this.#clockAhead,
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
