import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { distance } from 'fastest-levenshtein'
import * as v from 'valibot'
import type { ClientSettings } from './clients/client.ts'
import { LONGEST_TOKEN_SECONDS } from './issuer.ts'
import { LIMIT_KINDS, type Limit, limitHelp, parseLimits } from './limits.ts'
import type { MetricsSource } from './metrics.ts'
import type { Prospect, Scenario, ScenarioOption } from './scenario.ts'
import { count } from './view/text.ts'

/** A service that runs already. */
export interface TargetOptions {
  readonly controlUrl: string
  /** Operator token of the control API, where it wants one. */
  readonly controlToken: string | undefined
  /** Given instead of being asked of control. */
  readonly credentials: { readonly projectId: string; readonly token: string } | undefined
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
}

/** What a run is to be. */
export interface RunOptions extends Pick<ClientSettings, 'roomType' | 'message' | 'seed'> {
  readonly scenario: Scenario
  /** The options of the scenario, given or default. */
  readonly values: Readonly<Record<string, number | string>>
  /** A number: so many nodes are started for the run. */
  readonly target: TargetOptions | number
  readonly runs: number
  readonly threads: number
  /** The folder for the reports. */
  readonly out: string
  readonly limits: readonly Limit[]
}

/** What the words behind `npm run loadtest --` ask for. */
export type RunRequest =
  | { readonly kind: 'run'; readonly options: RunOptions }
  | { readonly kind: 'help'; readonly scenario: Scenario | undefined }
  | { readonly kind: 'mistake'; readonly message: string }

/** Options of every scenario: the word that stands for the value, and the meaning. */
export const COMMON_OPTIONS = {
  control: ['URL', 'the control API; default http://127.0.0.1:3000'],
  'control-token': [
    'TOKEN',
    'its operator token; default: the first of CONTROL_API_TOKENS, or of the file CONTROL_API_TOKENS_FILE',
  ],
  ws: ['URL,…', 'where clients connect, spread over all that are given; default ws://127.0.0.1:4000'],
  metrics: [
    'URL,…',
    'admin addresses of nodes (such as http://127.0.0.1:9100), whose metrics are read once a second',
  ],
  local: ['N', 'starts a service of N nodes for this run instead, and ends it again'],
  project: ['ID', 'with --token: use this project, and ask nothing of control'],
  token: ['TOKEN', 'with --project: what all clients connect with'],
  'room-type': ['TYPE', 'a room type of your own; needs --message'],
  message: ['TYPE:JSON', 'what its members send, such as move:{"x":1,"y":2}'],
  runs: ['N', 'of scenarios that measure something: how often'],
  threads: ['N', 'at most so many threads hold clients; default: the cores, at most 4'],
  seed: ['N', 'what randomness begins with (how long clients wait before they reconnect); default 1'],
  out: ['FOLDER', 'where the reports go; default loadtest-report'],
} as const satisfies Readonly<Record<string, readonly [placeholder: string, meaning: string]>>
type CommonName = keyof typeof COMMON_OPTIONS

type Values = Readonly<Record<string, string | boolean | undefined>>
type Environment = Readonly<Record<string, string | undefined>>

const MOST_NODES = 9
const MOST_THREADS = 64
/** What only makes sense with a service that runs already. */
const OF_TARGETS = ['control', 'control-token', 'ws', 'metrics', 'project', 'token']
/** What a process needs besides one file for each client. */
const OTHER_FILES = 200

const NUMBER = /^(\d+(?:\.\d+)?) ?(s|min|h|%|)$/
const FACTORS: Readonly<Record<string, number>> = { '': 1, s: 1, min: 60, h: 3600, '%': 0.01 }

/** A number above 0 with one of these suffixes. */
const measured = (message: string, suffixes: readonly string[], most = Number.POSITIVE_INFINITY) =>
  v.pipe(
    v.string(),
    v.transform((text) => {
      const [, digits, suffix = ''] = NUMBER.exec(text) ?? []
      return suffixes.includes(suffix) ? Number(digits) * FACTORS[suffix]! : Number.NaN
    }),
    v.check((value) => value > 0 && value <= most, message),
  )

