import { parseArgs } from 'node:util'
import { TOPICS, variables } from '../../shared/config/variables.ts'
import { type Command, describeVariables, nearestOf } from '../../shared/config.ts'

/** Parsed command line. */
type Request =
  /** `workers`: value of `WORKERS`. `beside`: words of the command that runs next to `dev`. */
  | {
      readonly kind: 'run'
      readonly command: Exclude<Command, 'admin'>
      readonly workers?: string
      readonly beside?: readonly string[]
      /** True: `dev` opens the page to other devices of the network. */
      readonly lan?: boolean
    }
  /** `about`: a topic, a variable, or `all`. */
  | { readonly kind: 'help'; readonly command?: Command; readonly about?: string }
  /** Words after `admin`, which has separate commands and options. */
  | { readonly kind: 'admin'; readonly words: readonly string[] }
  /** Words after `cluster`, which has separate options. */
  | { readonly kind: 'cluster'; readonly words: readonly string[] }
  /** Words after `types`, which has separate options. */
  | { readonly kind: 'types'; readonly words: readonly string[] }
  | { readonly kind: 'version' }
  | { readonly kind: 'schema'; readonly table: string }
  | { readonly kind: 'mistake'; readonly message: string }

/** A command that does not start a server. */
const SCHEMA = 'postgres-schema'
/** A command that starts the others. */
const CLUSTER = 'cluster'
/** A command that only reads room types. */
const TYPES = 'types'

/** Commands with their descriptions. */
export const COMMANDS: Readonly<Record<Command | typeof SCHEMA | typeof CLUSTER | typeof TYPES, string>> = {
  dev: 'control and a node in one process, without Redis. Plays the room types in ROOMS_DIR, else in ./rooms, else the example games.\n             --lan: other devices of your network can open the page; prints its address with a QR code\n             -- COMMAND: also runs this command, such as the server of your page or your backend, until one of both ends,\n             with ROOMFUL_URL, VITE_ROOMFUL_URL, CONTROL_URL and PROJECT_ID in its environment, and NOTIFY_KEY if NOTIFY_SECRET is set',
  [CLUSTER]:
    'Redis, control processes, nodes and a load balancer on this machine, with a prompt to break them; --help lists its options',
  control: 'a control process: projects, keys and tokens over HTTP',
  dataplane: 'a node: rooms and the websockets of their members',
  rekey: 'seals every private key in the store under the first KEYRING_SECRET, and ends',
  admin: 'looks into a deployment and acts on it, for operators; roomful admin lists its commands',
  [TYPES]: 'prints the types of room types for clients in Lua and Python; --help lists its options',
  [SCHEMA]: ' [TABLE]  prints the SQL statement that creates the table of roomful/postgres, by default rooms',
}

const isCommand = (word: string): word is Command =>
  word !== SCHEMA && word !== CLUSTER && word !== TYPES && Object.hasOwn(COMMANDS, word)

const OPTIONS = {
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
  workers: { type: 'string' },
  lan: { type: 'boolean' },
} as const

/** Reads the words after `roomful`. */
export function parseArguments(all: readonly string[]): Request {
  if (all[0] === 'admin') return { kind: 'admin', words: all.slice(1) }
  if (all[0] === CLUSTER || all[0] === TYPES) return { kind: all[0], words: all.slice(1) }
  const end = all.indexOf('--')
  // `npm run dev -- --lan` appends the option to the command.
  const isLast = end >= 0 && all.at(-1) === '--lan'
  const beside = end < 0 ? undefined : all.slice(end + 1, isLast ? -1 : undefined)
  const { values, positionals, tokens } = parseArgs({
    args: end < 0 ? [...all] : all.slice(0, end),
    options: OPTIONS,
    allowPositionals: true,
    // The errors of `parseArgs` do not mention environment variables.
    strict: false,
    tokens: true,
  })
  const options = tokens.filter((token) => token.kind === 'option')
  for (const { name, rawName, value, index } of options) {
    const isGroup = !rawName.startsWith('--') && all[index] !== rawName
    if (isGroup || !Object.hasOwn(OPTIONS, name)) return mistake(wrongOption(all[index]!))
    if (name !== 'workers' && value !== undefined)
      return mistake(
        `${rawName} accepts no value, but has ${value}: ${name === 'help' ? 'write it behind a space' : 'leave it out'}`,
      )
  }
  if (options.filter(({ name }) => name === 'workers').length > 1)
    return mistake('--workers is given twice; once is enough')
  const [command, ...more] = positionals
  // Without a value, the option is true.
  const workers = typeof values.workers === 'boolean' ? '' : values.workers
  if (values.version) return { kind: 'version' }
  if (values.help) return help(positionals.filter((word) => word !== SCHEMA))
  if (command === undefined) return mistake(`a command is missing; there are ${COMMAND_NAMES.join(', ')}`)
  if (command === CLUSTER) return mistake('cluster comes before its options, as in roomful cluster --nodes 2')
  if (command === TYPES)
    return mistake('types comes before its options, as in roomful types --lang lua rooms/')
  if (command === SCHEMA)
    return !beside && workers === undefined && more.length < 2
      ? { kind: 'schema', table: more[0] ?? 'rooms' }
      : mistake(`${command} needs the name of a table, and nothing else`)
  if (!isCommand(command)) return mistake(`${command} is not a command${instead(command, COMMAND_NAMES)}`)
  if (command === 'admin') return mistake('admin comes before its options, as in roomful admin nodes --json')
  if (more.length > 0) return mistake(`${more[0]} is one word too many; ${command} accepts none`)
  if (beside && command !== 'dev')
    return mistake(`-- begins what runs beside roomful dev; ${command} runs alone`)
  const lan = isLast || values.lan === true
  if (lan && command !== 'dev')
    return mistake(`--lan is for roomful dev; ${command} listens at its variables`)
  if (beside?.length === 0) return mistake('there is no command after --, as in roomful dev -- vite')
  if (workers === '') return mistake('--workers needs a number, or auto')
  if (workers !== undefined && command !== 'control' && command !== 'dataplane')
    return mistake(
      `${command} runs in one process; --workers is for control and dataplane, which share a Redis`,
    )
  return {
    kind: 'run',
    command,
    ...(workers !== undefined && { workers }),
    ...(beside && { beside }),
    ...(lan && { lan }),
  }
}

