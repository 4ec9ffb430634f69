import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { nearestOf } from '../shared/config.ts'
import { LONGEST_TOKEN_SECONDS } from './issuer.ts'
import { LIMIT_KINDS, LIMIT_OPTIONS, type Limits, limitHelp, limitsOf } from './judge.ts'
import type { MetricsSource } from './metrics.ts'
import {
  listOf,
  type Options,
  option,
  optional,
  type Read,
  readValues,
  type Texts,
  type Values,
  valid,
  wholeNumber,
} from './option-kinds.ts'
import type { ClientSettings } from './players/client.ts'
import type { RunPlan, Scenario } from './scenario.ts'
import { count } from './text.ts'

/** A running service. */
export interface TargetOptions {
  readonly controlUrl: string
  /** Operator token of the control API. */
  readonly controlToken: string | undefined
  /** Credentials instead of a token from control. */
  readonly credentials: { readonly projectId: string; readonly token: string } | undefined
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
}

/** Options of the command line. */
export interface RunOptions extends Pick<ClientSettings, 'roomType' | 'message' | 'seed'> {
  readonly scenario: Scenario
  readonly values: Values<Options>
  /** A number of nodes that are started for the run. */
  readonly target: TargetOptions | number
  readonly runs: number
  readonly threads: number
  /** The folder for the reports. */
  readonly out: string
  readonly limits: Limits
  /** Every option, given or default, without secrets. */
  readonly told: Readonly<Record<string, string>>
}

type RunRequest =
  | { readonly kind: 'run'; readonly options: RunOptions }
  | { readonly kind: 'help'; readonly scenario: Scenario | undefined }
  | { readonly kind: 'mistake'; readonly message: string }

const text: Read<string> = (given) => given
const address = (...protocols: string[]): Read<string> =>
  valid(
    `a URL with ${protocols.map((each) => `${each}//`).join(' or ')}`,
    (given) => given.replace(/\/+$/, ''),
    (url) => URL.canParse(url) && protocols.includes(new URL(url).protocol),
  )
const HTTP = address('http:', 'https:')
const metricsAt: Read<MetricsSource> = (given) => {
  const url = HTTP(given).replace(/\/metrics$/, '')
  return { name: new URL(url).host, url }
}
const message: Read<NonNullable<ClientSettings['message']>> = (given) => {
  const [, type = '', json = ''] = /^([^:]+):(.+)$/s.exec(given) ?? []
  try {
    return { type, data: JSON.parse(json) }
  } catch {
    throw new Error('a message type, a colon and JSON, such as move:{"x":1,"y":2}')
  }
}

const MOST_NODES = 9
const CONTROL_URL = 'http://127.0.0.1:3000'
const WS_URL = 'ws://127.0.0.1:4000'
const OPERATOR =
  'its operator token; default: the first of CONTROL_API_TOKENS, or of the file CONTROL_API_TOKENS_FILE'

/** Options of every scenario that need a running service. */
const TARGET_OPTIONS = {
  control: option('URL', 'the control API', HTTP, CONTROL_URL),
  'control-token': { ...optional('TOKEN', OPERATOR, text), secret: true },
  ws: option('URL,…', 'addresses to which clients connect, evenly spread', listOf(address('ws:', 'wss:')), [
    WS_URL,
  ]),
  metrics: optional(
    'URL,…',
    'admin addresses of nodes (such as http://127.0.0.1:9100), whose metrics are read once a second',
    listOf(metricsAt),
  ),
  project: optional('ID', 'with --token: project to use, without control', text),
  token: { ...optional('TOKEN', 'with --project: token of all clients', text), secret: true },
}

/** Options of every scenario. */
export const COMMON_OPTIONS = {
  local: optional('N', 'starts a service of N nodes for this run', wholeNumber(MOST_NODES)),
  ...TARGET_OPTIONS,
  'room-type': optional('TYPE', 'a custom room type; needs --message', text),
  message: optional('TYPE:JSON', 'message of its members, such as move:{"x":1,"y":2}', message),
  runs: optional('N', 'repetitions of a scenario that measures something', wholeNumber(1000)),
  threads: optional(
    'N',
    'maximum number of threads for clients; default: the number of cores, at most 4',
    wholeNumber(64),
  ),
  seed: option('N', 'seed of randomness (of the delays of reconnects)', wholeNumber(999_999_999), 1),
  out: option('FOLDER', 'folder for the reports', text, 'loadtest-report'),
} satisfies Options
type CommonValues = Values<typeof COMMON_OPTIONS>
type Environment = Readonly<Record<string, string | undefined>>