/** What options of scenarios can be; the message of a schema says what it takes. */
const KINDS = {
  count: {
    placeholder: 'N',
    schema: v.pipe(
      v.string(),
      v.regex(/^[1-9]\d{0,8}$/, 'a whole number from 1 to 999999999'),
      v.transform(Number),
    ),
  },
  number: { placeholder: 'NUMBER', schema: measured('a number above 0, such as 2.5', ['']) },
  seconds: {
    placeholder: 'SECONDS',
    schema: measured('a number of seconds above 0, or with its unit, such as 90s or 5min', [
      '',
      's',
      'min',
      'h',
    ]),
  },
  share: { placeholder: 'SHARE', schema: measured('a share above 0, such as 0.25 or 25%', ['', '%'], 1) },
  text: { placeholder: 'TEXT', schema: v.string() },
} as const satisfies Readonly<Record<ScenarioOption['kind'], { placeholder: string; schema: unknown }>>

const wholeNumber = (most: number) =>
  v.pipe(
    v.string(),
    v.regex(/^[1-9]\d{0,8}$/, `1 to ${most}`),
    v.transform(Number),
    v.maxValue(most, `1 to ${most}`),
  )

const address = (...protocols: string[]) =>
  v.pipe(
    v.string(),
    v.check(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `a URL with ${protocols.map((each) => `${each}//`).join(' or ')}`,
    ),
    v.transform((text) => text.replace(/\/+$/, '')),
  )
const HTTP = address('http:', 'https:')
const WEBSOCKET = address('ws:', 'wss:')

/** Reads the value of an option; throws an Error that says what was wrong and what would be right. */
function read<T>(name: string, text: string, schema: v.GenericSchema<string, T>): T {
  const { success, output, issues } = v.safeParse(schema, text)
  if (!success) throw new Error(`--${name} is "${text}"; it may be: ${issues[0].message}`)
  return output
}

/** Reads the words behind the command. `cores`: of this machine. */
export function parseRun(
  words: readonly string[],
  scenarios: readonly Scenario[],
  env: Environment,
  cores: number,
): RunRequest {
  const [name, ...rest] = words
  if (name === undefined || ['help', '--help', '-h'].includes(name))
    return { kind: 'help', scenario: undefined }
  const scenario = scenarios.find((each) => each.name === name)
  if (!scenario) return { kind: 'mistake', message: noScenario(name, scenarios) }
  try {
    const values = readWords(rest, scenario)
    if (values.help) return { kind: 'help', scenario }
    return { kind: 'run', options: runOptions(scenario, values, env, cores) }
  } catch (error) {
    return { kind: 'mistake', message: error instanceof Error ? error.message : String(error) }
  }
}

function noScenario(name: string, scenarios: readonly Scenario[]): string {
  const names = scenarios.map((each) => each.name)
  const all = `there are ${names.join(', ')}`
  if (name.startsWith('-')) return `The scenario comes first, before ${name}; ${all}`
  return `${name} is no scenario${suggestion(name.toLowerCase(), names)}; ${all}`
}

/** What may have been meant by a mistyped word. */
function suggestion(word: string, known: readonly string[]): string {
  const longer = known.filter((candidate) => candidate.startsWith(word))
  if (longer.length > 0) return ` (${longer.slice(0, 3).join(', ')}${longer.length > 3 ? ', …' : ''}?)`
  const [nearest] = known
    .map((candidate) => ({ candidate, letters: distance(word, candidate) }))
    .sort((a, b) => a.letters - b.letters)
  return nearest && nearest.letters <= Math.max(1, word.length / 4) ? ` (${nearest.candidate}?)` : ''
}

function readWords(words: readonly string[], scenario: Scenario): Values {
  const known = [
    ...Object.keys(COMMON_OPTIONS),
    ...Object.keys(scenario.options),
    ...LIMIT_KINDS.map((kind) => kind.name),
  ]
  const takes = { type: 'string', multiple: true } as const
  const { values, positionals, tokens } = parseArgs({
    args: [...words],
    options: {
      ...Object.fromEntries(known.map((name) => [name, takes])),
      help: { type: 'boolean', short: 'h' },
    },
    strict: false,
    tokens: true,
  })
  for (const token of tokens)
    if (token.kind === 'option' && !known.includes(token.name) && token.name !== 'help') {
      const meant = suggestion(
        token.rawName,
        known.map((name) => `--${name}`),
      )
      throw new Error(
        `${token.rawName} is no option of ${scenario.name}${meant}; npm run loadtest -- ${scenario.name} --help lists them`,
      )
    }
  if (positionals.length > 0)
    throw new Error(`${positionals[0]} is one word too many; values go behind an option`)
  return Object.fromEntries(
    Object.entries(values).map(([name, given]) => {
      if (!Array.isArray(given)) return [name, given]
      if (given.some((value) => typeof value !== 'string' || value === ''))
        throw new Error(`--${name} needs a value`)
      if (given.length > 1 && name !== 'ws' && name !== 'metrics')
        throw new Error(`--${name} is given ${given.length} times; once is enough`)
      return [name, given.join(',')]
    }),
  )
}

