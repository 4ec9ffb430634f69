import { sleep } from '../../../shared/clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import type { Player } from '../../players/player.ts'
import type { Fault, FaultKind } from '../checker/history.ts'
import type { System } from './system.ts'

/** Kinds of faults that a run causes. Stalls are observed. */
type DrawnKind = Exclude<FaultKind, 'stall'>

/** A fault of a plan. Times are milliseconds from the start of the run. */
export interface PlannedFault {
  readonly kind: DrawnKind
  readonly atMs: number
  /** Duration. 0: the fault is a single event. */
  readonly forMs: number
  /** Slot of the affected node. */
  readonly node?: number
  /** Numbers of the affected clients. */
  readonly clients?: readonly number[]
  /** Latency, or jump of the clock. */
  readonly amountMs?: number
}

interface PlanOptions {
  readonly seed: number
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  readonly leaseMs: number
  /** True: the plan also kills control. */
  readonly control: boolean
}

/** Relative frequency of each kind. */
const WEIGHTS: Readonly<Record<DrawnKind, number>> = {
  kill: 4,
  pause: 3,
  cut: 2,
  delay: 3,
  blackhole: 3,
  clock: 2,
  drain: 3,
  redis_kept: 1,
  redis_lost: 1,
  redis_pause: 1,
  race: 3,
  client_cut: 3,
  control: 2,
}
/** Kinds that may disable a node. At any time at least one node has none of them. */
const DISABLING: readonly FaultKind[] = ['kill', 'pause', 'delay', 'blackhole', 'drain']
const OF_A_NODE: readonly FaultKind[] = [...DISABLING, 'cut', 'clock']
const OF_REDIS: readonly DrawnKind[] = ['redis_kept', 'redis_lost', 'redis_pause']
/** Time without faults at the start and at the end of a run. */
const FIRST_MS = 2000
const LAST_MS = 3000
/** A node counts as disabled for this time after the end of a fault. */
const RECOVERY_MS = 3000
/** Number of draws for one fault, until one fits to the earlier faults. */
const ATTEMPTS = 6
const HOUR_MS = 3_600_000

/** Draws the faults of a run. The same options give the same faults. */
export function planFaults(options: PlanOptions): PlannedFault[] {
  const random = new Draw(options.seed)
  const planned: PlannedFault[] = []
  const end = options.seconds * 1000 - LAST_MS
  for (let atMs = FIRST_MS + random.between(0, 500); atMs < end; atMs += random.between(300, 2500)) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const fault = drawFault(random, Math.round(atMs), options)
      if (atMs + fault.forMs > end || !fits(fault, planned, options.nodes)) continue
      planned.push(fault)
      break
    }
  }
  return planned
}

function drawFault(random: Draw, atMs: number, options: PlanOptions): PlannedFault {
  const { nodes, clients, leaseMs } = options
  const kind = random.weighted(options.control ? WEIGHTS : { ...WEIGHTS, control: 0 })
  const forMs = Math.round(durationOf(kind, random, leaseMs))
  const amountMs =
    kind === 'delay'
      ? random.between(50, 3000)
      : kind === 'clock'
        ? random.pick([HOUR_MS, -HOUR_MS])
        : undefined
  return {
    kind,
    atMs,
    forMs,
    ...(OF_A_NODE.includes(kind) && { node: random.index(nodes) }),
    ...(kind === 'race' && { clients: [random.index(clients)] }),
    ...(kind === 'client_cut' && { clients: random.some(clients, Math.ceil(clients / 4)) }),
    ...(amountMs !== undefined && { amountMs: Math.round(amountMs) }),
  }
}

function durationOf(kind: DrawnKind, random: Draw, leaseMs: number): number {
  switch (kind) {
    case 'pause':
      return random.between(1.2 * leaseMs, 3 * leaseMs)
    case 'delay':
    case 'blackhole':
      return random.between(0.5 * leaseMs, 4 * leaseMs)
    case 'kill':
    case 'control':
      return random.between(100, 2000)
    case 'redis_pause':
      return random.between(1000, 5000)
    case 'redis_kept':
    case 'redis_lost':
      return random.between(50, 1500)
    default:
      return 0
  }
}

/** True if a fault does not overlap another fault of Redis or of the same node, and leaves one node without faults. */
function fits(fault: PlannedFault, planned: readonly PlannedFault[], nodes: number): boolean {
  const meets = (other: PlannedFault) =>
    other.atMs <= fault.atMs + fault.forMs && fault.atMs <= other.atMs + other.forMs + RECOVERY_MS
  const near = planned.filter(meets)
  if (OF_REDIS.includes(fault.kind)) return !near.some(({ kind }) => OF_REDIS.includes(kind))
  if (!DISABLING.includes(fault.kind)) return true
  const out = new Set(near.filter(({ kind }) => DISABLING.includes(kind)).map(({ node }) => node))
  return !out.has(fault.node) && (nodes === 1 || out.size < nodes - 1)
}

/** Random choices from a seed. */
class Draw extends SeededRandom {
  constructor(seed: number) {
    // Neighbouring seeds would give similar first numbers: spread the seeds, and skip the first numbers.
    super(Math.imul(seed + 1, 0x9e3779b1))
    for (let i = 0; i < 8; i++) this.float()
  }

