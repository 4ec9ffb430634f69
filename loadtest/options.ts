import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { distance } from 'fastest-levenshtein'
import type { CrowdSettings, OwnMessage } from './crowd/client-parts.ts'
import type { Scenario } from './scenario.ts'
import { type Limit, parseThresholds, THRESHOLD_OPTIONS } from './thresholds.ts'
import { readValue } from './values.ts'

/** Where something tells its metrics. */
export interface MetricsSource {
  readonly name: string
  /** The address before `/metrics`. */
  readonly url: string
}

/** A service that runs already. */
export interface TargetOptions {
  readonly control_url: string
  /** Operator token of the control API, where it wants one. */
  readonly control_token: string | undefined
  /** Given instead of being asked of control. */
  readonly credentials: { readonly project_id: string; readonly token: string } | undefined
  readonly ws_urls: readonly string[]
  readonly metrics: readonly MetricsSource[]
}

/** What a run is to be. */
export interface RunOptions {
  readonly scenario: Scenario
  /** The options of the scenario, given or default. */
  readonly values: Readonly<Record<string, number | string>>
  /** A number: so many nodes are started for the run. */
  readonly target: TargetOptions | number
  readonly threads: number
  readonly room_type: string
  readonly message: OwnMessage | undefined
  readonly seed: number
  /** The folder for the reports. */
  readonly out: string
  readonly limits: readonly Limit[]
}

/** What the words behind `npm run loadtest --` ask for. */
export type RunRequest =
  | { readonly kind: 'run'; readonly options: RunOptions }
  | { readonly kind: 'help'; readonly scenario: Scenario | undefined }
  | { readonly kind: 'mistake'; readonly message: string }

/** An option of every scenario. */
interface CommonOption {
  readonly placeholder: string
  readonly meaning: string
}

export const COMMON_OPTIONS = {
  control: { placeholder: 'URL', meaning: 'the control API; default http://127.0.0.1:3000' },
  'control-token': {
    placeholder: 'TOKEN',
    meaning:
      'its operator token; default: the first of CONTROL_API_TOKENS, or of the file CONTROL_API_TOKENS_FILE',
  },
  ws: {
    placeholder: 'URL,…',
    meaning: 'where clients connect, spread over all that are given; default ws://127.0.0.1:4000',
  },
  metrics: {
    placeholder: 'URL,…',
    meaning: 'admin addresses of nodes (such as http://127.0.0.1:9100), whose metrics are read once a second',
  },
  local: { placeholder: 'N', meaning: 'starts a service of N nodes for this run instead, and ends it again' },
  project: { placeholder: 'ID', meaning: 'with --token: use this project, and ask nothing of control' },
  token: { placeholder: 'TOKEN', meaning: 'with --project: what all clients connect with' },
  'room-type': { placeholder: 'TYPE', meaning: 'a room type of your own; needs --message' },
  message: { placeholder: 'TYPE:JSON', meaning: 'what its members send, such as move:{"x":1,"y":2}' },
  threads: {
    placeholder: 'N',
    meaning: 'at most so many threads hold clients; default: the cores, at most 4',
  },
  seed: {
    placeholder: 'N',
    meaning: 'what chance begins with (how long clients wait before they reconnect); default 1',
  },
  out: { placeholder: 'FOLDER', meaning: 'where the reports go; default loadtest-report' },
} as const satisfies Readonly<Record<string, CommonOption>>

type Values = Readonly<Record<string, string | boolean | undefined>>

const MOST_NODES = 9
const MOST_THREADS = 64
/** What only makes sense with a service that runs already. */
const OF_TARGETS = ['control', 'control-token', 'ws', 'metrics', 'project', 'token']

/** Reads the words behind the command. `cores`: of this machine. */
export function parseRun(
  words: readonly string[],
  scenarios: readonly Scenario[],
  env: Readonly<Record<string, string | undefined>>,
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
  return `${name} is no scenario${meant(name.toLowerCase(), names)}; ${all}`
}

