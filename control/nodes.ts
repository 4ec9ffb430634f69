import http from 'node:http'
import https from 'node:https'
import * as v from 'valibot'
import type { Clock } from '../shared/clock.ts'
import { InternalToken } from '../shared/http-server.ts'
import { nodeName } from '../shared/ids.ts'
import type { Logger } from '../shared/log.ts'
import { type NodeInfo, readLiveNodes } from '../shared/node-registry.ts'
import { Problem, type ProblemCode } from '../shared/problem.ts'
import type { Random } from '../shared/random.ts'
import type { Records } from '../shared/store/port.ts'

/** Dependencies of Nodes. */
interface NodesParts {
  readonly records: Pick<Records, 'page' | 'read'>
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Token that nodes accept (`INTERNAL_TOKEN`). */
  readonly internalToken: string | undefined
}

/** A call of a node's `/internal` routes. */
export interface NodeCall {
  /** Calls of every method may be sent twice: a POST has an id, and the room runs each id once. */
  readonly method: 'GET' | 'DELETE' | 'POST'
  readonly path: `/internal/${string}`
  readonly query?: Readonly<Record<string, string | undefined>>
  /** JSON of a POST. */
  readonly body?: object
}

/** A node with the address of its `/internal` routes. */
type Reachable = NodeInfo & { readonly admin_url: string }

/** Maximum number of nodes that are tried for one call. */
const MOST_TRIED = 3

/** Time limit of a node for accepting a connection. */
const CONNECT_MS = 2000

/** Time limit of a call, over all nodes that are tried. A node answers within 10 s. */
const ANSWER_MS = 12_000

/** Time for which a list of living nodes is used. Reading it costs more than a call. A node that has not answered for as long must be in the list. */
const NODES_KEPT_MS = 1000

/** Problems of a node that are passed to the caller. After any other, the node counts as unable to serve the call. */
const PASSED_ON = [
  'invalid_request',
  'payload_too_large',
  'room_not_found',
  'room_full',
  'project_full',
  'too_many_rooms',
  'room_logic_refused',
  'conflict',
  'rate_limited',
  'room_logic_failed',
  'session_not_found',
  'room_unavailable',
  'store_unreachable',
  'store_full',
  'store_refused',
  'timeout',
] as const satisfies readonly ProblemCode[]

const ProblemAnswer = v.object({
  code: v.picklist(PASSED_ON),
  detail: v.string(),
  errors: v.exactOptional(v.array(v.object({ path: v.string(), message: v.string() }))),
})

/** A node did not answer. The call may have reached it. */
class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

/** The node closed a kept connection while the call was being sent on it. A new connection may reach the node. */
class Stale extends Unreachable {}

interface NodeAnswer {
  readonly status: number
  readonly body: string
  readonly retryAfter: string | undefined
}

/**
 * Calls of living nodes over HTTP, with the internal token. Any node can take a call: it routes the call to the owner of the room. If a node
 * is unreachable, or loses its lease before it answers, another is called.
 */