const COMMAND_NAMES = Object.keys(COMMANDS)
const VARIABLE_NAMES = variables().map(([name]) => name as string)
const ABOUT = ['all', ...Object.keys(TOPICS), ...VARIABLE_NAMES]

/** Reads the subject of `--help`: a command, a topic, a variable, or `all`. */
function help(words: readonly string[]): Request {
  const wrong = words.find((word) => !isCommand(word) && !ABOUT.includes(word))
  if (wrong !== undefined) {
    const topics = ['all', ...Object.keys(TOPICS)]
    const meant = nearestOf(wrong, [...COMMAND_NAMES, ...topics]) ?? nearestOf(wrong.toUpperCase(), ABOUT)
    return mistake(
      `there is no help about ${wrong}${meant ? `, but about ${meant}` : `; there is about ${topics.join(', ')}`}`,
    )
  }
  const command = words.find(isCommand)
  const about = words.find((word) => !isCommand(word))
  return { kind: 'help', ...(command && { command }), ...(about !== undefined && { about }) }
}

/** Returns the error of an unknown option, with a suggestion: many users try an option for which there is a variable. */
function wrongOption(option: string): string {
  const [flag = '', value = '…'] = option.split('=')
  const meant = nearestOf(flag, ['--help', '--version', '--workers', '--lan'])
  if (meant !== undefined) return `${flag} is no option. Did you mean ${meant}?`
  const name = flag.replace(/^-+/, '').replaceAll('-', '_').toUpperCase()
  const variable =
    VARIABLE_NAMES.find((one) => one === name) ??
    VARIABLE_NAMES.find((one) => one.endsWith(`_${name}`)) ??
    nearestOf(name, VARIABLE_NAMES)
  const hint =
    variable === undefined
      ? 'the environment has the rest'
      : `${variable}=${value} in the environment may be what you mean`
  return `${flag} is no option; there are --help, --version, --workers and --lan, and ${hint}`
}

const instead = (word: string, names: readonly string[]): string => {
  const meant = nearestOf(word, names)
  return meant === undefined ? `; there are ${names.join(', ')}` : `. Did you mean ${meant}?`
}

const mistake = (message: string): Request => ({ kind: 'mistake', message })

/** Returns the text of `roomful [command] --help [about]`. */
export function helpText({
  command,
  about,
}: {
  readonly command?: Command
  readonly about?: string
} = {}): string {
  const rows = variables().filter(([, { readBy }]) => command === undefined || readBy.includes(command))
  const of = (topic: string) =>
    rows.filter(([name, variable]) => [variable.topic, name, 'all'].includes(topic))
  if (about !== undefined) return `${describeVariables(of(about)) || `  ${command} reads none of these.`}\n`
  const options =
    command === 'dev'
      ? ' [--lan] [-- COMMAND …]'
      : command === 'rekey' || command === 'admin'
        ? ''
        : ' [--workers N|auto]'
  const commands = Object.entries(COMMANDS)
    .filter(([name]) => command === undefined || name === command)
    .map(([name, meaning]) => `  ${name.padEnd(11)}${meaning}`)
  const required = rows.filter(
    ([, { requiredBy = [] }]) => command !== undefined && requiredBy.includes(command),
  )
  const ports = of('ports').map(
    ([name, { help, default: given = '' }]) => `  ${name.padEnd(15)}${given.padEnd(23)}${help}`,
  )
  const topics = Object.entries(TOPICS)
    .filter(([topic]) => of(topic).length > 0)
    .map(([topic, meaning]) => `  --help ${topic.padEnd(9)}${meaning}`)
  return [
    `Usage: roomful ${command ?? '<command>'} [--help [TOPIC]] [--version]${options}`,
    '',
    ...commands,
    '',
    ...(required.length > 0 ? ['It needs:', '', describeVariables(required), ''] : []),
    ...(ports.length > 0 ? ['Environment variables, the most used first:', '', ...ports, ''] : []),
    ...topics,
    `  --help ${'all'.padEnd(9)}every variable; NAME_FILE instead of NAME reads it from a file`,
    '',
  ].join('\n')
}
