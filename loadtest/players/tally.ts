import { type Check, type Counts, type Failure, MAX_EXAMPLES, noCounts, type Timing } from '../result.ts'
import { count } from '../text.ts'

/** Numbers of checked things. */
const NOTHING = {
  /** Patches and full states. */
  updates: 0,
  /** Number of those that players received. Spectators keep no state. */
  playerUpdates: 0,
  acks: 0,
  playerEvents: 0,
  /** Members whose state shows the number of applied messages. */
  countedMembers: 0,
}
type Seen = typeof NOTHING

interface Row {
  readonly name: string
  readonly meaning: string
  readonly seen: keyof Seen
  readonly things: string
  /** True: it needs a room type that counts applied messages. */
  readonly counted?: true
}

/** The checks of every run. */
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
type Kind = keyof typeof ROWS
const KINDS = Object.keys(ROWS) as Kind[]

/** A number of violations, with examples of the first. */
interface Violations {
  readonly count: number
  readonly examples: readonly string[]
}

/** Results of the checks since the start. Plain data. */
interface Findings extends Readonly<Seen> {
  readonly violations: Readonly<Record<Kind, Violations>>
}

/** Failures by code, with the first message of each. */
export class Failures {
  readonly #byCode = new Map<string, { code: string; count: number; example: string }>()

  add({ code, count, example }: Failure): void {
    const known = this.#byCode.get(code)
    if (known) known.count += count
    else this.#byCode.set(code, { code, count, example })
  }

  get list(): readonly Failure[] {
    return [...this.#byCode.values()]
  }
}

/** Counts and durations since the last `take`, and the findings since the start. Plain data. */
export interface Tallied {
  readonly counts: Counts
  /** Milliseconds. */
  readonly timings: Readonly<Partial<Record<Timing, readonly number[]>>>
  readonly failures: readonly Failure[]
  /** Longest time between the moment at which a message was due and its sending. */
  readonly lateMs: number
  readonly findings: Findings
}

/** Counts, times and checks the actions of the clients of one thread. */
export class Tally {
  counts = noCounts()
  lateMs = 0
  /** Numbers of checked things. */
  readonly seen = { ...NOTHING }
  readonly #violations = byKind((): { count: number; examples: string[] } => ({ count: 0, examples: [] }))
  #failures = new Failures()
  #timings: Partial<Record<Timing, number[]>> = {}

  time(timing: Timing, ms: number): void {
    this.#timings[timing] ??= []
    this.#timings[timing].push(ms)
  }

  fail(code: string, example: string, times = 1): void {
    this.counts.errors += times
    this.#failures.add({ code, count: times, example })
  }

  /** Adds `times` violations of a check. `example` names the client and what it saw. */
  violated(kind: Kind, example: string, times = 1): void {
    const known = this.#violations[kind]
    known.count += times
    if (known.examples.length < MAX_EXAMPLES) known.examples.push(example)
  }

  get findings(): Findings {
    return { ...this.seen, violations: this.#violations }
  }

  /** Returns everything since the last call. */
  take(): Tallied {
    const { counts, lateMs, findings } = this
    const taken = { counts, lateMs, timings: this.#timings, failures: this.#failures.list, findings }
    this.counts = noCounts()
    this.lateMs = 0
    this.#timings = {}
    this.#failures = new Failures()
    return taken
  }
}

/** The findings of several threads together. */
export function mergeFindings(all: readonly Findings[]): Findings {
  const sum = (of: (findings: Findings) => number): number => all.reduce((total, each) => total + of(each), 0)
  const violations = byKind((kind) => ({
    count: sum((findings) => findings.violations[kind].count),
    examples: all.flatMap((findings) => findings.violations[kind].examples).slice(0, MAX_EXAMPLES),
  }))
  const seen = { ...NOTHING }
  for (const name of Object.keys(seen) as (keyof Seen)[]) seen[name] = sum((findings) => findings[name])
  return { ...seen, violations }
}

const byKind = <T>(make: (kind: Kind) => T): Record<Kind, T> =>
  Object.fromEntries(KINDS.map((kind) => [kind, make(kind)])) as Record<Kind, T>

/** The checks as results. `ownRoom`: the room type was not `load`. */
export const checksOf = (findings: Findings, ownRoom: boolean): Check[] =>
  KINDS.map((kind) => {
    const { name, meaning, seen, things, counted }: Row = ROWS[kind]
    const unchecked = (note: string): Check => ({ name, meaning, violations: undefined, note, examples: [] })
    if (ownRoom && counted) return unchecked('only the room type load counts what happens in it')
    if (findings[seen] === 0) return unchecked(`there were no ${things}`)
    const { count: violations, examples } = findings.violations[kind]
    return { name, meaning, violations, note: `${count(findings[seen])} ${things}`, examples }
  })

/** Names of the checks that have failed so far. */
export const violatedChecks = ({ violations }: Findings): string[] =>
  KINDS.filter((kind) => violations[kind].count > 0).map((kind) => ROWS[kind].name)
