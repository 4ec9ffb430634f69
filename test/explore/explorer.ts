import type { Choice } from './choice.ts'
import { hash } from './digest.ts'
import type { Violation } from './ledger.ts'

/** What can be explored: a world that is made anew for every run, and goes the same way when the same is chosen. */
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
  fault?: Fault
}

/** A run in which something happened that must not. */
export interface Fault {
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
export async function replay(create: () => Explorable, choices: readonly Deviation[]): Promise<Fault> {
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