export class Nodes {
  readonly #parts: NodesParts
  readonly #token: string | undefined
  readonly #agents = {
    'http:': new http.Agent({ keepAlive: true }),
    'https:': new https.Agent({ keepAlive: true }),
  }
  /** Latest list of nodes. `isEmpty`: no node was found, or the registry could not be read. */
  #known:
    | { readonly nodes: Promise<readonly Reachable[]>; readonly until: number; isEmpty: boolean }
    | undefined

  constructor(parts: NodesParts) {
    this.#parts = parts
    this.#token = new InternalToken(parts.internalToken).shown
  }

  /**
   * Resolves with the JSON of the answer. Rejects with a `Problem`: that of the node, `node_unavailable` if no node is reachable, or
   * `timeout`. Rejects with `StoreUnavailable` if the registry cannot be read.
   */
  async call(call: NodeCall): Promise<object> {
    const until = this.#parts.clock.monotonic() + ANSWER_MS
    const nodes = this.#inOrder(await this.#living())
    for (const node of nodes.slice(0, MOST_TRIED)) {
      try {
        return await this.#ask(node, call, until)
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error
        this.#known = undefined
        this.#parts.log.warn(
          { node_id: nodeName(node.node_id), admin_url: node.admin_url, err: error },
          'node unreachable',
        )
      }
    }
    throw unavailable(
      nodes.length === 0
        ? 'No node is alive.'
        : 'No node answers at its ADMIN_URL. That address must be reachable from control; the log names the nodes.',
    )
  }

  /** Resolves with the origins of the admin pages of living nodes. The list is empty while the registry cannot be read. */
  async adminPages(): Promise<readonly string[]> {
    // Any web page can cause this read, so an empty or unreadable registry is not read more often than others.
    const nodes = await this.#living({ orEmpty: true }).catch(() => [])
    return nodes.flatMap(({ admin_url: url }) => (URL.canParse(url) ? [new URL(url).origin] : []))
  }

  /** Returns the nodes with an address, at most `NODES_KEPT_MS` old. `orEmpty`: an empty list is kept as long, also if the registry could not be read. */
  #living({ orEmpty = false } = {}): Promise<readonly Reachable[]> {
    const { records, clock } = this.#parts
    const last = this.#known
    if (last && clock.monotonic() < last.until && (orEmpty || !last.isEmpty)) return last.nodes
    const nodes = readLiveNodes(records).then((all) =>
      all.flatMap((node) => (node.admin_url === undefined ? [] : { ...node, admin_url: node.admin_url })),
    )
    const known = { nodes, until: clock.monotonic() + NODES_KEPT_MS, isEmpty: false }
    this.#known = known
    const empty = (): void => {
      known.isEmpty = true
    }
    // Calls read an empty list again: the first node of a deployment must be found as soon as it exists.
    nodes.then((all) => all.length === 0 && empty(), empty)
    return nodes
  }

  /** Returns the nodes in random order, draining nodes last. */
  #inOrder(nodes: readonly Reachable[]): Reachable[] {
    return nodes
      .map((node) => ({ node, rank: this.#parts.random.float() + (node.draining ? 1 : 0) }))
      .sort((one, other) => one.rank - other.rank)
      .map(({ node }) => node)
  }

  /** `until`: monotonic time at which the call times out. */
  async #ask(node: Reachable, call: NodeCall, until: number): Promise<object> {
    const { status, body, retryAfter } = await this.#send(node, call, until).catch((error: unknown) => {
      if (error instanceof Stale) return this.#send(node, call, until)
      throw error
    })
    const json = parsed(body)
    if (status >= 200 && status <= 299 && json !== undefined) return json
    const problem = v.safeParse(ProblemAnswer, json)
    if (problem.success && status !== 401) {
      const { code, detail, errors } = problem.output
      const headers = retryAfter === undefined ? {} : { 'retry-after': retryAfter }
      throw new Problem(code, detail, { headers, ...(errors && { errors }) })
    }
    const reason =
      status === 401
        ? 'it does not accept the internal token of control: INTERNAL_TOKEN must be the same in every process'
        : `it answered ${status}`
    this.#parts.log.error(
      { node_id: nodeName(node.node_id), admin_url: node.admin_url, status },
      'node refused a call',
    )
    throw unavailable(`The node ${nodeName(node.node_id)} does not serve this call: ${reason}.`)
  }

  /** Rejects with `Unreachable`, or with a `Problem` (timeout). */
  #send(node: Reachable, call: NodeCall, until: number): Promise<NodeAnswer> {
    const { clock } = this.#parts
    const url = addressOf(node.admin_url, call)
    return new Promise((resolve, reject) => {
      const { method, body } = call
      const text = body && JSON.stringify(body)
      const headers = {
        ...(this.#token !== undefined && { 'x-service-internal-token': this.#token }),
        ...(text !== undefined && {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(text),
        }),
      }
      const options = { method, headers, agent: this.#agents[url.protocol as 'http:' | 'https:'] }
      const request = (url.protocol === 'https:' ? https : http).request(url, options, (response) => {
        const parts: string[] = []
        response.setEncoding('utf8').on('data', (part: string) => parts.push(part))
        response.on('end', () =>
          resolve({
            status: response.statusCode!,
            body: parts.join(''),
            retryAfter: response.headers['retry-after'],
          }),
        )
        response.on('error', (error) => reject(new Unreachable('the answer broke off', { cause: error })))
      })
      const cancelTimeout = clock.schedule(until - clock.monotonic(), () => {
        const late = `No node has answered within ${ANSWER_MS / 1000} s; try again.`
        request.destroy(new Problem('timeout', late))
      })
      const endWatch = this.#whenDead(node, () => request.destroy(new Unreachable('its lease has expired')))
      request.on('socket', (socket) => {
        if (!socket.connecting) return
        const late = (): void =>
          void request.destroy(new Unreachable(`no connection within ${CONNECT_MS} ms`))
        const cancel = clock.schedule(CONNECT_MS, late)
        for (const end of ['connect', 'close']) socket.once(end, cancel)
      })
      // Every call may be sent twice, so it is repeated if the connection ends without an answer.
      request.on('error', (error: NodeJS.ErrnoException) => {
        if (error instanceof Problem) return reject(error)
        const stale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE')
        reject(new (stale ? Stale : Unreachable)(error.message, { cause: error }))
      })
      request.on('close', () => {
        cancelTimeout()
        endWatch()
      })
      request.end(text)
    })
  }

  /** Calls `dead` if the node has no lease: it hangs, or its process has ended. Returns a function that ends the watch. */
  #whenDead({ node_id: nodeId }: Reachable, dead: () => void): () => void {
    let cancel = (): void => {}
    let isWatched = true
    const look = async (): Promise<void> => {
      // An unreadable registry says nothing about the node.
      const nodes = await this.#living({ orEmpty: true }).catch(() => undefined)
      if (!isWatched) return
      if (nodes && !nodes.some((node) => node.node_id === nodeId)) dead()
      else watch()
    }
    const watch = (): void => {
      cancel = this.#parts.clock.schedule(NODES_KEPT_MS, () => void look())
    }
    watch()
    return () => {
      isWatched = false
      cancel()
    }
  }
}

function addressOf(adminUrl: string, { path, query = {} }: NodeCall): URL {
  const url = new URL(adminUrl.replace(/\/$/, '') + path)
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) url.searchParams.set(name, value)
  return url
}

const unavailable = (detail: string): Problem =>
  new Problem('node_unavailable', detail, { headers: { 'retry-after': '1' } })

function parsed(body: string): object | undefined {
  try {
    const json: unknown = JSON.parse(body)
    return typeof json === 'object' && json !== null ? json : undefined
  } catch {
    return undefined
  }
}
