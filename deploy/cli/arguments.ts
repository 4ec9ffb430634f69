import { type Command, describeVariables } from '../../shared/config.ts'

/** What the command line asks for. */
export type Request =
  /** `workers`: as `WORKERS` has it. `beside`: the words of a command that runs beside `dev`. */
  | {
      readonly kind: 'run'
      readonly command: Command
      readonly workers?: string
      readonly beside?: readonly string[]
    }
  | { readonly kind: 'help'; readonly command?: Command }
  | { readonly kind: 'version' }
  | { readonly kind: 'mistake'; readonly message: string }

/** The commands, each with what it does. */
export const COMMANDS: Readonly<Record<Command, string>> = {
  dev: 'both planes in one process; needs nothing. Plays the room types in ROOMS_DIR, else in ./rooms, else the example games.\n             -- COMMAND: runs it as well, such as the server of your page, until one of both ends',
  control: 'a control process: projects, keys and tokens over HTTP',
  dataplane: 'a node: rooms and the websockets of their members',
  rekey: 'seals every private key in the store under the first KEYRING_SECRET, and ends',
}

const isCommand = (word: string): word is Command => Object.hasOwn(COMMANDS, word)

/** Reads the words behind `roomful`. */
export function parseArguments(all: readonly string[]): Request {
  const end = all.indexOf('--')
  const { words, workers } = takeWorkers(end < 0 ? all : all.slice(0, end))
  const names = Object.keys(COMMANDS).join(', ')
  const options = words.filter((word) => word.startsWith('-'))
  const [command, ...more] = words.filter((word) => !word.startsWith('-'))
  const unknown = options.find((option) => !['--help', '-h', '--version', '-v'].includes(option))
  if (unknown !== undefined)
    return mistake(
      `${unknown} is no option; there are --help, --version and --workers, and the environment for the rest`,
    )
  if (command !== undefined && !isCommand(command))
    return mistake(`${command} is no command; there are ${names}`)
  if (more.length > 0) return mistake(`${more[0]} is one word too many; ${command} takes none`)
  if (options.some((option) => option === '--version' || option === '-v')) return { kind: 'version' }
  if (options.length > 0) return command === undefined ? { kind: 'help' } : { kind: 'help', command }
  if (command === undefined) return mistake(`a command is missing; there are ${names}`)
  if (end >= 0) {
    const beside = all.slice(end + 1)
    if (command !== 'dev') return mistake(`-- begins what runs beside roomful dev; ${command} runs alone`)
    if (beside.length === 0) return mistake('behind -- there is no command, as in roomful dev -- vite')
    if (workers === undefined) return { kind: 'run', command, beside }
  }
  if (workers === undefined) return { kind: 'run', command }
  if (workers === '') return mistake('--workers needs a number, or auto')
  if (command !== 'control' && command !== 'dataplane')
    return mistake(
      `${command} runs in one process; --workers is for control and dataplane, which share a Redis`,
    )
  return { kind: 'run', command, workers }
}

/** Takes `--workers N` or `--workers=N` out of the words. Its value is checked as that of the variable. */
function takeWorkers(all: readonly string[]): {
  readonly words: readonly string[]
  readonly workers?: string
} {
  const at = all.findIndex((word) => word === '--workers' || word.startsWith('--workers='))
  if (at < 0) return { words: all }
  const apart = all[at] === '--workers'
  const workers = apart ? (all[at + 1] ?? '') : all[at]!.slice('--workers='.length)
  return { words: all.toSpliced(at, apart ? 2 : 1), workers }
}

const mistake = (message: string): Request => ({ kind: 'mistake', message })

/** The text of `roomful --help`, or of `roomful <command> --help`. */
export function helpText(command?: Command): string {
  const usage = command ?? '<command>'
  const commands = Object.entries(COMMANDS)
    .filter(([name]) => command === undefined || name === command)
    .map(([name, meaning]) => `  ${name.padEnd(11)}${meaning}`)
  return [
    `Usage: roomful ${usage} [--help] [--version]${command === 'dev' ? ' [-- COMMAND …]' : command === 'rekey' ? '' : ' [--workers N|auto]'}`,
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
