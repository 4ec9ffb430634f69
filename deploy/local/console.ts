import { createInterface, type Interface } from 'node:readline'
import { type NodeView, ownersOf } from '../../examples/backend/nodes.ts'
import type { Clock } from '../../shared/clock.ts'
import { leaseKey } from '../../shared/node-registry.ts'
import type { LocalCluster } from './local-cluster.ts'
import { type Child, type ChildState, describeExit } from './processes.ts'

const HELP = `  kill 2        ends node-2 immediately, like a machine that loses power (SIGKILL)
  pause 2       suspends node-2, like a machine that hangs (SIGSTOP); its lease expires
  resume 2      continues node-2; it finds that other nodes have its rooms
  drain 2       node-2 hands over its rooms, moves its clients and ends (SIGTERM)
  start 2       starts node-2 again
  redis down    ends Redis; redis up starts it again with its data
  status        every process, every room and its owner
  quit          ends everything; so does Ctrl-C

  kill, pause, resume and start take other processes too: kill control-1, pause redis, kill haproxy.`

interface Verb {
  /** States of a process in which the command is allowed. */
  readonly in: readonly ChildState[]
  readonly run: (child: Child) => unknown
  /** Text after success. Absent: the end of the process is reported instead. */
  readonly says?: string
}

const VERBS: Readonly<Record<string, Verb>> = {
  kill: { in: ['starting', 'ready', 'paused', 'ending'], run: (child) => child.kill() },
  pause: { in: ['starting', 'ready', 'ending'], run: (child) => child.pause(), says: 'is paused' },
  resume: { in: ['paused'], run: (child) => child.resume(), says: 'continues' },
  drain: { in: ['starting', 'ready'], run: (child) => child.end(), says: 'is draining' },
  start: { in: ['ended'], run: (child) => child.start(), says: 'is ready' },
}

/** Runs a line of the prompt and reports the result. A start continues in the background. The caller handles `quit`. */
export async function command(
  line: string,
  cluster: LocalCluster,
  news: News,
  tell: (text: string) => void,
): Promise<void> {
  const [word = '', target = '', ...more] = line.trim().toLowerCase().split(/\s+/)
  if (word === '') return
  if (word === 'help' || word === '?') return tell(HELP)
  if (word === 'status') return tell(await status(cluster))
  if (word === 'redis') {
    const verb = new Map([
      ['down', 'kill'],
      ['up', 'start'],
    ]).get(target)
    if (!cluster.children.has('redis'))
      return tell('this Redis was given by REDIS_URL and is not started or ended here')
    if (verb === undefined) return tell('redis takes one word: redis down, or redis up')
    return command(`${verb} redis`, cluster, news, tell)
  }
  const verb = Object.hasOwn(VERBS, word) ? VERBS[word]! : undefined
  if (!verb)
    return tell(
      `${word} is not a command; there are ${Object.keys(VERBS).join(', ')}, redis, status, help and quit`,
    )
  const name = /^\d+$/.test(target) ? `node-${target}` : target
  const child = cluster.children.get(name)
  if (!child || more.length > 0) {
    const wrong = child || target === '' ? `${word} takes one process` : `there is no ${target}`
    return tell(
      `${wrong}; there are ${[...cluster.children.keys()].join(', ')} (a number is a node: ${word} 2)`,
    )
  }
  if (word === 'drain' && !name.startsWith('node-')) return tell(`only nodes drain; kill ${name} ends it`)
  if (process.platform === 'win32' && /pause|resume/.test(word)) return tell('Windows cannot pause a process')
  if (!verb.in.includes(child.state))
    return tell(`${name} is ${child.state}: ${word} works when it is ${verb.in.join(' or ')}`)
  news.fault(name)
  if (word === 'start') tell(`${name} is starting`)
  const done = Promise.resolve(verb.run(child)).then(
    () => verb.says && tell(`${name} ${verb.says}`),
    (error: Error) => tell(error.message),
  )
  if (word !== 'start') await done
}

/** Maximum number of listed rooms. */
const MOST_ROOMS = 20

