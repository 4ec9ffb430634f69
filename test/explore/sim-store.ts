import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Bus, LeaseRenewal, Records, RoomRecords, Store } from '../../shared/store/port.ts'
import { hash, textOf } from './digest.ts'
import type { SimClock } from './sim-clock.ts'

/** One call of the store on its way there: takes place, and is answered, when the world says so. */
export interface Operation {
  /** Which process asked. */
  readonly process: string
  /** Such as `rooms.commit`. */
  readonly name: string
  readonly args: readonly unknown[]
  /** Whether it may change what the store holds. */
  readonly writes: boolean
  /** World time at which it was asked for. */
  readonly sentAt: number
  /** Does it; resolves with what the store answers. */
  readonly perform: () => Promise<unknown>
  readonly answer: (value: unknown) => void
  readonly fail: (error: Error) => void
}

type Call = (...args: never[]) => Promise<unknown>

const READS = new Set(['rooms.inspect', 'records.read'])

/**
 * The real memory adapter behind a network: every call of a process that looks at or changes a room or a lease becomes an `Operation`.
 * Others (who is listed, how many rooms there are, how old the store is) are answered at once.
 */
export class SimStore {
  readonly #clock: SimClock
  readonly #onOperation: (operation: Operation) => void
  readonly #now: () => number
  /** What each key has seen, as one hash: equal when the key was changed by the same calls in the same order. */
  readonly #histories = new Map<string, string>()
  #raw: Store
  /** Since when it holds what it holds, in the world's time. */
  #began = Number.NEGATIVE_INFINITY

  constructor(clock: SimClock, now: () => number, onOperation: (operation: Operation) => void) {
    this.#clock = clock
    this.#now = now
    this.#onOperation = onOperation
    this.#raw = memoryStore({ clock })
  }

  /** The store itself, without the network. */
  get raw(): Store {
    return this.#raw
  }

  /** It comes back empty. */
  wipe(): void {
    this.#raw = memoryStore({ clock: this.#clock })
    this.#began = this.#now()
    this.#histories.clear()
  }

  /** What the store holds, as a text that is equal for equal contents. */
  get digest(): string {
    return [['', this.#began], ...this.#histories]
      .map(([key, history]) => `${key}=${history}`)
      .sort()
      .join()
  }

  /**
   * The store as one process reaches it. Locks are always free: they are for efficiency only, and what must hold has to hold without
   * them. Nothing is ever published; `listeners` says who listens.
   */
  port(process: string, onReturn: Store['onReturn'], listeners: Bus['listeners']): Store {
    const call =
      (name: string, target: (raw: Store) => Call) =>
      (...args: unknown[]): Promise<unknown> =>
        this.#ask(process, name, args, () => target(this.#raw)(...(args as never[])))
    const group = <T>(name: string, pick: (raw: Store) => T, methods: readonly (keyof T & string)[]): T =>
      Object.fromEntries(
        methods.map((method) => [
          method,
          call(`${name}.${method}`, (raw) => {
            const part = pick(raw)
            return (part[method] as Call).bind(part)
          }),
        ]),
      ) as T
    return {
      kind: 'memory',
      records: {
        ...group<Records>('records', (raw) => raw.records, ['read', 'write', 'renewLease']),
        page: async (...asked) => this.#raw.records.page(...asked),
      },
      rooms: {
        ...group<RoomRecords>('rooms', (raw) => raw.rooms, [
          'inspect',
          'claim',
          'recall',
          'noteStuck',
          'commit',
          'snapshot',
          'release',
          'refresh',
          'quarantine',
        ]),
        reserve: async (...asked) => this.#raw.rooms.reserve(...asked),
      },
      bus: { publish: async () => 0, subscribe: async () => async () => undefined, listeners },
      locks: { withLock: (_name, _options, work) => work() },
      vitals: this.#raw.vitals,
      time: async () => this.#raw.time(),
      uptime: async () => this.#now() - this.#began,
      ping: async () => this.#raw.ping(),
      onReturn,
      close: async () => undefined,
    }
  }

  #ask(
    process: string,
    name: string,
    args: readonly unknown[],
    perform: () => Promise<unknown>,
  ): Promise<unknown> {
    const writes = !READS.has(name)
    return new Promise((answer, fail) => {
      this.#onOperation({
        process,
        name,
        args,
        writes,
        sentAt: this.#now(),
        perform: async () => {
          const result = await perform()
          if (writes && result !== false && result !== undefined) this.#changed(name, args)
          return result
        },
        answer,
        fail,
      })
    })
  }

  #changed(name: string, args: readonly unknown[]): void {
    const key =
      name === 'records.write'
        ? textOf((args[0] as object[]).map(keyOf))
        : name === 'records.renewLease'
          ? (args[0] as LeaseRenewal).key
          : `${args[0]}`
    const before = this.#histories.get(key) ?? ''
    this.#histories.set(key, hash(`${before}${name}${textOf(args)}@${this.#now()}`))
  }
}

const keyOf = (write: object): unknown =>
  'put' in write ? write.put : 'remove' in write ? write.remove : 'index' in write ? write.index : undefined
