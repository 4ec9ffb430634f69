import type { ProblemCode } from '../../shared/problem.ts'
import { CLOSE, type CloseName, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'

/**
 * The authorisation matrix: one row for each route of control, each route of a node's admin side, and each message of the websocket. `npm
 * run docs` writes it to README.md. authorisation.test.ts tests each cell, and fails for a route or message without a row.
 */

/** Credentials of a request. */
export const CONTROL_CREDENTIALS = {
  none: 'nothing',
  wrong: 'a wrong credential',
  operator: 'an operator token',
  own_key: 'a key of the project',
  foreign_key: 'a key of another project',
  scopeless_key: 'a key without the scope',
  revoked_key: 'a revoked key',
  internal: 'the internal token',
  open: 'nothing, while the API is open',
} as const

export type ControlCredential = keyof typeof CONTROL_CREDENTIALS
/** `yes`, or the code of the refusal. */
type Answer = 'yes' | ProblemCode
type ControlRow = Readonly<Record<ControlCredential, Answer>>

const EVERYONE: ControlRow = {
  none: 'yes',
  wrong: 'yes',
  operator: 'yes',
  own_key: 'yes',
  foreign_key: 'yes',
  scopeless_key: 'yes',
  revoked_key: 'yes',
  internal: 'yes',
  open: 'yes',
}

const OPERATORS: ControlRow = {
  none: 'unauthenticated',
  wrong: 'unauthenticated',
  operator: 'yes',
  own_key: 'forbidden',
  foreign_key: 'forbidden',
  scopeless_key: 'forbidden',
  revoked_key: 'key_revoked',
  internal: 'unauthenticated',
  open: 'yes',
}

/** Routes for operators, and for keys of the project with the scope. */
const CALLERS: ControlRow = { ...OPERATORS, own_key: 'yes', scopeless_key: 'missing_scope' }

const NODES: ControlRow = {
  none: 'unauthenticated',
  wrong: 'unauthenticated',
  operator: 'unauthenticated',
  own_key: 'unauthenticated',
  foreign_key: 'unauthenticated',
  scopeless_key: 'unauthenticated',
  revoked_key: 'unauthenticated',
  internal: 'yes',
  open: 'unauthenticated',
}

/** Routes of control. A route whose parameters decide the permission has a row for each case. */
export const CONTROL: Readonly<Record<string, ControlRow>> = {
  'POST /projects': OPERATORS,
  'GET /projects': OPERATORS,
  'GET /projects/:id': OPERATORS,
  'GET /projects/:id/notify-key': OPERATORS,
  'PATCH /projects/:id': OPERATORS,
  'POST /projects/:id/disable': OPERATORS,
  'POST /projects/:id/enable': OPERATORS,
  'DELETE /projects/:id': OPERATORS,
  'DELETE /projects/:id/sessions/:sessionId': OPERATORS,
  'POST /projects/:id/keys': OPERATORS,
  'GET /projects/:id/keys': { ...OPERATORS, own_key: 'yes', scopeless_key: 'yes' },
  'POST /projects/:id/keys/:keyId/revoke': OPERATORS,
  'POST /projects/:id/keys/:keyId/rotate': OPERATORS,
  'POST /projects/:id/subs/:sub/revoke': OPERATORS,
  'PUT /projects/:id/subs/:sub/ban': CALLERS,
  'DELETE /projects/:id/subs/:sub/ban': CALLERS,
  'PUT /projects/:id/subs/:sub/data': CALLERS,
  'DELETE /projects/:id/subs/:sub/data': CALLERS,
  'GET /projects/:id/bans': CALLERS,
  'GET /projects/:id/rooms?type=arena': CALLERS,
  'GET /projects/:id/rooms?sleeping=1': OPERATORS,
  'DELETE /projects/:id/rooms/:type/:key': OPERATORS,
  'GET /projects/:id/rooms/:type/:key?include_state=1': CALLERS,
  'GET /projects/:id/rooms/:type/:key?include_layers=1': OPERATORS,
  'PUT /projects/:id/rooms/:type/:key': CALLERS,
  'POST /projects/:id/rooms/:type/:key/calls/:name': CALLERS,
  'POST /projects/:id/rooms/:type/:key/reserve': CALLERS,
  'POST /projects/:id/rooms/:type/:key/kick': CALLERS,
  'POST /projects/:id/rooms/:type/:key/close': CALLERS,
  'POST /tokens': CALLERS,
  'PUT /admin/log-level': OPERATORS,
  'GET /internal/key-status': NODES,
  'GET /healthz': EVERYONE,
  'GET /readyz': EVERYONE,
  'GET /metrics': EVERYONE,
  'GET /openapi.json': EVERYONE,
  'GET /docs': EVERYONE,
  'GET /docs/explorer.js': EVERYONE,
}

/** Routes of `CONTROL`, without duplicates. */
export const CONTROL_ROUTES: readonly string[] = [
  ...new Set(Object.keys(CONTROL).map((row) => row.replace(/\?.*/, ''))),
]

export const ADMIN_CREDENTIALS = {
  none: 'nothing',
  wrong: 'a wrong token',
  bearer: 'the internal token as a bearer',
  internal: 'the internal token',
  unset: 'the word `undefined`, where no internal token is configured',
} as const

export type AdminCredential = keyof typeof ADMIN_CREDENTIALS
type AdminRow = Readonly<Record<AdminCredential, 'yes' | 'unauthenticated'>>

const ANYONE: AdminRow = { none: 'yes', wrong: 'yes', bearer: 'yes', internal: 'yes', unset: 'yes' }
const INTERNAL: AdminRow = {
  none: 'unauthenticated',
  wrong: 'unauthenticated',
  bearer: 'unauthenticated',
  internal: 'yes',
  unset: 'unauthenticated',
}

export const ADMIN: Readonly<Record<string, AdminRow>> = {
  'GET /metrics': ANYONE,
  'GET /healthz': ANYONE,
  'GET /readyz': ANYONE,
  'GET /admin': ANYONE,
  'GET /admin/runtime': INTERNAL,
  'GET /admin/cluster': INTERNAL,
  'GET /admin/owner': INTERNAL,
  'GET /admin/queues': INTERNAL,
  'GET /admin/search': INTERNAL,
  'GET /admin/notices': INTERNAL,
  'POST /admin/notices/resend': INTERNAL,
  'POST /admin/drain': INTERNAL,
  'POST /admin/cordon': INTERNAL,
  'POST /admin/uncordon': INTERNAL,
  'PUT /admin/log-level': INTERNAL,
  'GET /internal/rooms': INTERNAL,
  'DELETE /internal/rooms': INTERNAL,
  'POST /internal/rooms/requests': INTERNAL,
  'GET /internal/room': INTERNAL,
  'DELETE /internal/project-rooms': INTERNAL,
  'DELETE /internal/sessions': INTERNAL,
  'GET /internal/listings': INTERNAL,
}

/** Origins of a request to the routes for development. */
export const DEV_CALLERS = {
  program: 'programs of this machine',
  page: 'pages of this machine',
  extension: 'pages of another scheme, such as an extension',
  elsewhere: 'pages of another origin',
  renamed: 'requests by another name of this machine',
  network: 'other machines',
} as const

export type DevCaller = keyof typeof DEV_CALLERS
type DevRow = Readonly<Record<DevCaller, 'yes' | 403>>

const THIS_MACHINE: DevRow = {
  program: 'yes',
  page: 'yes',
  extension: 403,
  elsewhere: 403,
  renamed: 403,
  network: 403,
}

/** Routes that only `roomful dev` and `npm run cluster` have. */
export const DEV: Readonly<Record<string, DevRow>> = {
  'POST /dev/token': THIS_MACHINE,
  'GET /dev/rooms': THIS_MACHINE,
  'POST /dev/call': THIS_MACHINE,
  'GET /dev/notices': THIS_MACHINE,
  'GET /playground': THIS_MACHINE,
  'POST /dev/kill': THIS_MACHINE,
  'POST /dev/drain': THIS_MACHINE,
}

/** Credentials of a hello. */
export const HELLO: Readonly<Record<string, 'yes' | CloseName>> = {
  'a token': 'yes',
  'a token of the project’s own pair': 'yes',
  'a token of the project’s own pair, where keys are required': 'unauthenticated',
  'no token': 'unauthenticated',
  'a token with another key’s signature': 'unauthenticated',
  'a token whose claims were changed': 'unauthenticated',
  'a token of another project': 'unauthenticated',
  'a token for another audience': 'unauthenticated',
  'a token of a key that does not exist': 'unauthenticated',
  'a token with an empty key id': 'unauthenticated',
  'a token of a revoked key': 'revoked',
  'a token of a disabled project': 'revoked',
  'a token that has expired': 'token_expired',
  'a token that is not valid yet': 'unauthenticated',
  'a token of a player whose tokens were revoked': 'revoked',
  'a token of a banned player': 'banned',
  'a JWT of the project’s own login': 'yes',
  'a JWT that is not signed': 'unauthenticated',
  'a resume token': 'yes',
  'a resume token that was used': 'session_taken_over',
  'a wrong resume token': 'resume_failed',
  'a resume token under another project': 'resume_failed',
  'a resume token of another session': 'resume_failed',
  'a resume token of a session whose key was revoked': 'revoked',
  'a resume token of a disabled project': 'revoked',
  'a resume token of a player whose tokens were revoked': 'revoked',
  'a resume token of a banned player': 'banned',
}

/** State of a client when it sends a message. */
export const STATES = {
  new: 'before `welcome`',
  outside: 'in no room',
  inside: 'in the room',
  elsewhere: 'in another room',
  denied: 'the token does not allow the room',
  expired: 'the token has expired',
  revoked: 'the key was revoked',
  taken_over: 'resumed elsewhere',
} as const

export type State = keyof typeof STATES
type MessageAnswer = 'yes' | { readonly close: CloseName } | { readonly error: ErrorCode }
type MessageRow = Readonly<Record<State, MessageAnswer>>

const OVER = {
  expired: { close: 'token_expired' },
  revoked: { close: 'revoked' },
  taken_over: { close: 'session_taken_over' },
} as const

/** Messages about a room in which the client must have a seat. */
const MEMBERS: MessageRow = {
  new: { close: 'protocol_error' },
  outside: { error: 'not_in_room' },
  inside: 'yes',
  elsewhere: { error: 'not_in_room' },
  denied: { error: 'not_in_room' },
  ...OVER,
}

/** Messages about the session. */
const SESSIONS: MessageRow = { ...MEMBERS, outside: 'yes', elsewhere: 'yes', denied: 'yes' }

const ENDS = { close: 'normal' } as const
const GOODBYE = { outside: ENDS, inside: ENDS, elsewhere: ENDS, denied: ENDS }

export const MESSAGES: Readonly<Record<ClientMessage['t'], MessageRow>> = {
  hello: {
    new: 'yes',
    outside: { close: 'protocol_error' },
    inside: { close: 'protocol_error' },
    elsewhere: { close: 'protocol_error' },
    denied: { close: 'protocol_error' },
    ...OVER,
  },
  join: { ...SESSIONS, inside: { error: 'already_joined' }, denied: { error: 'forbidden' } },
  leave: MEMBERS,
  message: MEMBERS,
  'state.resync': MEMBERS,
  ping: SESSIONS,
  token: SESSIONS,
  move: SESSIONS,
  goodbye: { ...SESSIONS, ...GOODBYE },
  rooms: SESSIONS,
  'rooms.end': SESSIONS,
  find: { ...SESSIONS, denied: { error: 'room_not_found' } },
}

const closeCell = (name: CloseName): string => `${CLOSE[name]} \`${name}\``

function messageCell(answer: MessageAnswer): string {
  // A goodbye asks for this close.
  if (answer === 'yes' || answer === ENDS) return 'yes'
  return 'close' in answer ? closeCell(answer.close) : `\`${answer.error}\``
}

/** Returns a table with one row for all rows of the matrix that accept the same columns. */
function accepted<Column extends string, Cell>(
  columns: Readonly<Record<Column, string>>,
  rows: Readonly<Record<string, Readonly<Record<Column, Cell>>>>,
): string {
  const names = Object.keys(columns) as Column[]
  const acceptedBy = (cells: Readonly<Record<Column, Cell>>) => names.filter((name) => cells[name] === 'yes')
  const groups = grouped(Object.entries(rows), ([, cells]) => acceptedBy(cells).join())
  return [
    '| requests | accepted |',
    '|---|---|',
    ...groups.map((group) => {
      const by = acceptedBy(group[0]![1])
      const who = by.length === names.length ? 'everyone' : by.map((name) => columns[name]).join('; ')
      return `| ${group.map(([row]) => code(row)).join(', ')} | ${who} |`
    }),
  ].join('\n')
}

/** Returns a table of messages without the states in which all messages have one answer. */
function messageTable(): string {
  const rows = Object.values(MESSAGES)
  const states = (Object.keys(STATES) as State[]).filter(
    (state) => new Set(rows.map((row) => messageCell(row[state]))).size > 1,
  )
  const groups = grouped(Object.entries(MESSAGES), ([, row]) =>
    states.map((state) => messageCell(row[state])).join(),
  )
  return [
    '| messages | accepted | refused |',
    '|---|---|---|',
    ...groups.map((group) => {
      const answers = grouped(states, (state) => messageCell(group[0]![1][state]))
      const [yes, no] = [true, false].map((is) =>
        answers.filter(([state]) => (messageCell(group[0]![1][state!]) === 'yes') === is),
      )
      const listed = (names: readonly State[]) => names.map((state) => STATES[state]).join('; ')
      return `| ${[
        group.map(([row]) => code(row)).join(', '),
        yes!.map(listed).join(''),
        no!.map((names) => `${messageCell(group[0]![1][names[0]!])}: ${listed(names)}`).join('. '),
      ].join(' | ')} |`
    }),
  ].join('\n')
}

/** Returns the items with equal keys together, in the order of their first item. */
const grouped = <T>(items: readonly T[], keyOf: (item: T) => string): T[][] => {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const key = keyOf(item)
    groups.set(key, [...(groups.get(key) ?? []), item])
  }
  return [...groups.values()]
}

const code = (text: string): string => `\`${text}\``

function helloTable(): string {
  const rows = grouped(Object.keys(HELLO), (shown) => HELLO[shown]!).map((shown) => {
    const answer = HELLO[shown[0]!]!
    return `| ${answer === 'yes' ? 'accepted' : closeCell(answer)} | ${shown.join('; ')} |`
  })
  return ['| answer | a `hello` with |', '|---|---|', ...rows].join('\n')
}

/** Returns the tables of README.md. */
export const authorisationTables = (): string =>
  [
    '## The control API',
    accepted(CONTROL_CREDENTIALS, CONTROL),
    '## The admin side of a node',
    accepted(ADMIN_CREDENTIALS, ADMIN),
    '## The routes for development',
    accepted(DEV_CALLERS, DEV),
    '## The first message of a websocket',
    helloTable(),
    '## Messages of the websocket',
    messageTable(),
  ].join('\n\n')
