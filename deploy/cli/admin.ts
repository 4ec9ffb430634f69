import { parseArgs } from 'node:util'
import {
  describeProblems,
  type Environment,
  nearestOf,
  readSecretFile,
  readVariables,
} from '../../shared/config.ts'
import {
  type ApiDescription,
  type ClusterNode,
  DeploymentApi,
  type DeploymentConfig,
  type Field,
  fieldsOf,
  type Method,
  objectIn,
  RequestFailed,
} from './admin-api.ts'

/**
 * `roomful admin`: operates a deployment over the HTTP routes of control and of the nodes. A command for control names a route, and its
 * options are the fields of that route in control's OpenAPI document.
 */

/** Outputs for results and errors. */
interface AdminOutput {
  readonly stdout: { write(text: string): unknown }
  readonly stderr: { write(text: string): unknown }
}

type Row = Readonly<Record<string, unknown>>

/** Result of a command: rows are printed as a table, everything else as JSON. */
interface Result {
  readonly json: Row
  readonly rows?: readonly Row[]
}

interface Invocation {
  readonly api: DeploymentApi
  readonly words: readonly string[]
  /** Id of the project in `--project`, or of the only project. */
  readonly project: () => Promise<string>
  /** Prints progress. */
  readonly tell: (text: string) => void
}

type Run = (invocation: Invocation) => Promise<Result>

/**
 * Words after the command, the help, and a route of control or a function that calls nodes. A word is a field of the route, `room` is
 * `type:key`, and a word in square brackets is optional. With both, the function runs if no option of the route is given.
 */
type AdminCommand = readonly [words: string, help: string, does: `${Method} /${string}` | Run, orElse?: Run]

/** Options for the variables of the same name. */
const VARIABLES = ['control-url', 'control-api-tokens', 'admin-url', 'internal-token'] as const
/** Options of all commands. */
const GENERAL: Readonly<Record<string, { readonly type: 'string' | 'boolean' }>> = {
  ...Object.fromEntries([...VARIABLES, 'project'].map((name) => [name, { type: 'string' }])),
  json: { type: 'boolean' },
  help: { type: 'boolean' },
}

const KEYS = '/projects/{id}/keys'
const ROOMS = '/projects/{id}/rooms'
const ROOM = '/projects/{id}/rooms/{type}/{key}'
const BAN = '/projects/{id}/subs/{sub}/ban'
const SESSION = '/projects/{id}/sessions/{sessionId}'

const COMMANDS: Readonly<Record<string, AdminCommand>> = {
  nodes: ['', 'lists the nodes, and why one is not ready', nodes],
  rooms: [
    '[text]',
    'lists rooms: the largest, or those with the text in a name',
    `GET ${ROOMS}`,
    matches('rooms'),
  ],
  sessions: [
    'text',
    'lists sessions with the text in their id, player, project or rooms',
    matches('sessions'),
  ],
  room: ['room', 'shows the members of a room, and its state', `GET ${ROOM}`],
  close: ['room', 'ends a room: its members leave', `DELETE ${ROOM}`],
  kick: ['room sub', 'ends the seats of a player in a room', `POST ${ROOM}/kick`],
  'end-session': ['sessionId', 'ends a session, at any node', `DELETE ${SESSION}`],
  ban: ['sub', 'ends the sessions of a player, and refuses new ones', `PUT ${BAN}`],
  unban: ['sub', 'ends the ban of a player', `DELETE ${BAN}`],
  bans: ['', 'lists the bans of a project', 'GET /projects/{id}/bans'],
  notices: ['', 'lists the latest 200 dead letters of a project', notices],
  'notices resend': ['', 'sends the dead letters of a project again', resend],
  'notify-key': ['', 'prints the key that verifies notices of a project', 'GET /projects/{id}/notify-key'],
  drain: ['node', 'moves the rooms and clients of a node to other nodes, and stops it', onNode('drain')],
  cordon: ['node', 'stops new rooms and sessions at a node', onNode('cordon')],
  uncordon: ['node', 'ends a cordon', onNode('uncordon')],
  projects: ['', 'lists the projects', 'GET /projects'],
  'projects create': ['name', 'creates a project', 'POST /projects'],
  'projects rename': ['id name', 'renames a project', 'PATCH /projects/{id}'],
  'projects disable': [
    'id',
    'ends the sessions of a project, and refuses new ones',
    'POST /projects/{id}/disable',
  ],
  'projects enable': ['id', 'enables a disabled project', 'POST /projects/{id}/enable'],
  'projects delete': ['id', 'ends the rooms of a disabled project, and deletes it', 'DELETE /projects/{id}'],
  keys: ['', 'lists the keys of a project', `GET ${KEYS}`],
  'keys create': ['[name]', 'creates a key', `POST ${KEYS}`],
  'keys rotate': ['keyId', 'replaces a key', `POST ${KEYS}/{keyId}/rotate`],
  'keys revoke': ['keyId', 'revokes a key, and ends its sessions', `POST ${KEYS}/{keyId}/revoke`],
  token: ['', 'prints a client token', 'POST /tokens'],
}