/** Reads the words of the command line. `cores`: number of cores of this machine. */
export function parseRun(
  words: readonly string[],
  scenarios: readonly Scenario[],
  env: Environment,
  cores: number,
): RunRequest {
  const [name, ...rest] = words
  if (name === undefined || ['help', '--help', '-h'].includes(name))
    return { kind: 'help', scenario: undefined }
  const names = scenarios.map((each) => each.name)
  try {
    const scenario = scenarios.find((each) => each.name === name)
    if (!scenario && name.startsWith('-'))
      throw new Error(`The scenario comes first, before ${name}; there are ${names.join(', ')}`)
    if (!scenario)
      throw new Error(
        `${name} is no scenario${suggestion(name.toLowerCase(), names)}; there are ${names.join(', ')}`,
      )
    const texts = readWords(rest, scenario)
    if (texts === 'help') return { kind: 'help', scenario }
    return { kind: 'run', options: runOptions(scenario, texts, env, cores) }
  } catch (error) {
    return { kind: 'mistake', message: error instanceof Error ? error.message : String(error) }
  }
}

/** Returns the words that a mistyped word may stand for. */
function suggestion(word: string, known: readonly string[]): string {
  const longer = known.filter((candidate) => candidate.startsWith(word))
  if (longer.length > 0) return ` (${longer.slice(0, 3).join(', ')}${longer.length > 3 ? ', …' : ''}?)`
  const nearest = nearestOf(word, known)
  return nearest === undefined ? '' : ` (${nearest}?)`
}

function readWords(words: readonly string[], scenario: Scenario): Texts | 'help' {
  const known = Object.keys({ ...COMMON_OPTIONS, ...scenario.options, ...LIMIT_OPTIONS })
  const takes = { type: 'string', multiple: true } as const
  const options = Object.fromEntries(known.map((name) => [name, takes]))
  const { values, positionals } = parseArgs({
    args: [...words],
    options: { ...options, help: { type: 'boolean', short: 'h' } },
    strict: false,
  })
  const { help, ...given } = values as Record<string, unknown>
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue
    const meant = suggestion(
      `--${name}`,
      known.map((each) => `--${each}`),
    )
    throw new Error(
      `--${name} is no option of ${scenario.name}${meant}; npm run loadtest -- ${scenario.name} --help lists them`,
    )
  }
  if (positionals.length > 0)
    throw new Error(`${positionals[0]} is one word too many; values go behind an option`)
  if (help) return 'help'
  return Object.fromEntries(
    Object.entries(given).map(([name, all]) => {
      if (!Array.isArray(all) || all.some((value) => typeof value !== 'string' || value === ''))
        throw new Error(`--${name} needs a value`)
      if (all.length > 1 && name !== 'ws' && name !== 'metrics')
        throw new Error(`--${name} is given ${all.length} times; once is enough`)
      return [name, all.join(',')]
    }),
  )
}

function runOptions(scenario: Scenario, texts: Texts, env: Environment, cores: number): RunOptions {
  const all = { ...scenario.options, ...COMMON_OPTIONS, ...LIMIT_OPTIONS }
  const values = readValues(all, texts)
  const common: CommonValues = values
  const { local } = common
  if (scenario.local && local === undefined)
    throw new Error(
      `${scenario.name} looks into the processes of a service or ends them, and does so only to those it has started itself: add --local 3 (1 to ${MOST_NODES} nodes)`,
    )
  const ofTarget = Object.keys(TARGET_OPTIONS)
  const given = ofTarget.find((name) => texts[name] !== undefined)
  if (local !== undefined && given !== undefined)
    throw new Error(`--local starts a new service: leave out --${given}`)
  if (scenario.runs === undefined && common.runs !== undefined)
    throw new Error(`${scenario.name} is done once: leave out --runs`)
  const roomType = common['room-type']
  if ((roomType === undefined) !== (common.message === undefined))
    throw new Error(
      '--room-type and --message belong together: --room-type arena --message \'move:{"x":1,"y":2}\'',
    )
  const target = local ?? targetOptions(common, texts, env)
  const runs = common.runs ?? scenario.runs ?? 1
  const threads = common.threads ?? Math.min(4, cores)
  const untold = [
    'out',
    ...(local !== undefined ? ofTarget : []),
    ...(texts.project === undefined ? [] : ['control']),
  ]
  const holds: Texts = { ...texts, ...(scenario.runs && { runs: String(runs) }), threads: String(threads) }
  const told = Object.entries(all).flatMap(([name, { secret, default: otherwise }]) => {
    const value = holds[name] ?? otherwise
    return secret || value === undefined || untold.includes(name) ? [] : [[name, String(value)]]
  })
  return {
    scenario,
    values,
    target,
    runs,
    threads,
    roomType: roomType ?? 'load',
    message: common.message,
    seed: common.seed,
    out: common.out,
    limits: limitsOf(values),
    told: Object.fromEntries(told),
  }
}

