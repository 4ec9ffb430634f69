import { type Nodes, type NodeView, ownersOf } from '../../examples/backend/nodes.ts'
import type { Clock } from '../../shared/clock.ts'

interface NewsOptions {
  readonly nodes: Pick<Nodes, 'look'>
  readonly clock: Clock
  readonly tell: (line: string) => void
}

const LOOK_EVERY_MS = 150
/** Above this many rooms that move the same way together, they are counted instead of named. */
const MOST_NAMED = 3

/** Watches which node owns which room, and tells each change in a line. */
export class News {
  readonly #options: NewsOptions
  readonly #places = new Map<string, { readonly owner: string; readonly epoch: number }>()
  #fault: { readonly name: string; readonly at: number } | undefined
  #cancel = (): void => {}
  #stopped = false

  constructor(options: NewsOptions) {
    this.#options = options
  }

  /** Looks from now on, until `stop`. */
  async start(): Promise<void> {
    const { nodes, clock, tell } = this.#options
    const views = await nodes.look()
    if (this.#stopped) return
    for (const line of this.#changes(views)) tell(line)
    this.#cancel = clock.schedule(LOOK_EVERY_MS, () => void this.start())
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  /** A fault was made in the process `name`: the moves of its rooms are timed from now. */
  fault(name: string): void {
    this.#fault = { name, at: this.#options.clock.monotonic() }
  }

  #changes(views: readonly NodeView[]): string[] {
    /** Rooms by what happened to them. */
    const moves = new Map<string, string[]>()
    for (const [id, { owner, room }] of ownersOf(views)) {
      const before = this.#places.get(id)
      // A node that has lost a room may not know it yet.
      if (before && before.epoch >= room.epoch) continue
      this.#places.set(id, { owner, epoch: room.epoch })
      if (before?.owner === owner) continue
      const way = before
        ? `went from ${before.owner} to ${owner}${this.#since(before.owner)}`
        : `opened on ${owner}`
      moves.set(way, [...(moves.get(way) ?? []), `room ${room.room_id} ${way} (epoch ${room.epoch})`])
    }
    return [...moves].flatMap(([way, lines]) =>
      lines.length > MOST_NAMED ? [`${lines.length} rooms ${way}`] : lines,
    )
  }

  #since(name: string): string {
    if (this.#fault?.name !== name) return ''
    return `, ${((this.#options.clock.monotonic() - this.#fault.at) / 1000).toFixed(1)} s later`
  }
}
