import { type Command, describeVariables } from '../../shared/config.ts'

/** What the command line asks for. */
export type Request =
  | { readonly kind: 'run'; readonly command: Command }
  | { readonly kind: 'help'; readonly command?: Command }
  | { readonly kind: 'version' }
  | { readonly kind: 'mistake'; readonly message: string }

/** The commands, each with what it does. */
export const COMMANDS: Readonly<Record<Command, string>> = {
  dev: 'both planes and the example games in one process; needs nothing',
  control: 'a control process: projects, keys and tokens over HTTP',
  dataplane: 'a node: rooms and the websockets of their members',
  rekey: 'seals every private key in the store under the first KEYRING_SECRET, and ends',
}

const isCommand = (word: string): word is Command => Object.hasOwn(COMMANDS, word)

/** Reads the words behind `roomful`. */
export function parseArguments(words: readonly string[]): Request {
  const names = Object.keys(COMMANDS).join(', ')
  const options = words.filter((word) => word.startsWith('-'))
  const [command, ...more] = words.filter((word) => !word.startsWith('-'))
  const unknown = options.find((option) => !['--help', '-h', '--version', '-v'].includes(option))
  if (unknown !== undefined)
    return mistake(
      `${unknown} is no option; there are --help and --version, and the environment for the rest`,
    )
  if (command !== undefined && !isCommand(command))
    return mistake(`${command} is no command; there are ${names}`)
  if (more.length > 0) return mistake(`${more[0]} is one word too many; ${command} takes none`)
  if (options.some((option) => option === '--version' || option === '-v')) return { kind: 'version' }
  if (options.length > 0) return command === undefined ? { kind: 'help' } : { kind: 'help', command }
  if (command === undefined) return mistake(`a command is missing; there are ${names}`)
  return { kind: 'run', command }
}

const mistake = (message: string): Request => ({ kind: 'mistake', message })

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
