import { readFileSync } from 'node:fs'
import * as v from 'valibot'
import type { Command, Variable } from './variable.ts'
import { VARIABLES, type Values, type VariableName } from './variables.ts'

/** Environment variables, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

/** Reads a text file; throws when it cannot. */
export type ReadFile = (path: string) => string

/** One thing wrong with the configuration. */
export interface Problem {
  /** The variable. */
  readonly name: string
  /** Its value in words; never a secret's. */
  readonly was: string
  /** What it may be. */
  readonly may_be: string
}

export interface Reading {
  /** Whole only when there are no problems. */
  readonly values: Values
  readonly problems: readonly Problem[]
}

/** The content of a file without the line break that editors and secret stores end it with. */
export const readSecretFile: ReadFile = (path) => readFileSync(path, 'utf8').replace(/\r?\n$/, '')

/** The variables' names with their rows, in the order of the table. */
export const variables = (): [VariableName, Variable][] =>
  Object.entries(VARIABLES) as [VariableName, Variable][]

/**
 * Reads every variable that `command` uses: from `NAME`, else from the file named by `NAME_FILE`, else its default. An empty value is
 * the same as none. Variables of other commands get their defaults without a look at the environment.
 */
export function readEnvironment(command: Command, env: Environment, read_file: ReadFile): Reading {
  const values: Partial<Record<VariableName, unknown>> = {}
  const problems: Problem[] = []
  for (const [name, variable] of variables()) {
    const used = variable.used_by.includes(command)
    const found = used ? findText(name, variable, env, read_file) : {}
    if (found.problem) problems.push(found.problem)
    const text = found.text ?? variable.default
    if (text === undefined) {
      if (variable.required_by?.includes(command) && !found.problem)
        problems.push({ name, was: 'not set', may_be: variable.kind.expects })
      continue
    }
    const result = v.safeParse(variable.kind.schema, text)
    if (result.success) values[name] = result.output
    else
      problems.push({
        name: found.from ?? name,
        was: variable.secret ? 'a value that is not shown, since it is a secret' : describe(text),
        may_be: variable.kind.expects,
      })
  }
  return { values: values as Values, problems }
}

interface Found {
  readonly text?: string
  /** The name it was found under. */
  readonly from?: string
  readonly problem?: Problem
}

function findText(name: VariableName, variable: Variable, env: Environment, read_file: ReadFile): Found {
  const direct = env[name] || undefined
  const file_name = `${name}_FILE`
  const path = env[file_name] || undefined
  if (path === undefined) return direct === undefined ? {} : { text: direct, from: name }
  if (direct !== undefined)
    return {
      problem: {
        name,
        was: `set, and ${file_name} as well`,
        may_be: `set directly or by ${file_name}, not both`,
      },
    }
  try {
    const text = read_file(path)
    if (text !== '') return { text, from: file_name }
    return {
      problem: { name: file_name, was: `${describe(path)}, which is empty`, may_be: inFile(variable) },
    }
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unreadable'
    return { problem: { name: file_name, was: `${describe(path)} (${why})`, may_be: inFile(variable) } }
  }
}

const inFile = (variable: Variable): string => `the path of a file with ${variable.kind.expects}`

/** A value as a message shows it: quoted, cut when long, with a word on where a telling mistake comes from. */
function describe(text: string): string {
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
  if (/^(tcp|udp):\/\//.test(text))
    return `${shown} (Kubernetes sets such for a Service of this name: use enableServiceLinks: false)`
  return shown
}