function runOptions(scenario: Scenario, values: Values, env: Environment, cores: number): RunOptions {
  const text = (name: CommonName): string | undefined => values[name] as string | undefined
  const whole = (name: CommonName, most: number): number | undefined => {
    const given = text(name)
    return given === undefined ? undefined : read(name, given, wholeNumber(most))
  }
  const local = whole('local', MOST_NODES)
  if (scenario.service === 'local' && local === undefined)
    throw new Error(
      `${scenario.name} looks into the processes of a service or ends them, and does so only to those it has started itself: add --local 3 (1 to ${MOST_NODES} nodes)`,
    )
  const ofTarget = OF_TARGETS.find((name) => values[name] !== undefined)
  if (local !== undefined && ofTarget !== undefined)
    throw new Error(`--local starts a service of its own: leave out --${ofTarget}`)
  if (scenario.service === 'own' && (local !== undefined || ofTarget !== undefined))
    throw new Error(
      `${scenario.name} starts the servers it compares itself: leave out --${ofTarget ?? 'local'}`,
    )
  if (scenario.runs === undefined && values.runs !== undefined)
    throw new Error(`${scenario.name} is done once: leave out --runs`)
  return {
    scenario,
    values: Object.fromEntries(
      Object.entries(scenario.options).map(([name, option]) => {
        const given = values[name]
        const schema: v.GenericSchema<string, number | string> = KINDS[option.kind].schema
        return [name, typeof given === 'string' ? read(name, given, schema) : option.default]
      }),
    ),
    target: local ?? targetOptions(text, env),
    runs: whole('runs', 1000) ?? scenario.runs ?? 1,
    threads: whole('threads', MOST_THREADS) ?? Math.min(4, cores),
    ...ownRoom(text('room-type'), text('message')),
    seed: whole('seed', 999_999_999) ?? 1,
    out: text('out') ?? 'loadtest-report',
    limits: parseLimits(values),
  }
}

function targetOptions(text: (name: CommonName) => string | undefined, env: Environment): TargetOptions {
  const [projectId, token] = [text('project'), text('token')]
  if ((projectId === undefined) !== (token === undefined))
    throw new Error('--project and --token belong together: give both, or neither')
  const wsUrls = list(text('ws') ?? 'ws://127.0.0.1:4000').map((url) => read('ws', url, WEBSOCKET))
  const controlUrl = read('control', text('control') ?? 'http://127.0.0.1:3000', HTTP)
  if (projectId === undefined)
    requireSameService(text('ws') ? wsUrls : undefined, text('control') ? controlUrl : undefined)
  return {
    controlUrl,
    controlToken: text('control-token') ?? operatorToken(env),
    credentials: projectId === undefined || token === undefined ? undefined : { projectId, token },
    wsUrls,
    metrics: list(text('metrics') ?? '').map((given) => {
      const url = read('metrics', given, HTTP).replace(/\/metrics$/, '')
      return { name: new URL(url).host, url }
    }),
  }
}

/** A service elsewhere that is named in part is meant as a whole: a token from here would not be good there. undefined: the default, here. */
function requireSameService(wsUrls: readonly string[] | undefined, controlUrl: string | undefined): void {
  const elsewhere = (url: string): boolean => !/^(localhost|127\.[\d.]+|\[::1\])$/.test(new URL(url).hostname)
  if (controlUrl === undefined && wsUrls?.some(elsewhere))
    throw new Error(
      `--ws is "${wsUrls.join(',')}", but its tokens would come from http://127.0.0.1:3000: add --control URL, or --project ID and --token TOKEN`,
    )
  if (wsUrls === undefined && controlUrl !== undefined && elsewhere(controlUrl))
    throw new Error(
      `--control is "${controlUrl}", but clients would connect to ws://127.0.0.1:4000: add --ws URL`,
    )
}

const list = (text: string): string[] => (text === '' ? [] : text.split(','))

function operatorToken(env: Environment): string | undefined {
  const { CONTROL_API_TOKENS: tokens, CONTROL_API_TOKENS_FILE: file } = env
  const text = tokens || (file ? readFileSync(file, 'utf8') : '')
  return text.split(',')[0]?.trim() || undefined
}