function targetOptions(values: CommonValues, texts: Texts, env: Environment): TargetOptions {
  const { project: projectId, token, ws: wsUrls, control: controlUrl } = values
  if ((projectId === undefined) !== (token === undefined))
    throw new Error('--project and --token belong together: give both, or neither')
  const credentials = projectId === undefined || token === undefined ? undefined : { projectId, token }
  // With one foreign address and the other by default, tokens of this machine would be used for the foreign one.
  const elsewhere = (url: string): boolean => !/^(localhost|127\.[\d.]+|\[::1\])$/.test(new URL(url).hostname)
  if (!credentials && texts.control === undefined && wsUrls.some(elsewhere))
    throw new Error(
      `--ws is "${texts.ws}", but its tokens would come from ${CONTROL_URL}: add --control URL, or --project ID and --token TOKEN`,
    )
  if (!credentials && texts.ws === undefined && elsewhere(controlUrl))
    throw new Error(`--control is "${texts.control}", but clients would connect to ${WS_URL}: add --ws URL`)
  const { CONTROL_API_TOKENS: tokens, CONTROL_API_TOKENS_FILE: file } = env
  const operator = tokens || (file ? readFileSync(file, 'utf8') : '')
  return {
    controlUrl,
    controlToken: values['control-token'] ?? (operator.split(',')[0]?.trim() || undefined),
    credentials,
    wsUrls,
    metrics: values.metrics ?? [],
  }
}

/** Number of files that a process needs in addition to one for each client. */
const OTHER_FILES = 200

/** Returns the reasons why a run cannot succeed, one per line. `openFiles`: the limit of this process. Undefined: unknown. */
export function obstacles(
  { scenario, target, limits }: RunOptions,
  { clients, seconds }: RunPlan,
  openFiles: number | undefined,
): string[] {
  const most = openFiles === undefined ? Number.POSITIVE_INFINITY : openFiles - OTHER_FILES
  const hours = (duration: number): string => count(duration / 3600)
  const problems: string[] = []
  if (clients > most)
    problems.push(
      `${count(clients)} clients are too many for this process, which may open ${count(openFiles!)} files (ulimit -n): ${count(Math.max(0, most))} at most. More take several machines, each with its part of them.`,
    )
  if (seconds > LONGEST_TOKEN_SECONDS)
    problems.push(
      `It would take ${hours(seconds)} h, and no token is good for more than ${hours(LONGEST_TOKEN_SECONDS)} h: make it shorter.`,
    )
  if (scenario.revokes && typeof target !== 'number' && target.credentials)
    problems.push(
      `${scenario.name} revokes a key, so it needs the control API: leave out --project and --token.`,
    )
  const timings: readonly string[] = ['connect', 'join', 'rtt', ...(scenario.timings ?? [])]
  for (const name of Object.keys(limits)) {
    const { timing, ofServers } = LIMIT_KINDS[name]!
    if (timing !== undefined && !timings.includes(timing))
      problems.push(`--${name}: ${scenario.name} does nothing that would be measured by it; leave it out.`)
    else if (ofServers && typeof target !== 'number' && target.metrics.length === 0)
      problems.push(`--${name} is about what the servers report about themselves: add --metrics URL,…`)
  }
  return problems
}

/** Returns options as rows of the help and of the documentation. */
export const optionHelp = (options: Options): [string, string][] =>
  Object.entries(options).map(([name, { placeholder, meaning, default: given }]) => [
    `--${name} ${placeholder}`,
    given === undefined ? meaning : `${meaning}; default ${given}`,
  ])

/** Returns a section of a help: a title, and rows of two columns. */
export function section(title: string, rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([left]) => left.length))
  return `${title}\n${rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')}\n`
}

/** Returns the text of `--help`, for all scenarios or for one. */
export function help(scenarios: readonly Scenario[], scenario: Scenario | undefined): string {
  const common = section(scenario ? 'Options of all scenarios:' : 'Options of all:', [
    ...optionHelp(COMMON_OPTIONS),
    ['--help', 'this; behind a scenario: with its own options'],
  ])
  const limits = section(scenario ? 'Limits:' : 'Limits, which decide the exit code:', limitHelp())
  if (scenario)
    return [
      `Usage: npm run loadtest -- ${scenario.name} [options]\n\n${scenario.meaning}\n`,
      section('Options:', optionHelp(scenario.options)),
      common,
      limits,
    ].join('\n')
  const named = (measures: boolean): [string, string][] =>
    scenarios
      .filter(({ runs }) => (runs !== undefined) === measures)
      .map(({ name, meaning }) => [name, meaning])
  return [
    'Usage: npm run loadtest -- SCENARIO [options]\n\nPuts load on a service, and checks its promises.\n',
    section('Scenarios (npm run loadtest -- SCENARIO --help shows their options):', named(false)),
    section('Measurements, with a separate service:', named(true)),
    common,
    limits,
    section('Exit codes:', [
      ['0', 'the run passed'],
      ['1', 'a promise was broken, a limit was exceeded, or something failed'],
      ['2', 'the command is wrong, or the folder for the reports cannot be used'],
      ['3', 'the run passed, but its reports could not be written into the folder'],
      ['130', 'interrupted, and all was well until then (143: by SIGTERM, 129: the terminal is gone)'],
    ]),
    'Ctrl-C ends a run early, with a report. A second Ctrl-C ends it immediately, without a report.\n',
  ].join('\n')
}
