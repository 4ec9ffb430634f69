import type { Fault, FaultKind, History, StoreRecord } from './history.ts'

/** How long after a fault's end its effects may still show: a lease that runs out, a store that is asked again, a client that backs off. */
const AFTERMATH_MS = 10_000

/** What may take a node's rooms away from it, or the node from its rooms. */
const CRASHES: readonly FaultKind[] = [
  'kill',
  'pause',
  'cut',
  'delay',
  'blackhole',
  'redis_kept',
  'redis_lost',
  'redis_pause',
  'stall',
]

/** A room that went to an owner, as the store has it. */
export interface Ownership {
  readonly claim: StoreRecord
  readonly previous: StoreRecord | undefined
  /** The owner before had given the room up itself. */
  readonly handed_over: boolean
  /** The store knew nothing of the room although it had had an owner. */
  readonly anew: boolean
}

/** Who owned which room, and what the drawn faults explain of it. */
export class Ownerships {
  readonly #faults: readonly Fault[]
  readonly #rooms = new Map<string, Ownership[]>()

  constructor({ store, faults, rooms }: Pick<History, 'store' | 'faults' | 'rooms'>) {
    this.#faults = faults
    for (const { room } of rooms) {
      const claims = store
        .filter((record) => record.kind === 'claim' && record.room === room && record.ok === true)
        .sort((a, b) => a.epoch - b.epoch)
      const released = new Set(
        store
          .filter((record) => record.kind === 'release' && record.room === room && record.ok !== false)
          .map(({ epoch }) => epoch),
      )
      const written = new Set(
        store
          .filter(
            ({ kind, room: of, ok }) =>
              (kind === 'commit' || kind === 'snapshot') && of === room && ok === true,
          )
          .map(({ epoch }) => epoch),
      )
      // Whether the store had something of the room's present life.
      let known = false
      const chain = claims.map((claim, i): Ownership => {
        const previous = claims[i - 1]
        known ||= previous !== undefined && written.has(previous.epoch)
        const anew = known && claim.version === 0
        if (anew) known = false
        return { claim, previous, handed_over: previous !== undefined && released.has(previous.epoch), anew }
      })
      this.#rooms.set(room, chain)
    }
  }

  of(room: string): readonly Ownership[] {
    return this.#rooms.get(room) ?? []
  }

  /** When a room was lost for good by nature: the store had lost its data, and the owner that could have written it anew had a fault of its own. */
  losses(room: string): Ownership[] {
    return this.of(room).filter((ownership) => ownership.anew && this.isLoss(ownership))
  }

  isLoss({ claim, previous }: Ownership): boolean {
    if (!previous || previous.node === claim.node) return false
    const wiped = this.#faults.find(
      ({ kind, at }) => kind === 'redis_lost' && at >= previous.began && at <= claim.ended,
    )
    if (!wiped) return false
    return this.#faults.some(
      ({ kind, node, at, until }) =>
        node === previous.node && kind !== 'clock' && at <= claim.ended && until + AFTERMATH_MS >= wiped.at,
    )
  }

  /** Whether what an owner had not saved may be gone between two moments: a take-over that a fault explains. `graceful`: a hand-over will do. */
  mayForget(room: string, between: { from: number; to: number }, graceful: boolean): boolean {
    return this.of(room).some((ownership) => {
      const { claim, previous, handed_over } = ownership
      if (!previous || claim.ended < between.from || claim.began > between.to) return false
      if (handed_over) return graceful
      return this.crashed(previous.node, claim.began)
    })
  }

  /** Whether a fault explains that `node` had lost its rooms by `at`. */
  crashed(node: string, at: number): boolean {
    return this.#faults.some(
      (fault) =>
        CRASHES.includes(fault.kind) &&
        (fault.node === undefined || fault.node === node) &&
        fault.at <= at &&
        fault.until + AFTERMATH_MS >= at,
    )
  }

  /** The fault of a kind that reaches into a stretch of time, aftermath included. */
  fault(kind: FaultKind, { from, to }: { from: number; to: number }, client?: string): Fault | undefined {
    return this.#faults.find(
      (fault) =>
        fault.kind === kind &&
        fault.at <= to &&
        fault.until + AFTERMATH_MS >= from &&
        (client === undefined || fault.clients === undefined || fault.clients.includes(client)),
    )
  }
}
