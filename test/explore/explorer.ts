import type { Violation } from './ledger.ts'
import type { Process } from './model-node.ts'

/** What can be explored: a world that is made again for every run, and goes the same way when the same is chosen. */
export interface Explorable {
  /** What may happen next; the first is the ordinary. */
  choices(): readonly Choice[]
  /** Whether what is chosen here counts as a state of its own. */
  readonly explored: boolean
  readonly over: boolean
  /** Equal for worlds from which the same can follow. */
  readonly digest: string
  /** What must never happen, and did. */
  readonly violations: readonly Violation[]
  /** Looks at what is left at the end; may find violations. */
  finish(): Promise<void>
}

/** How far to go. */
export interface Bounds {
  /** How many deviations from the ordinary a run may have. */
  readonly deviations: number
  /** Stops after this long, unfinished. */
  readonly maxMs?: number
  readonly onProgress?: (report: Report) => void
}

/** What was explored. */
export interface Report {
  executions: number
  steps: number
  /** Distinct states met on the way. */
  states: number
  /** Distinct states in which runs ended. */
  ends: number
  ms: number
  /** Whether everything within the bounds was seen. */
  complete: boolean
  /** The first violation met, with what was chosen. */
  fault?: Finding
}

/** A run in which something happened that must not. */
export interface Finding {
  readonly violations: readonly Violation[]
  /** Everything that happened, deviations marked. */
  readonly trace: readonly string[]
  /** To run it again: at which steps which choice was made. */
  readonly choices: readonly Deviation[]
}

export interface Deviation {
  readonly step: number
  readonly choice: number
}

/** A run that is yet to be made: the ordinary one but for these. */
interface Branch {
  readonly choices: readonly Deviation[]
  readonly left: number
}

const MAX_STEPS = 5000
const PROGRESS_MS = 1000

/**
 * Runs a world in every way that has at most so many deviations from the ordinary, each time from its beginning (stateless model
 * checking with a bound, as CHESS does for threads: Musuvathi and Qadeer, "Iterative context bounding", 2007). A state that was met
 * before with as many deviations left is not gone through again. Ends at the first violation.
 */
export async function explore(create: () => Explorable, bounds: Bounds): Promise<Report> {
  const began = performance.now()
  const met = new Map<string, number>()
  const ends = new Set<string>()
  const report: Report = { executions: 0, steps: 0, states: 0, ends: 0, ms: 0, complete: false }
  const branches: Branch[] = [{ choices: [], left: bounds.deviations }]
  let toldAt = began
  for (let branch = branches.pop(); branch; branch = branches.pop()) {
    const failed = await run(create(), branch, met, ends, branches, report)
    report.executions++
    report.states = met.size
    report.ends = ends.size
    const now = performance.now()
    report.ms = now - began
    if (failed) {
      report.fault = await replay(create, branch.choices)
      return report
    }
    if (bounds.maxMs !== undefined && report.ms > bounds.maxMs) return report
    if (now - toldAt > PROGRESS_MS) {
      toldAt = now
      bounds.onProgress?.(report)
    }
  }
  report.complete = true
  return report
}

/** Makes one run again and tells what happened in it. */
export async function replay(create: () => Explorable, choices: readonly Deviation[]): Promise<Finding> {
  const trace: string[] = []
  const world = create()
  await walk(world, choices, (choice, picked) => {
    trace.push(picked > 0 ? `! ${choice.label}` : `  ${choice.label}`)
    return true
  })
  return { violations: world.violations, trace, choices }
}

async function run(
  world: Explorable,
  branch: Branch,
  met: Map<string, number>,
  ends: Set<string>,
  branches: Branch[],
  report: Report,
): Promise<boolean> {
  const { choices, left } = branch
  const known = choices.at(-1)?.step ?? -1
  const wentOn = await walk(world, choices, (_, __, open, step) => {
    report.steps++
    if (step <= known || !world.explored) return true
    const key = hash(world.digest)
    if ((met.get(key) ?? -1) >= left) return false
    met.set(key, left)
    for (let other = open.length - 1; other > 0; other--) {
      const { cost } = open[other]!
      if (cost <= left) branches.push({ choices: [...choices, { step, choice: other }], left: left - cost })
    }
    return true
  })
  if (wentOn) ends.add(hash(world.digest))
  return world.violations.length > 0
}