/** Commands that print one field of the answer, for use in a shell. */
const PRINTS: Readonly<Record<string, string>> = { 'notify-key': 'notify_key', token: 'token' }

/** Error of a wrong command line. */
class Mistake extends Error {
  override readonly name = 'Mistake'
}

/** Runs the words after `roomful admin`. Resolves with the exit code: 0, 1 if a request failed, 2 for wrong words or variables. */
export async function runAdmin(
  args: readonly string[],
  env: Environment,
  { stdout, stderr }: AdminOutput,
): Promise<number> {
  const tell = (text: string) => stderr.write(`roomful admin: ${safe(text, true)}\n`)
  try {
    if (args.length === 0 || args[0] === '--help') {
      stdout.write(HELP)
      return 0
    }
    const name = commandOf(args)
    const rest = args.slice(name.split(' ').length)
    // Control describes the options of a route, and its address may be an option.
    const { values } = parseArgs({ args: rest, options: GENERAL, strict: false })
    const api = new DeploymentApi(configOf(env, values))
    const [, , does, orElse] = COMMANDS[name]!
    const fields = typeof does === 'string' ? await describe(api, does) : []
    if (values.help) {
      stdout.write(usageOf(name, fields))
      return 0
    }
    const { words, options } = read(name, rest, fields)
    const project = () => projectOf(api, values.project as string | undefined)
    const run = typeof does !== 'string' ? does : options.size === 0 ? orElse : undefined
    const invocation = { api, words, project, tell }
    const result = await (run ? run(invocation) : call(name, fields, options, invocation))
    stdout.write(`${values.json ? JSON.stringify(result.json, null, 2) : shown(name, result)}\n`)
    return 0
  } catch (error) {
    if (!(error instanceof Mistake) && !(error instanceof RequestFailed)) throw error
    tell(error.message)
    return error instanceof Mistake ? 2 : 1
  }
}

/** Returns the command at the start of the words: `projects create`, or `projects`. */
function commandOf([first = '', second = '']: readonly string[]): string {
  const names = Object.keys(COMMANDS)
  const verbs = second.startsWith('-') ? [] : names.filter((name) => second && name.startsWith(`${first} `))
  const given = verbs.length > 0 ? `${first} ${second}` : first
  if (Object.hasOwn(COMMANDS, given)) return given
  const known = verbs.length > 0 ? verbs : names
  const meant = nearestOf(given, known)
  throw new Mistake(
    `${given} is not a command${meant ? `. Did you mean ${meant}?` : `: use ${known.join(', ')}`}`,
  )
}

async function describe(api: DeploymentApi, route: string): Promise<Field[]> {
  const description = await api.control<ApiDescription>('GET', '/openapi.json', { paths: {} })
  const fields = fieldsOf(description, route)
  if (!fields) throw new RequestFailed(`control has no ${route}: use the roomful of its version`)
  return fields
}

const wordsOf = (name: string): string[] => COMMANDS[name]![0].match(/\w+/g) ?? []

/** Returns the fields that are options: all that neither the path nor a word of the command nor `--project` has. */
const optionsOf = (name: string, fields: readonly Field[]): Field[] =>
  fields.filter((field) => field.in !== 'path' && ![...wordsOf(name), 'project_id'].includes(field.name))

const optionOf = (field: Field): string => field.name.replaceAll('_', '-')

/** True: the option has no value. */
const isFlag = ({ schema }: Field): boolean => schema.enum?.length === 1

/** Returns the words after a command, and the values of its options by the names of their fields. */
function read(name: string, args: readonly string[], fields: readonly Field[]) {
  const own = optionsOf(name, fields)
  const options = own.map((field) => [optionOf(field), { type: isFlag(field) ? 'boolean' : 'string' }])
  let parsed: { readonly values: object; readonly positionals: string[] }
  try {
    const all = { ...Object.fromEntries(options), ...GENERAL }
    parsed = parseArgs({ args: [...args], options: all, allowPositionals: true })
  } catch (error) {
    const allowed = [...own.map(optionOf), 'project', 'json'].map((option) => `--${option}`)
    throw new Mistake(`${(error as Error).message.split('.')[0]}: ${name} has ${allowed.join(', ')}`)
  }
  const { positionals: words } = parsed
  const values = parsed.values as Values
  const [expected] = COMMANDS[name]!
  const most = wordsOf(name).length
  if (words.length > most || (words.length < most && !expected.startsWith('[')))
    throw new Mistake(`${name} has ${words.length} words: give ${expected.toUpperCase() || 'none'}`)
  const given = own.filter((field) => values[optionOf(field)] !== undefined)
  return {
    words,
    options: new Map(given.map((field) => [field.name, valueIn(field, values[optionOf(field)]!)])),
  }
}

