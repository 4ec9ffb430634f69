import { expects } from './kinds.ts'
import { type Command, type Variable, variables } from './variables.ts'

/** What `--help` says about the environment: every variable, or those of one command, at most `width` characters a line. */
export function describeVariables(options: { command?: Command; width?: number } = {}): string {
  const { command, width = 100 } = options
  const rows = variables().filter(([, variable]) => !command || variable.readBy.includes(command))
  const column = Math.max(...rows.map(([name]) => name.length)) + 4
  return rows
    .map(([name, variable]) => {
      const lines = wrap(`${variable.help} ${note(variable)}`, width - column)
      return `  ${name.padEnd(column - 2)}${lines.join(`\n${' '.repeat(column)}`)}`
    })
    .join('\n')
}

function note(variable: Variable): string {
  const parts = [expects(variable.schema), defaultOf(variable)]
  if (variable.requiredBy) parts.push(`required by ${variable.requiredBy.join(' and ')}`)
  return `[${parts.filter((part) => part !== '').join('; ')}]`
}

/** The default in words; empty when there is none worth a word. */
const defaultOf = (variable: Variable): string => {
  const words = variable.default ?? variable.defaultNote
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
