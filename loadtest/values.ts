import type { ScenarioOption } from './scenario.ts'

type Kind = ScenarioOption['kind']

interface KindOfValue {
  /** What it may be, for messages. */
  readonly may_be: string
  /** undefined: it is none. */
  readonly read: (text: string) => number | string | undefined
}

const DIGITS = /^\d+(\.\d+)?$/
const UNITS = { '': 1, s: 1, min: 60, h: 3600 } as const

function seconds(text: string): number | undefined {
  const [, digits, unit] = /^(\d+(?:\.\d+)?) ?(s|min|h|)$/.exec(text) ?? []
  return Number(digits) > 0 ? Number(digits) * UNITS[unit as keyof typeof UNITS] : undefined
}

function share(text: string): number | undefined {
  const [, digits, percent] = /^(\d+(?:\.\d+)?) ?(%?)$/.exec(text) ?? []
  const value = Number(digits) / (percent === '%' ? 100 : 1)
  return value > 0 && value <= 1 ? value : undefined
}

/** What options of scenarios can be. */
const KINDS: Readonly<Record<Kind, KindOfValue>> = {
  count: {
    may_be: 'a whole number from 1 to 999999999',
    read: (text) => (/^[1-9]\d{0,8}$/.test(text) ? Number(text) : undefined),
  },
  number: {
    may_be: 'a number above 0, such as 2.5',
    read: (text) => (DIGITS.test(text) && Number(text) > 0 ? Number(text) : undefined),
  },
  seconds: { may_be: 'a number of seconds above 0, or with its unit, such as 90s or 5min', read: seconds },
  share: { may_be: 'a share above 0, such as 0.25 or 25%', read: share },
  text: { may_be: 'a text', read: (text) => text },
}

/** The word that stands for a value in the help. */
export const placeholder = (kind: Kind): string =>
  ({ count: 'N', number: 'NUMBER', seconds: 'SECONDS', share: 'SHARE', text: 'TEXT' })[kind]

/** Reads the value of an option; throws an Error that says what was wrong and what would be right. */
export function readValue(name: string, text: string, kind: Kind): number | string {
  const { may_be, read } = KINDS[kind]
  const value = read(text)
  if (value === undefined) throw new Error(`--${name} is "${text}"; it may be: ${may_be}`)
  return value
}