/** Returns the value of an option. Control checks it. */
function valueIn({ schema: { type } }: Field, given: string | boolean): unknown {
  if (typeof given === 'boolean') return '1'
  if (type === 'array') return given.split(',')
  if (type === 'object') return objectIn(given) ?? given
  return type === 'integer' && /^\d{1,15}$/.test(given) ? Number(given) : given
}

/** Sends the request of a command to control. Reads all pages of a list. */
async function call(
  name: string,
  fields: readonly Field[],
  options: ReadonlyMap<string, unknown>,
  { api, words, project, tell }: Invocation,
): Promise<Result> {
  const values = new Map<string, unknown>(options)
  for (const [index, word] of words.entries())
    for (const [field, value] of wordsOf(name)[index] === 'room'
      ? roomOf(word)
      : [[wordsOf(name)[index]!, word]])
      values.set(field!, value)
  for (const field of ['id', 'project_id'])
    if (!values.has(field) && fields.some((each) => each.name === field)) values.set(field, await project())
  const at = (place: string): Row =>
    Object.fromEntries(
      fields
        .filter((field) => field.in === place && values.has(field.name))
        .map(({ name }) => [name, values.get(name)]),
    )
  const [method, path] = (COMMANDS[name]![2] as string).split(' ') as [Method, string]
  const where = path.replace(/\{(\w+)\}/g, (_, part) => encodeURIComponent(values.get(part) as string))
  const body = at('body')
  const ask = (cursor?: string): Promise<Row> => {
    const query = new URLSearchParams({
      ...(at('query') as Record<string, string>),
      ...(cursor && { cursor }),
    })
    const hasBody = Object.keys(body).length > 0
    return api.control(method, query.size > 0 ? `${where}?${query}` : where, {}, hasBody ? body : undefined)
  }
  let answer = await ask()
  // A request ends rooms for 15 s, and says whether rooms are left.
  while (answer.deleted === false) {
    tell(`${answer.ended_rooms} rooms have ended`)
    answer = await ask()
  }
  if (!('next_cursor' in answer)) return { json: answer }
  const [list] = Object.keys(answer) as [string]
  const rows = [...(answer[list] as Row[])]
  while (typeof answer.next_cursor === 'string') {
    answer = await ask(answer.next_cursor)
    rows.push(...(answer[list] as Row[]))
  }
  return { json: { [list]: rows }, rows }
}

function roomOf(word: string): [string, string][] {
  const [, type, key] = /^([^:]+):(.+)$/s.exec(word) ?? []
  if (type === undefined || key === undefined)
    throw new Mistake(`${word} is no room: give type:key, such as arena:lobby`)
  return [
    ['type', type],
    ['key', key],
  ]
}

/** Returns a command that lists what a node finds in the whole cluster. */
function matches(of: 'rooms' | 'sessions'): Run {
  return async ({ api, words: [text = ':'], tell }) => {
    // Each id of a room has a colon.
    const query = new URLSearchParams({ q: text, limit: '50' })
    const found = await api.node('GET', `/admin/search?${query}`, {
      rooms: [{}],
      sessions: [{}],
      silent: [''],
    })
    for (const node of found.silent) tell(`node ${node} does not answer`)
    return { json: { [of]: found[of] }, rows: found[of] }
  }
}

async function nodes({ api }: Invocation): Promise<Result> {
  const found = await api.nodes()
  const row = (node: ClusterNode) => ({
    node: node.node_id,
    state: stateOf(node),
    rooms: node.rooms,
    sessions: node.sessions,
    load: Math.round(node.load * 100) / 100,
    version: node.version,
    admin: node.admin_url,
    why: node.not_ready?.map(({ code, detail }) => `${code} (${detail})`).join('; '),
  })
  return { json: { nodes: found }, rows: found.map(row) }
}

function stateOf({ alive, draining, cordoned, overloaded, not_ready: reasons = [] }: ClusterNode): string {
  if (!alive) return 'gone'
  if (draining) return 'draining'
  if (cordoned) return 'cordoned'
  return reasons.length > 0 ? 'not ready' : overloaded ? 'overloaded' : 'serving'
}

