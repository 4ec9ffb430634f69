import type { BreachKind, Findings } from './crowd/findings.ts'
import type { Check } from './result.ts'

interface Row {
  readonly kind: BreachKind
  readonly name: string
  readonly meaning: string
  /** What was looked at; a word in `missing` when nothing could be. */
  readonly note: (findings: Findings) => string
}

const count = (value: number): string => value.toLocaleString('en-US')

/** The promises that every run looks at. */
const ROWS: readonly Row[] = [
  {
    kind: 'gap',
    name: 'sequence gaps',
    meaning: 'No update is missing: every client sees each one, or is given the whole state instead.',
    note: ({ updates }) => `${count(updates)} updates`,
  },
  {
    kind: 'checksum',
    name: 'checksum mismatches',
    meaning: 'The state of every player is the one the server has.',
    note: ({ updates, spectators }) =>
      `${count(updates)} updates${spectators > 0 ? `, those to ${count(spectators)} spectators aside` : ''}`,
  },
  {
    kind: 'lost_ack',
    name: 'lost acks',
    meaning: 'What was applied is acked, each time: none is left to a later ack, or to nobody.',
    note: ({ acks }) => `${count(acks)} acks`,
  },
  {
    kind: 'unapplied',
    name: 'acked but not applied',
    meaning: 'What was acked is in the state.',
    note: ({ counted_members }) => `the counts of ${count(counted_members)} members`,
  },
  {
    kind: 'twice',
    name: 'applied twice',
    meaning: 'No message is applied more than once.',
    note: ({ counted_members }) => `the counts of ${count(counted_members)} members`,
  },
]

/** What can only be seen in a room that counts what it applies. */
const COUNTED: readonly BreachKind[] = ['unapplied', 'twice']

/** The checks of a run. `own_room`: the room type was not the load test's own. */
export const checksOf = (findings: Findings, own_room: boolean): Check[] =>
  ROWS.map(({ kind, name, meaning, note }) => {
    const { count: violations, examples } = findings.breaches[kind]
    return own_room && COUNTED.includes(kind)
      ? {
          name,
          meaning,
          violations: undefined,
          note: 'only the room type load counts what it applies',
          examples: [],
        }
      : { name, meaning, violations, note: note(findings), examples }
  })

/** The names of what was broken, for lines that tell of it as it happens. */
export const brokenName = (kind: BreachKind): string => ROWS.find((row) => row.kind === kind)?.name ?? kind
