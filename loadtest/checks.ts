import type { BreachKind, Findings } from './crowd/findings.ts'
import type { Check } from './result.ts'

interface Row {
  readonly kind: BreachKind
  readonly name: string
  readonly meaning: string
  /** How much was looked at. */
  readonly seen: (findings: Findings) => number
  /** What that is. */
  readonly things: string
}

const count = (value: number): string => value.toLocaleString('en-US')

/** The promises that every run looks at. */
const ROWS: readonly Row[] = [
  {
    kind: 'gap',
    name: 'sequence gaps',
    meaning: 'No update is missing: every client sees each one, or is given the whole state instead.',
    seen: ({ updates }) => updates,
    things: 'updates',
  },
  {
    kind: 'checksum',
    name: 'checksum mismatches',
    meaning: 'The state of every player is the one the server has.',
    seen: ({ player_updates }) => player_updates,
    things: 'updates to players',
  },
  {
    kind: 'lost_event',
    name: 'lost events',
    meaning: 'Every event of a room reaches every player there.',
    seen: ({ player_events }) => player_events,
    things: 'events to players',
  },
  {
    kind: 'lost_ack',
    name: 'lost acks',
    meaning: 'What was applied is acked, each time: none is left to a later ack, or to nobody.',
    seen: ({ acks }) => acks,
    things: 'acks',
  },
  {
    kind: 'unapplied',
    name: 'acked but not applied',
    meaning: 'What was acked is in the state.',
    seen: ({ counted_members }) => counted_members,
    things: 'members',
  },
  {
    kind: 'twice',
    name: 'applied twice',
    meaning: 'No message is applied more than once.',
    seen: ({ counted_members }) => counted_members,
    things: 'members',
  },
]

/** What can only be seen in a room that counts what it applies. */
const COUNTED: readonly BreachKind[] = ['lost_event', 'unapplied', 'twice']

/** The checks of a run. `own_room`: the room type was not the load test's own. */
export const checksOf = (findings: Findings, own_room: boolean): Check[] =>
  ROWS.map(({ kind, name, meaning, seen, things }) => {
    const unchecked = (note: string): Check => ({ name, meaning, violations: undefined, note, examples: [] })
    if (own_room && COUNTED.includes(kind))
      return unchecked('only the room type load counts what happens in it')
    if (seen(findings) === 0) return unchecked(`there were no ${things}`)
    const { count: violations, examples } = findings.breaches[kind]
    return { name, meaning, violations, note: `${count(seen(findings))} ${things}`, examples }
  })

/** The names of what was broken, for lines that tell of it as it happens. */
export const brokenName = (kind: BreachKind): string => ROWS.find((row) => row.kind === kind)?.name ?? kind
