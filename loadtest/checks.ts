import type { Check } from './result.ts'

/** What is looked for in every run, and how it is told. */
interface Row {
  readonly name: string
  readonly meaning: string
  /** How much was looked at. */
  readonly seen: (findings: Findings) => number
  /** What that is. */
  readonly things: string
  /** Only a room that counts what it applies shows it. */
  readonly counted?: true
}

const ROWS = {
  gap: {
    name: 'sequence gaps',
    meaning: 'No update is missing: every client sees each one, or is given the whole state instead.',
    seen: ({ updates }) => updates,
    things: 'updates',
  },
  checksum: {
    name: 'checksum mismatches',
    meaning: 'The state of every player is the one the server has.',
    seen: ({ playerUpdates }) => playerUpdates,
    things: 'updates to players',
  },
  lostEvent: {
    name: 'lost events',
    meaning: 'Every event of a room reaches every player there.',
    seen: ({ playerEvents }) => playerEvents,
    things: 'events to players',
    counted: true,
  },
  lostAck: {
    name: 'lost acks',
    meaning: 'What was applied is acked, each time: none is left to a later ack, or never sent.',
    seen: ({ acks }) => acks,
    things: 'acks',
  },
  unapplied: {
    name: 'acked but not applied',
    meaning: 'What was acked is in the state.',
    seen: ({ countedMembers }) => countedMembers,
    things: 'members',
    counted: true,
  },
  twice: {
    name: 'applied twice',
    meaning: 'No message is applied more than once.',
    seen: ({ countedMembers }) => countedMembers,
    things: 'members',
    counted: true,
  },
} as const satisfies Readonly<Record<string, Row>>

export type ViolationKind = keyof typeof ROWS
const KINDS = Object.keys(ROWS) as ViolationKind[]

/** How often something was violated, and the first few examples. */
export interface Violations {
  readonly count: number
  readonly examples: readonly string[]
}
type ByKind = Readonly<Record<ViolationKind, Violations>>

/** What clients have looked at since the start, and what of it was wrong. Plain data. */
export interface Findings {
  /** Patches and whole states. */
  readonly updates: number
  /** Those to players, who keep the state; spectators do not. */
  readonly playerUpdates: number
  readonly acks: number
  readonly playerEvents: number
  /** Members whose state tells what was applied. */
  readonly countedMembers: number
  readonly violations: ByKind
}

const EXAMPLES = 5

/** Takes down violations. */
export class ViolationLog {
  readonly #byKind = new Map<ViolationKind, { count: number; examples: string[] }>()

  /** `times` violations at once; `example` says who saw what. */
  add(kind: ViolationKind, example: string, times = 1): void {
    const known = this.#byKind.get(kind) ?? { count: 0, examples: [] }
    this.#byKind.set(kind, known)
    known.count += times
    if (known.examples.length < EXAMPLES) known.examples.push(example)
  }

  get all(): ByKind {
    return byKind((kind) => this.#byKind.get(kind) ?? { count: 0, examples: [] })
  }
}

/** The findings of several threads together. */
export function mergeFindings(all: readonly Findings[]): Findings {
  const sum = (of: (findings: Findings) => number): number => all.reduce((total, each) => total + of(each), 0)
  return {
    updates: sum(({ updates }) => updates),
    playerUpdates: sum(({ playerUpdates }) => playerUpdates),
    acks: sum(({ acks }) => acks),
    playerEvents: sum(({ playerEvents }) => playerEvents),
    countedMembers: sum(({ countedMembers }) => countedMembers),
    violations: byKind((kind) => ({
      count: sum(({ violations }) => violations[kind].count),
      examples: all.flatMap(({ violations }) => violations[kind].examples).slice(0, EXAMPLES),
    })),
  }
}

const byKind = (violations: (kind: ViolationKind) => Violations): ByKind =>
  Object.fromEntries(KINDS.map((kind) => [kind, violations(kind)])) as Record<ViolationKind, Violations>

/** The checks of a run. `ownRoom`: the room type was not the load test's own. */
export const checksOf = (findings: Findings, ownRoom: boolean): Check[] =>
  KINDS.map((kind) => {
    const { name, meaning, seen, things, counted }: Row = ROWS[kind]
    const unchecked = (note: string): Check => ({ name, meaning, violations: undefined, note, examples: [] })
    if (ownRoom && counted) return unchecked('only the room type load counts what happens in it')
    if (seen(findings) === 0) return unchecked(`there were no ${things}`)
    const { count, examples } = findings.violations[kind]
    const note = `${seen(findings).toLocaleString('en-US')} ${things}`
    return { name, meaning, violations: count, note, examples }
  })

/** The names of the checks that have failed up to now, for lines that tell of it as it happens. */
export const violatedChecks = ({ violations }: Findings): string[] =>
  KINDS.filter((kind) => violations[kind].count > 0).map((kind) => ROWS[kind].name)