type Visit = (choice: Choice, picked: number, open: readonly Choice[], step: number) => boolean

/** Takes the ordinary way but for `choices`, until the end (true), a violation, or when `visit` says so before a step. */
async function walk(world: Explorable, choices: readonly Deviation[], visit: Visit): Promise<boolean> {
  let next = 0
  await quiet()
  for (let step = 0; !world.over; step++) {
    if (step > MAX_STEPS)
      throw new Error(`a run has more than ${MAX_STEPS} steps: ${JSON.stringify(choices)}`)
    const open = world.choices()
    const picked = choices[next]?.step === step ? choices[next++]!.choice : 0
    const choice = open[picked]
    if (!choice) throw new Error(`choice ${picked} of step ${step} is not there: a run cannot be repeated`)
    if (!visit(choice, picked, open, step)) return false
    await choice.take()
    await quiet()
    if (world.violations.length > 0) return true
  }
  await world.finish()
  return true
}

/** Everything that promises still have to do in this turn is done. */
const quiet = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** One thing that may happen next, and how far it is from the ordinary. */
export interface Choice {
  readonly label: string
  /** 0: ordinary, or a free choice; 1: a deviation. */
  readonly cost: number
  readonly take: () => void | Promise<void>
}

/** What more than one process has to do with: the record of the room, the leases, what edges know. */
export type Subject = 'room' | 'leases' | 'edges'

/** What is next in one of the world's queues, and what may happen in its stead. */
export interface Item extends Choice {
  /** Ordinarily the lowest is first, and among equals the lowest order. */
  readonly rank: number
  readonly order: number
  /** The process it happens to. */
  readonly process: Process | undefined
  /** What it looks at or changes, apart from that process. */
  readonly about?: Subject
  readonly instead: readonly Choice[]
}

/** What waits in queues comes first, then what ends by itself, timers, and what members do. */
export const RANK = { hurried: -1, queued: 0, ending: 1, timer: 2, act: 3 } as const

/** Something ordinary that waits in a queue. */
export const ordinary = (
  label: string,
  order: number,
  process: Process | undefined,
  take: Choice['take'],
): Item => ({ label, cost: 0, take, rank: RANK.queued, order, process, instead: [] })

/** What may go wrong. */
export const FAULTS = [
  /** A call of the store takes place, and its answer is lost. */
  'lost',
  /** A call of the store does not take place. */
  'refused',
  /** A call of the store takes place after the caller was told that the store is silent. */
  'late',
  /** A call of the store, or the answer to it, takes long. */
  'slow',
  /** A node stands still for longer than its lease, or less. */
  'pause',
  /** A node is gone for good, with or without what it was about to send. */
  'crash',
  /** A node is gone, and back under the same id. */
  'restart',
  /** A node stands still, and another process is started under its id meanwhile. */
  'replace',
  /** A node cannot reach the store for longer than its lease. */
  'cut',
  /** No one can reach the store for longer than a lease. */
  'outage',
  /** A message between a node and an edge is lost. */
  'drop',
  /** Something happens before its turn. */
  'reorder',
  /** No one hears a node for a moment, though it lives and reaches the store. */
  'deaf',
] as const
export type Fault = (typeof FAULTS)[number]

/** A 53-bit hash of a text (cyrb53, public domain): short names for long histories. */
export function hash(text: string): string {
  let high = 0xdeadbeef
  let low = 0x41c6ce57
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    high = Math.imul(high ^ code, 2654435761)
    low = Math.imul(low ^ code, 1597334677)
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909)
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909)
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36)
}

/** A value as text, equal for equal values: JSON, with bytes by their hash. */
export const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    part instanceof Uint8Array ? `bytes ${hash(Buffer.from(part).toString('latin1'))}` : part,
  ) ?? 'undefined'