/** Returns one line for every process and every room. */
async function status(cluster: LocalCluster): Promise<string> {
  const views = await cluster.look()
  const owned = [...ownersOf(views).values()].sort((a, b) => a.room.room_id.localeCompare(b.room.room_id))
  const processes = [...cluster.children.values()].map(async (child) => {
    const { name, pid = '–' } = child
    const view = views.find(({ node_id: nodeId }) => nodeId === name)
    const rooms = owned.filter(({ owner }) => owner === name)
    const members = rooms.reduce((sum, { room }) => sum + room.members.length, 0)
    const own =
      view &&
      `${rooms.length} rooms  ${members} members  ${view.sessions} sessions  lease ${await lease(cluster, name)}`
    return [name.padEnd(10), String(pid).padStart(8), stateOf(child, view).padEnd(17), own]
      .join('  ')
      .trimEnd()
  })
  const rooms = owned
    .slice(0, MOST_ROOMS)
    .map(({ owner, room: { room_id: roomId, epoch, seq, members } }) => {
      const edges = members.map(({ connected, node_id: nodeId }) => (connected ? nodeId : 'no node')).sort()
      const by = [...new Set(edges)].map((edge) => `${edges.filter((one) => one === edge).length} by ${edge}`)
      return `${roomId} of ${owner}, epoch ${epoch}, seq ${seq}, members: ${by.join(', ') || 'none'}`
    })
  const more = owned.length > MOST_ROOMS ? [`… and ${owned.length - MOST_ROOMS} more rooms`] : []
  const all = [...(await Promise.all(processes)), '', ...(rooms.length > 0 ? rooms : ['no rooms']), ...more]
  return all.map((line) => `  ${line}`.trimEnd()).join('\n')
}

/** Returns the time until the lease of a node expires. */
async function lease({ redis, keyPrefix }: LocalCluster, name: string): Promise<string> {
  const leftMs = await redis.pttl(keyPrefix + leaseKey(name)).catch(() => undefined)
  if (leftMs === undefined) return 'unknown'
  return leftMs > 0 ? `${(leftMs / 1000).toFixed(1)} s` : 'none'
}

function stateOf({ name, state, exit }: Child, view: NodeView | undefined): string {
  if (state === 'ended') return exit ? `ended (${describeExit(exit)})` : 'not started'
  if (state === 'ready' && view?.state === 'silent') return 'ready, but silent'
  return state === 'ending' && name.startsWith('node-') ? 'draining' : state
}

/** Returns the addresses and secrets of a running cluster, for people. `rooms`: the example games, or room types of the developer. */
export function banner(cluster: LocalCluster, rooms: 'games' | 'own'): string {
  const { ports, secrets, balancer, redisUrl, folder } = cluster
  const at = (scheme: string, port: number): string => `${scheme}://127.0.0.1:${port}`
  const behind = (what: string, all: readonly number[]): string =>
    `${balancer} → ${all.map((port, index) => `${what}-${index + 1} ${port}`).join(', ')}`
  const websockets = ports.nodes.map(({ websocket }) => websocket)
  // A URL may contain a password.
  const { protocol, host } = new URL(redisUrl)
  const rows = [
    rooms === 'games'
      ? ['play', at('http', ports.games), 'open the arena in two tabs']
      : ['your page', at('ws', ports.games), 'for connect: the websocket, and the tokens of dev'],
    ['playground', `${at('http', ports.games)}/playground`, 'any room by hand'],
    ['websocket', at('ws', ports.websocket), behind('node', websockets)],
    ['control API', at('http', ports.api), behind('control', ports.controls)],
    ...ports.nodes.map(({ admin }, index) => [
      index === 0 ? 'admin' : '',
      `${at('http', admin)}/admin#token=${encodeURIComponent(secrets.internalToken)}`,
      `node-${index + 1}`,
    ]),
    ['redis', `${protocol}//${host}`, cluster.children.has('redis') ? 'for this run' : 'given by REDIS_URL'],
    ['operator token', secrets.operatorToken, 'for the control API; CONTROL_API_TOKENS sets it'],
    ['internal token', secrets.internalToken, 'for the admin endpoints; INTERNAL_TOKEN sets it'],
    ['logs', folder, 'one file a process'],
  ] as [string, string, string][]
  const width = Math.max(...rows.map(([, address]) => address.length))
  const table = rows.map(
    ([what, address, note]) => `  ${what.padEnd(14)}   ${address.padEnd(width)}   ${note}`,
  )
  return `
  roomful on ${ports.nodes.length === 1 ? 'one node' : `${ports.nodes.length} nodes`}

${table.join('\n')}

  A backend of your own asks ${at('http', ports.api)}/tokens, with the operator token, and sends its players to ${at('ws', ports.websocket)}
  Type help for what you can do, such as kill 1, redis down, status
`
}

