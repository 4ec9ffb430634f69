import type { Check } from './result.ts'
import { count } from './text.ts'

/** What clients have looked at. */
interface Seen {
  /** Patches and whole states. */
  updates: number
  /** Those to players, who keep the state; spectators do not. */
  playerUpdates: number
  acks: number
  playerEvents: number
  /** Members whose state shows what was applied. */
  countedMembers: number
}
const NOTHING: Seen = { updates: 0, playerUpdates: 0, acks: 0, playerEvents: 0, countedMembers: 0 }

/** What is looked for in every run, and how it is reported. */
interface Row {
  readonly name: string
  readonly meaning: string
  /** How much was looked at, and what that is. */
  readonly seen: keyof Seen
  readonly things: string
  /** Only a room that counts what it applies shows it. */
  readonly counted?: true
}

const ROWS = {
  gap: {
    name: 'sequence gaps',
    meaning: 'No update is missing: every client sees each one, or is given the whole state instead.',
    seen: 'updates',
    things: 'updates',
  },
  checksum: {
    name: 'checksum mismatches',
    meaning: 'The state of every player is the one the server has.',
    seen: 'playerUpdates',
    things: 'updates to players',
  },
  lostEvent: {
    name: 'lost events',
    meaning: 'Every event of a room reaches every player there.',
    seen: 'playerEvents',
    things: 'events to players',
    counted: true,
  },
  lostAck: {
    name: 'lost acks',
    meaning: 'What was applied is acked, each time: none is left to a later ack, or never sent.',
    seen: 'acks',
    things: 'acks',
  },
  unapplied: {
    name: 'acked but not applied',
    meaning: 'What was acked is in the state.',
    seen: 'countedMembers',
    things: 'members',
    counted: true,
  },
  twice: {
    name: 'applied twice',
    meaning: 'No message is applied more than once.',
    seen: 'countedMembers',
    things: 'members',
    counted: true,
  },
} as const satisfies Readonly<Record<string, Row>>

type ViolationKind = keyof typeof ROWS
const KINDS = Object.keys(ROWS) as ViolationKind[]

/** How often something was violated, and the first few examples. */
interface Violations {
  readonly count: number
  readonly examples: readonly string[]
}
type ByKind = Readonly<Record<ViolationKind, Violations>>

/** What clients have looked at since the start, and what of it was wrong. Plain data. */
export interface Findings extends Readonly<Seen> {
  readonly violations: ByKind
}

const EXAMPLES = 5

/** Counts what the clients of one thread look at, and takes down violations. */
export class FindingsLog {
  readonly seen = { ...NOTHING }
  readonly #byKind = new Map<ViolationKind, { count: number; examples: string[] }>()

  /** `times` violations at once; `example` says which client saw what. */
  add(kind: ViolationKind, example: string, times = 1): void {
    const known = this.#byKind.get(kind) ?? { count: 0, examples: [] }
    this.#byKind.set(kind, known)
    known.count += times
    if (known.examples.length < EXAMPLES) known.examples.push(example)
  }

  get all(): Findings {
    const violations = byKind((kind) => this.#byKind.get(kind) ?? { count: 0, examples: [] })
    return { ...this.seen, violations }
  }
}

/** The findings of several threads together. */
export function mergeFindings(all: readonly Findings[]): Findings {
  const sum = (of: (findings: Findings) => number): number => all.reduce((total, each) => total + of(each), 0)
  const violations = byKind((kind) => ({
    count: sum((findings) => findings.violations[kind].count),
    examples: all.flatMap((findings) => findings.violations[kind].examples).slice(0, EXAMPLES),
  }))
  const seen = { ...NOTHING }
  for (const name of Object.keys(seen) as (keyof Seen)[]) seen[name] = sum((findings) => findings[name])
  return { ...seen, violations }
}

const byKind = (violations: (kind: ViolationKind) => Violations): ByKind =>
  Object.fromEntries(KINDS.map((kind) => [kind, violations(kind)])) as Record<ViolationKind, Violations>

/** The checks of a run. `ownRoom`: the room type was not the load test's own. */
export const checksOf = (findings: Findings, ownRoom: boolean): Check[] =>
  KINDS.map((kind) => {
    const { name, meaning, seen, things, counted }: Row = ROWS[kind]
    const unchecked = (note: string): Check => ({ name, meaning, violations: undefined, note, examples: [] })
    if (ownRoom && counted) return unchecked('only the room type load counts what happens in it')
    if (findings[seen] === 0) return unchecked(`there were no ${things}`)
    const { count: violations, examples } = findings.violations[kind]
    const note = `${count(findings[seen])} ${things}`
    return { name, meaning, violations, note, examples }
  })

/** The names of the checks that have failed up to now, for lines that tell of it as it happens. */
export const violatedChecks = ({ violations }: Findings): string[] =>
  KINDS.filter((kind) => violations[kind].count > 0).map((kind) => ROWS[kind].name)
