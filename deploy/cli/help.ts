import { type Command, describeVariables } from '../../shared/config.ts'
import { COMMANDS } from './arguments.ts'

/** The text of `roomful --help`, or of `roomful <command> --help`. */
export function helpText(command?: Command): string {
  const usage = command ?? '<command>'
  const commands = Object.entries(COMMANDS)
    .filter(([name]) => command === undefined || name === command)
    .map(([name, meaning]) => `  ${name.padEnd(11)}${meaning}`)
  return [
    `Usage: roomful ${usage} [--help] [--version]`,
    '',
    'Realtime game backend: authoritative rooms that survive their node.',
    '',
    ...commands,
    '',
    'Configured by environment variables. NAME_FILE instead of NAME reads the value from a file.',
    '',
    describeVariables(command === undefined ? {} : { command }),
    '',
  ].join('\n')
}
