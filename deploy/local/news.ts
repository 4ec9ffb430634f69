import { type Nodes, type NodeView, ownersOf } from '../../examples/backend/nodes.ts'
import type { Clock } from '../../shared/clock.ts'

interface NewsOptions {
  readonly nodes: Pick<Nodes, 'look'>
  readonly clock: Clock
  readonly tell: (line: string) => void
}

const LOOK_EVERY_MS = 150
/** Above this many rooms that go the same way at once, they are counted instead of named. */
const MOST_NAMED = 3

interface Place {
  readonly owner: string
  readonly epoch: number
  readonly roomId: string
}

/** Watches who owns which room, and tells of every change in a line. */
export class News {
  readonly #options: NewsOptions
  readonly #places = new Map<string, Place>()
  #blow: { readonly name: string; readonly at: number } | undefined
  #cancel = (): void => {}
  #stopped = false

  constructor(options: NewsOptions) {
    this.#options = options
  }

  /** Looks from now on. */
  start(): void {
    void this.#look()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  /** Something was done to `name`: what its rooms do next is timed from now. */
  struck(name: string): void {
    this.#blow = { name, at: this.#options.clock.monotonic() }
  }

  async #look(): Promise<void> {
    const { nodes, clock, tell } = this.#options
    const views = await nodes.look()
    if (this.#stopped) return
    for (const line of this.#compare(views)) tell(line)
    this.#cancel = clock.schedule(LOOK_EVERY_MS, () => void this.#look())
  }

  #compare(views: readonly NodeView[]): string[] {
    const moves = new Map<string, { from: string | undefined; to: string; places: Place[] }>()
    for (const [id, { owner, room }] of ownersOf(views)) {
      const before = this.#places.get(id)
      if (before && before.epoch >= room.epoch) continue
      const place = { owner, epoch: room.epoch, roomId: room.room_id }
      this.#places.set(id, place)
      if (before?.owner === owner) continue
      const way = `${before?.owner} ${owner}`
      const move = moves.get(way) ?? { from: before?.owner, to: owner, places: [] }
      move.places.push(place)
      moves.set(way, move)
    }
    return [...moves.values()].flatMap(({ from, to, places }) => {
      const after = from === undefined ? '' : this.#since(from)
      const way = from === undefined ? `opened on ${to}` : `went from ${from} to ${to}`
      if (places.length > MOST_NAMED) return [`${places.length} rooms ${way}${after}`]
      return places.map(({ roomId, epoch }) => `room ${roomId} ${way}${after} (epoch ${epoch})`)
    })
  }

  #since(name: string): string {
    if (this.#blow?.name !== name) return ''
    return `, ${((this.#options.clock.monotonic() - this.#blow.at) / 1000).toFixed(1)} s later`
  }
}
