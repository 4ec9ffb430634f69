import { readFileSync } from 'node:fs'
import * as v from 'valibot'
import { contradictions, type Problem, weaknesses } from './config/checks.ts'
import { expects } from './config/kinds.ts'
import { typoWarnings } from './config/typos.ts'
import {
  type Command,
  type Config,
  type Defaults,
  type Environment,
  keyOf,
  type Values,
  type Variable,
  type VariableName,
  variables,
} from './config/variables.ts'

export { defaultTurnLimit, isLoopback, type Problem } from './config/checks.ts'
export { describeVariables } from './config/help.ts'
export type { Command, Config, Defaults, Environment } from './config/variables.ts'

/** How a process logs. */
export type LogConfig = Pick<Config<'dev'>, 'logLevel' | 'logFormat'>

/** Which store, and where in it. Without `redisUrl`: in memory (`dev` only). */
export type StoreConfig = Pick<Config<'dev'>, 'redisUrl' | 'keyPrefix'>

/** Reads a text file; throws when it cannot. */
export type ReadFile = (path: string) => string

/** Everything that is wrong, so that it can be put right at once. Warnings are sentences for the log. */
export interface ConfigProblems {
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** What became of the environment. */
export type Parsed<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  | ({ readonly ok: false } & ConfigProblems)

/** The content of a file without the line break that editors and secret stores end it with. */
export const readSecretFile: ReadFile = (path) => readFileSync(path, 'utf8').replace(/\r?\n$/, '')

/** The configuration of a command, or all that is wrong with it. */
export function parseConfig<C extends Command>(
  command: C,
  env: Environment,
  readFile: ReadFile = readSecretFile,
): Parsed<Config<C>> {
  const { values, problems: wrong } = readVariables(command, env, readFile)
  const problems = [...wrong, ...contradictions(values)]
  const warnings = [...typoWarnings(env), ...weaknesses(command, values)]
  if (problems.length > 0) return { ok: false, problems, warnings }
  return { ok: true, config: values as Config<C>, warnings }
}

/** The configuration of a command that nothing is set for. */
export const defaultConfig = <C extends Command>(command: C): Defaults<C> =>
  readVariables(command, {}, readSecretFile).values as Defaults<C>

/** Problems and warnings as lines for people. */
export function describeProblems({ problems, warnings }: ConfigProblems): string {
  const lines = problems.map(({ name, was, mayBe }) => `  ${name} is ${was}; it may be: ${mayBe}.`)
  return [...lines, ...warnings.map((warning) => `  ${warning}`)].join('\n')
}

/**
 * Reads every variable that `command` uses, each by itself: from `NAME`, else from the file named by `NAME_FILE`, else its default. An
 * empty value is the same as none. Values that are wrong are missing.
 */
export function readVariables(
  command: Command,
  env: Environment,
  readFile: ReadFile,
): { readonly values: Values; readonly problems: readonly Problem[] } {
  const values: Record<string, unknown> = {}
  const problems: Problem[] = []
  for (const [name, variable] of variables()) {
    if (!variable.readBy.includes(command)) continue
    const found = findText(name, variable, env, readFile)
    if (found.problem) problems.push(found.problem)
    const text = found.text ?? variable.default
    if (text === undefined) {
      values[keyOf(name)] = undefined
      if (variable.requiredBy?.includes(command) && !found.problem)
        problems.push({ name, was: 'not set', mayBe: expects(variable.schema) })
      continue
    }
    const result = v.safeParse(variable.schema, text)
    if (result.success) values[keyOf(name)] = result.output
    else
      problems.push({
        name: found.from ?? name,
        was: variable.secret ? 'a value that is not shown, since it is a secret' : describe(text),
        mayBe: expects(variable.schema),
      })
  }
  return { values, problems }
}

interface Found {
  readonly text?: string
  /** The name it was found under. */
  readonly from?: string
  readonly problem?: Problem
}

function findText(name: VariableName, variable: Variable, env: Environment, readFile: ReadFile): Found {
  const direct = env[name] || undefined
  const fileName = `${name}_FILE`
  const path = env[fileName] || undefined
  if (path === undefined) return direct === undefined ? {} : { text: direct, from: name }
  if (direct !== undefined)
    return {
      problem: {
        name,
        was: `set, and ${fileName} as well`,
        mayBe: `set directly or by ${fileName}, not both`,
      },
    }
  const inFile = `the path of a file with ${expects(variable.schema)}`
  try {
    const text = readFile(path)
    if (text !== '') return { text, from: fileName }
    return { problem: { name: fileName, was: `${JSON.stringify(path)}, which is empty`, mayBe: inFile } }
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unreadable'
    return { problem: { name: fileName, was: `${JSON.stringify(path)} (${why})`, mayBe: inFile } }
  }
}

/** A value as a message shows it: quoted, cut when long, with a word on where a telling mistake comes from. */
function describe(text: string): string {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
  if (/^(tcp|udp):\/\//.test(text))
    return `${shown} (Kubernetes sets such for a Service of this name: use enableServiceLinks: false)`
  return shown
}
