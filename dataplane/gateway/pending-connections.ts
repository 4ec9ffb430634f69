import type { GatewayMetrics } from './metrics.ts'

/** How many sockets may be without a session at once; 0: as many as come. */
export interface PendingBounds {
  readonly maxPendingConnections: number
  readonly maxPendingConnectionsPerAddress: number
}

/** The sockets of the node, or of one address, that have no session. */
interface Group {
  count: number
  /** Those that have not said hello, the oldest first. */
  readonly silent: Set<PendingConnection>
}

const newGroup = (): Group => ({ count: 0, silent: new Set() })

/**
 * The sockets that have no session yet, from the accepted TCP connection on. At a bound, the one that has been silent for longest is
 * ended to make room: a flood of sockets that say nothing takes no place from a client that says hello at once. When all have said
 * hello, the newcomer is refused.
 */
export class PendingConnections {
  readonly #bounds: PendingBounds
  readonly #metrics: GatewayMetrics
  readonly #all = newGroup()
  readonly #byAddress = new Map<string, Group>()

  constructor(bounds: PendingBounds, metrics: GatewayMetrics) {
    this.#bounds = bounds
    this.#metrics = metrics
  }

  /** How many there are. */
  get size(): number {
    return this.#all.count
  }

  /** Takes a socket in; `end` is called if it has to make room. Undefined: there is none for it. */
  add(end: () => void): PendingConnection | undefined {
    if (!this.#makeRoom(this.#all, this.#bounds.maxPendingConnections, 'pending')) return undefined
    const pending = new PendingConnection(end, (group) => this.#emptied(group))
    pending.join(this.#all)
    return pending
  }

  /** Says which address a socket is from, once. False: there is no room for another one from there. */
  locate(pending: PendingConnection, address: string): boolean {
    const group = this.#byAddress.get(address) ?? newGroup()
    if (!this.#makeRoom(group, this.#bounds.maxPendingConnectionsPerAddress, 'address')) return false
    this.#byAddress.set(address, group)
    pending.join(group, address)
    return true
  }

  #makeRoom({ count, silent }: Group, most: number, reason: 'pending' | 'address'): boolean {
    if (most === 0 || count < most) return true
    this.#metrics.connectionsDropped.inc({ reason })
    const [oldest] = silent
    oldest?.giveWay()
    return oldest !== undefined
  }

  #emptied(address: string): void {
    this.#byAddress.delete(address)
  }
}

/** One socket that has no session yet. */
export class PendingConnection {
  readonly #end: () => void
  readonly #emptied: (address: string) => void
  readonly #groups: { readonly group: Group; readonly address: string | undefined }[] = []

  constructor(end: () => void, emptied: (address: string) => void) {
    this.#end = end
    this.#emptied = emptied
  }

  /** It is one of these from now on. */
  join(group: Group, address?: string): void {
    group.count += 1
    group.silent.add(this)
    this.#groups.push({ group, address })
  }

  /** The client has said hello: the socket does not have to make room any more. */
  greeted(): void {
    for (const { group } of this.#groups) group.silent.delete(this)
  }

  /** The socket has a session, or is gone. May be called again. */
  done(): void {
    this.greeted()
    for (const { group, address } of this.#groups.splice(0)) {
      group.count -= 1
      if (address !== undefined && group.count === 0) this.#emptied(address)
    }
  }

  giveWay(): void {
    this.done()
    this.#end()
  }
}
