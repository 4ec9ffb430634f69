import { parseArgs } from 'node:util'
import {
  describeProblems,
  type Environment,
  nearestOf,
  readSecretFile,
  readVariables,
} from '../../shared/config.ts'
import { type ClusterNode, DeploymentApi, type DeploymentConfig, RequestFailed } from './admin-api.ts'

/** `roomful admin`: operates a deployment over the HTTP routes of control and of the nodes. */

/** Outputs for results and errors. */
interface AdminOutput {
  readonly stdout: { write(text: string): unknown }
  readonly stderr: { write(text: string): unknown }
}

type Row = Readonly<Record<string, unknown>>

/** Result of a command: JSON for `--json`, otherwise rows or a text. With neither, the JSON is printed. */
interface Result {
  readonly json: unknown
  readonly rows?: readonly Row[]
  readonly text?: string
}

/** A running command. */
interface Invocation {
  readonly api: DeploymentApi
  readonly words: readonly string[]
  readonly options: Readonly<Partial<Record<OptionName, string>>>
  /** Id of the project in `--project`, or of the only project. */
  readonly project: () => Promise<string>
  /** Prints progress. */
  readonly tell: (text: string) => void
}

interface AdminCommand {
  /** Words after the command, in square brackets if optional. */
  readonly words: string
  readonly help: string
  readonly options?: readonly OptionName[]
  readonly run: (invocation: Invocation) => Promise<Result>
}

/** Options with a value, and the description of the value. */
const VALUES = {
  project: 'ID',
  type: 'ROOM_TYPE',
  reason: 'TEXT',
  until: 'TIME',
  types: 'A,B',
  sub: 'SUB',
  ttl: 'SECONDS',
  key: 'KEY_ID',
  scopes: 'A,B',
  grace: 'SECONDS',
} as const
/** Options without a value. */
const FLAGS = ['state', 'layers', 'sleeping'] as const
/** Options for the variables of the same name. */
const VARIABLES = ['control-url', 'control-api-tokens', 'admin-url', 'internal-token'] as const
type OptionName = keyof typeof VALUES | (typeof FLAGS)[number]

/** Number of listed rooms of each node, and of listed matches. */
const MOST = 50

const project = (id: string): string => `/projects/${encodeURIComponent(id)}`

/** Returns the path of a room on control. `id` is `type:key`, or `project/type:key` as in the output of `rooms`. */
async function roomPath({ words: [id = ''], project: given }: Invocation): Promise<string> {
  const [, projectId, type, key] = /^(?:(prj_[\w-]+)\/)?([^:]+):(.+)$/s.exec(id) ?? []
  if (type === undefined || key === undefined)
    throw new Mistake(`${id} is no room: give type:key, or project/type:key as roomful admin rooms lists it`)
  return `${project(projectId ?? (await given()))}/rooms/${encodeURIComponent(type)}/${encodeURIComponent(key)}`
}

const subPath = async ({ words: [sub = ''], project: given }: Invocation): Promise<string> =>
  `${project(await given())}/subs/${encodeURIComponent(sub)}`