/** Text output to a terminal or a pipe, and input lines. At a terminal, text appears above the line that is being typed. */
export class Prompt {
  readonly #isTerminal = process.stdin.isTTY === true && process.stdout.isTTY === true
  #lines: Interface | undefined

  /** Writes `text` and a line end. */
  tell(text: string): void {
    if (!this.#isTerminal || !this.#lines) return void process.stdout.write(`${text}\n`)
    // Clears the typed line. The prompt writes it again.
    process.stdout.write(`\r\x1b[K${text}\n`)
    this.#lines.prompt(true)
  }

  /** Runs the lines in order until `close`. Resolves with true after Ctrl-C or Ctrl-D. The end of a pipe is not a command. */
  async read(run: (line: string) => Promise<void>): Promise<boolean> {
    const terminal = this.#isTerminal
    const output = terminal ? { output: process.stdout } : {}
    const lines = createInterface({ input: process.stdin, ...output, terminal, prompt: 'roomful> ' })
    this.#lines = lines
    if (terminal) lines.prompt()
    for await (const line of lines) {
      await run(line)
      if (terminal && this.#lines) lines.prompt()
    }
    return terminal && this.#lines !== undefined
  }

  /** Reads no more lines. Text can still be written. */
  close(): void {
    const lines = this.#lines
    this.#lines = undefined
    lines?.close()
    if (lines && this.#isTerminal) process.stdout.write('\n')
  }
}

interface NewsOptions {
  readonly look: () => Promise<readonly NodeView[]>
  readonly clock: Clock
  readonly tell: (line: string) => void
}

const LOOK_EVERY_MS = 150
/** Maximum number of rooms that are named if they move together. More are counted. */
const MOST_NAMED = 3

/** Watches the owners of all rooms, and reports each change in a line. */
export class News {
  readonly #options: NewsOptions
  readonly #places = new Map<string, { readonly owner: string; readonly epoch: number }>()
  #fault: { readonly name: string; readonly at: number } | undefined
  #cancel = (): void => {}
  #stopped = false

  constructor(options: NewsOptions) {
    this.#options = options
  }

  /** Watches until `stop`. */
  async start(): Promise<void> {
    const { look, clock, tell } = this.#options
    const views = await look()
    if (this.#stopped) return
    for (const line of this.#changes(views)) tell(line)
    this.#cancel = clock.schedule(LOOK_EVERY_MS, () => void this.start())
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  /** Starts to time the moves of the rooms of the process `name`, after a fault. */
  fault(name: string): void {
    this.#fault = { name, at: this.#options.clock.monotonic() }
  }

  #changes(views: readonly NodeView[]): string[] {
    /** Rooms by event. */
    const moves = new Map<string, string[]>()
    for (const [id, { owner, room }] of ownersOf(views)) {
      const before = this.#places.get(id)
      // A node may not know yet that it has lost a room.
      if (before && before.epoch >= room.epoch) continue
      this.#places.set(id, { owner, epoch: room.epoch })
      if (before?.owner === owner) continue
      const way = before
        ? `went from ${before.owner} to ${owner}${this.#since(before.owner)}`
        : `opened on ${owner}`
      moves.set(way, [...(moves.get(way) ?? []), `room ${room.room_id} ${way} (epoch ${room.epoch})`])
    }
    return [...moves].flatMap(([way, lines]) =>
      lines.length > MOST_NAMED ? [`${lines.length} rooms ${way}`] : lines,
    )
  }

  #since(name: string): string {
    if (this.#fault?.name !== name) return ''
    return `, ${((this.#options.clock.monotonic() - this.#fault.at) / 1000).toFixed(1)} s later`
  }
}
