import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { distance } from 'fastest-levenshtein'
import * as v from 'valibot'
import type { Json } from '../shared/json.ts'
import type { ClientSettings } from './clients/client.ts'
import { LONGEST_TOKEN_SECONDS } from './issuer.ts'
import { LIMIT_KINDS, LIMIT_OPTIONS, type Limits, limitHelp, parseLimits } from './limits.ts'
import type { MetricsSource } from './metrics.ts'
import { type Options, option, readValues, type Texts, type Values, wholeNumber } from './option-kinds.ts'
import type { RunPlan, Scenario } from './scenario.ts'
import { count } from './text.ts'

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
  readonly values: Values<Options>
  /** A number: so many nodes are started for the run. */
  readonly target: TargetOptions | number
  readonly runs: number
  readonly threads: number
  /** The folder for the reports. */
  readonly out: string
  readonly limits: Limits
  /** Every option as it holds, given or default, without secrets. */
  readonly told: Readonly<Record<string, string>>
}

/** What the words behind `npm run loadtest --` ask for. */
type RunRequest =
  | { readonly kind: 'run'; readonly options: RunOptions }
  | { readonly kind: 'help'; readonly scenario: Scenario | undefined }
  | { readonly kind: 'mistake'; readonly message: string }

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
const listOf = <T>(each: v.GenericSchema<string, T>) =>
  v.pipe(
    v.string(),
    v.transform((text) => text.split(',')),
    v.array(each),
  )
const METRICS = v.pipe(
  HTTP,
  v.transform((given): MetricsSource => {
    const url = given.replace(/\/metrics$/, '')
    return { name: new URL(url).host, url }
  }),
)
const MESSAGE_FORM = 'a message type, a colon and JSON, such as move:{"x":1,"y":2}'
const MESSAGE = v.pipe(
  v.string(),
  v.regex(/^[^:]+:./s, MESSAGE_FORM),
  v.transform((text) => ({
    type: text.slice(0, text.indexOf(':')),
    data: text.slice(text.indexOf(':') + 1),
  })),
  v.object({ type: v.string(), data: v.pipe(v.string(), v.parseJson({}, MESSAGE_FORM)) }),
  v.transform(({ type, data }) => ({ type, data: data as Json })),
)

const MOST_NODES = 9
const CONTROL_URL = 'http://127.0.0.1:3000'
const WS_URL = 'ws://127.0.0.1:4000'

const SECRET = { secret: true } as const

/** Options of every scenario that only make sense with a service that runs already. */
const TARGET_OPTIONS = {
  control: option('URL', 'the control API', HTTP, CONTROL_URL),
  'control-token': {
    ...option(
      'TOKEN',
      'its operator token; default: the first of CONTROL_API_TOKENS, or of the file CONTROL_API_TOKENS_FILE',
      v.string(),
    ),
    ...SECRET,
  },
  ws: option('URL,…', 'where clients connect, spread over all that are given', listOf(WEBSOCKET), [WS_URL]),
  metrics: option(
    'URL,…',
    'admin addresses of nodes (such as http://127.0.0.1:9100), whose metrics are read once a second',
    listOf(METRICS),
  ),
  project: option('ID', 'with --token: use this project, and ask nothing of control', v.string()),
  token: { ...option('TOKEN', 'with --project: what all clients connect with', v.string()), ...SECRET },
}

/** Options of every scenario. */
export const COMMON_OPTIONS = {
  local: option(
    'N',
    'starts a service of N nodes for this run instead, and ends it again',
    wholeNumber(MOST_NODES),
  ),
  ...TARGET_OPTIONS,
  'room-type': option('TYPE', 'a room type of your own; needs --message', v.string()),
  message: option('TYPE:JSON', 'what its members send, such as move:{"x":1,"y":2}', MESSAGE),
  runs: option('N', 'of scenarios that measure something: how often', wholeNumber(1000)),
  threads: option(
    'N',
    'at most so many threads hold clients; default: the cores, at most 4',
    wholeNumber(64),
  ),
  seed: option(
    'N',
    'what randomness begins with (how long clients wait before they reconnect)',
    wholeNumber(999_999_999),
    1,
  ),
  out: option('FOLDER', 'where the reports go', v.string(), 'loadtest-report'),
} satisfies Options
type CommonValues = Values<typeof COMMON_OPTIONS>

type Environment = Readonly<Record<string, string | undefined>>

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
    const texts = readWords(rest, scenario)
    if (texts === 'help') return { kind: 'help', scenario }
    return { kind: 'run', options: runOptions(scenario, texts, env, cores) }
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

