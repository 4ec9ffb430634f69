import { variables } from './environment.ts'
import type { Command, Variable } from './variable.ts'

/** What `--help` says about the environment: every variable, or those of one command, at most `width` characters a line. */
export function describeVariables(options: { command?: Command; width?: number } = {}): string {
  const { command, width = 100 } = options
  const rows = variables().filter(([, variable]) => !command || variable.used_by.includes(command))
  const column = Math.max(...rows.map(([name]) => name.length)) + 4
  return rows
    .map(([name, variable]) => {
      const lines = wrap(`${variable.meaning} ${note(variable)}`, width - column)
      return `  ${name.padEnd(column - 2)}${lines.join(`\n${' '.repeat(column)}`)}`
    })
    .join('\n')
}

function note(variable: Variable): string {
  const parts = [variable.kind.expects, defaultOf(variable)]
  if (variable.required_by) parts.push(`required by ${variable.required_by.join(' and ')}`)
  return `[${parts.filter((part) => part !== '').join('; ')}]`
}

/** The default in words; empty when there is none worth a word. */
const defaultOf = (variable: Variable): string => {
  const words = variable.default ?? variable.default_note
  return words === undefined ? '' : `default: ${words}`
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
