import { type NodeView, ownersOf } from '../../examples/backend/nodes.ts'
import type { LocalCluster } from './local-cluster.ts'
import type { News } from './news.ts'
import { type Child, describeExit } from './processes.ts'

/** What the prompt needs to know after a line. */
type Outcome = 'go on' | 'quit'

const HELP = `  kill 2        ends node-2 at once, as a machine that loses power (SIGKILL)
  pause 2       stops node-2 where it is, as a machine that hangs (SIGSTOP); its lease runs out
  resume 2      lets it go on; it finds its rooms taken
  drain 2       node-2 hands over its rooms, moves its clients and ends (SIGTERM)
  start 2       starts node-2 again
  redis down    ends Redis; redis up starts it again with its data
  status        every process, every room and its owner
  quit          ends everything; so does Ctrl-C

  kill, pause, resume and start take other processes too: kill control-1, pause redis, kill haproxy.`

const VERBS = ['kill', 'pause', 'resume', 'drain', 'start'] as const
type Verb = (typeof VERBS)[number]
const isVerb = (word: string): word is Verb => (VERBS as readonly string[]).includes(word)

/** What can be typed at the prompt, done to a cluster. */
export class Commands {
  readonly #cluster: LocalCluster
  readonly #news: News
  readonly #tell: (text: string) => void

  constructor(cluster: LocalCluster, news: News, tell: (text: string) => void) {
    this.#cluster = cluster
    this.#news = news
    this.#tell = tell
  }

  /** Does what a line says and tells what came of it. What takes longer (a start, a drain) goes on behind the prompt. */
  async run(line: string): Promise<Outcome> {
    const [word = '', ...rest] = line.trim().toLowerCase().split(/\s+/)
    switch (word) {
      case '':
        return 'go on'
      case 'quit':
      case 'exit':
        return 'quit'
      case 'help':
      case '?':
        this.#tell(HELP)
        return 'go on'
      case 'status':
        this.#tell(await statusText(this.#cluster))
        return 'go on'
      case 'redis':
        await this.#redis(rest[0])
        return 'go on'
    }
    if (isVerb(word)) await this.#act(word, rest)
    else this.#tell(`${word} is no command here; there are ${VERBS.join(', ')}, redis, status, help and quit`)
    return 'go on'
  }

  async #redis(word: string | undefined): Promise<void> {
    const redis = this.#cluster.child('redis')
    if (!redis) this.#tell('this Redis was given by REDIS_URL and is not started or ended from here')
    else if (word === 'down') await this.#act('kill', ['redis'])
    else if (word === 'up') await this.#act('start', ['redis'])
    else this.#tell('redis wants to know more: redis down, or redis up')
  }

  async #act(verb: Verb, [target, ...more]: readonly string[]): Promise<void> {
    const child = target === undefined ? undefined : this.#named(target)
    if (!child || more.length > 0) {
      const names = [...this.#cluster.children.keys()].join(', ')
      const wrong = target === undefined || child ? `${verb} takes one process` : `there is no ${target}`
      this.#tell(`${wrong}; there are ${names} (a number is a node: ${verb} 2)`)
      return
    }
    const obstacle = obstacleTo(verb, child)
    if (obstacle !== undefined) {
      this.#tell(obstacle)
      return
    }
    this.#news.struck(child.name)
    await this.#do(verb, child)
  }

  /** `2` and `node-2` are the same. */
  #named(target: string): Child | undefined {
    return this.#cluster.child(/^\d+$/.test(target) ? `node-${target}` : target)
  }

  async #do(verb: Verb, child: Child): Promise<void> {
    const { name } = child
    switch (verb) {
      case 'kill':
        await child.kill()
        return
      case 'pause':
        child.pause()
        this.#tell(`${name} is paused: it answers no one, and does not know it`)
        return
      case 'resume':
        child.resume()
        this.#tell(`${name} goes on`)
        return
      case 'drain':
        child.end()
        this.#tell(`${name} is draining`)
        return
      case 'start':
        this.#tell(`${name} is starting`)
        child.start().then(
          () => this.#tell(`${name} is ready`),
          (error: Error) => this.#tell(error.message),
        )
    }
  }
}

/** Why this cannot be done to a process in its present state, with what can; undefined: nothing is in the way. */
function obstacleTo(verb: Verb, { name, state }: Child): string | undefined {
  const target = name.replace(/^node-/, '')
  if (process.platform === 'win32' && (verb === 'pause' || verb === 'resume'))
    return 'Windows cannot pause a process'
  if (verb === 'drain' && !name.startsWith('node-')) return `only nodes drain; kill ${name} ends it`
  if (verb === 'start') return state === 'ended' ? undefined : `${name} runs already (${state})`
  if (state === 'ended') return `${name} does not run; start ${target} starts it`
  if (verb === 'resume') return state === 'paused' ? undefined : `${name} is not paused`
  if (verb === 'pause' && state === 'paused')
    return `${name} is paused already; resume ${target} lets it go on`
  if (verb === 'drain' && state === 'paused') return `${name} is paused; resume ${target} first`
  if (verb === 'drain' && state === 'ending') return `${name} is draining already`
  return undefined
}