/** What somebody may have meant who mistyped a word. */
function meant(word: string, known: readonly string[]): string {
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
    ...Object.keys(THRESHOLD_OPTIONS),
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
  const unknown = tokens.find(
    (token) => token.kind === 'option' && !known.includes(token.name) && token.name !== 'help',
  )
  if (unknown?.kind === 'option')
    throw new Error(
      `${unknown.rawName} is no option of ${scenario.name}${meant(
        unknown.rawName,
        known.map((name) => `--${name}`),
      )}; npm run loadtest -- ${scenario.name} --help lists them`,
    )
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

function runOptions(
  scenario: Scenario,
  values: Values,
  env: Readonly<Record<string, string | undefined>>,
  cores: number,
): RunOptions {
  const text = (name: keyof typeof COMMON_OPTIONS): string | undefined => values[name] as string | undefined
  const whole = (name: 'local' | 'threads' | 'seed', most: number): number | undefined => {
    const given = text(name)
    if (given === undefined) return undefined
    if (!/^[1-9]\d{0,8}$/.test(given) || Number(given) > most)
      throw new Error(`--${name} is "${given}"; it may be: 1 to ${most}`)
    return Number(given)
  }
  const local = whole('local', MOST_NODES)
  if (scenario.needs_local && local === undefined)
    throw new Error(
      `${scenario.name} ends nodes, and does so only to those it has started itself: add --local 3 (1 to ${MOST_NODES} nodes)`,
    )
  const of_target = OF_TARGETS.find((name) => values[name] !== undefined)
  if (local !== undefined && of_target !== undefined)
    throw new Error(`--local starts a service of its own: leave out --${of_target}`)
  return {
    scenario,
    values: Object.fromEntries(
      Object.entries(scenario.options).map(([name, option]) => {
        const given = values[name]
        return [name, typeof given === 'string' ? readValue(name, given, option.kind) : option.default]
      }),
    ),
    target: local ?? targetOptions(text, env),
    threads: whole('threads', MOST_THREADS) ?? Math.min(4, cores),
    ...ownRoom(text('room-type'), text('message')),
    seed: whole('seed', 999_999_999) ?? 1,
    out: text('out') ?? 'loadtest-report',
    limits: parseThresholds(values),
  }
}

function targetOptions(
  text: (name: keyof typeof COMMON_OPTIONS) => string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): TargetOptions {
  const [project_id, token] = [text('project'), text('token')]
  if ((project_id === undefined) !== (token === undefined))
    throw new Error('--project and --token belong together: give both, or neither')
  const ws_urls = list(text('ws') ?? 'ws://127.0.0.1:4000').map((url) => address('ws', url, ['ws:', 'wss:']))
  const control_url = address('control', text('control') ?? 'http://127.0.0.1:3000', ['http:', 'https:'])
  if (project_id === undefined)
    sameService(text('ws') ? ws_urls : undefined, text('control') ? control_url : undefined)
  return {
    control_url,
    control_token: text('control-token') ?? operatorToken(env),
    credentials: project_id === undefined || token === undefined ? undefined : { project_id, token },
    ws_urls,
    metrics: list(text('metrics') ?? '').map((url) => {
      const base = address('metrics', url, ['http:', 'https:']).replace(/\/metrics$/, '')
      return { name: new URL(base).host, url: base }
    }),
  }
}

/** Whoever names a service elsewhere in part means all of it: a token from here would not be good there. undefined: the default, here. */
function sameService(ws_urls: readonly string[] | undefined, control_url: string | undefined): void {
  const elsewhere = (url: string): boolean => !/^(localhost|127\.[\d.]+|\[::1\])$/.test(new URL(url).hostname)
  if (control_url === undefined && ws_urls?.some(elsewhere))
    throw new Error(
      `--ws is "${ws_urls.join(',')}", but its tokens would come from http://127.0.0.1:3000: add --control URL, or --project ID and --token TOKEN`,
    )
  if (ws_urls === undefined && control_url !== undefined && elsewhere(control_url))
    throw new Error(
      `--control is "${control_url}", but clients would connect to ws://127.0.0.1:4000: add --ws URL`,
    )
}

const list = (text: string): string[] => (text === '' ? [] : text.split(','))

function address(option: string, text: string, protocols: readonly string[]): string {
  const protocol = URL.canParse(text) ? new URL(text).protocol : ''
  if (!protocols.includes(protocol))
    throw new Error(
      `--${option} is "${text}"; it may be: a URL with ${protocols.map((each) => `${each}//`).join(' or ')}`,
    )
  return text.replace(/\/+$/, '')
}

function operatorToken(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const { CONTROL_API_TOKENS: tokens, CONTROL_API_TOKENS_FILE: file } = env
  const text = tokens || (file ? readFileSync(file, 'utf8') : '')
  return text.split(',')[0]?.trim() || undefined
}

function ownRoom(
  room_type: string | undefined,
  message: string | undefined,
): Pick<CrowdSettings, 'room_type' | 'message'> {
  if (room_type === undefined && message === undefined) return { room_type: 'load', message: undefined }
  if (room_type === undefined || message === undefined)
    throw new Error(
      '--room-type and --message belong together: --room-type arena --message \'move:{"x":1,"y":2}\'',
    )
  const [, type, json] = /^([^:]+):(.+)$/s.exec(message) ?? []
  try {
    return { room_type, message: { type: type!, data: JSON.parse(json!) } }
  } catch {
    throw new Error(
      `--message is "${message}"; it may be: a message type, a colon and JSON, such as move:{"x":1,"y":2}`,
    )
  }
}