function ownRoom(
  roomType: string | undefined,
  message: string | undefined,
): Pick<RunOptions, 'roomType' | 'message'> {
  if (roomType === undefined && message === undefined) return { roomType: 'load', message: undefined }
  if (roomType === undefined || message === undefined)
    throw new Error(
      '--room-type and --message belong together: --room-type arena --message \'move:{"x":1,"y":2}\'',
    )
  const [, type, json] = /^([^:]+):(.+)$/s.exec(message) ?? []
  try {
    return { roomType, message: { type: type!, data: JSON.parse(json!) } }
  } catch {
    throw new Error(
      `--message is "${message}"; it may be: a message type, a colon and JSON, such as move:{"x":1,"y":2}`,
    )
  }
}

/** Every option as it holds, given or default, without secrets. */
export function optionsTold(options: RunOptions): Record<string, string> {
  const { scenario, values, target, runs, threads, roomType, message, seed, limits } = options
  const place =
    typeof target === 'number'
      ? { local: String(target) }
      : {
          ws: target.wsUrls.join(','),
          ...(target.credentials
            ? { project: target.credentials.projectId }
            : { control: target.controlUrl }),
          ...(target.metrics.length > 0 && { metrics: target.metrics.map(({ url }) => url).join(',') }),
        }
  return {
    ...Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)])),
    ...(scenario.service !== 'own' && place),
    ...(scenario.runs !== undefined && { runs: String(runs) }),
    threads: String(threads),
    ...(message && { 'room-type': roomType, message: `${message.type}:${JSON.stringify(message.data)}` }),
    seed: String(seed),
    ...Object.fromEntries(limits.map(({ kind, limit }) => [kind.name, `${limit}${kind.unit}`])),
  }
}

/**
 * Why a run cannot come to what is asked for, a line each; empty: nothing is known against it. `openFiles`: how many this process may
 * have; undefined: it is not known.
 */
export function objections(
  { scenario, target, limits }: RunOptions,
  { clients, seconds, timings, revokes }: Prospect,
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
  if (revokes && typeof target !== 'number' && target.credentials)
    problems.push(
      `${scenario.name} revokes a key, so it needs the control API: leave out --project and --token.`,
    )
  const known: ReadonlySet<string> = timings
  for (const { kind } of limits)
    if (kind.timing !== undefined && !known.has(kind.timing))
      problems.push(
        `--${kind.name}: ${scenario.name} does nothing that would be measured by it; leave it out.`,
      )
    else if (kind.ofServers && typeof target !== 'number' && target.metrics.length === 0)
      problems.push(`--${kind.name} is about what the servers say of themselves: add --metrics URL,…`)
  return problems
}

const rows = (all: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...all.map(([left]) => left.length))
  return all.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}

const commonHelp = (): string =>
  rows([
    ...Object.entries(COMMON_OPTIONS).map(
      ([name, [placeholder, meaning]]) => [`--${name} ${placeholder}`, meaning] as const,
    ),
    ['--help', 'this; behind a scenario: with its own options'],
  ])

/** What `--help` says, of all scenarios or of one. */
export function help(scenarios: readonly Scenario[], scenario: Scenario | undefined): string {
  if (scenario) return helpOf(scenario)
  const named = (measures: boolean): string =>
    rows(
      scenarios
        .filter(({ runs }) => (runs !== undefined) === measures)
        .map(({ name, meaning }) => [name, meaning]),
    )
  return `Usage: npm run loadtest -- SCENARIO [options]

Puts load on a service, and looks whether it keeps its promises meanwhile.

Scenarios (npm run loadtest -- SCENARIO --help shows their options):
${named(false)}

Measurements, on servers of their own:
${named(true)}

Options of all:
${commonHelp()}

Limits, which decide the exit code:
${rows(limitHelp())}

Exit codes:
${rows([
  ['0', 'all is well'],
  ['1', 'something is not'],
  ['2', 'the command is wrong, or the folder for the reports cannot be used'],
  ['3', 'all is well, but the reports are not where they belong'],
  ['130', 'interrupted, and all was well until then (143: by SIGTERM, 129: the terminal is gone)'],
])}

Ctrl-C ends a run before its time, with a report; twice: at once, without.
`
}

function helpOf({ name, meaning, options }: Scenario): string {
  const own = Object.entries(options).map(
    ([option, { kind, meaning: what, default: given }]) =>
      [`--${option} ${KINDS[kind].placeholder}`, `${what}; default ${given}`] as const,
  )
  return `Usage: npm run loadtest -- ${name} [options]

${meaning}

${rows(own)}

Options of all scenarios:
${commonHelp()}

Limits:
${rows(limitHelp())}
`
}
