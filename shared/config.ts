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

/** Store configuration. Without `redisUrl`, the store is in memory (`dev` only). */
export type StoreConfig = Pick<Config<'dev'>, 'redisUrl' | 'keyPrefix'>

/** Reads a text file. Throws if it cannot be read. */
export type ReadFile = (path: string) => string

/** One problem of the configuration. */
interface Problem {
  /** Name of the variable. */
  readonly name: string
  /** Its value in words. Never the value of a secret. */
  readonly was: string
  /** Allowed values. */
  readonly mayBe: string
}

/** All problems of a configuration, so that they can be corrected together. Warnings are sentences for the log. */
interface ConfigProblems {
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Result of reading the environment. */
export type Parsed<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  | ({ readonly ok: false } & ConfigProblems)

/** Returns the content of a file without the line break that editors and secret stores append. */
export const readSecretFile: ReadFile = (path) => readFileSync(path, 'utf8').replace(/\r?\n$/, '')

/** Returns the configuration of a command, or all of its problems. */
export function parseConfig<C extends Command>(
  command: C,
  env: Environment,
  readFile: ReadFile = readSecretFile,
): Parsed<Config<C>> {
  const { values, problems: wrong } = readVariables(command, env, readFile)
  // A variable with a wrong value must not count as missing, too.
  const isWrong = (name: VariableName) => wrong.some((each) => each.name.replace(/_FILE$/, '') === name)
  const problems = [...wrong, ...contradictions(values, isWrong)]
  const warnings = [...typoWarnings(env), ...weaknesses(command, values, isWrong)]
  if (problems.length > 0) return { ok: false, problems, warnings }
  return { ok: true, config: values as Config<C>, warnings }
}

/** Returns the configuration of a command with an empty environment. */
export const defaultConfig = <C extends Command>(command: C): Defaults<C> =>
  readVariables(command, {}, readSecretFile).values as Defaults<C>

/** Returns problems and warnings as lines for people. */
export function describeProblems({ problems, warnings }: ConfigProblems): string {
  const lines = problems.map(({ name, was, mayBe }) => `  ${name} is ${was}; expected: ${mayBe}.`)
  return [...lines, ...warnings.map((warning) => `  ${warning}`)].join('\n')
}

/**
 * Reads every variable that `command` uses: from `NAME`, otherwise from the file named by `NAME_FILE`, otherwise its default. An empty
 * value counts as not set. Wrong values are missing in the result.
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
  /** Name under which it was found. */
  readonly from?: string
  readonly problem?: Problem
}