function readWords(words: readonly string[], scenario: Scenario): Texts | 'help' {
  const known = Object.keys({ ...COMMON_OPTIONS, ...scenario.options, ...LIMIT_OPTIONS })
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
  if (values.help) return 'help'
  return Object.fromEntries(
    Object.entries(values).map(([name, given]) => {
      if (!Array.isArray(given) || given.some((value) => typeof value !== 'string' || value === ''))
        throw new Error(`--${name} needs a value`)
      if (given.length > 1 && name !== 'ws' && name !== 'metrics')
        throw new Error(`--${name} is given ${given.length} times; once is enough`)
      return [name, given.join(',')]
    }),
  )
}

function runOptions(scenario: Scenario, texts: Texts, env: Environment, cores: number): RunOptions {
  const common = readValues(COMMON_OPTIONS, texts)
  const values = readValues(scenario.options, texts)
  const limits = parseLimits(texts)
  const { local } = common
  if (scenario.service === 'local' && local === undefined)
    throw new Error(
      `${scenario.name} looks into the processes of a service or ends them, and does so only to those it has started itself: add --local 3 (1 to ${MOST_NODES} nodes)`,
    )
  const ofTarget = Object.keys(TARGET_OPTIONS)
  const given = ofTarget.find((name) => texts[name] !== undefined)
  if (local !== undefined && given !== undefined)
    throw new Error(`--local starts a service of its own: leave out --${given}`)
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
    limits,
    told: Object.fromEntries(
      Object.entries({ ...scenario.options, ...COMMON_OPTIONS, ...LIMIT_OPTIONS } as Options).flatMap(
        ([name, { secret, default: otherwise }]) => {
          const value = holds[name] ?? otherwise
          return secret || value === undefined || untold.includes(name) ? [] : [[name, String(value)]]
        },
      ),
    ),
  }
}

function targetOptions(values: CommonValues, texts: Texts, env: Environment): TargetOptions {
  const { project: projectId, token, ws: wsUrls, control: controlUrl } = values
  if ((projectId === undefined) !== (token === undefined))
    throw new Error('--project and --token belong together: give both, or neither')
  if (projectId === undefined) requireSameService(texts, wsUrls, controlUrl)
  return {
    controlUrl,
    controlToken: values['control-token'] ?? operatorToken(env),
    credentials: projectId === undefined || token === undefined ? undefined : { projectId, token },
    wsUrls,
    metrics: values.metrics ?? [],
  }
}

/** A service elsewhere that is named in part is meant as a whole: a token from here would not be good there. */
function requireSameService({ ws, control }: Texts, wsUrls: readonly string[], controlUrl: string): void {
  const elsewhere = (url: string): boolean => !/^(localhost|127\.[\d.]+|\[::1\])$/.test(new URL(url).hostname)
  if (control === undefined && wsUrls.some(elsewhere))
    throw new Error(
      `--ws is "${ws}", but its tokens would come from ${CONTROL_URL}: add --control URL, or --project ID and --token TOKEN`,
    )
  if (ws === undefined && elsewhere(controlUrl))
    throw new Error(`--control is "${control}", but clients would connect to ${WS_URL}: add --ws URL`)
}

function operatorToken(env: Environment): string | undefined {
  const { CONTROL_API_TOKENS: tokens, CONTROL_API_TOKENS_FILE: file } = env
  const text = tokens || (file ? readFileSync(file, 'utf8') : '')
  return text.split(',')[0]?.trim() || undefined
}

/** What a process needs besides one file for each client. */
const OTHER_FILES = 200

/**
 * Why a run cannot come to what is asked for, a line each; empty: nothing is known against it. `openFiles`: how many this process may
 * have; undefined: it is not known.
 */
export function obstacles(
  { scenario, target, limits }: RunOptions,
  { clients, seconds, timings, revokes }: RunPlan,
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
  for (const name of Object.keys(limits)) {
    const { timing, ofServers } = LIMIT_KINDS[name]!
    if (timing !== undefined && !known.has(timing))
      problems.push(`--${name}: ${scenario.name} does nothing that would be measured by it; leave it out.`)
    else if (ofServers && typeof target !== 'number' && target.metrics.length === 0)
      problems.push(`--${name} is about what the servers report about themselves: add --metrics URL,…`)
  }
  return problems
}

const rows = (all: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...all.map(([left]) => left.length))
  return all.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}

/** Options as rows of the help and of the page. */
export const optionHelp = (options: Options): [string, string][] =>
  Object.entries(options).map(([name, { placeholder, meaning, default: given }]) => [
    `--${name} ${placeholder}`,
    given === undefined ? meaning : `${meaning}; default ${given}`,
  ])

/** What `--help` says, of all scenarios or of one. */
export function help(scenarios: readonly Scenario[], scenario: Scenario | undefined): string {
  const common = rows([
    ...optionHelp(COMMON_OPTIONS),
    ['--help', 'this; behind a scenario: with its own options'],
  ])
  if (scenario)
    return `Usage: npm run loadtest -- ${scenario.name} [options]

${scenario.meaning}

${rows(optionHelp(scenario.options))}

Options of all scenarios:
${common}

Limits:
${rows(limitHelp())}
`
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
${common}

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
