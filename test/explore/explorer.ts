import { hash } from './history.ts'
import type { Violation } from './ledger.ts'
import type { Process } from './model-node.ts'

/** A world to explore. Each run has a new one. With the same choices, it does the same. */
export interface Explorable {
  /** Possible next steps. The first one is the ordinary one. */
  choices(): readonly Choice[]
  /** True while deviations are possible, and states are recorded. */
  readonly explored: boolean
  readonly over: boolean
  /** Equal for worlds with the same possible futures. */
  readonly digest: string
  /** Broken guarantees. */
  readonly violations: readonly Violation[]
  /** Checks the final state. May add violations. */
  finish(): Promise<void>
}

/** Limits of an exploration. */
export interface Bounds {
  /** Largest number of deviations in a run. */
  readonly deviations: number
  /** Time limit in ms. */
  readonly maxMs?: number
  readonly onProgress?: (report: Report) => void
}

/** Result of an exploration. */
export interface Report {
  /** Number of runs. */
  executions: number
  steps: number
  /** Distinct states. */
  states: number
  /** Distinct final states. */
  ends: number
  ms: number
  /** True if all runs within the bounds were made. */
  complete: boolean
  /** The first run that breaks a guarantee. */
  fault?: Finding
}

/** A run, and the guarantees that it breaks. */
export interface Finding {
  readonly violations: readonly Violation[]
  /** All steps. Deviations are marked. */
  readonly trace: readonly string[]
  /** Choices that repeat the run with `replay`. */
  readonly choices: readonly Deviation[]
}

/** Index of the choice at a step. All other steps take the first choice. */
export interface Deviation {
  readonly step: number
  readonly choice: number
}

/** A run to make. */
interface Branch {
  readonly choices: readonly Deviation[]
  readonly left: number
}

const MAX_STEPS = 5000
const PROGRESS_MS = 1000

/**
 * Makes all runs of a world with at most `bounds.deviations` deviations, each from the beginning. This is stateless model checking with a
 * bound, as CHESS does for threads (Musuvathi and Qadeer, "Iterative context bounding", 2007). Does not continue from a state that it has
 * met with as many deviations left. Ends at the first violation.
 */
export async function explore(create: () => Explorable, bounds: Bounds): Promise<Report> {
  const began = performance.now()
  const met = new Map<string, number>()
  const ends = new Set<string>()
  const report: Report = { executions: 0, steps: 0, states: 0, ends: 0, ms: 0, complete: false }
  const branches: Branch[] = [{ choices: [], left: bounds.deviations }]
  let reportedAt = began
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
    if (now - reportedAt > PROGRESS_MS) {
      reportedAt = now
      bounds.onProgress?.(report)
    }
  }
  report.complete = true
  return report
}

/** Repeats one run, and returns its trace and violations. */
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
  const completed = await walk(world, choices, (_, __, open, step) => {
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
  if (completed) ends.add(hash(world.digest))
  return world.violations.length > 0
}

type Visit = (choice: Choice, picked: number, open: readonly Choice[], step: number) => boolean

/** Makes a run with these choices. Resolves to true at its end or at a violation, and to false when `visit` returns false before a step. */
async function walk(world: Explorable, choices: readonly Deviation[], visit: Visit): Promise<boolean> {
  let next = 0
  await quiet()
  for (let step = 0; !world.over; step++) {
    if (step > MAX_STEPS)
      throw new Error(`the run with the choices ${JSON.stringify(choices)} has more than ${MAX_STEPS} steps`)
    const open = world.choices()
    const picked = choices[next]?.step === step ? choices[next++]!.choice : 0
    const choice = open[picked]
    if (!choice) throw new Error(`choice is ${picked} at step ${step}: use a number below ${open.length}`)
    if (!visit(choice, picked, open, step)) return false
    await choice.take()
    await quiet()
    if (world.violations.length > 0) return true
  }
  await world.finish()
  return true
}

/** Resolves when all promise callbacks of this turn have run. */
const quiet = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** A possible next step. */
export interface Choice {
  readonly label: string
  /** 0: the ordinary step, or a free choice. 1: a deviation. */
  readonly cost: number
  readonly take: () => void | Promise<void>
}

/** State that several processes share: the record of the room, the leases, and the edges. */
export type Subject = 'room' | 'leases' | 'edges'

/** First element of one of the world's queues, and the faults that can replace it. */
export interface Item extends Choice {
  /** The item with the lowest rank is the ordinary one. Among equal ranks, the lowest order decides. */
  readonly rank: number
  readonly order: number
  /** Affected process. */
  readonly process: Process | undefined
  /** Shared state that the item reads or changes. */
  readonly about?: Subject
  readonly instead: readonly Choice[]
}

/** Order of items: queued items, ends of faults, timers, acts of members. `hurried`: timers of a process after a pause. */
export const RANK = { hurried: -1, queued: 0, ending: 1, timer: 2, act: 3 } as const

/** An item with rank `queued` and without faults. */
export const ordinary = (
  label: string,
  order: number,
  process: Process | undefined,
  take: Choice['take'],
): Item => ({ label, cost: 0, take, rank: RANK.queued, order, process, instead: [] })

/** Kinds of faults. */
export const FAULTS = [
  /** A store call takes place, and its answer is lost. */
  'lost',
  /** A store call does not take place. */
  'refused',
  /** A store call times out, and takes place later. */
  'late',
  /** A store call or its answer is slow. */
  'slow',
  /** A node pauses, for longer or shorter than its lease. */
  'pause',
  /** A node crashes. Its queued store calls are sent or lost. */
  'crash',
  /** A node crashes, and a process with the same name starts. */
  'restart',
  /** A node pauses, and during the pause another process with the same name starts. */
  'replace',
  /** A node cannot reach the store for longer than its lease. */
  'cut',
  /** All nodes cannot reach the store for longer than a lease. */
  'outage',
  /** A message between a node and an edge is lost. */
  'drop',
  /** An item is processed before earlier items. */
  'reorder',
  /** A live node with a store connection misses the messages of other nodes for a while. */
  'deaf',
] as const
export type Fault = (typeof FAULTS)[number]
