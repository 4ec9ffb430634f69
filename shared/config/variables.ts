import {
  flag,
  host,
  integer,
  list,
  networks,
  oneOf,
  port,
  storeUrl,
  text,
  trueOrFalse,
  url,
} from './kinds.ts'
import { ALL, BOTH, CONTROL, DATAPLANE, optional, type Variable, withDefault } from './variable.ts'

const HEADERS = text('name=value pairs separated by commas, names as in HTTP, values percent-encoded')
const ORIGIN = /^(https?|[a-z][a-z0-9+.-]*):\/\/[^/\s]+$/

/**
 * Every environment variable roomful reads. `--help` prints this table, `parse…Config` reads by it, and `npm run docs` writes it
 * into `docs/reference.md`.
 */
export const VARIABLES = {
  CONTROL_HOST: withDefault({
    meaning: 'Address the control API listens on.',
    kind: host,
    default: '127.0.0.1',
    used_by: CONTROL,
  }),
  CONTROL_PORT: withDefault({
    meaning: 'Port the control API listens on.',
    kind: port,
    default: '3000',
    used_by: CONTROL,
  }),
  CONTROL_API_TOKENS: optional({
    meaning:
      'Operator tokens: bearers may call every route of the control API. None: open, on loopback only.',
    kind: list(
      'one or more tokens without spaces, separated by commas; 24 random characters or more, off loopback',
      /^[\x21-\x7e]+$/,
    ),
    used_by: CONTROL,
    secret: true,
  }),
  CONTROL_API_AUTH: optional({
    meaning: 'none lets the control API be open on an address that is not loopback, and under any host name.',
    kind: oneOf(['none']),
    used_by: CONTROL,
  }),
  KEYRING_SECRET: optional({
    meaning:
      'Seals the private signing keys in the store. The same for every control process. Of several, the first seals and each opens.',
    kind: text(
      'one or more secret texts, separated by commas without spaces; 24 random characters or more, off loopback',
      /^(?!\s*$|,|.*(,\s|\s,|,,|,$))/s,
    ),
    used_by: [...CONTROL, 'rekey'],
    required_by: ['rekey'],
    secret: true,
  }),
  WS_HOST: withDefault({
    meaning: 'Address the websocket listens on.',
    kind: host,
    default: '127.0.0.1',
    used_by: DATAPLANE,
  }),
  WS_PORT: withDefault({
    meaning: 'Port the websocket listens on.',
    kind: port,
    default: '4000',
    used_by: DATAPLANE,
  }),
  ADMIN_HOST: withDefault({
    meaning: 'Address that metrics, health and admin listen on.',
    kind: host,
    default: '127.0.0.1',
    used_by: DATAPLANE,
  }),
  ADMIN_PORT: withDefault({
    meaning: 'Port that metrics, health and admin listen on.',
    kind: port,
    default: '9100',
    used_by: DATAPLANE,
  }),
  ADMIN_URL: optional({
    meaning: 'Where operators reach the admin side of this very node, for the links between the admin pages.',
    kind: url(['http', 'https'], 'http://node-1.internal:9100'),
    default_note: 'made of ADMIN_HOST and ADMIN_PORT',
    used_by: DATAPLANE,
  }),
  CONTROL_URL: withDefault({
    meaning: 'Where a node reaches the control API, to ask about keys.',
    kind: url(['http', 'https'], 'http://127.0.0.1:3000'),
    default: 'http://127.0.0.1:3000',
    used_by: ['dataplane'],
  }),
  ROOMS_DIR: optional({
    meaning: 'Folder of the room types: one module each (.ts, .js or .mjs).',
    kind: text('the path of a folder'),
    default_note: 'the examples',
    used_by: DATAPLANE,
  }),
  ALLOWED_ORIGINS: optional({
    meaning: 'Origins of web pages that may open a websocket.',
    kind: list('origins such as https://play.example.com, separated by commas', ORIGIN),
    default_note: 'all',
    used_by: DATAPLANE,
  }),
  TOKEN_AUDIENCE: optional({
    meaning: 'When set, only tokens whose aud is this are accepted.',
    kind: text('a text'),
    used_by: DATAPLANE,
  }),
  NODE_ID: optional({
    meaning: 'Name of the node in logs, metrics and the cluster; a second process with it does not start.',
    kind: text('1–64 letters, digits, dots, hyphens or underscores', /^[A-Za-z0-9._-]{1,64}$/),
    default_note: 'random',
    used_by: DATAPLANE,
  }),
  ADVERTISE_URL: optional({
    meaning: 'Public websocket address of this very node, for clients that want to be where their room is.',
    kind: url(['ws', 'wss'], 'wss://node-1.play.example.com'),
    used_by: DATAPLANE,
  }),
  NODE_LEASE_MS: withDefault({
    meaning: 'How long a node that went silent keeps its rooms before others take them over.',
    kind: integer(200, 60_000, 'milliseconds'),
    default: '2000',
    used_by: DATAPLANE,
  }),
  TURN_LIMIT_MS: optional({
    meaning:
      'How long room logic may take for one turn. A process in which it takes longer ends, since nothing else can happen there; its rooms go on elsewhere without that turn. At most 0.4 × NODE_LEASE_MS.',
    kind: integer(50, 24_000, 'milliseconds'),
    default_note: '800, or 0.4 × NODE_LEASE_MS if that is less',
    used_by: DATAPLANE,
  }),
  SESSION_RESUME_TTL: withDefault({
    meaning: 'How long a session that lost its connection can be resumed.',
    kind: integer(0, 86_400, 'seconds'),
    default: '60',
    used_by: DATAPLANE,
  }),
  SESSION_MESSAGES_PER_SECOND: withDefault({
    meaning: 'How many messages a session may send in all rooms together; bursts of twice as many pass.',
    kind: integer(1, 100_000, 'messages'),
    default: '120',
    used_by: DATAPLANE,
  }),
  JOINS_PER_SECOND: withDefault({
    meaning:
      'How many joins a player (sub) may send to a node in a second, or a session whose token has no sub; bursts of three times as many pass.',
    kind: integer(1, 100_000, 'joins'),
    default: '10',
    used_by: DATAPLANE,
  }),
  STATE_BYTES_PER_SECOND: withDefault({
    meaning:
      'How many bytes of whole states (by joins, resumes and resyncs) a player (sub) may have from a node in a second, or a session whose token has no sub; eight times as many come at once. The rest comes later.',
    kind: integer(65_536, 1_099_511_627_776, 'bytes'),
    default: '4194304',
    used_by: DATAPLANE,
  }),
  HELLOS_PER_SECOND: withDefault({
    meaning:
      'How often a player (sub) may come to a node with a token in a second, ten times that with a token that has no sub; bursts of three times as many pass.',
    kind: integer(1, 100_000, 'hellos'),
    default: '10',
    used_by: DATAPLANE,
  }),
  CONNECTIONS_PER_SECOND_PER_ADDRESS: withDefault({
    meaning:
      'How many websockets an address may open at a node in a second; of IPv6, each network of 64 bits; bursts of ten times as many pass.',
    kind: integer(1, 1_000_000, 'connections'),
    default: '50',
    used_by: DATAPLANE,
  }),
  ROOM_ORPHAN_TTL: withDefault({
    meaning: 'How long the store keeps a room that no node runs any more.',
    kind: integer(10, 31_536_000, 'seconds'),
    default: '600',
    used_by: DATAPLANE,
  }),
  ROOM_QUARANTINE_TTL: withDefault({
    meaning:
      'How long the store keeps the record of a room that was put in quarantine, for an operator to look at.',
    kind: integer(60, 31_536_000, 'seconds'),
    default: '259200',
    used_by: DATAPLANE,
  }),
  MAX_ROOM_BACKLOG: withDefault({
    meaning:
      'How many messages wait for one room that cannot act, such as while the store is away; of joins and the like ten times as many.',
    kind: integer(1, 1_000_000, 'messages'),
    default: '1000',
    used_by: DATAPLANE,
  }),
  MAX_ROOM_TASKS: withDefault({
    meaning: 'How many tasks one room has in flight.',
    kind: integer(1, 100_000, 'tasks'),
    default: '100',
    used_by: DATAPLANE,
  }),
  MAX_ROOM_STATE_BYTES: withDefault({
    meaning: 'How large the state of one room may become.',
    kind: integer(1024, 1_073_741_824, 'bytes'),
    default: '8388608',
    used_by: DATAPLANE,
  }),
  MAX_HISTORY_BYTES: withDefault({
    meaning: 'How much the past updates of all rooms of a node take, which members who come back are sent.',
    kind: integer(1_048_576, 1_099_511_627_776, 'bytes'),
    default: '268435456',
    used_by: DATAPLANE,
  }),
  HEARTBEAT_SECONDS: withDefault({
    meaning:
      'How often node and client make sure that the other is there; two silent ones end the connection.',
    kind: integer(1, 300, 'seconds'),
    default: '10',
    used_by: DATAPLANE,
  }),
  DRAIN_SECONDS: withDefault({
    meaning: 'How long a draining node takes at most to move its clients and hand over its rooms.',
    kind: integer(0, 3600, 'seconds'),
    default: '10',
    used_by: DATAPLANE,
  }),
  MAX_MESSAGE_BYTES: withDefault({
    meaning: 'Largest message a client may send.',
    kind: integer(256, 16_777_216, 'bytes'),
    default: '16384',
    used_by: DATAPLANE,
  }),
  MAX_ROOMS_PER_SESSION: withDefault({
    meaning: 'How many rooms a session may be in at once.',
    kind: integer(1, 1000, 'rooms'),
    default: '16',
    used_by: DATAPLANE,
  }),
  MAX_SESSIONS: withDefault({
    meaning:
      'How many sessions a node has at most, those waiting to be resumed included; more are sent elsewhere. 0: no limit.',
    kind: integer(0, 10_000_000, 'sessions'),
    default: '20000',
    used_by: DATAPLANE,
  }),
  MAX_SESSIONS_PER_SUB: withDefault({
    meaning:
      'How many sessions a player (sub of the tokens) has at most, at all nodes together; a new one takes the place of one without a connection. 0: no limit.',
    kind: integer(0, 100_000, 'sessions'),
    default: '10',
    used_by: DATAPLANE,
  }),
  MAX_SESSIONS_PER_TOKEN: withDefault({
    meaning: 'The same for each token that names no player.',
    kind: integer(0, 1_000_000, 'sessions'),
    default: '1000',
    used_by: DATAPLANE,
  }),
  MAX_PENDING_CONNECTIONS: withDefault({
    meaning:
      'How many connections of a node may be without a session at once; the one that has said nothing for longest makes room. 0: no limit.',
    kind: integer(0, 1_000_000, 'connections'),
    default: '2000',
    used_by: DATAPLANE,
  }),
  MAX_PENDING_CONNECTIONS_PER_ADDRESS: withDefault({
    meaning:
      'The same for each address that clients come from; of IPv6, for each network of 64 bits. 0: no limit.',
    kind: integer(0, 1_000_000, 'connections'),
    default: '200',
    used_by: DATAPLANE,
  }),
  TRUSTED_PROXIES: withDefault({
    meaning:
      'Load balancers before the nodes: their x-forwarded-for says which address a client comes from, and they are not counted as one.',
    kind: networks,
    default: 'private',
    used_by: DATAPLANE,
  }),
  MAX_ROOMS: withDefault({
    meaning: 'How many rooms a node runs at most; more are run elsewhere. 0: no limit.',
    kind: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    used_by: DATAPLANE,
  }),
  MAX_KEY_LOOKUPS: withDefault({
    meaning:
      'How many keys that a node has not met may be asked about at once, waiting ones included; tokens of more are put off.',
    kind: integer(1, 100_000, 'keys'),
    default: '256',
    used_by: DATAPLANE,
  }),
  MAX_RESUME_WAITS: withDefault({
    meaning:
      'How many resumes with a used token wait at a node at once, one for each session; more are put off.',
    kind: integer(1, 100_000, 'resumes'),
    default: '256',
    used_by: DATAPLANE,
  }),
  MAX_ROOMS_PER_PROJECT: withDefault({
    meaning:
      'How many rooms a project has at most, on all nodes together and asleep in the store; joins that would make more are refused. 0: no limit.',
    kind: integer(0, 10_000_000, 'rooms'),
    default: '10000',
    used_by: DATAPLANE,
  }),
  NEW_ROOMS_PER_MINUTE: withDefault({
    meaning:
      'How many rooms a player (sub), or a token without sub, may make in a minute, at all nodes together. 0: no limit.',
    kind: integer(0, 1_000_000, 'rooms'),
    default: '60',
    used_by: DATAPLANE,
  }),
  MAX_UNACKED_MESSAGES: withDefault({
    meaning:
      'How many reliable messages of a member may wait for their ack, and how many refusals are kept until its client knows them.',
    kind: integer(1, 100_000, 'messages'),
    default: '1024',
    used_by: DATAPLANE,
  }),
  MAX_UNACKED_BYTES: withDefault({
    meaning:
      'How many bytes the reliable messages of a member may take that wait for their ack, and likewise the refusals kept.',
    kind: integer(1024, 1_073_741_824, 'bytes'),
    default: '262144',
    used_by: DATAPLANE,
  }),
  OUTBOX_HIGH_WATER_BYTES: withDefault({
    meaning:
      'Bytes waiting for a slow reader above which patches are dropped; it gets one resync once it reads again.',
    kind: integer(1024, 1_073_741_824, 'bytes'),
    default: '262144',
    used_by: DATAPLANE,
  }),
  OUTBOX_LIMIT_BYTES: withDefault({
    meaning: 'Bytes waiting for a slow reader above which its connection is closed.',
    kind: integer(1024, 1_073_741_824, 'bytes'),
    default: '1048576',
    used_by: DATAPLANE,
  }),
  EXAMPLES_HOST: withDefault({
    meaning: 'Address the example games listen on.',
    kind: host,
    default: '127.0.0.1',
    used_by: ['dev'],
  }),
  EXAMPLES_PORT: withDefault({
    meaning: 'Port the example games and their backend listen on.',
    kind: port,
    default: '8080',
    used_by: ['dev'],
  }),
  INTERNAL_TOKEN: optional({
    meaning:
      'Secret that nodes show to control, and operators to /admin. The same in every process. Of several, the first is shown and all are accepted.',
    kind: text(
      'one or more secret texts without spaces, separated by commas alone; 24 random characters or more, off loopback',
      /^[\x21-\x2b\x2d-\x7e]+(,[\x21-\x2b\x2d-\x7e]+)*$/,
    ),
    used_by: BOTH,
    secret: true,
  }),
  REDIS_URL: optional({
    meaning: 'The Redis that all processes of a deployment share.',
    kind: storeUrl,
    default_note: 'dev: in memory',
    used_by: ALL,
    required_by: ['control', 'dataplane', 'rekey'],
    secret: true,
  }),
  KEY_PREFIX: withDefault({
    meaning: 'Put before every Redis key, so that several deployments share one Redis.',
    kind: text('1–64 characters without spaces and braces', /^[^\s{}]{1,64}$/),
    default: 'roomful:',
    used_by: ALL,
  }),
  REQUIRE_KEY_ID: withDefault({
    meaning: 'Refuse tokens that were not issued under a key of their own.',
    kind: flag,
    default: '0',
    used_by: BOTH,
  }),
  LOG_LEVEL: withDefault({
    meaning: 'The least important lines that are logged.',
    kind: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']),
    default: 'info',
    used_by: ALL,
  }),
  LOG_FORMAT: withDefault({
    meaning: 'JSON lines, or lines for people; auto is pretty on a terminal.',
    kind: oneOf(['auto', 'json', 'pretty']),
    default: 'auto',
    used_by: ALL,
  }),
  OTEL_TRACES_EXPORTER: withDefault({
    meaning:
      'otlp sends traces to a collector, as OTLP over HTTP in JSON. OpenTelemetry’s libraries read the rest of their variables (OTEL_…) themselves.',
    kind: oneOf(['none', 'otlp']),
    default: 'none',
    used_by: BOTH,
  }),
  OTEL_SDK_DISABLED: withDefault({
    meaning: 'true: no traces, whatever the other variables say.',
    kind: trueOrFalse,
    default: 'false',
    used_by: BOTH,
  }),
  OTEL_EXPORTER_OTLP_HEADERS: optional({
    meaning: 'Headers for the collector, such as its credential.',
    kind: HEADERS,
    used_by: BOTH,
    secret: true,
  }),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: optional({
    meaning: 'More of them for traces alone; of the same name, this one counts.',
    kind: HEADERS,
    used_by: BOTH,
    secret: true,
  }),
} as const satisfies Record<string, Variable>

export type VariableName = keyof typeof VARIABLES

type ValueOf<V> =
  V extends Variable<infer T> ? (V extends { readonly default: string } ? T : T | undefined) : never

/** The value of every variable, by name. */
export type Values = { readonly [N in VariableName]: ValueOf<(typeof VARIABLES)[N]> }
