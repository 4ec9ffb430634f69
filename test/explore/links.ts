import { type Item, ordinary } from './explorer.ts'
import type { Pending, Process, SimTime } from './model-node.ts'

interface Link {
  readonly to: string
  readonly queue: Pending<(missed: boolean) => void>[]
  sent: number
  /** True if a message was lost since the last one that arrived. */
  missed: boolean
}

/** Messages between nodes and edges, in order on each link. */
export class Links {
  readonly #time: SimTime
  readonly #links = new Map<string, Link>()

  constructor(time: SimTime) {
    this.#time = time
  }

  /** All queued messages. */
  get pending(): Pending<unknown>[] {
    return [...this.#links.values()].flatMap(({ queue }) => queue)
  }

  /** Queues a message. `arrive` delivers it. Its argument is true if an earlier message was lost, which a real link sees from the number. */
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

  /** Drops all queued messages to `to`. */
  clear(to: string): void {
    for (const link of this.#links.values()) if (link.to === to) link.queue.length = 0
  }

  /** Returns the next message of each link whose receiver can receive now. */
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