/** Above this many rooms only the first are listed. */
const MOST_ROOMS = 20

/** Every process and every room at this moment, as tables. */
async function statusText(cluster: LocalCluster): Promise<string> {
  const views = await cluster.nodes.look()
  const rows = [['process', 'pid', 'state', 'rooms', 'sessions', 'members', 'lease']]
  for (const child of cluster.children.values()) {
    const view = views.find(({ node_id: nodeId }) => nodeId === child.name)
    const own = child.name.startsWith('node-') ? await nodeCells(cluster, child.name, views, view) : []
    rows.push([child.name, String(child.pid ?? '–'), stateOf(child, view), ...own])
  }
  return [table(rows, [false, true, false, true, true, true, true]), roomsTable(views)].join('\n\n')
}

async function nodeCells(
  cluster: LocalCluster,
  name: string,
  views: readonly NodeView[],
  view: NodeView | undefined,
): Promise<string[]> {
  const owned = [...ownersOf(views).values()].filter(({ owner }) => owner === name)
  const members = owned.reduce((sum, { room }) => sum + room.members.length, 0)
  const left = await cluster.redis.leaseLeft(name)
  return [String(owned.length), String(view?.sessions ?? 0), String(members), leaseText(left)]
}

function leaseText(leftMs: number | undefined): string {
  if (leftMs === undefined) return '?'
  return leftMs === 0 ? 'none' : `${(leftMs / 1000).toFixed(1)} s left`
}

function stateOf(child: Child, view: NodeView | undefined): string {
  if (child.state === 'ended') return child.exit ? `ended (${describeExit(child.exit)})` : 'not started'
  if (child.state === 'ready' && view?.state === 'silent') return 'ready, but silent'
  if (child.state === 'ending' && child.name.startsWith('node-')) return 'draining'
  return child.state
}

function roomsTable(views: readonly NodeView[]): string {
  const rooms = [...ownersOf(views).values()].sort((a, b) => (a.room.room_id < b.room.room_id ? -1 : 1))
  if (rooms.length === 0) return '  no rooms'
  const rows = rooms.slice(0, MOST_ROOMS).map(({ owner, room }) => {
    const edges = new Map<string, number>()
    for (const { node_id: nodeId, connected } of room.members) {
      const edge = connected ? nodeId : 'nowhere'
      edges.set(edge, (edges.get(edge) ?? 0) + 1)
    }
    const connected = [...edges].sort().map(([edge, count]) => `${count} by ${edge}`)
    return [room.room_id, owner, String(room.epoch), String(room.seq), connected.join(', ') || 'no one']
  })
  const more = rooms.length > MOST_ROOMS ? `\n  … and ${rooms.length - MOST_ROOMS} more` : ''
  return table([['room', 'owner', 'epoch', 'seq', 'members'], ...rows]) + more
}

/** Rows of text in columns, each as wide as its widest cell; columns whose `right` is true are aligned to the right. */
function table(rows: readonly (readonly string[])[], right: readonly boolean[] = []): string {
  const widths: number[] = []
  for (const row of rows)
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length)
    })
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          right[column] ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
        )
        .join('   ')
        .trimEnd(),
    )
    .map((line) => `  ${line}`.trimEnd())
    .join('\n')
}

/** What is where, after `npm run cluster`. */
export function banner(cluster: LocalCluster): string {
  const { ports, secrets } = cluster
  const at = (scheme: string, port: number): string => `${scheme}://127.0.0.1:${port}`
  const numbered = (what: string, portsOf: readonly number[], path = ''): string =>
    portsOf.map((port, index) => `${what}-${index + 1} ${port}${path}`).join(', ')
  const rows = [
    ['play', at('http', ports.games), 'open the arena in two tabs'],
    ['playground', `${at('http', ports.games)}/playground`, 'any room by hand'],
    [
      'websocket',
      at('ws', ports.websocket),
      `${cluster.balancer} → ${numbered(
        'node',
        ports.nodes.map((node) => node.websocket),
      )}`,
    ],
    ['control API', at('http', ports.api), `${cluster.balancer} → ${numbered('control', ports.controls)}`],
    ...ports.nodes.map(({ admin }, index) => [
      index === 0 ? 'admin' : '',
      `${at('http', admin)}/admin#token=${encodeURIComponent(secrets.internalToken)}`,
      `node-${index + 1}`,
    ]),
    ['redis', redisPlace(cluster.redisUrl), cluster.child('redis') ? 'for this run' : 'given by REDIS_URL'],
    ['operator token', secrets.operatorToken, 'for the control API; CONTROL_API_TOKENS sets it'],
    ['internal token', secrets.internalToken, 'for the admin endpoints; INTERNAL_TOKEN sets it'],
    ['logs', cluster.folder, 'one file a process'],
  ]
  return `\n  roomful on ${ports.nodes.length === 1 ? 'one node' : `${ports.nodes.length} nodes`}\n\n${table(rows)}\n\n  A backend of your own asks ${at('http', ports.api)}/tokens, with the operator token, and sends its players to ${at('ws', ports.websocket)}\n  Type help for what you can do, such as kill 1, redis down, status\n`
}

/** Without the password that a URL may carry. */
function redisPlace(url: string): string {
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}
