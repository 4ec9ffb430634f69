import type { Clock } from '../../shared/clock.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type {
  Bus,
  Claim,
  LeaseRenewal,
  Listings,
  Notices,
  Records,
  RoomOwner,
  RoomRecords,
  Store,
  Wakeups,
} from '../../shared/store/port.ts'
import { hash, type Item, ordinary, textOf } from './explorer.ts'
import type { Pending, Process } from './model-node.ts'

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
   * The store as one process reaches it. `reaches`: whether it has a connection. Locks are always free: they are for efficiency only, and what must hold has to hold without
   * them. Nothing is ever published; `listeners` says who listens.
   */
  port(
    process: string,
    reaches: () => boolean,
    onReturn: Store['onReturn'],
    listeners: Bus['listeners'],
  ): Store {
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
        open: (room, opening, mayClaim) => {
          const [raw, may] = [this.#raw, mayClaim()]
          // One that reaches a store without its data has waited for a connection, and is sent by it.
          const maySend = () => (raw === this.#raw ? may : reaches() && mayClaim())
          return this.#ask(process, 'rooms.open', [room, opening], () =>
            this.#raw.rooms.open(room, opening, maySend),
          ) as Promise<Claim | RoomOwner | undefined>
        },
      },
      notices: group<Notices>('notices', (raw) => raw.notices, [
        'announce',
        'take',
        'putOff',
        'done',
        'oldest',
        'count',
        'remove',
        'rooms',
      ]),
      wakeups: group<Wakeups>('wakeups', (raw) => raw.wakeups, ['set', 'take']),
      listings: group<Listings>('listings', (raw) => raw.listings, ['write', 'changes']),
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
          const isRead = name === 'rooms.open' && !('fence' in ((result ?? {}) as object))
          if (writes && !isRead && result !== false && result !== undefined) this.#changed(name, args)
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

/** The one time of a simulated world. */
export interface SimTime {
  /** Milliseconds since its beginning; only the world moves it. */
  ms: number
  /** How many things were set on their way so far: of two, the one with the lower number was earlier. */
  order: number
}

interface Timer {
  readonly due: number
  readonly order: number
  readonly run: () => void
}

const START = Date.parse('2026-01-01T00:00:00.000Z')

/** One process' clock: runs with the world's time, but its timers run only when the world says so. */
export class SimClock implements Clock {
  readonly #time: SimTime
  readonly #aheadMs: number
  readonly #timers: Timer[] = []
  #order = 0

  /** `ahead_ms`: how far both clocks of this process are ahead of the world's time. */
  constructor(time: SimTime, aheadMs = 0) {
    this.#time = time
    this.#aheadMs = aheadMs
  }

  now(): number {
    return START + this.monotonic()
  }

  monotonic(): number {
    return this.#time.ms + this.#aheadMs
  }

  schedule(delayMs: number, callback: () => void): () => void {
    const timer = { due: this.#time.ms + Math.max(0, delayMs), order: this.#order++, run: callback }
    this.#timers.push(timer)
    return () => {
      const at = this.#timers.indexOf(timer)
      if (at >= 0) this.#timers.splice(at, 1)
    }
  }

  /** When the next timer is due, in the world's time. */
  get due(): number | undefined {
    return this.#next()?.due
  }

  /** Which of all timers ever set is the next. */
  get next(): number | undefined {
    return this.#next()?.order
  }

  /** Runs the next timer. */
  fire(): void {
    const timer = this.#next()
    if (!timer) return
    this.#timers.splice(this.#timers.indexOf(timer), 1)
    timer.run()
  }

  #next(): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers)
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    return next
  }
}

interface Link {
  readonly to: string
  readonly queue: Pending<(missed: boolean) => void>[]
  sent: number
  /** Something was lost since the last that arrived. */
  missed: boolean
}

/** Messages on their way between nodes and edges: in order on each link, as long as they are not lost. */
export class Links {
  readonly #time: SimTime
  readonly #links = new Map<string, Link>()

  constructor(time: SimTime) {
    this.#time = time
  }

  /** Everything under way. */
  get pending(): Pending<unknown>[] {
    return [...this.#links.values()].flatMap(({ queue }) => queue)
  }

  /** `text` says what it is, for people; `arrive` hands it over, and tells whether something before it was lost, as its number would. */
  send(from: string, to: string, text: string, arrive: (missed: boolean) => void): void {
    const name = `${from} → ${to}`
    const link = this.#links.get(name) ?? { to, queue: [], sent: 0, missed: false }
    this.#links.set(name, link)
    link.queue.push({
      order: this.#time.order++,
      id: `${name}: ${text} (${++link.sent})`,
      value: arrive,
    })
  }

  /** What is under way to `to` will never arrive. */
  clear(to: string): void {
    for (const link of this.#links.values()) if (link.to === to) link.queue.length = 0
  }

  /** The next message of each link whose receiver reads it now. */
  next(receiver: (to: string) => { readonly process?: Process } | undefined, drop: boolean): Item[] {
    const items: Item[] = []
    for (const link of this.#links.values()) {
      const { to, queue } = link
      const [head] = queue
      const reader = head && receiver(to)
      if (!head || !reader) continue
      const arrive = () => {
        const { missed } = link
        link.missed = false
        queue.shift()
        head.value(missed)
      }
      const lose = () => {
        link.missed = true
        queue.shift()
      }
      const lost = { label: `${head.id} is lost`, cost: 1, take: lose }
      items.push({
        ...ordinary(head.id, head.order, reader.process, arrive),
        ...(reader.process ? {} : { about: 'edges' as const }),
        instead: drop ? [lost] : [],
      })
    }
    return items
  }
}