  between(low: number, high: number): number {
    return low + this.float() * (high - low)
  }

  index(length: number): number {
    return this.integer(0, length - 1)
  }

  some(length: number, atMost: number): number[] {
    return [...new Set(Array.from({ length: 1 + this.index(atMost) }, () => this.index(length)))]
  }

  weighted<K extends string>(weights: Readonly<Record<K, number>>): K {
    const entries = Object.entries(weights) as [K, number][]
    const sum = entries.reduce((total, [, weight]) => total + weight, 0)
    let left = this.float() * sum
    for (const [key, weight] of entries) {
      left -= weight
      if (left < 0) return key
    }
    return entries[0]![0]
  }
}

/** A node whose drain takes longer is killed. */
const DRAIN_WITHIN_MS = 12_000

/** Carries out a plan, and records the faults with their real times. */
export class Faults {
  readonly #system: System
  readonly #players: readonly Player[]
  readonly #done: Fault[]
  readonly #running = new Set<Promise<void>>()
  readonly #cancels: (() => void)[] = []
  readonly #errors: unknown[] = []
  readonly #isAlone: boolean

  /** Adds each fault to `done` when it begins. Until the fault is over, its end is infinity. */
  constructor(system: System, players: readonly Player[], done: Fault[]) {
    this.#system = system
    this.#players = players
    this.#done = done
    this.#isAlone = system.doors().length === 1
  }

  start(plan: readonly PlannedFault[]): void {
    for (const fault of plan)
      this.#cancels.push(
        this.#system.clock.schedule(fault.atMs, () => {
          const work = this.#do(fault).catch((error: unknown) => void this.#errors.push(error))
          this.#running.add(work)
          void work.then(() => this.#running.delete(work))
        }),
      )
  }

  /** Resolves when all faults are over and all nodes run. Rejects when a fault could not be started or ended. */
  async healed(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
    if (this.#errors.length > 0) throw this.#errors[0]
  }

  stop(): void {
    for (const cancel of this.#cancels) cancel()
  }

  async #do(planned: PlannedFault): Promise<void> {
    const { kind, node: slot = 0, forMs, amountMs = 0 } = planned
    const node = this.#system.node(slot)
    const link = this.#system.link(slot)
    const { store, clock } = this.#system
    const pause = (ms: number) => sleep(clock, ms)
    // An earlier fault may have taken longer than planned: the node is still down.
    if (planned.node !== undefined && !node) return
    if (node && DISABLING.includes(kind) && !this.#isSpared(node.node)) return
    // Control may still be down.
    if (
      kind === 'control' &&
      this.#done.some((fault) => fault.kind === kind && fault.until > clock.monotonic())
    )
      return
    const over = this.#record(planned, node?.node)
    switch (kind) {
      case 'kill':
        await node?.kill()
        await pause(forMs)
        await this.#system.startNode(slot)
        break
      case 'drain':
        await node?.endWithin(DRAIN_WITHIN_MS)
        await this.#system.startNode(slot)
        break
      case 'pause':
        node?.pause()
        await pause(forMs)
        node?.resume()
        break
      case 'cut':
        link.cut()
        break
      case 'delay':
        link.delay(amountMs)
        await pause(forMs)
        link.delay(0)
        break
      case 'blackhole':
        link.hold(true)
        await pause(forMs)
        link.hold(false)
        break
      case 'clock':
        node?.jump(amountMs)
        break
      case 'redis_kept':
      case 'redis_lost':
        await store.stop(kind === 'redis_kept')
        await pause(forMs)
        await store.start()
        break
      case 'redis_pause':
        await store.pause()
        await pause(forMs)
        await store.resume()
        break
      case 'control':
        await this.#system.control?.kill()
        await pause(forMs)
        await this.#system.control?.start()
        break
      case 'race':
        for (const player of this.#chosen(planned)) player.race()
        break
      case 'client_cut':
        for (const player of this.#chosen(planned)) player.cut()
    }
    over()
  }

  /** True if no fault disables this node, and another node runs. Faults may last longer than planned on a slow machine. */
  #isSpared(node: string): boolean {
    const isOut = (which: string, forMs = 0) =>
      this.#done.some(
        (fault) =>
          fault.node === which &&
          DISABLING.includes(fault.kind) &&
          fault.until + forMs > this.#system.clock.monotonic(),
      )
    const others = this.#system.doors().filter((door) => door.node !== node)
    return !isOut(node) && (this.#isAlone || others.some((door) => !isOut(door.node, RECOVERY_MS)))
  }

  #chosen({ clients = [] }: PlannedFault): Player[] {
    return clients.flatMap((i) => this.#players[i] ?? [])
  }

  /** Records the begin of a fault. The returned function records its end. */
  #record(planned: PlannedFault, node: string | undefined): () => void {
    const { kind, amountMs } = planned
    const clients = this.#chosen(planned).map(({ name }) => name)
    const fault = {
      kind,
      ...(planned.node !== undefined && node !== undefined && { node }),
      ...(clients.length > 0 && { clients }),
      ...(amountMs !== undefined && { amount: `${amountMs} ms` }),
      at: this.#system.clock.monotonic(),
      until: Number.POSITIVE_INFINITY,
    }
    this.#done.push(fault)
    return () => {
      fault.until = this.#system.clock.monotonic()
    }
  }
}
