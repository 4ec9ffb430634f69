import { type Item, ordinary } from './choice.ts'
import type { Pending, Process } from './process.ts'
import type { SimTime } from './sim-clock.ts'

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