/** Returns a command for a node, given by name. */
function onNode(action: 'drain' | 'cordon' | 'uncordon'): Run {
  return async ({ api, words: [name] }) => {
    const alive = (await api.nodes()).filter((node) => node.alive)
    const node = alive.find(({ node_id: id }) => id === name)
    if (node) return { json: await api.node('POST', `/admin/${action}`, {}, node) }
    throw new Mistake(`there is no node ${name}: use ${alive.map(({ node_id: id }) => id).join(', ')}`)
  }
}

async function notices({ api, project, tell }: Invocation): Promise<Result> {
  const query = new URLSearchParams({ project_id: await project(), limit: '200' })
  const like = { pending: { notices: 0, rooms: 0 }, dead_letters: [{}] }
  const json = await api.node('GET', `/admin/notices?${query}`, like)
  tell(`${json.pending.notices} notices of ${json.pending.rooms} rooms wait`)
  return { json, rows: json.dead_letters }
}

async function resend({ api, project }: Invocation): Promise<Result> {
  const body = { project_id: await project() }
  const like: { delivered: number; failed?: { id: string; reason: string } } = { delivered: 0 }
  for (let delivered = 0; ; ) {
    const answer = await api.node('POST', '/admin/notices/resend', like, undefined, body)
    const { failed } = answer
    delivered += answer.delivered
    const sum = `${delivered} were delivered`
    if (failed) throw new RequestFailed(`the backend has not accepted ${failed.id}: ${failed.reason}. ${sum}`)
    if (answer.delivered === 0) return { json: { delivered } }
  }
}

type Values = Readonly<Record<string, string | boolean | undefined>>

function configOf(env: Environment, values: Values): DeploymentConfig {
  const given = VARIABLES.filter((name) => values[name] !== undefined)
  const variable = (name: string): string => name.toUpperCase().replaceAll('-', '_')
  // A flag also replaces the variable that names a file.
  const flags = given.flatMap((name) => [
    [variable(name), values[name]],
    [`${variable(name)}_FILE`, undefined],
  ])
  const read = readVariables('admin', { ...env, ...Object.fromEntries(flags) }, readSecretFile)
  if (read.problems.length > 0)
    throw new Mistake(`wrong variables\n${describeProblems({ ...read, warnings: [] })}`)
  return read.values as unknown as DeploymentConfig
}

async function projectOf(api: DeploymentApi, given: string | undefined): Promise<string> {
  if (given !== undefined) return given
  const { projects: found } = await api.control('GET', '/projects?limit=2', { projects: [{ id: '' }] })
  const [only, other] = found
  if (only && !other) return only.id
  throw new Mistake(
    only
      ? 'there are several projects: give --project ID; roomful admin projects lists them'
      : 'there is no project: roomful admin projects create NAME makes one',
  )
}

function shown(name: string, { json, rows }: Result): string {
  const field = PRINTS[name]
  if (field !== undefined) return String(json[field])
  if (!rows) return safe(JSON.stringify(json, null, 2), true)
  return rows.length === 0 ? 'none' : table(rows)
}

/** Returns rows below their headings, in columns of equal width. */
function table(rows: readonly Row[]): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  const lines = [
    names.map((name) => name.toUpperCase()),
    ...rows.map((row) => names.map((name) => cell(row[name]))),
  ]
  const widths = names.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)))
  const pad = (line: readonly string[]) => line.map((text, column) => text.padEnd(widths[column]!)).join('  ')
  return lines.map((line) => pad(line).trimEnd()).join('\n')
}

function cell(value: unknown): string {
  if (value === undefined || value === null || value === '') return '-'
  if (Array.isArray(value) && value.every((each) => typeof each === 'string'))
    return safe(value.join(',') || '-')
  return safe(typeof value === 'object' ? JSON.stringify(value) : String(value))
}

/** Players choose the names of rooms. Their control characters must not reach the terminal. */
const safe = (text: string, isMultiline = false): string =>
  text.replace(isMultiline ? /[^\P{C}\n]/gu : /\p{C}/gu, '�')

function usageOf(name: string, fields: readonly Field[] = []): string {
  const [words, help] = COMMANDS[name]!
  const options = optionsOf(name, fields).map(
    (field) => `    --${optionOf(field)}: ${field.description ?? field.schema.description ?? ''}\n`,
  )
  return `roomful admin ${name} ${words.toUpperCase()}`.trimEnd().concat(`\n    ${help}\n`, ...options)
}

const HELP = `Usage: roomful admin COMMAND [--project ID] [--json]

${Object.keys(COMMANDS)
  .map((name) => usageOf(name))
  .join('')}
ROOM is type:key. Without --project, the only project counts. roomful admin COMMAND --help lists the options of a command.
CONTROL_URL and ADMIN_URL are the addresses, CONTROL_API_TOKENS and INTERNAL_TOKEN the credentials. Or: --control-url,
--admin-url, --control-api-tokens, --internal-token.
`
