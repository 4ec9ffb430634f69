import type * as v from 'valibot'
import { LOG_LEVELS } from '../log.ts'
import {
  flag,
  host,
  integer,
  jwtIssuers,
  type Kind,
  networks,
  oneOf,
  origins,
  port,
  storeUrl,
  text,
  tokens,
  url,
  webhookSecrets,
  workers,
} from './kinds.ts'

/** Environment variables, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

/** A command that reads configuration. */
export type Command = 'control' | 'dataplane' | 'dev' | 'rekey' | 'admin'

/** Topics of `--help`, in the order of the list. */
export const TOPICS = {
  ports: 'listen addresses',
  rooms: 'room types, and limits of rooms',
  redis: 'the store',
  access: 'tokens, keys and access',
  clients: 'connections, sessions, and limits of players',
  nodes: 'the names, leases and drains of nodes; workers',
  logs: 'the log',
  otel: 'traces',
} as const
type Topic = keyof typeof TOPICS

/** Description of one environment variable. */
export interface Variable {
  readonly topic: Topic
  /** One or two sentences for `--help` and the reference page. */
  readonly help: string
  readonly schema: Kind<unknown>
  /** Default, as text of the environment. Absent: not set. */
  readonly default?: string
  /** The default in words, if it is not a value (`the examples`). */
  readonly defaultNote?: string
  /** Commands that read it. */
  readonly readBy: readonly Command[]
  /** Commands that do not start without it. */
  readonly requiredBy?: readonly Command[]
  /** True: its value is never shown. */
  readonly secret?: true
}

const CONTROL = ['control', 'dev'] as const
const DATAPLANE = ['dataplane', 'dev'] as const
const BOTH = ['control', 'dataplane', 'dev'] as const
const ALL = [...BOTH, 'rekey'] as const

/**
 * All environment variables of roomful. The parser, the type of the configuration, `--help`, the reference page (`npm run docs`) and the
 * check for typos are made from this table. A new variable needs only a new row.
 */
