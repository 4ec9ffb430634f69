import { readFileSync } from 'node:fs'
import { closest, distance } from 'fastest-levenshtein'
import * as v from 'valibot'
import { expects } from './config/kinds.ts'
import {
  type Command,
  type Config,
  type Defaults,
  type Environment,
  keyOf,
  VARIABLES,
  type Values,
  type Variable,
  type VariableName,
  variables,
} from './config/variables.ts'
import { LIMITS } from './limits.ts'
import { isLoopback } from './origins.ts'

export type { Command, Config, Defaults, Environment } from './config/variables.ts'

/** How a process logs. */
export type LogConfig = Pick<Config<'dev'>, 'logLevel' | 'logFormat'>

/** Which store, and where in it. Without `redisUrl`: in memory (`dev` only). */
export type StoreConfig = Pick<Config<'dev'>, 'redisUrl' | 'keyPrefix'>

/** Reads a text file; throws when it cannot. */
export type ReadFile = (path: string) => string

/** One thing wrong with the configuration. */
interface Problem {
  /** The variable. */
  readonly name: string
  /** Its value in words; never a secret's. */
  readonly was: string
  /** What it may be. */
  readonly mayBe: string
}

/** Everything that is wrong, so that it can be put right at once. Warnings are sentences for the log. */
interface ConfigProblems {
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** What became of the environment. */
export type Parsed<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  | ({ readonly ok: false } & ConfigProblems)

/** The content of a file without the line break that editors and secret stores end it with. */
export const readSecretFile: ReadFile = (path) => readFileSync(path, 'utf8').replace(/\r?\n$/, '')

/** The configuration of a command, or all that is wrong with it. */
export function parseConfig<C extends Command>(
  command: C,
  env: Environment,
  readFile: ReadFile = readSecretFile,
): Parsed<Config<C>> {
  const { values, problems: wrong } = readVariables(command, env, readFile)
  // A variable that is set, and wrong, is no variable that is not set.
  const isWrong = (name: VariableName) => wrong.some((each) => each.name.replace(/_FILE$/, '') === name)
  const problems = [...wrong, ...contradictions(values, isWrong)]
  const warnings = [...typoWarnings(env), ...weaknesses(command, values, isWrong)]
  if (problems.length > 0) return { ok: false, problems, warnings }
  return { ok: true, config: values as Config<C>, warnings }
}

/** The configuration of a command that nothing is set for. */
export const defaultConfig = <C extends Command>(command: C): Defaults<C> =>
  readVariables(command, {}, readSecretFile).values as Defaults<C>

/** Problems and warnings as lines for people. */
export function describeProblems({ problems, warnings }: ConfigProblems): string {
  const lines = problems.map(({ name, was, mayBe }) => `  ${name} is ${was}; it may be: ${mayBe}.`)
  return [...lines, ...warnings.map((warning) => `  ${warning}`)].join('\n')
}

/**
 * Reads every variable that `command` uses, each by itself: from `NAME`, else from the file named by `NAME_FILE`, else its default. An
 * empty value is the same as none. Values that are wrong are missing.
 */
export function readVariables(
  command: Command,
  env: Environment,
  readFile: ReadFile,
): { readonly values: Values; readonly problems: readonly Problem[] } {
  const values: Record<string, unknown> = {}
  const problems: Problem[] = []
  for (const [name, variable] of variables()) {
    if (!variable.readBy.includes(command)) continue
    const found = findText(name, variable, env, readFile)
    if (found.problem) problems.push(found.problem)
    const text = found.text ?? variable.default
    if (text === undefined) {
      values[keyOf(name)] = undefined
      if (variable.requiredBy?.includes(command) && !found.problem)
        problems.push({ name, was: 'not set', mayBe: expects(variable.schema) })
      continue
    }
    const result = v.safeParse(variable.schema, text)
    if (result.success) values[keyOf(name)] = result.output
    else
      problems.push({
        name: found.from ?? name,
        was: variable.secret ? 'a value that is not shown, since it is a secret' : describe(text),
        mayBe: expects(variable.schema),
      })
  }
  return { values, problems }
}

interface Found {
  readonly text?: string
  /** The name it was found under. */
  readonly from?: string
  readonly problem?: Problem
}

function findText(name: VariableName, variable: Variable, env: Environment, readFile: ReadFile): Found {
  const direct = env[name] || undefined
  const fileName = `${name}_FILE`
  const path = env[fileName] || undefined
  if (path === undefined) return direct === undefined ? {} : { text: direct, from: name }
  if (direct !== undefined)
    return {
      problem: {
        name,
        was: `set, and ${fileName} as well`,
        mayBe: `set directly or by ${fileName}, not both`,
      },
    }
  const inFile = `the path of a file with ${expects(variable.schema)}`
  try {
    const text = readFile(path)
    const fault = faultOf(text)
    if (fault === undefined) return { text, from: fileName }
    return { problem: { name: fileName, was: `${JSON.stringify(path)}, which ${fault}`, mayBe: inFile } }
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unreadable'
    return { problem: { name: fileName, was: `${JSON.stringify(path)} (${why})`, mayBe: inFile } }
  }
}

/** Returns what is wrong with the text of a file, whatever variable it is for. */
function faultOf(text: string): string | undefined {
  if (text === '') return 'is empty'
  if (text.startsWith('\ufeff')) return 'begins with a byte order mark: save it as UTF-8 without one'
  return text.trim() === '' ? 'has nothing but white space in it' : undefined
}

/** A value as a message shows it: quoted, without the credentials before an @, cut when long, with a word on where a telling mistake comes from. */
function describe(value: string): string {
  const text = value.replace(/^([a-z+]+:\/\/)?.*@/s, '$1…@')
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
  if (/^(tcp|udp):\/\//.test(text))
    return `${shown} (Kubernetes sets such for a Service of this name: use enableServiceLinks: false)`
  return shown
}

const HELP_WIDTH = 100

/** What `--help` says about these variables, at most 100 characters a line. */
export function describeVariables(rows: readonly (readonly [VariableName, Variable])[]): string {
  const column = Math.max(...rows.map(([name]) => name.length)) + 4
  return rows
    .map(([name, variable]) => {
      const lines = wrap(`${variable.help} ${note(variable)}`, HELP_WIDTH - column)
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

/** Of Node itself and of tools around it: with a prefix of ours, but not meant for us. */
const OF_OTHERS = new Set([
  'NODE_AUTH_TOKEN',
  'NODE_CHANNEL_FD',
  'NODE_CHANNEL_SERIALIZATION_MODE',
  'NODE_COMPILE_CACHE',
  'NODE_COMPILE_CACHE_PORTABLE',
  'NODE_DEBUG',
  'NODE_DEBUG_NATIVE',
  'NODE_DISABLE_COLORS',
  'NODE_DISABLE_COMPILE_CACHE',
  'NODE_ENV',
  'NODE_EXTRA_CA_CERTS',
  'NODE_HOME',
  'NODE_ICU_DATA',
  'NODE_NO_WARNINGS',
  'NODE_OPTIONS',
  'NODE_PATH',
  'NODE_PENDING_DEPRECATION',
  'NODE_PENDING_PIPE_INSTANCES',
  'NODE_PRESERVE_SYMLINKS',
  'NODE_PRESERVE_SYMLINKS_MAIN',
  'NODE_REDIRECT_WARNINGS',
  'NODE_REPL_EXTERNAL_MODULE',
  'NODE_REPL_HISTORY',
  'NODE_SKIP_PLATFORM_CHECK',
  'NODE_TEST_CONTEXT',
  'NODE_TLS_REJECT_UNAUTHORIZED',
  'NODE_UNIQUE_ID',
  'NODE_USE_ENV_PROXY',
  'NODE_USE_SYSTEM_CA',
  'NODE_V8_COVERAGE',
  'NODE_VERSION',
])

/** What Kubernetes and Docker links set for every service: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`. */
const SERVICE_LINK = /_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP|SCTP)(_|$)|$)/

/** OpenTelemetry has dozens of variables for its libraries, and for other programs that share an environment with this one. */
const SHARED_PREFIX = /^OTEL_/

/** Small enough for a slip of the fingers, of which two letters swapped is the largest. */
const NEAR = 2

/** The one of `names` that was probably meant; undefined: none is like it. */
export function nearestOf(name: string, names: readonly string[]): string | undefined {
  if (names.length === 0) return undefined
  const nearest = closest(name, names)
  return distance(name, nearest) <= Math.max(NEAR, Math.ceil(name.length / 3)) ? nearest : undefined
}

/** Limits by the names that they would have as variables. None is a variable. */
const LIMIT_NAMES = new Set(Object.keys(LIMITS).map((key) => key.replace(/[A-Z]/g, '_$&').toUpperCase()))

/**
 * Names that are probably misspelt, as sentences for the log: unknown ones that begin with the first word of a known variable
 * (`SESSION_…`), unknown ones two letters or less away from a known one, and names of limits.
 */
function typoWarnings(env: Environment): string[] {
  const known = variables().flatMap(([name]) => [name as string, `${name}_FILE`])
  const prefixes = new Set(known.map((name) => `${name.split('_')[0]}_`))
  const warnings: string[] = []
  for (const name of Object.keys(env)) {
    if (known.includes(name) || OF_OTHERS.has(name) || env[name] === undefined) continue
    if (LIMIT_NAMES.has(name)) {
      warnings.push(`${name} is set, but roomful has no variable of this name: it is a fixed limit.`)
      continue
    }
    const nearest = nearestOf(name, known)
    const near = nearest !== undefined && distance(name, nearest) <= NEAR && name.length > 4
    const ours = prefixes.has(`${name.split('_')[0]}_`) && name.includes('_') && !SHARED_PREFIX.test(name)
    if (!near && (!ours || SERVICE_LINK.test(name))) continue
    const question = nearest === undefined ? '' : ` Did you mean ${nearest}?`
    warnings.push(`${name} is set, but roomful has no variable of this name.${question}`)
  }
  return warnings
}

/** What is wrong only in combination, and keeps the command from starting. Values that were wrong themselves are missing here. */
function contradictions(values: Values, isWrong: (name: VariableName) => boolean): Problem[] {
  const found: Problem[] = []
  const { controlHost: host } = values
  if (host !== undefined && !isLoopback(host)) {
    if (values.controlApiTokens === undefined && !isWrong('CONTROL_API_TOKENS'))
      found.push({
        name: 'CONTROL_HOST',
        was: `"${host}" while the control API is open (no CONTROL_API_TOKENS)`,
        mayBe: 'a loopback address; or set CONTROL_API_TOKENS, to none for an API that is open on purpose',
      })
    if (values.keyringSecret === undefined && !isWrong('KEYRING_SECRET'))
      found.push({
        name: 'KEYRING_SECRET',
        was: `not set while CONTROL_HOST is "${host}"`,
        mayBe: `a secret text of ${STRONG_SECRET}; without one, CONTROL_HOST must be loopback`,
      })
  }
  const reachable = reachableHost(values)
  if (reachable !== undefined)
    for (const { name, why } of weakSecrets(values))
      found.push({
        name,
        was: `too easy to guess (${why}) while ${reachable.name} is "${reachable.host}"`,
        mayBe: `${STRONG_SECRET}; a weaker one only on loopback addresses`,
      })
  if (values.notifyUrl !== undefined && values.notifySecret === undefined && !isWrong('NOTIFY_SECRET'))
    found.push({
      name: 'NOTIFY_SECRET',
      was: 'not set while NOTIFY_URL is set',
      mayBe: expects(VARIABLES.NOTIFY_SECRET.schema),
    })
  const { turnLimitMs: turn, nodeLeaseMs: lease } = values
  if (turn !== undefined && lease !== undefined && turn > longestTurn(lease))
    found.push({
      name: 'TURN_LIMIT_MS',
      was: `${turn}, more than 0.4 × NODE_LEASE_MS (${lease})`,
      mayBe: `${longestTurn(lease)} or less, so that the next owner of the room knows why the last one ended`,
    })
  return found
}

/** What works, but not as someone may expect: sentences for the log. */
function weaknesses(command: Command, values: Values, isWrong: (name: VariableName) => boolean): string[] {
  const found: string[] = []
  const needsToken = command === 'control' || command === 'dataplane'
  if (needsToken && values.internalToken === undefined && !isWrong('INTERNAL_TOKEN'))
    found.push(
      command === 'control'
        ? 'INTERNAL_TOKEN is not set: /internal/key-status answers 401 to everyone, so nodes on other machines cannot check keys.'
        : 'INTERNAL_TOKEN is not set: this node cannot ask control about keys and will refuse clients, and /admin answers 401.',
    )
  if (command !== 'dev' && reachableHost(values) === undefined)
    for (const { name, why } of weakSecrets(values))
      found.push(`${name} is too easy to guess (${why}): it should be ${STRONG_SECRET}.`)
  return found
}

/** The first address the command listens on that other machines reach. */
function reachableHost({ controlHost, wsHost, adminHost }: Values) {
  const hosts = { CONTROL_HOST: controlHost, WS_HOST: wsHost, ADMIN_HOST: adminHost }
  for (const [name, host] of Object.entries(hosts))
    if (host !== undefined && !isLoopback(host)) return { name, host }
  return undefined
}

/** What is left of a lease must do for the watchdog to tell the store which turn it was. */
const longestTurn = (leaseMs: number): number => Math.floor(0.4 * leaseMs)

/** `TURN_LIMIT_MS` where it is not set, of `NODE_LEASE_MS`. */
export const defaultTurnLimit = (leaseMs: number): number => Math.min(800, longestTurn(leaseMs))

/**
 * The secrets that may be guessed, and why. Each operator token and internal token opens the door; of the keyring's secrets the first does
 * the sealing, and those behind it are on their way out.
 */
function weakSecrets({ controlApiTokens, keyringSecret, internalToken }: Values) {
  const secrets = {
    CONTROL_API_TOKENS: controlApiTokens === 'none' ? [] : (controlApiTokens ?? []),
    KEYRING_SECRET: keyringSecret?.split(',').slice(0, 1) ?? [],
    INTERNAL_TOKEN: internalToken?.split(',') ?? [],
  }
  return Object.entries(secrets).flatMap(([name, values]) => {
    const reasons = values.map(weaknessOf)
    const at = reasons.findIndex((reason) => reason !== undefined)
    if (at < 0) return []
    return [{ name, why: `${reasons.length > 1 ? `value ${at + 1}: ` : ''}${reasons[at]}` }]
  })
}

/** What a secret must hold of chance to withstand guessing. */
const ENOUGH_BITS = 128
const MIN_LENGTH = 24
const MIN_DIFFERENT = 8

/** What a strong secret is, for messages. */
const STRONG_SECRET = `${MIN_LENGTH} random characters or more, as \`openssl rand -base64 32\` makes them`

/** Why a secret may be guessed, in words that do not tell it; undefined for one that holds 128 bits, as far as can be seen. */
function weaknessOf(secret: string): string | undefined {
  if (secret.length < MIN_LENGTH) return `it has ${secret.length} characters`
  if (period(secret) < secret.length) return 'it repeats itself'
  const different = new Set(secret).size
  if (different < MIN_DIFFERENT) return `it has ${different} different characters`
  const bits = Math.floor(secret.length * Math.log2(alphabetOf(secret)))
  return bits < ENOUGH_BITS ? `${secret.length} characters of its kinds hold ${bits} bits` : undefined
}

/** How many characters there are before the text repeats itself. */
const period = (text: string): number => (text + text).indexOf(text, 1)

/** How many characters there are of the kinds that the text uses. */
function alphabetOf(text: string): number {
  if (/^[0-9a-f]*$/i.test(text)) return /[a-f]/i.test(text) ? 16 : 10
  const kinds: readonly [RegExp, number][] = [
    [/[a-z]/, 26],
    [/[A-Z]/, 26],
    [/[0-9]/, 10],
    [/[^a-zA-Z0-9]/, 32],
  ]
  return kinds.reduce((sum, [kind, size]) => sum + (kind.test(text) ? size : 0), 0)
}
