/** Reads a value. Throws an Error whose message names the valid values. */
export type Read<T> = (text: string) => T

/** One option of the command. The parser, the help and the reports derive from it. */
export interface Option<T = unknown> {
  /** Placeholder of the value in the help. */
  readonly placeholder: string
  readonly meaning: string
  readonly read: Read<T>
  readonly default: T
  /** True: it appears in no report. */
  readonly secret?: boolean
}

/** Options by name (`rooms` for `--rooms`). */
export type Options = Readonly<Record<string, Option>>
/** Values of options, given or default. */
export type Values<O extends Options> = { readonly [K in keyof O]: O[K]['default'] }
/** Given options, by name. */
export type Texts = Readonly<Record<string, string>>

export const option = <T>(placeholder: string, meaning: string, read: Read<T>, given: T): Option<T> => ({
  placeholder,
  meaning,
  read,
  default: given,
})

/** An option without a default. */
export const optional = <T>(placeholder: string, meaning: string, read: Read<T>) =>
  option<T | undefined>(placeholder, meaning, read, undefined)

/** An option whose value fulfils `isValid`. */
export const valid =
  <T>(expected: string, read: Read<T>, isValid: (value: T) => boolean): Read<T> =>
  (text) => {
    const value = read(text)
    if (!isValid(value)) throw new Error(expected)
    return value
  }

const NUMBER = /^(\d+(?:\.\d+)?)\s*([A-Za-z%/]*)$/

/** An option with a number and a unit. `units`: the factor of each unit. */
export const quantity = (
  expected: string,
  units: Readonly<Record<string, number>>,
  isValid: (value: number) => boolean = (value) => value > 0,
): Read<number> => {
  const read = (text: string): number => {
    const [, digits, unit = ''] = NUMBER.exec(text.trim()) ?? []
    return Number(digits) * (units[unit] ?? Number.NaN)
  }
  return valid(expected, read, isValid)
}

export const wholeNumber = (most: number, expected = `1 to ${most}`, least = 1): Read<number> =>
  quantity(expected, { '': 1 }, (value) => Number.isInteger(value) && value >= least && value <= most)

const oneWordOf = <T extends string>(words: readonly T[]): Read<T> =>
  valid(
    words.join(', '),
    (text) => text as T,
    (word) => words.includes(word),
  )

export const listOf =
  <T>(read: Read<T>): Read<T[]> =>
  (given) =>
    given.split(',').map(read)

const MOST = 999_999_999
const DECIMAL = quantity('a number above 0, such as 2.5', { '': 1 })
const SECONDS = { '': 1, s: 1, min: 60, h: 3600 }
const DURATION = quantity('a number of seconds above 0, or with its unit, such as 90s or 5min', SECONDS)
const PART = { '': 1, '%': 0.01 }
const SHARE = quantity('a share above 0, such as 0.25 or 25%', PART, (value) => value > 0 && value <= 1)

// Kinds of options of scenarios.
export const count = (meaning: string, given: number, least = 1) =>
  option('N', meaning, wholeNumber(MOST, `a whole number from ${least} to ${MOST}`, least), given)
export const decimal = (meaning: string, given: number) => option('NUMBER', meaning, DECIMAL, given)
export const seconds = (meaning: string, given: number) => option('SECONDS', meaning, DURATION, given)
export const share = (meaning: string, given: number) => option('SHARE', meaning, SHARE, given)
export const oneOf = <T extends string>(meaning: string, words: readonly T[], given: T) =>
  option('WORD', `${meaning}: ${words.join(', ')}`, oneWordOf(words), given)
export const someOf = <T extends string>(meaning: string, words: readonly T[]) =>
  option('A,B', meaning, listOf(oneWordOf(words)), [...words])

/** Reads the values of options. Throws an Error that names every invalid one with its value and the valid ones. */
export function readValues<O extends Options>(options: O, texts: Texts): Values<O> {
  const problems: string[] = []
  const values = Object.entries(options).map(([name, { read, default: otherwise }]) => {
    const text = texts[name]
    try {
      return [name, text === undefined ? otherwise : read(text)]
    } catch (error) {
      problems.push(`--${name} is "${text}"; expected: ${(error as Error).message}`)
      return [name, undefined]
    }
  })
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return Object.fromEntries(values)
}