function findText(name: VariableName, variable: Variable, env: Environment, readFile: ReadFile): Found {
  const direct = env[name] || undefined
  const fileName = `${name}_FILE`
  const path = env[fileName] || undefined
  if (path === undefined) {
    if (direct === undefined) return {}
    const fault = variable.secret ? faultOf(direct) : undefined
    if (fault === undefined) return { text: direct, from: name }
    return { problem: { name, was: `a value that ${fault}`, mayBe: expects(variable.schema) } }
  }
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

/** Returns the problem of the text of a file or a secret that is independent of the variable, without revealing the text. */
function faultOf(text: string): string | undefined {
  if (text === '') return 'is empty'
  if (text.startsWith('\ufeff')) return 'begins with a byte order mark: save it as UTF-8 without one'
  const trimmed = text.trim()
  if (trimmed === '') return 'has nothing but white space in it'
  if (/^(["'`]).*\1$/s.test(trimmed)) return 'is in quotes: write it without them'
  // JSON may have white space anywhere.
  if (/^[[{]/.test(trimmed)) return undefined
  if (/^\s/.test(text)) return 'begins with white space: remove it'
  if (/[\r\n]$/.test(text)) return 'ends with more than one line break: leave one, or none'
  if (/\s$/.test(text)) return 'ends with white space: remove it'
  return /[\r\n]/.test(text) ? 'has more than one line: write it in one' : undefined
}

/**
 * Returns a value for a message: quoted, cut if long, and without the credentials before an @. For a typical mistake it adds the probable
 * cause.
 */
function describe(value: string): string {
  const text = value.replace(/^([a-z+]+:\/\/)?.*@/s, '$1…@')
  const shown = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
  if (/^(tcp|udp):\/\//.test(text))
    return `${shown} (Kubernetes sets such for a Service of this name: use enableServiceLinks: false)`
  return shown
}

const HELP_WIDTH = 100

/** Returns the `--help` text of these variables, with at most 100 characters per line. */
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

/** Returns the default in words. Empty: the help does not mention it. */
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

/** Variables of Node and related tools with one of our prefixes. */
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

/** Variables that Kubernetes and Docker links set for every service: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`. */
const SERVICE_LINK = /_SERVICE_(HOST|PORT)(_|$)|_PORT(_\d+_(TCP|UDP|SCTP)(_|$)|$)/

/** OpenTelemetry has dozens of variables for its libraries, and for other programs that share an environment with this one. */
const SHARED_PREFIX = /^OTEL_/

/** Largest edit distance of a typo. Two swapped letters have the distance 2. */
const NEAR = 2

/** Returns the most similar of `names`. Undefined: none is similar. */
export function nearestOf(name: string, names: readonly string[]): string | undefined {
  if (names.length === 0) return undefined
  const nearest = closest(name, names)
  return distance(name, nearest) <= Math.max(NEAR, Math.ceil(name.length / 3)) ? nearest : undefined
}

/** Limits by the names that they would have as variables. None of them is a variable. */
const LIMIT_NAMES = new Set(Object.keys(LIMITS).map((key) => key.replace(/[A-Z]/g, '_$&').toUpperCase()))

/**
 * Returns warnings about names that are probably misspelt: unknown names with the first word of a known variable (`SESSION_…`), unknown
 * names at a distance of at most two letters from a known one, and names of limits.
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

/** Returns problems of combinations of values, with which the command does not start. Wrong values are missing here. */
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

/** Returns warnings about values that work but may be a mistake, as sentences for the log. */
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

/** Returns the first listen address of the command that other machines can reach. */
function reachableHost({ controlHost, wsHost, adminHost }: Values) {
  const hosts = { CONTROL_HOST: controlHost, WS_HOST: wsHost, ADMIN_HOST: adminHost }
  for (const [name, host] of Object.entries(hosts))
    if (host !== undefined && !isLoopback(host)) return { name, host }
  return undefined
}

/** Longest turn limit that leaves the watchdog time, before the lease ends, to write to the store which turn was stuck. */
const longestTurn = (leaseMs: number): number => Math.floor(0.4 * leaseMs)

/** Default of `TURN_LIMIT_MS`, from `NODE_LEASE_MS`. */
export const defaultTurnLimit = (leaseMs: number): number => Math.min(800, longestTurn(leaseMs))

/**
 * Returns the guessable secrets, with reasons. Each operator token and internal token must be strong. Of the keyring's secrets only the
 * first is checked: it seals, and the others are being replaced.
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

/** Required strength of a secret. */
const ENOUGH_BITS = 128
const MIN_LENGTH = 24
const MIN_DIFFERENT = 8

/** Description of a strong secret, for messages. */
const STRONG_SECRET = `${MIN_LENGTH} random characters or more, as \`openssl rand -base64 32\` makes them`

/** Returns why a secret is guessable, without revealing it. Undefined: its estimated strength is at least 128 bits. */
function weaknessOf(secret: string): string | undefined {
  if (secret.length < MIN_LENGTH) return `it has ${secret.length} characters`
  if (period(secret) < secret.length) return 'it repeats itself'
  const different = new Set(secret).size
  if (different < MIN_DIFFERENT) return `it has ${different} different characters`
  const bits = Math.floor(secret.length * Math.log2(alphabetOf(secret)))
  return bits < ENOUGH_BITS ? `${secret.length} characters of its kinds hold ${bits} bits` : undefined
}

/** Returns the length of the shortest prefix whose repetition is the text. */
const period = (text: string): number => (text + text).indexOf(text, 1)

/** Returns the number of characters in the classes that the text uses. */
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