const query = (parameters: Readonly<Record<string, string | undefined>>): string => {
  const given = Object.entries(parameters).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  )
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`
}

/** Returns some fields of each item. `heading=field`: another heading for the column. */
const columns = (items: readonly Row[], ...names: readonly string[]): Row[] =>
  items.map((item) =>
    Object.fromEntries(
      names.map((name) => {
        const [heading = '', field = heading] = name.split('=')
        return [heading, item[field]]
      }),
    ),
  )

/** Returns all items of a list of control, which is read in pages. */
async function all(api: DeploymentApi, path: string, list: string, parameters: Record<string, string> = {}) {
  const items: Row[] = []
  for (let cursor: string | undefined; ; ) {
    const page: Row = await api.control('GET', path + query({ ...parameters, cursor }), { [list]: [{}] })
    items.push(...(page[list] as Row[]))
    if (typeof page.next_cursor !== 'string') return items
    cursor = page.next_cursor
  }
}

const listed = (text: string | undefined): string[] | undefined => text?.split(',')

function numberOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,9}$/.test(text)) throw new Mistake(`--${option} is ${text}: give a whole number of seconds`)
  return Number(text)
}

const stateOf = ({ alive, draining, cordoned, overloaded, not_ready: reasons = [] }: ClusterNode): string => {
  if (!alive) return 'gone'
  if (draining) return 'draining'
  if (cordoned) return 'cordoned'
  return reasons.length > 0 ? 'not ready' : overloaded ? 'overloaded' : 'serving'
}

interface RoomMatch extends Row {
  readonly project_id: string
  readonly room_id: string
  readonly member_count: number
}

const MATCH: RoomMatch = { project_id: '', room_id: '', member_count: 0 }

/** Returns the rooms with the most members at each node. A node that does not answer is named. */
async function busiest({ api, tell }: Invocation): Promise<RoomMatch[]> {
  const ofNode = async (node: ClusterNode): Promise<RoomMatch[]> => {
    try {
      const path = `/admin/runtime?limit=${MOST}`
      const { rooms } = await api.node('GET', path, { rooms: [MATCH] }, node)
      return rooms.map((room) => ({ ...room, node_id: node.node_id }))
    } catch (error) {
      tell((error as Error).message)
      return []
    }
  }
  const nodes = (await api.nodes()).filter(({ alive }) => alive)
  const rooms = (await Promise.all(nodes.map(ofNode))).flat()
  return rooms.sort((one, other) => other.member_count - one.member_count).slice(0, MOST)
}

interface Matches {
  readonly rooms: readonly RoomMatch[]
  readonly sessions: readonly Row[]
  readonly silent: readonly string[]
}

async function search({ api, words: [text = ''], tell }: Invocation): Promise<Matches> {
  const like: Matches = { rooms: [MATCH], sessions: [{}], silent: [''] }
  const matches = await api.node('GET', `/admin/search${query({ q: text, limit: String(MOST) })}`, like)
  for (const node of matches.silent) tell(`node ${node} does not answer`)
  return matches
}

async function rooms(invocation: Invocation): Promise<Result> {
  const { api, words, options } = invocation
  if (options.type !== undefined || options.sleeping !== undefined) {
    const projectId = await invocation.project()
    const found = await all(api, `${project(projectId)}/rooms`, 'rooms', {
      ...(options.type === undefined ? { sleeping: '1' } : { type: options.type }),
    })
    const row = ({ room_id: id, members, max_members: max, data, expires_at: expires }: Row) =>
      options.type === undefined
        ? { room: `${projectId}/${id}`, expires }
        : { room: `${projectId}/${id}`, members, max, data }
    return { json: { rooms: found }, rows: found.map(row) }
  }
  const found = words.length > 0 ? (await search(invocation)).rooms : await busiest(invocation)
  return {
    json: { rooms: found },
    rows: found.map((room) => ({
      room: `${room.project_id}/${room.room_id}`,
      members: room.member_count,
      connected: room.connected_count,
      ...(room.updates_per_second !== undefined && { 'updates/s': room.updates_per_second }),
      node: room.node_id,
    })),
  }
}

async function room(invocation: Invocation): Promise<Result> {
  const path = await roomPath(invocation)
  const { options } = invocation
  const layers = options.layers && '1'
  const state = layers ?? (options.state && '1')
  const shape = { include_state: state, include_layers: layers }
  const like: Row & { members: Row[] } = { members: [{}] }
  const view = await invocation.api.control('GET', path + query(shape), like)
  const { members: rows, state: shown, ...rest } = view
  const lines = Object.entries(rest).map(([name, value]) => `${name}: ${cell(value)}`)
  const text = [...lines, `members: ${rows.length}`, ...(rows.length > 0 ? [table(rows)] : [])].join('\n')
  return { json: view, text: state ? `${text}\n${safe(JSON.stringify(shown, null, 2), true)}` : text }
}

/** Commands for a node, given by name. */
const nodeCommand = (action: 'drain' | 'cordon' | 'uncordon', help: string): AdminCommand => ({
  words: 'NODE',
  help,
  run: async ({ api, words: [name] }) => {
    const nodes = (await api.nodes()).filter(({ alive }) => alive)
    const node = nodes.find(({ node_id: id }) => id === name)
    if (!node)
      throw new Mistake(
        `there is no node ${name}; there are ${nodes.map(({ node_id: id }) => id).join(', ')}`,
      )
    const answer = await api.node('POST', `/admin/${action}`, {}, node)
    return { json: answer, text: `${node.node_id}: ${action === 'drain' ? 'draining' : `${action}ed`}` }
  },
})

const projectRow = ({ id, name, created_at: created, disabled_at: disabled }: Row): Row => ({
  id,
  name,
  status: disabled === null ? 'enabled' : 'disabled',
  created,
})

async function projects({ api, words: [verb, id = '', name], tell }: Invocation): Promise<Result> {
  if (verb === undefined) {
    const found = await all(api, '/projects', 'projects', { limit: '200' })
    return { json: { projects: found }, rows: found.map(projectRow) }
  }
  const one = async (made: Promise<Row>): Promise<Result> => {
    const changed = await made
    return { json: changed, rows: [projectRow(changed)] }
  }
  const like: Row = { id: '' }
  if (id === '')
    throw new Mistake(`projects ${verb} needs ${verb === 'create' ? 'a name' : 'the id of a project'}`)
  switch (verb) {
    case 'create':
      return one(api.control('POST', '/projects', like, { name: id }))
    case 'rename':
      return one(api.control('PATCH', project(id), like, { name }))
    case 'disable':
    case 'enable':
      return one(api.control('POST', `${project(id)}/${verb}`, like))
    case 'delete': {
      for (let ended = 0; ; ) {
        const answer = await api.control('DELETE', project(id), { deleted: true, ended_rooms: 0 })
        ended += answer.ended_rooms
        if (answer.deleted)
          return { json: { ...answer, ended_rooms: ended }, text: `${id}: deleted, with ${ended} rooms` }
        tell(`${ended} rooms have ended`)
      }
    }
    default:
      throw new Mistake(
        `projects ${verb} does not exist; there are create, rename, disable, enable and delete`,
      )
  }
}

const KEY = { id: '' }

async function keys({ api, words: [verb, word], options, project: given }: Invocation): Promise<Result> {
  const path = `${project(await given())}/keys`
  if (verb === undefined) {
    const found = await all(api, path, 'keys', { limit: '200' })
    const rows = columns(found, 'id', 'name', 'status', 'scopes', 'created=created_at', 'retires=retires_at')
    return { json: { keys: found }, rows }
  }
  const json = (answer: object): Result => ({ json: answer })
  if (verb === 'create') {
    const scopes = listed(options.scopes)
    return json(
      await api.control('POST', path, KEY, {
        ...(word !== undefined && { name: word }),
        ...(scopes && { scopes }),
      }),
    )
  }
  if (verb !== 'rotate' && verb !== 'revoke')
    throw new Mistake(`keys ${verb} does not exist; there are create, rotate and revoke`)
  if (word === undefined) throw new Mistake(`keys ${verb} needs the id of a key`)
  const grace = numberOf('grace', options.grace)
  const body = verb === 'rotate' && grace !== undefined ? { grace_seconds: grace } : {}
  return json(await api.control('POST', `${path}/${encodeURIComponent(word)}/${verb}`, KEY, body))
}

interface Resent {
  readonly delivered: number
  readonly failed?: { readonly id: string; readonly reason: string }
}

async function notices({ api, words: [verb], project: given }: Invocation): Promise<Result> {
  const projectId = await given()
  if (verb === undefined) {
    const path = `/admin/notices${query({ project_id: projectId, limit: '200' })}`
    const like: { pending: Row; dead_letters: Row[] } = { pending: {}, dead_letters: [{}] }
    const found = await api.node('GET', path, like)
    const { pending, dead_letters: dead } = found
    const rows = columns(dead, 'notice=id', 'room=room_id', 'type', 'at', 'died=died_at', 'reason')
    const waiting = `${pending.notices} notices of ${pending.rooms} rooms wait`
    return { json: found, text: `${waiting}\n${shown({ json: found, rows })}` }
  }
  if (verb !== 'resend') throw new Mistake(`notices ${verb} does not exist; there is resend`)
  for (let delivered = 0; ; ) {
    const body = { project_id: projectId }
    const like: Resent = { delivered: 0 }
    const answer = await api.node('POST', '/admin/notices/resend', like, undefined, body)
    delivered += answer.delivered
    const { failed } = answer
    if (failed)
      throw new RequestFailed(
        `the backend has not accepted ${failed.id}: ${failed.reason}. ${delivered} were delivered`,
      )
    if (answer.delivered === 0) return { json: { delivered }, text: `${delivered} delivered` }
  }
}

const PLAYER = { sub: '' }

/** Returns a command with one request and a text for its success. */
const request = (
  command: Pick<AdminCommand, 'words' | 'help' | 'options'>,
  ask: (invocation: Invocation) => Promise<object>,
  done: (word: string) => string,
): AdminCommand => ({
  ...command,
  run: async (invocation) => ({ json: await ask(invocation), text: done(invocation.words[0] ?? '') }),
})

const COMMANDS: Readonly<Record<string, AdminCommand>> = {
  nodes: {
    words: '',
    help: 'lists the nodes, and why one is not ready',
    run: async ({ api }) => {
      const nodes = await api.nodes()
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
      return { json: { nodes }, rows: nodes.map(row) }
    },
  },
  rooms: {
    words: '[TEXT]',
    help: 'lists the rooms with most members, or those with the text in their name, project or players',
    options: ['type', 'sleeping', 'project'],
    run: rooms,
  },
  sessions: {
    words: 'TEXT',
    help: 'lists the sessions with the text in their id, player, project or rooms',
    run: async (invocation) => {
      const { sessions } = await search(invocation)
      const rows = columns(
        sessions,
        'session=session_id',
        'project=project_id',
        'sub',
        'rooms',
        'node=node_id',
      )
      return { json: { sessions }, rows }
    },
  },
  room: {
    words: 'ROOM',
    help: 'shows the members of a room, and its state, with --layers also the hidden parts',
    options: ['state', 'layers', 'project'],
    run: room,
  },
  close: request(
    { words: 'ROOM', help: 'ends a room: its members leave', options: ['project'] },
    async (invocation) => invocation.api.control('DELETE', await roomPath(invocation), { ended: true }),
    (id) => `${id}: closed`,
  ),
  kick: {
    words: 'ROOM SUB',
    help: 'ends the seats of a player in a room',
    options: ['reason', 'project'],
    run: async (invocation) => {
      const { api, words, options } = invocation
      const { reason } = options
      const body = { sub: words[1], ...(reason !== undefined && { reason }) }
      const path = `${await roomPath(invocation)}/kick`
      const answer = await api.control('POST', path, { kicked: 0 }, body)
      return { json: answer, text: `${words[1]}: ${answer.kicked} seats ended` }
    },
  },
  'end-session': request(
    { words: 'SESSION', help: 'ends a session, at whichever node it is', options: ['project'] },
    async ({ api, words: [id = ''], project: given }) =>
      api.control('DELETE', `${project(await given())}/sessions/${encodeURIComponent(id)}`, { ended: true }),
    (id) => `${id}: ended`,
  ),
  ban: request(
    {
      words: 'SUB',
      help: 'ends the sessions of a player and refuses new ones, or with --types its seats and joins',
      options: ['until', 'types', 'reason', 'project'],
    },
    async (invocation) => {
      const { until, reason, types } = invocation.options
      return invocation.api.control('PUT', `${await subPath(invocation)}/ban`, PLAYER, {
        ...(until !== undefined && { until }),
        ...(reason !== undefined && { reason }),
        ...(types !== undefined && { room_types: listed(types) }),
      })
    },
    (sub) => `${sub}: banned`,
  ),
  unban: request(
    { words: 'SUB', help: 'ends the ban of a player', options: ['project'] },
    async (invocation) => invocation.api.control('DELETE', `${await subPath(invocation)}/ban`, PLAYER),
    (sub) => `${sub}: not banned`,
  ),
  bans: {
    words: '',
    help: 'lists the bans of a project',
    options: ['project'],
    run: async ({ api, project: given }) => {
      const bans = await all(api, `${project(await given())}/bans`, 'bans', { limit: '200' })
      return { json: { bans }, rows: columns(bans, 'sub', 'until', 'types=room_types', 'reason') }
    },
  },
  notices: {
    words: '[resend]',
    help: 'lists the latest 200 dead letters of a project, or sends all of them again',
    options: ['project'],
    run: notices,
  },
  'notify-key': {
    words: '',
    help: 'prints the key with which the backend of a project verifies notices',
    options: ['project'],
    run: async ({ api, project: given }) => {
      const answer = await api.control('GET', `${project(await given())}/notify-key`, { notify_key: '' })
      return { json: answer, text: answer.notify_key }
    },
  },
  drain: nodeCommand('drain', 'hands the rooms and clients of a node over to others, and ends it'),
  cordon: nodeCommand('cordon', 'lets a node take no new rooms and sessions'),
  uncordon: nodeCommand('uncordon', 'lets it take them again'),
  projects: {
    words: '[create NAME | rename ID NAME | disable ID | enable ID | delete ID]',
    help: 'lists the projects, or changes one',
    run: projects,
  },
  keys: {
    words: '[create [NAME] | rotate KEY | revoke KEY]',
    help: 'lists the keys of a project, or changes one',
    options: ['scopes', 'grace', 'project'],
    run: keys,
  },
  token: {
    words: '',
    help: 'prints a client token',
    options: ['sub', 'ttl', 'key', 'project'],
    run: async ({ api, options: { sub, ttl, key }, project: given }) => {
      const seconds = numberOf('ttl', ttl)
      const wanted = {
        project_id: await given(),
        ...(sub !== undefined && { sub }),
        ...(key !== undefined && { key_id: key }),
        ...(seconds !== undefined && { ttl_seconds: seconds }),
      }
      const issued = await api.control('POST', '/tokens', { token: '' }, wanted)
      return { json: issued, text: issued.token }
    },
  },
}

/** Error of a wrong command line. */
class Mistake extends Error {
  override readonly name = 'Mistake'
}

/** Runs the words after `roomful admin`. Resolves with the exit code: 0, 1 if a request failed, 2 for wrong words or variables. */
export async function runAdmin(
  words: readonly string[],
  env: Environment,
  { stdout, stderr }: AdminOutput,
): Promise<number> {
  try {
    const { command, rest, values } = read(words)
    if (!command || values.help) {
      stdout.write(command ? usageOf(command) : HELP)
      return 0
    }
    const api = new DeploymentApi(configOf(env, values))
    const result = await COMMANDS[command]!.run({
      api,
      words: rest,
      options: values as Invocation['options'],
      project: () => projectOf(api, values.project as string | undefined),
      tell: (text) => stderr.write(`roomful admin: ${safe(text)}\n`),
    })
    stdout.write(`${values.json ? JSON.stringify(result.json, null, 2) : shown(result)}\n`)
    return 0
  } catch (error) {
    if (!(error instanceof Mistake) && !(error instanceof RequestFailed)) throw error
    stderr.write(`roomful admin: ${safe(error.message, true)}\n`)
    return error instanceof Mistake ? 2 : 1
  }
}

type Values = Readonly<Record<string, string | boolean | undefined>>

function read(words: readonly string[]): { command?: string; rest: string[]; values: Values } {
  const value = (name: string) => [name, { type: 'string' }] as const
  const flag = (name: string) => [name, { type: 'boolean' }] as const
  const options = Object.fromEntries([
    ...[...Object.keys(VALUES), ...VARIABLES].map(value),
    ...[...FLAGS, 'json', 'help'].map(flag),
  ])
  let parsed: { values: object; positionals: string[] }
  try {
    parsed = parseArgs({ args: [...words], options, allowPositionals: true })
  } catch (error) {
    throw new Mistake((error as Error).message)
  }
  const { positionals } = parsed
  const values = parsed.values as Values
  const [command, ...rest] = positionals
  if (command === undefined) return { rest, values }
  if (!Object.hasOwn(COMMANDS, command)) {
    const meant = nearestOf(command, Object.keys(COMMANDS))
    throw new Mistake(
      `${command} is not a command${meant ? `. Did you mean ${meant}?` : `; there are ${Object.keys(COMMANDS).join(', ')}`}`,
    )
  }
  if (values.help) return { command, rest, values }
  const { words: expected, options: taken = [] } = COMMANDS[command]!
  const general: readonly string[] = [...VARIABLES, 'json', 'help', ...taken]
  const wrong = Object.keys(values).find((name) => !general.includes(name))
  if (wrong !== undefined) throw new Mistake(`--${wrong} is no option of ${command}`)
  const needed = expected.startsWith('[') ? 0 : expected.split(' ').filter((word) => word !== '').length
  const forms = expected.replace(/^\[|\]$/g, '').split(' | ')
  const form = forms.find((each) => each.startsWith(`${rest[0]} `)) ?? expected
  const most = form === '' ? 0 : form.split(' ').length
  if (rest.length < needed || rest.length > most)
    throw new Mistake(
      `${command} takes ${expected === '' ? 'no words' : expected}, and got ${rest.length} words`,
    )
  return { command, rest, values }
}

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

const shown = ({ json, rows, text }: Result): string => {
  if (text !== undefined) return text
  if (rows) return rows.length === 0 ? 'none' : table(rows)
  return safe(JSON.stringify(json, null, 2), true)
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

const usageOf = (name: string): string => {
  const { words, help, options = [] } = COMMANDS[name]!
  const all = options.map(
    (option) => `[--${option}${option in VALUES ? ` ${VALUES[option as keyof typeof VALUES]}` : ''}]`,
  )
  return `roomful admin ${[name, words, ...all].filter((part) => part !== '').join(' ')}\n    ${help}\n`
}

const HELP = `Usage: roomful admin COMMAND [--json]

${Object.keys(COMMANDS).map(usageOf).join('')}
ROOM is type:key, or project/type:key as roomful admin rooms lists it. Without --project, the only project counts.
CONTROL_URL, CONTROL_API_TOKENS, ADMIN_URL and INTERNAL_TOKEN say where, and with which credentials; --control-url,
--control-api-tokens, --admin-url and --internal-token do the same. roomful admin NAME --help shows one command.
`
