import {
  type Environment,
  type Problem,
  type ReadFile,
  readEnvironment,
  readSecretFile,
} from './config/environment.ts'
import { isLoopback } from './config/loopback.ts'
import { STRONG_SECRET, weaknessOf } from './config/secret-strength.ts'
import { findTypos } from './config/typos.ts'
import type { Command } from './config/variable.ts'
import type { Values, VariableName } from './config/variables.ts'
import type { TracingConfig } from './tracing/open.ts'

export type { Environment, Problem } from './config/environment.ts'
export { describeVariables } from './config/help.ts'
export { isLoopback } from './config/loopback.ts'

/** How a process logs. */
export interface LogConfig {
  readonly level: Values['LOG_LEVEL']
  readonly format: Values['LOG_FORMAT']
}

/** Which store, and where in it. */
export interface StoreConfig {
  /** Undefined: in memory (`dev` only). */
  readonly redis_url: string | undefined
  readonly key_prefix: string
}

/** Configuration of a control process. */
export interface ControlConfig {
  readonly host: string
  readonly port: number
  /** Empty: the API is open. */
  readonly operator_tokens: readonly string[]
  /** The API may be open on an address that is not loopback. */
  readonly auth_none: boolean
  /** One, or several separated by commas (`Keyring`). */
  readonly keyring_secret: string | undefined
  /** One, or several separated by commas (`InternalToken`). */
  readonly internal_token: string | undefined
  readonly require_key_id: boolean
  readonly store: StoreConfig
  readonly log: LogConfig
  /** Undefined: traces are off. */
  readonly tracing: TracingConfig | undefined
}

/** Configuration of a node. */
export interface DataplaneConfig {
  readonly ws_host: string
  readonly ws_port: number
  readonly admin_host: string
  readonly admin_port: number
  /** Undefined: made of the two. */
  readonly admin_url: string | undefined
  readonly control_url: string
  /** One, or several separated by commas (`InternalToken`). */
  readonly internal_token: string | undefined
  readonly require_key_id: boolean
  /** Undefined: any audience. */
  readonly token_audience: string | undefined
  /** Undefined: every origin. */
  readonly allowed_origins: readonly string[] | undefined
  /** Undefined: the examples. */
  readonly rooms_dir: string | undefined
  /** Undefined: a random one. */
  readonly node_id: string | undefined
  readonly advertise_url: string | undefined
  readonly node_lease_ms: number
  readonly turn_limit_ms: number
  readonly resume_ttl_seconds: number
  readonly room_orphan_ttl_seconds: number
  readonly room_quarantine_ttl_seconds: number
  readonly max_room_backlog: number
  readonly max_room_tasks: number
  readonly max_history_bytes: number
  readonly max_room_state_bytes: number
  readonly heartbeat_seconds: number
  readonly drain_seconds: number
  readonly max_message_bytes: number
  readonly max_rooms_per_session: number
  readonly session_messages_per_second: number
  readonly joins_per_second: number
  readonly state_bytes_per_second: number
  readonly hellos_per_second: number
  readonly connections_per_second_per_address: number
  /** 0: no limit. */
  readonly max_sessions: number
  /** 0: no limit. */
  readonly max_sessions_per_sub: number
  /** 0: no limit. */
  readonly max_sessions_per_token: number
  /** 0: no limit. */
  readonly max_pending_connections: number
  /** 0: no limit. */
  readonly max_pending_connections_per_address: number
  readonly trusted_proxies: readonly string[]
  /** 0: no limit. */
  readonly max_rooms: number
  readonly max_key_lookups: number
  readonly max_resume_waits: number
  /** 0: no limit. */
  readonly max_rooms_per_project: number
  /** 0: no limit. */
  readonly new_rooms_per_minute: number
  readonly max_unacked_messages: number
  readonly max_unacked_bytes: number
  readonly outbox_high_water_bytes: number
  readonly outbox_limit_bytes: number
  readonly store: StoreConfig
  readonly log: LogConfig
  /** Undefined: traces are off. */
  readonly tracing: TracingConfig | undefined
}

