import { SeededRandom } from '../../kit/seeded-random.ts'
import type { FaultKind } from '../checker/history.ts'

/** The kinds that are drawn. */
type DrawnKind = Exclude<FaultKind, 'stall'>

/** What will be done to the system, in milliseconds from the start of the run. */
export interface PlannedFault {
  readonly kind: DrawnKind
  readonly at_ms: number
  /** How long it lasts. */
  readonly for_ms: number
  /** Which node, by its number; of faults of one node. */
  readonly node?: number
  /** Which clients, by their numbers. */
  readonly clients?: readonly number[]
  /** Milliseconds of a delay or of a jump of the clock. */
  readonly amount_ms?: number
}

interface PlanOptions {
  readonly seed: number
  readonly seconds: number
  readonly nodes: number
  readonly clients: number
  readonly lease_ms: number
  /** Whether control is killed. */
  readonly control: boolean
}

/** How often each kind is drawn, relative to the others. */
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
/** Kinds that take a node out, or may: one node at least is spared at any time. */
export const DISABLING: readonly FaultKind[] = ['kill', 'pause', 'delay', 'blackhole', 'drain']
const OF_A_NODE: readonly FaultKind[] = [...DISABLING, 'cut', 'clock']
const OF_REDIS: readonly DrawnKind[] = ['redis_kept', 'redis_lost', 'redis_pause']
/** Nothing begins before clients are in their rooms, or too late to be over in time. */
const FIRST_MS = 2000
const LAST_MS = 3000
/** How long a node counts as out after a fault has ended. */
export const RECOVERY_MS = 3000
/** How often another fault is drawn when one does not fit to those before it. */
const ATTEMPTS = 6
const HOUR_MS = 3_600_000

/** Draws the faults of a run; the same options give the same faults. */
export function planFaults(options: PlanOptions): PlannedFault[] {
  const random = new Draw(options.seed)
  const planned: PlannedFault[] = []
  const end = options.seconds * 1000 - LAST_MS
  for (let atMs = FIRST_MS + random.between(0, 500); atMs < end; atMs += random.between(300, 2500)) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const fault = drawFault(random, Math.round(atMs), options)
      if (atMs + fault.for_ms > end || !fits(fault, planned, options.nodes)) continue
      planned.push(fault)
      break
    }
  }
  return planned
}

function drawFault(random: Draw, atMs: number, options: PlanOptions): PlannedFault {
  const { nodes, clients, lease_ms: leaseMs } = options
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
    at_ms: atMs,
    for_ms: forMs,
    ...(OF_A_NODE.includes(kind) && { node: random.index(nodes) }),
    ...(kind === 'race' && { clients: [random.index(clients)] }),
    ...(kind === 'client_cut' && { clients: random.some(clients, Math.ceil(clients / 4)) }),
    ...(amountMs !== undefined && { amount_ms: Math.round(amountMs) }),
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

/** Redis has one fault at a time, a node too, and one node at least has none. */
function fits(fault: PlannedFault, planned: readonly PlannedFault[], nodes: number): boolean {
  const meets = (other: PlannedFault) =>
    other.at_ms <= fault.at_ms + fault.for_ms && fault.at_ms <= other.at_ms + other.for_ms + RECOVERY_MS
  const near = planned.filter(meets)
  if (OF_REDIS.includes(fault.kind)) return !near.some(({ kind }) => OF_REDIS.includes(kind))
  if (!DISABLING.includes(fault.kind)) return true
  const out = new Set(near.filter(({ kind }) => DISABLING.includes(kind)).map(({ node }) => node))
  return !out.has(fault.node) && (nodes === 1 || out.size < nodes - 1)
}

/** Draws from a seed. */
class Draw extends SeededRandom {
  constructor(seed: number) {
    // Small seeds lie close together: spread them, and let the generator run in.
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
