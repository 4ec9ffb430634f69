/** Something that may not be, how often it was, and the first few. */
export interface Breach {
  readonly count: number
  readonly examples: readonly string[]
}

/** What is looked for. */
export const BREACHES = ['gap', 'checksum', 'lost_event', 'lost_ack', 'unapplied', 'twice'] as const
export type BreachKind = (typeof BREACHES)[number]

/** What the clients have looked at, and what of it may not be. Plain data. */
export interface Findings {
  /** Patches and whole states. */
  readonly updates: number
  /** Those to players, who keep the state; spectators do not. */
  readonly player_updates: number
  readonly acks: number
  readonly player_events: number
  /** Members whose state tells what was applied. */
  readonly counted_members: number
  readonly breaches: Readonly<Record<BreachKind, Breach>>
}

const EXAMPLES = 5

/** Writes down what may not be. */
export class Book {
  readonly #breaches = new Map<BreachKind, { count: number; examples: string[] }>()

  /** `times` violations at once; `example` says who saw what. */
  note(kind: BreachKind, example: string, times = 1): void {
    const breach = this.#breaches.get(kind) ?? { count: 0, examples: [] }
    this.#breaches.set(kind, breach)
    breach.count += times
    if (breach.examples.length < EXAMPLES) breach.examples.push(example)
  }

  get breaches(): Findings['breaches'] {
    return byKind((kind) => this.#breaches.get(kind) ?? { count: 0, examples: [] })
  }
}

/** The findings of several threads together. */
export const together = (all: readonly Findings[]): Findings => ({
  updates: sum(all.map(({ updates }) => updates)),
  player_updates: sum(all.map(({ player_updates }) => player_updates)),
  acks: sum(all.map(({ acks }) => acks)),
  player_events: sum(all.map(({ player_events }) => player_events)),
  counted_members: sum(all.map(({ counted_members }) => counted_members)),
  breaches: byKind((kind) => ({
    count: sum(all.map(({ breaches }) => breaches[kind].count)),
    examples: all.flatMap(({ breaches }) => breaches[kind].examples).slice(0, EXAMPLES),
  })),
})

const byKind = (breach: (kind: BreachKind) => Breach): Findings['breaches'] =>
  Object.fromEntries(BREACHES.map((kind) => [kind, breach(kind)])) as Record<BreachKind, Breach>

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