/** Configuration of `roomful rekey`. */
export interface RekeyConfig {
  readonly keyring_secret: string
  readonly store: StoreConfig
  readonly log: LogConfig
}

/** Configuration of both planes and the example games in one process. */
export interface DevConfig {
  readonly control: ControlConfig
  readonly dataplane: DataplaneConfig
  readonly examples: { readonly host: string; readonly port: number }
  readonly store: StoreConfig
  readonly log: LogConfig
}

/** What became of the environment. Warnings are sentences for the log. */
export type Parsed<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  | ({ readonly ok: false } & ConfigProblems)

/** Everything that is wrong, so that it can be put right at once. */
export interface ConfigProblems {
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/** Configuration of `roomful control`. */
export const parseControlConfig = (env: Environment, read_file?: ReadFile): Parsed<ControlConfig> =>
  parse('control', env, read_file, controlConfig)

/** Configuration of `roomful dataplane`. */
export const parseDataplaneConfig = (env: Environment, read_file?: ReadFile): Parsed<DataplaneConfig> =>
  parse('dataplane', env, read_file, dataplaneConfig)

/** Configuration of `roomful dev`. */
export const parseDevConfig = (env: Environment, read_file?: ReadFile): Parsed<DevConfig> =>
  parse('dev', env, read_file, (values) => ({
    control: controlConfig(values),
    dataplane: dataplaneConfig(values),
    examples: { host: values.EXAMPLES_HOST, port: values.EXAMPLES_PORT },
    store: storeConfig(values),
    log: logConfig(values),
  }))

/** Configuration of `roomful rekey`. */
export const parseRekeyConfig = (env: Environment, read_file?: ReadFile): Parsed<RekeyConfig> =>
  parse('rekey', env, read_file, (values) => ({
    keyring_secret: values.KEYRING_SECRET!,
    store: storeConfig(values),
    log: logConfig(values),
  }))

/** Problems and warnings as lines for people. */
export function describeProblems({ problems, warnings }: ConfigProblems): string {
  const lines = problems.map(({ name, was, may_be }) => `  ${name} is ${was}; it may be: ${may_be}.`)
  return [...lines, ...warnings.map((warning) => `  ${warning}`)].join('\n')
}

function parse<C>(
  command: Command,
  env: Environment,
  read_file: ReadFile = readSecretFile,
  build: (values: Values) => C,
): Parsed<C> {
  const { values, problems } = readEnvironment(command, env, read_file)
  const all = [...problems, ...contradictions(command, values)]
  const warnings = [...typoWarnings(env), ...weaknesses(command, values)]
  if (all.length > 0) return { ok: false, problems: all, warnings }
  return { ok: true, config: build(values), warnings }
}

/** What is wrong only in combination. Looks at values that may be missing because they were wrong themselves. */
function contradictions(command: Command, values: Partial<Values>): Problem[] {
  const found: Problem[] = []
  const { CONTROL_HOST: host, OUTBOX_HIGH_WATER_BYTES: high, OUTBOX_LIMIT_BYTES: limit } = values
  if (command !== 'dataplane' && host !== undefined && !isLoopback(host)) {
    if (values.CONTROL_API_TOKENS === undefined && values.CONTROL_API_AUTH === undefined)
      found.push({
        name: 'CONTROL_HOST',
        was: `"${host}" while the control API is open (no CONTROL_API_TOKENS)`,
        may_be:
          'a loopback address; or set CONTROL_API_TOKENS, or CONTROL_API_AUTH=none to be open on purpose',
      })
    if (values.KEYRING_SECRET === undefined)
      found.push({
        name: 'KEYRING_SECRET',
        was: `not set while CONTROL_HOST is "${host}"`,
        may_be: `a secret text of ${STRONG_SECRET}; without one, CONTROL_HOST must be loopback`,
      })
  }
  const host_name = reachableHost(command, values)
  if (host_name !== undefined)
    for (const { name, why } of weakSecrets(values))
      found.push({
        name,
        was: `too easy to guess (${why}) while ${host_name} is "${values[host_name]}"`,
        may_be: `${STRONG_SECRET}; a weaker one only on loopback addresses`,
      })
  const { TURN_LIMIT_MS: turn, NODE_LEASE_MS: lease } = values
  if (turn !== undefined && lease !== undefined && turn > longestTurn(lease))
    found.push({
      name: 'TURN_LIMIT_MS',
      was: `${turn}, more than 0.4 × NODE_LEASE_MS (${lease})`,
      may_be: `${longestTurn(lease)} or less, so that the next owner of the room knows why the last one ended`,
    })
  if (high !== undefined && limit !== undefined && high > limit)
    found.push({
      name: 'OUTBOX_LIMIT_BYTES',
      was: `${limit}, less than OUTBOX_HIGH_WATER_BYTES (${high})`,
      may_be: `${high} or more`,
    })
  return found
}

/** What works, but not as somebody may expect. */
function weaknesses(command: Command, values: Partial<Values>): string[] {
  const found: string[] = []
  if ((command === 'control' || command === 'dataplane') && values.INTERNAL_TOKEN === undefined)
    found.push(
      command === 'control'
        ? 'INTERNAL_TOKEN is not set: /internal/key-status answers 401 to everybody, so nodes on other machines cannot check keys.'
        : 'INTERNAL_TOKEN is not set: this node cannot ask control about keys and will refuse clients, and /admin answers 401.',
    )
  if (command !== 'dev' && reachableHost(command, values) === undefined)
    for (const { name, why } of weakSecrets(values))
      found.push(`${name} is too easy to guess (${why}): it should be ${STRONG_SECRET}.`)
  return found
}

const HOSTS = {
  control: ['CONTROL_HOST'],
  dataplane: ['WS_HOST', 'ADMIN_HOST'],
  dev: ['CONTROL_HOST', 'WS_HOST', 'ADMIN_HOST'],
  rekey: [],
} as const satisfies Record<Command, readonly VariableName[]>

/** The first address the command listens on that other machines reach. */
const reachableHost = (command: Command, values: Partial<Values>) =>
  HOSTS[command].find((name) => !isLoopback(values[name] ?? 'localhost'))

/**
 * The secrets that may be guessed, and why. Each operator token and internal token opens the door; of the keyring's secrets the first does
 * the sealing, and those behind it are on their way out.
 */
function weakSecrets(values: Partial<Values>) {
  const secrets = {
    CONTROL_API_TOKENS: values.CONTROL_API_TOKENS ?? [],
    KEYRING_SECRET: values.KEYRING_SECRET?.split(',').slice(0, 1) ?? [],
    INTERNAL_TOKEN: values.INTERNAL_TOKEN?.split(',') ?? [],
  }
  return (Object.keys(secrets) as (keyof typeof secrets)[]).flatMap((name) => {
    const reasons = secrets[name].map(weaknessOf)
    const at = reasons.findIndex((reason) => reason !== undefined)
    if (at < 0) return []
    return [{ name, why: `${reasons.length > 1 ? `value ${at + 1}: ` : ''}${reasons[at]}` }]
  })
}

const TURN_LIMIT_MS = 800

/** What is left of a lease must do for the watchdog to tell the store which turn it was. */
const longestTurn = (lease_ms: number): number => Math.floor(0.4 * lease_ms)

const typoWarnings = (env: Environment): string[] =>
  findTypos(env).map(({ name, suggestion }) =>
    suggestion === undefined
      ? `${name} is set, but roomful has no variable of this name.`
      : `${name} is set, but roomful has no variable of this name. Did you mean ${suggestion}?`,
  )

const controlConfig = (values: Values): ControlConfig => ({
  host: values.CONTROL_HOST,
  port: values.CONTROL_PORT,
  operator_tokens: values.CONTROL_API_TOKENS ?? [],
  auth_none: values.CONTROL_API_AUTH === 'none',
  keyring_secret: values.KEYRING_SECRET,
  internal_token: values.INTERNAL_TOKEN,
  require_key_id: values.REQUIRE_KEY_ID,
  store: storeConfig(values),
  log: logConfig(values),
  tracing: tracingConfig(values, 'roomful-control'),
})

const dataplaneConfig = (values: Values): DataplaneConfig => ({
  ws_host: values.WS_HOST,
  ws_port: values.WS_PORT,
  admin_host: values.ADMIN_HOST,
  admin_port: values.ADMIN_PORT,
  admin_url: values.ADMIN_URL,
  control_url: values.CONTROL_URL,
  internal_token: values.INTERNAL_TOKEN,
  require_key_id: values.REQUIRE_KEY_ID,
  token_audience: values.TOKEN_AUDIENCE,
  allowed_origins: values.ALLOWED_ORIGINS,
  rooms_dir: values.ROOMS_DIR,
  node_id: values.NODE_ID,
  advertise_url: values.ADVERTISE_URL,
  node_lease_ms: values.NODE_LEASE_MS,
  turn_limit_ms: values.TURN_LIMIT_MS ?? Math.min(TURN_LIMIT_MS, longestTurn(values.NODE_LEASE_MS)),
  resume_ttl_seconds: values.SESSION_RESUME_TTL,
  room_orphan_ttl_seconds: values.ROOM_ORPHAN_TTL,
  room_quarantine_ttl_seconds: values.ROOM_QUARANTINE_TTL,
  max_room_backlog: values.MAX_ROOM_BACKLOG,
  max_room_tasks: values.MAX_ROOM_TASKS,
  max_history_bytes: values.MAX_HISTORY_BYTES,
  max_room_state_bytes: values.MAX_ROOM_STATE_BYTES,
  heartbeat_seconds: values.HEARTBEAT_SECONDS,
  drain_seconds: values.DRAIN_SECONDS,
  max_message_bytes: values.MAX_MESSAGE_BYTES,
  max_rooms_per_session: values.MAX_ROOMS_PER_SESSION,
  session_messages_per_second: values.SESSION_MESSAGES_PER_SECOND,
  joins_per_second: values.JOINS_PER_SECOND,
  state_bytes_per_second: values.STATE_BYTES_PER_SECOND,
  hellos_per_second: values.HELLOS_PER_SECOND,
  connections_per_second_per_address: values.CONNECTIONS_PER_SECOND_PER_ADDRESS,
  max_sessions: values.MAX_SESSIONS,
  max_sessions_per_sub: values.MAX_SESSIONS_PER_SUB,
  max_sessions_per_token: values.MAX_SESSIONS_PER_TOKEN,
  max_pending_connections: values.MAX_PENDING_CONNECTIONS,
  max_pending_connections_per_address: values.MAX_PENDING_CONNECTIONS_PER_ADDRESS,
  trusted_proxies: values.TRUSTED_PROXIES,
  max_rooms: values.MAX_ROOMS,
  max_key_lookups: values.MAX_KEY_LOOKUPS,
  max_resume_waits: values.MAX_RESUME_WAITS,
  max_rooms_per_project: values.MAX_ROOMS_PER_PROJECT,
  new_rooms_per_minute: values.NEW_ROOMS_PER_MINUTE,
  max_unacked_messages: values.MAX_UNACKED_MESSAGES,
  max_unacked_bytes: values.MAX_UNACKED_BYTES,
  outbox_high_water_bytes: values.OUTBOX_HIGH_WATER_BYTES,
  outbox_limit_bytes: values.OUTBOX_LIMIT_BYTES,
  store: storeConfig(values),
  log: logConfig(values),
  tracing: tracingConfig(values, 'roomful-dataplane'),
})

const storeConfig = (values: Values): StoreConfig => ({
  redis_url: values.REDIS_URL,
  key_prefix: values.KEY_PREFIX,
})

const logConfig = (values: Values): LogConfig => ({ level: values.LOG_LEVEL, format: values.LOG_FORMAT })

function tracingConfig(values: Values, service_name: string): TracingConfig | undefined {
  if (values.OTEL_TRACES_EXPORTER === 'none' || values.OTEL_SDK_DISABLED) return undefined
  const headers = [values.OTEL_EXPORTER_OTLP_HEADERS, values.OTEL_EXPORTER_OTLP_TRACES_HEADERS]
  return { service_name, headers: headers.filter((text) => text !== undefined) }
}
