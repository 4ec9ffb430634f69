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
  trueOrFalse,
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
  ports: 'where it listens',
  rooms: 'room types, and what rooms may take',
  redis: 'the store',
  access: 'tokens, keys, and who may do what',
  clients: 'connections, sessions, and what players may send',
  nodes: 'the names, leases and drains of nodes; workers',
  logs: 'what is logged, and how',
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
    help: 'Address the control API listens on.',
    schema: host,
    default: '127.0.0.1',
    readBy: CONTROL,
  },
  CONTROL_PORT: {
    topic: 'ports',
    help: 'Port the control API listens on.',
    schema: port,
    default: '3000',
    readBy: CONTROL,
  },
  CONTROL_API_TOKENS: {
    topic: 'access',
    help: 'Operator tokens: bearers may call every route of the control API. roomful admin sends the first. Not set: the control API is open, on loopback only. none: it is open on any address, and under any host name.',
    schema: tokens,
    readBy: [...CONTROL, 'admin'],
    secret: true,
  },
  KEYRING_SECRET: {
    topic: 'access',
    help: 'Seals the private signing keys in the store. The same for every control process. Of several, the first seals and each opens.',
    schema: text(
      'one or more secret texts, separated by commas without spaces; 24 random characters or more, off loopback',
      /^(?!\s*$|,|.*(,\s|\s,|,,|,$))/s,
    ),
    readBy: [...CONTROL, 'rekey'],
    requiredBy: ['rekey'],
    secret: true,
  },
  WS_HOST: {
    topic: 'ports',
    help: 'Address the websocket listens on.',
    schema: host,
    default: '127.0.0.1',
    readBy: DATAPLANE,
  },
  WS_PORT: {
    topic: 'ports',
    help: 'Port the websocket listens on.',
    schema: port,
    default: '4000',
    readBy: DATAPLANE,
  },
  ADMIN_HOST: {
    topic: 'ports',
    help: 'Address that metrics, health and admin listen on.',
    schema: host,
    default: '127.0.0.1',
    readBy: DATAPLANE,
  },
  ADMIN_PORT: {
    topic: 'ports',
    help: 'Port that metrics, health and admin listen on.',
    schema: port,
    default: '9100',
    readBy: DATAPLANE,
  },
  ADMIN_URL: {
    topic: 'nodes',
    help: 'Where control and operators reach the admin side of this very node: control forwards calls of rooms there, and admin pages link to it. roomful admin finds all nodes at the address of any of them.',
    schema: url(['http', 'https'], 'http://node-1.internal:9100'),
    defaultNote: 'made of ADMIN_HOST and ADMIN_PORT; admin: http://127.0.0.1:9100',
    readBy: [...DATAPLANE, 'admin'],
  },
  CONTROL_URL: {
    topic: 'ports',
    help: 'Where a node reaches the control API, to ask about keys, and where roomful admin reaches it.',
    schema: url(['http', 'https'], 'http://127.0.0.1:3000'),
    default: 'http://127.0.0.1:3000',
    readBy: ['dataplane', 'admin'],
  },
  ROOMS_DIR: {
    topic: 'rooms',
    help: 'Folder of the room types: one module each (.ts, .js or .mjs).',
    schema: text('the path of a folder'),
    defaultNote: 'dev: ./rooms where there is one, else the examples',
    readBy: DATAPLANE,
    requiredBy: ['dataplane'],
  },
  ALLOWED_ORIGINS: {
    topic: 'access',
    help: 'Origins of web pages that may open a websocket. One leading label of the host may be *.',
    schema: origins,
    defaultNote: 'all',
    readBy: DATAPLANE,
  },
  TOKEN_AUDIENCE: {
    topic: 'access',
    help: 'When set, only tokens whose aud is this are accepted.',
    schema: text('a text'),
    readBy: DATAPLANE,
  },
  AUTH_JWKS: {
    topic: 'access',
    help: 'Lets players in with JWTs of your own login (RS256, ES256, EdDSA), checked with the public keys at its JWKS address.',
    schema: jwtIssuers,
    defaultNote: 'tokens of the control API only',
    readBy: DATAPLANE,
  },
  NODE_ID: {
    topic: 'nodes',
    help: 'Name of the node in logs, metrics and the cluster; a second process with it does not start.',
    schema: text('1–64 letters, digits, dots, hyphens or underscores', /^[A-Za-z0-9._-]{1,64}$/),
    defaultNote: 'random',
    readBy: DATAPLANE,
  },
  ADVERTISE_URL: {
    topic: 'nodes',
    help: 'Public websocket address of this very node: clients whose rooms are all here are sent to it. Not set: none is.',
    schema: url(['ws', 'wss'], 'wss://node-1.play.example.com'),
    readBy: DATAPLANE,
  },
  NODE_LEASE_MS: {
    topic: 'nodes',
    help: 'How long a node that went silent keeps its rooms before others take them over.',
    schema: integer(200, 60_000, 'milliseconds'),
    default: '2000',
    readBy: DATAPLANE,
  },
  TURN_LIMIT_MS: {
    topic: 'rooms',
    help: 'How long room logic may take for one turn. A process in which it takes longer ends, since nothing else can happen there; its rooms go on elsewhere without that turn. At most 0.4 × NODE_LEASE_MS.',
    schema: integer(50, 24_000, 'milliseconds'),
    defaultNote: '800, or 0.4 × NODE_LEASE_MS if that is less',
    readBy: DATAPLANE,
  },
  SESSION_RESUME_TTL: {
    topic: 'clients',
    help: 'How long a session that lost its connection can be resumed.',
    schema: integer(0, 86_400, 'seconds'),
    default: '60',
    readBy: DATAPLANE,
  },
  SESSION_MESSAGES_PER_SECOND: {
    topic: 'clients',
    help: 'How many messages a session may send in all rooms together; bursts of twice as many pass.',
    schema: integer(1, 100_000, 'messages'),
    default: '120',
    readBy: DATAPLANE,
  },
  ROOM_ORPHAN_TTL: {
    topic: 'rooms',
    help: 'How long the store keeps a room that no node runs any more.',
    schema: integer(10, 31_536_000, 'seconds'),
    default: '600',
    readBy: DATAPLANE,
  },
  MAX_ROOM_STATE_BYTES: {
    topic: 'rooms',
    help: 'How large the state of one room may become.',
    schema: integer(1024, 1_073_741_824, 'bytes'),
    default: '8388608',
    readBy: DATAPLANE,
  },
  HEARTBEAT_SECONDS: {
    topic: 'clients',
    help: 'How often node and client make sure that the other is there; two silent ones end the connection.',
    schema: integer(1, 300, 'seconds'),
    default: '10',
    readBy: DATAPLANE,
  },
  DRAIN_SECONDS: {
    topic: 'nodes',
    help: 'How long a draining node takes at most to move its clients and hand over its rooms.',
    schema: integer(0, 3600, 'seconds'),
    default: '10',
    readBy: DATAPLANE,
  },
  MAX_MESSAGE_BYTES: {
    topic: 'clients',
    help: 'Largest message a client may send.',
    schema: integer(256, 16_777_216, 'bytes'),
    default: '16384',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS: {
    topic: 'clients',
    help: 'How many sessions a node has at most, those waiting to be resumed included; more are sent elsewhere. 0: no limit.',
    schema: integer(0, 10_000_000, 'sessions'),
    default: '20000',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS_PER_PROJECT: {
    topic: 'clients',
    help: 'How many sessions of one project a node has before it sends new ones elsewhere; resumes are always accepted. 0: no limit.',
    schema: integer(0, 10_000_000, 'sessions'),
    default: '0',
    readBy: DATAPLANE,
  },
  MAX_SESSIONS_PER_SUB: {
    topic: 'clients',
    help: 'How many sessions a player (sub of the tokens) has at most, at all nodes together; a new one takes the place of one without a connection. A token without sub may have a hundred times as many. 0: no limit.',
    schema: integer(0, 100_000, 'sessions'),
    default: '10',
    readBy: DATAPLANE,
  },
  TRUSTED_PROXIES: {
    topic: 'clients',
    help: 'Load balancers before the nodes: their x-forwarded-for says which address a client comes from, and they are not counted as one.',
    schema: networks,
    default: 'private',
    readBy: DATAPLANE,
  },
  MAX_ROOMS: {
    topic: 'rooms',
    help: 'How many rooms a node runs at most; more are run elsewhere. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    readBy: DATAPLANE,
  },
  MAX_ROOMS_PER_PROJECT: {
    topic: 'rooms',
    help: 'How many rooms a project has at most, on all nodes together and asleep in the store; joins that would make more are refused. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    readBy: DATAPLANE,
  },
  MAX_SLEEPING_ROOMS_PER_PLAYER: {
    topic: 'rooms',
    help: 'How many rooms that a player (sub), or a token without sub, has made may stay in the store without members, since they sleep or have timers, those that are open included. Joins by which the player would make one more room are refused. 0: no limit.',
    schema: integer(0, 10_000_000, 'rooms'),
    default: '200',
    readBy: DATAPLANE,
  },
  NEW_ROOMS_PER_MINUTE: {
    topic: 'rooms',
    help: 'How many rooms a player (sub), or a token without sub, may make in a minute, at all nodes together. 0: no limit.',
    schema: integer(0, 1_000_000, 'rooms'),
    default: '60',
    readBy: DATAPLANE,
  },
  NOTIFY_URL: {
    topic: 'rooms',
    help: 'Where nodes send the notices of rooms: a route of your backend. Not set: notices wait in the store, for 24 hours at most.',
    schema: url(['http', 'https'], 'https://api.example.com/notices'),
    readBy: DATAPLANE,
  },
  NOTIFY_SECRET: {
    topic: 'rooms',
    help: 'Signs the notices (Standard Webhooks). Required with NOTIFY_URL. Of several, each signs, so that the backend can change from one to the next.',
    schema: webhookSecrets,
    readBy: DATAPLANE,
    secret: true,
  },
  EXAMPLES_PORT: {
    topic: 'ports',
    help: 'Port the example games and their backend listen on.',
    schema: port,
    default: '8080',
    readBy: ['dev'],
  },
  INTERNAL_TOKEN: {
    topic: 'access',
    help: 'Secret that nodes show to control, and operators to /admin. The same in every process. Of several, the first is shown and all are accepted.',
    schema: text(
      'one or more secret texts without spaces, separated by commas alone; 24 random characters or more, off loopback',
      /^[\x21-\x2b\x2d-\x7e]+(,[\x21-\x2b\x2d-\x7e]+)*$/,
    ),
    readBy: [...BOTH, 'admin'],
    secret: true,
  },
  REDIS_URL: {
    topic: 'redis',
    help: 'The Redis that all processes of a deployment share.',
    schema: storeUrl,
    defaultNote: 'dev: in memory',
    readBy: ALL,
    requiredBy: ['control', 'dataplane', 'rekey'],
    secret: true,
  },
  KEY_PREFIX: {
    topic: 'redis',
    help: 'Put before every Redis key, so that several deployments share one Redis.',
    schema: text('1–64 characters without spaces and braces', /^[^\s{}]{1,64}$/),
    default: 'roomful:',
    readBy: ALL,
  },
  REQUIRE_KEY_ID: {
    topic: 'access',
    help: 'Refuse tokens that were not issued under a key of their own.',
    schema: flag,
    default: '0',
    readBy: BOTH,
  },
  WORKERS: {
    topic: 'nodes',
    help: 'How many processes serve behind the one port, under a process that starts again what ends, and replaces them one by one at SIGHUP. --workers sets it, too.',
    schema: workers,
    defaultNote: 'this process alone serves',
    readBy: ['control', 'dataplane'],
  },
  LOG_LEVEL: {
    topic: 'logs',
    help: 'The least important lines that are logged.',
    schema: oneOf(LOG_LEVELS),
    defaultNote: 'info; warn for dev at a terminal',
    readBy: ALL,
  },
  OTEL_TRACES_EXPORTER: {
    topic: 'otel',
    help: 'otlp sends traces to a collector, as OTLP over HTTP in JSON. OpenTelemetry’s libraries read the rest of their variables (OTEL_…) themselves.',
    schema: oneOf(['none', 'otlp']),
    default: 'none',
    readBy: BOTH,
  },
  OTEL_SDK_DISABLED: {
    topic: 'otel',
    help: 'true: no traces, whatever the other variables say.',
    schema: trueOrFalse,
    default: 'false',
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
