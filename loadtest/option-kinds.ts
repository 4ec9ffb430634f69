import * as v from 'valibot'

/** One option of the command. The parser, the help and the reports derive from it. */
export interface Option<T = unknown> {
  /** Stands for the value in the help. */
  readonly placeholder: string
  readonly meaning: string
  /** The message of its first issue says which values are valid. */
  readonly schema: v.GenericSchema<string, T>
  readonly default: T
  /** Appears in no report. */
  readonly secret?: boolean
}

/** Options by name (`rooms` for `--rooms`). */
export type Options = Readonly<Record<string, Option>>
/** Values of options, given or default. */
export type Values<O extends Options> = { readonly [K in keyof O]: O[K]['default'] }
/** Given options, by name. */
export type Texts = Readonly<Record<string, string>>

const NUMBER = /^(\d+(?:\.\d+)?)\s*([A-Za-z%/]*)$/

/** Reads a number with a unit. `units`: the factor of each unit. */
export const quantity = (
  expected: string,
  units: Readonly<Record<string, number>>,
  isValid: (value: number) => boolean = (value) => value > 0,
) =>
  v.pipe(
    v.string(),
    v.transform((text) => {
      const [, digits, unit = ''] = NUMBER.exec(text.trim()) ?? []
      return Number(digits) * (units[unit] ?? Number.NaN)
    }),
    v.check(isValid, expected),
  )

export const wholeNumber = (most: number, expected = `1 to ${most}`) =>
  quantity(expected, { '': 1 }, (value) => Number.isInteger(value) && value >= 1 && value <= most)

/** An option. Without a default it is undefined when it is not given. */
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

const MOST = 999_999_999
const COUNT = wholeNumber(MOST, `a whole number from 1 to ${MOST}`)
const DECIMAL = quantity('a number above 0, such as 2.5', { '': 1 })
const SECONDS = { '': 1, s: 1, min: 60, h: 3600 }
const DURATION = quantity('a number of seconds above 0, or with its unit, such as 90s or 5min', SECONDS)
const PART = { '': 1, '%': 0.01 }
const SHARE = quantity('a share above 0, such as 0.25 or 25%', PART, (value) => value > 0 && value <= 1)

// The kinds of options that scenarios have.
export const count = (meaning: string, given: number) => option('N', meaning, COUNT, given)
export const decimal = (meaning: string, given: number) => option('NUMBER', meaning, DECIMAL, given)
export const seconds = (meaning: string, given: number) => option('SECONDS', meaning, DURATION, given)
export const share = (meaning: string, given: number) => option('SHARE', meaning, SHARE, given)
export const oneOf = <T extends string>(meaning: string, words: readonly T[], given: T) => {
  const list = words.join(', ')
  return option('WORD', `${meaning}: ${list}`, v.picklist(words, list) as v.GenericSchema<string, T>, given)
}

/** Reads the values of options. Throws an Error that names every invalid one with its value and the valid ones. */
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