export const VARIABLES = {
  CONTROL_HOST: {
    topic: 'ports',
    help: 'Listen address of the control API.',
    schema: host,
    default: '127.0.0.1',
    readBy: CONTROL,
  },
  CONTROL_PORT: {
    topic: 'ports',
    help: 'Port of the control API.',
    schema: port,
    default: '3000',
    readBy: CONTROL,
  },
  CONTROL_API_TOKENS: {
    topic: 'access',
    help: 'Operator tokens of the control API. roomful admin sends the first. Not set: open on loopback. none: open anywhere.',
    schema: tokens,
    readBy: [...CONTROL, 'admin'],
    secret: true,
  },
  KEYRING_SECRET: {
    topic: 'access',
    help: 'Secret that encrypts the private signing keys in the store. Of several secrets, the first encrypts, and all decrypt.',
    schema: text(
      'secrets, separated by commas without spaces; each of 24 random characters or more, off loopback',
      /^(?!\s*$|,|.*(,\s|\s,|,,|,$))/s,
    ),
    readBy: [...CONTROL, 'rekey'],
    requiredBy: ['rekey'],
    secret: true,
  },
  WS_HOST: {
    topic: 'ports',
    help: 'Listen address of the websocket.',
    schema: host,
    default: '127.0.0.1',
    readBy: DATAPLANE,
  },
  WS_PORT: {
    topic: 'ports',
    help: 'Port of the websocket.',
    schema: port,
    default: '4000',
    readBy: DATAPLANE,
  },
  ADMIN_HOST: {
    topic: 'ports',
    help: 'Listen address of metrics, health checks and admin.',
    schema: host,
    default: '127.0.0.1',
    readBy: DATAPLANE,
  },
  ADMIN_PORT: {
    topic: 'ports',
    help: 'Port of metrics, health checks and admin.',
    schema: port,
    default: '9100',
    readBy: DATAPLANE,
  },
  ADMIN_URL: {
    topic: 'nodes',
    help: 'Address of this node’s admin port, for control and admin pages. For roomful admin: the address of any node.',
    schema: url(['http', 'https'], 'http://node-1.internal:9100'),
    defaultNote: 'made of ADMIN_HOST and ADMIN_PORT; admin: http://127.0.0.1:9100',
    readBy: [...DATAPLANE, 'admin'],
  },
  CONTROL_URL: {
    topic: 'ports',
    help: 'Address of the control API, for nodes and roomful admin.',
    schema: url(['http', 'https'], 'http://127.0.0.1:3000'),
    default: 'http://127.0.0.1:3000',
    readBy: ['dataplane', 'admin'],
  },
  ROOMS_DIR: {
    topic: 'rooms',
    help: 'Folder with one module for each room type (.ts, .js or .mjs).',
    schema: text('the path of a folder'),
    defaultNote: 'dev: ./rooms, otherwise the examples',
    readBy: DATAPLANE,
    requiredBy: ['dataplane'],
  },
  ALLOWED_ORIGINS: {
    topic: 'access',
    help: 'Origins of web pages that may open a websocket. The first label of a host may be *.',
    schema: origins,
    defaultNote: 'all',
    readBy: DATAPLANE,
  },
  TOKEN_AUDIENCE: {
    topic: 'access',
    help: 'If set, nodes accept only tokens with this aud.',
    schema: text('a text'),
    readBy: DATAPLANE,
  },
  AUTH_JWKS: {
    topic: 'access',
    help: 'Accepts JWTs of your own login (RS256, ES256, EdDSA). Nodes fetch its public keys from the JWKS address.',
    schema: jwtIssuers,
    defaultNote: 'tokens of the control API only',
    readBy: DATAPLANE,
  },
  NODE_ID: {
    topic: 'nodes',
    help: 'Unique name of the node. A second process with this name does not start.',
    schema: text('1–64 letters, digits, dots, hyphens or underscores', /^[A-Za-z0-9._-]{1,64}$/),
    defaultNote: 'random',
    readBy: DATAPLANE,
  },
  ADVERTISE_URL: {
    topic: 'nodes',
    help: 'Public websocket address of this node. Clients move to it if all their rooms are there.',
    schema: url(['ws', 'wss'], 'wss://node-1.play.example.com'),
    readBy: DATAPLANE,
  },
  NODE_LEASE_MS: {
    topic: 'nodes',
    help: 'Lifetime of the lease of a node. If it expires, other nodes continue its rooms.',
    schema: integer(200, 60_000, 'milliseconds'),
    default: '2000',
    readBy: DATAPLANE,
  },
  TURN_LIMIT_MS: {
    topic: 'rooms',
    help: 'Time limit of a turn, at most 0.4 × NODE_LEASE_MS. A longer turn ends the process.',
    schema: integer(50, 24_000, 'milliseconds'),
    defaultNote: '800, or 0.4 × NODE_LEASE_MS if that is less',
    readBy: DATAPLANE,
  },
  SESSION_RESUME_TTL: {
    topic: 'clients',
    help: 'Time to resume a session after a lost connection.',
    schema: integer(0, 86_400, 'seconds'),
    default: '60',
    readBy: DATAPLANE,
  },
  SESSION_MESSAGES_PER_SECOND: {
    topic: 'clients',
    help: 'Messages per second of a session, for all rooms together. Bursts: twice as many.',
    schema: integer(1, 100_000, 'messages'),
    default: '120',
    readBy: DATAPLANE,
  },
  ROOM_ORPHAN_TTL: {
    topic: 'rooms',
    help: 'Time for which the store keeps a room that no node runs.',
    schema: integer(10, 31_536_000, 'seconds'),
    default: '600',
    readBy: DATAPLANE,
  },
  MAX_ROOM_STATE_BYTES: {
    topic: 'rooms',
    help: 'Maximum size of the state of one room.',
    schema: integer(1024, 1_073_741_824, 'bytes'),
    default: '8388608',
    readBy: DATAPLANE,
  },
  HEARTBEAT_SECONDS: {
    topic: 'clients',
    help: 'Interval of heartbeats. Two missed heartbeats end the connection.',
    schema: integer(1, 300, 'seconds'),
    default: '10',
    readBy: DATAPLANE,
  },
  DRAIN_SECONDS: {
    topic: 'nodes',
    help: 'Time limit of a drain.',
    schema: integer(0, 3600, 'seconds'),
    default: '10',
    readBy: DATAPLANE,
  },
  MAX_MESSAGE_BYTES: {
    topic: 'clients',
    help: 'Maximum size of a client’s message.',
    schema: integer(256, 16_777_216, 'bytes'),
    default: '16384',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS: {
    topic: 'clients',
    help: 'Maximum number of sessions of a node, including disconnected ones. 0: no limit.',
    schema: integer(0, 10_000_000, 'sessions'),
    default: '20000',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS_PER_PROJECT: {
    topic: 'clients',
    help: 'Maximum number of sessions of a project at a node. 0: no limit.',
    schema: integer(0, 10_000_000, 'sessions'),
    default: '0',
    readBy: DATAPLANE,
  },
  PROJECT_SHARE: {
    topic: 'clients',
    help: 'A full node accepts more only for projects below this share (sessions, rooms, notices). 0: first come, first served.',
    schema: integer(0, 100, 'percent'),
    default: '50',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS_PER_SUB: {
    topic: 'clients',
    help: 'Maximum number of sessions of a player (sub) at all nodes. Without sub: 100 times as many. 0: no limit.',
    schema: integer(0, 100_000, 'sessions'),
    default: '10',
    readBy: DATAPLANE,
  },
  TRUSTED_PROXIES: {
    topic: 'clients',
    help: 'Load balancers in front of the nodes. Nodes read the client’s address from their x-forwarded-for.',
    schema: networks,
    default: 'private',
    readBy: DATAPLANE,
  },
  MAX_ROOMS: {
    topic: 'rooms',
    help: 'Maximum number of rooms of a node. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    readBy: DATAPLANE,
  },
  MAX_ROOMS_PER_PROJECT: {
    topic: 'rooms',
    help: 'Maximum number of rooms of a project, including sleeping ones. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    readBy: DATAPLANE,
  },
  MAX_SLEEPING_ROOMS_PER_PLAYER: {
    topic: 'rooms',
    help: 'Maximum number of sleeping rooms and rooms with timers that one player has created. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '200',
    readBy: DATAPLANE,
  },
  NEW_ROOMS_PER_MINUTE: {
    topic: 'rooms',
    help: 'Maximum number of rooms that one player creates per minute. 0: no limit.',
    schema: integer(0, 1_000_000, 'rooms'),
    default: '60',
    readBy: DATAPLANE,
  },
  NOTIFY_URL: {
    topic: 'rooms',
    help: 'Route of your backend to which nodes send notices. Not set: notices wait in the store for 24 hours.',
    schema: url(['http', 'https'], 'https://api.example.com/notices'),
    readBy: DATAPLANE,
  },
  NOTIFY_SECRET: {
    topic: 'rooms',
    help: 'Secret of the notify keys of all projects. Required with NOTIFY_URL. Nodes sign with each of several secrets.',
    schema: webhookSecrets,
    readBy: BOTH,
    secret: true,
  },
  EXAMPLES_PORT: {
    topic: 'ports',
    help: 'For dev only: port of the example games and their backend.',
    schema: port,
    default: '8080',
    readBy: ['dev'],
  },
  INTERNAL_TOKEN: {
    topic: 'access',
    help: 'Shared secret of nodes and control, also for /admin. Of several secrets, the first is sent, and all are accepted.',
    schema: text(
      'secrets without spaces, separated by commas; each of 24 random characters or more, off loopback',
      /^[\x21-\x2b\x2d-\x7e]+(,[\x21-\x2b\x2d-\x7e]+)*$/,
    ),
    readBy: [...BOTH, 'admin'],
    secret: true,
  },
  REDIS_URL: {
    topic: 'redis',
    help: 'URL of the Redis that all processes share.',
    schema: storeUrl,
    defaultNote: 'dev: in memory',
    readBy: ALL,
    requiredBy: ['control', 'dataplane', 'rekey'],
    secret: true,
  },
  KEY_PREFIX: {
    topic: 'redis',
    help: 'Prefix of all Redis keys. Several deployments can thus share one Redis.',
    schema: text('1–64 characters without spaces and braces', /^[^\s{}]{1,64}$/),
    default: 'roomful:',
    readBy: ALL,
  },
  REQUIRE_KEY_ID: {
    topic: 'access',
    help: '1: refuse tokens that were issued without a key.',
    schema: flag,
    default: '0',
    readBy: BOTH,
  },
  WORKERS: {
    topic: 'nodes',
    help: 'Number of processes that share one port. A parent process restarts them. Or: --workers.',
    schema: workers,
    defaultNote: 'one process',
    readBy: ['control', 'dataplane'],
  },
  LOG_LEVEL: {
    topic: 'logs',
    help: 'Lowest level of the log.',
    schema: oneOf(LOG_LEVELS),
    defaultNote: 'info; dev: only lines for developers',
    readBy: ALL,
  },
  OTEL_TRACES_EXPORTER: {
    topic: 'otel',
    help: 'otlp: sends traces to a collector (OTLP over HTTP, JSON). Other OTEL_… variables also work.',
    schema: oneOf(['none', 'otlp']),
    default: 'none',
    readBy: BOTH,
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    topic: 'otel',
    help: 'Headers for the collector, such as its credential.',
    schema: text('name=value pairs separated by commas, names as in HTTP, values percent-encoded'),
    readBy: BOTH,
    secret: true,
  },
} as const satisfies Record<string, Variable>

type Table = typeof VARIABLES
export type VariableName = keyof Table

/** The variables with their names, in the order of the table. */
export const variables = (): [VariableName, Variable][] =>
  Object.entries(VARIABLES) as [VariableName, Variable][]

/** Name of a variable's value in the configuration. */
type Key<N extends string> = N extends `${infer Word}_${infer Rest}`
  ? `${Lowercase<Word>}${Capitalize<Key<Rest>>}`
  : Lowercase<N>
export const keyOf = <N extends VariableName>(name: N): Key<N> =>
  name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) as Key<N>

type ReadBy<C extends Command, N extends VariableName> = C extends Table[N]['readBy'][number] ? N : never
type RequiredBy<C extends Command, N extends VariableName = VariableName> = N extends VariableName
  ? Table[N] extends { readonly requiredBy: readonly (infer R)[] }
    ? C extends R
      ? N
      : never
    : never
  : never
type Value<C extends Command, N extends VariableName> =
  | v.InferOutput<Table[N]['schema']>
  | (Table[N] extends { readonly default: string }
      ? never
      : [RequiredBy<C, N>] extends [never]
        ? undefined
        : never)

/** Known values by their names in the configuration. */
export type Values = {
  readonly [N in VariableName as Key<N>]?: v.InferOutput<Table[N]['schema']> | undefined
}

/** Configuration of a command: the values of all variables that it reads. Optional ones without a default may be undefined. */
export type Config<C extends Command> = {
  readonly [N in VariableName as Key<ReadBy<C, N>>]: Value<C, N>
}

/** Returns the defaults of a command's configuration. Required values are missing. */
export type Defaults<C extends Command> = Omit<Config<C>, Key<RequiredBy<C>>>
