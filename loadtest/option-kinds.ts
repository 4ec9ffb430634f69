import * as v from 'valibot'

/** One option of the command: parsing, help and report come from it. */
export interface Option<T = unknown> {
  /** The word that stands for the value in the help. */
  readonly placeholder: string
  readonly meaning: string
  /** The message of its first issue says what the option takes. */
  readonly schema: v.GenericSchema<string, T>
  readonly default: T
  /** Is in no report. */
  readonly secret?: boolean
}

/** Options by the names they are typed with (`rooms` for `--rooms`). */
export type Options = Readonly<Record<string, Option>>

/** The values of options, given or default. */
export type Values<O extends Options> = { readonly [K in keyof O]: O[K]['default'] }

const NUMBER = /^(\d+(?:\.\d+)?)\s*([A-Za-z%/]*)$/

/** Reads a number with its unit. `units`: what a number with each unit is multiplied by. `isRight` is false for NaN. */
export const quantity = (
  expected: string,
  units: Readonly<Record<string, number>>,
  isRight: (value: number) => boolean = (value) => value > 0,
) =>
  v.pipe(
    v.string(),
    v.transform((text) => {
      const [, digits, unit = ''] = NUMBER.exec(text.trim()) ?? []
      return Number(digits) * (units[unit] ?? Number.NaN)
    }),
    v.check(isRight, expected),
  )

/** Reads a whole number from 1. */
export const wholeNumber = (most: number, expected = `1 to ${most}`) =>
  quantity(expected, { '': 1 }, (value) => Number.isInteger(value) && value >= 1 && value <= most)

const MOST = 999_999_999
const COUNT = wholeNumber(MOST, `a whole number from 1 to ${MOST}`)
const DECIMAL = quantity('a number above 0, such as 2.5', { '': 1 })
const SECONDS = quantity('a number of seconds above 0, or with its unit, such as 90s or 5min', {
  '': 1,
  s: 1,
  min: 60,
  h: 3600,
})
const SHARE = quantity(
  'a share above 0, such as 0.25 or 25%',
  { '': 1, '%': 0.01 },
  (value) => value > 0 && value <= 1,
)

/** An option; undefined when it is not given and has no default. */
export function option<T>(
  placeholder: string,
  meaning: string,
  schema: v.GenericSchema<string, T>,
): Option<T | undefined>
export function option<T>(
  placeholder: string,
  meaning: string,
  schema: v.GenericSchema<string, T>,
  given: T,
): Option<T>
export function option<T>(
  placeholder: string,
  meaning: string,
  schema: v.GenericSchema<string, T>,
  given?: T,
) {
  return { placeholder, meaning, schema, default: given }
}

/** What a scenario can take. */
export const count = (meaning: string, given: number) => option('N', meaning, COUNT, given)
export const decimal = (meaning: string, given: number) => option('NUMBER', meaning, DECIMAL, given)
export const seconds = (meaning: string, given: number) => option('SECONDS', meaning, SECONDS, given)
export const share = (meaning: string, given: number) => option('SHARE', meaning, SHARE, given)
export const oneOf = <T extends string>(meaning: string, words: readonly T[], given: T) =>
  option(
    'WORD',
    `${meaning}: ${words.join(', ')}`,
    v.picklist(words, words.join(', ')) as v.GenericSchema<string, T>,
    given,
  )

/** Options that were given, by their names. */
export type Texts = Readonly<Record<string, string>>

/** The values of options, given or default. Throws an Error that says of every wrong one what it was, and what would be right. */
export function readValues<O extends Options>(options: O, texts: Texts): Values<O> {
  const problems: string[] = []
  const values = Object.entries(options).map(([name, { schema, default: otherwise }]) => {
    const text = texts[name]
    if (text === undefined) return [name, otherwise]
    const { success, output, issues } = v.safeParse(schema, text)
    if (!success) problems.push(`--${name} is "${text}"; it may be: ${issues[0].message}`)
    return [name, output]
  })
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return Object.fromEntries(values)
}
