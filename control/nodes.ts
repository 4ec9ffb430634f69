import http from 'node:http'
import https from 'node:https'
import * as v from 'valibot'
import { nodeName } from '../shared/ids.ts'
import { InternalToken } from '../shared/internal-token.ts'
import type { Logger } from '../shared/log.ts'
import { type NodeInfo, readLiveNodes } from '../shared/node-registry.ts'
import { Problem, type ProblemCode } from '../shared/problem.ts'
import type { Random } from '../shared/random.ts'
import type { Records } from '../shared/store/port.ts'

/** Dependencies of Nodes. */
interface NodesParts {
  readonly records: Pick<Records, 'page' | 'read'>
  readonly random: Random
  readonly log: Logger
  /** What nodes accept (`INTERNAL_TOKEN`). */
  readonly internalToken: string | undefined
  /** How long a node may take to accept a connection, and to answer; default 2 s and 12 s. A node answers within 10 s. */
  readonly connectMs?: number
  readonly answerMs?: number
}

/** A call of a node's `/internal` routes. */
export interface NodeCall {
  readonly method: 'GET' | 'DELETE'
  readonly path: `/internal/${string}`
  readonly query: Readonly<Record<string, string | undefined>>
}

/** So many nodes are tried. */
const MOST_TRIED = 3

/** Problems of a node that are the caller's to know. Any other says that the node cannot serve the call. */
const PASSED_ON = [
  'invalid_request',
  'room_not_found',
  'session_not_found',
  'room_unavailable',
  'store_unreachable',
  'store_full',
  'store_refused',
  'timeout',
] as const satisfies readonly ProblemCode[]

const ProblemAnswer = v.object({ code: v.picklist(PASSED_ON), detail: v.string() })
/** A call that could not reach a node: nothing has happened there. */
class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

/**
 * Calls of living nodes over HTTP, with the internal token. Any node will do: it routes the call to the owner of the room. A node that cannot
 * be reached is left out, and another is asked.
 */
export class Nodes {
  readonly #parts: NodesParts
  readonly #token: string | undefined

  constructor(parts: NodesParts) {
    this.#parts = parts
    this.#token = new InternalToken(parts.internalToken).shown
  }

  /**
   * Resolves with the JSON of the answer. Rejects with a `Problem`: that of the node, `node_unavailable` when no node can be reached, or
   * `timeout`; with `StoreUnavailable` when the registry cannot be read.
   */
  async call(call: NodeCall): Promise<object> {
    const { records, log } = this.#parts
    const nodes = this.#inOrder(await readLiveNodes(records))
    for (const node of nodes.slice(0, MOST_TRIED)) {
      try {
        return await this.#ask(node, call)
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error
        log.warn(
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

  /** Nodes that have an address, in random order, those that drain last. */
  #inOrder(nodes: readonly NodeInfo[]): (NodeInfo & { readonly admin_url: string })[] {
    return nodes
      .flatMap((node) => (node.admin_url === undefined ? [] : { ...node, admin_url: node.admin_url }))
      .map((node) => ({ node, rank: this.#parts.random.float() + (node.draining ? 1 : 0) }))
      .sort((one, other) => one.rank - other.rank)
      .map(({ node }) => node)
  }

  async #ask(node: NodeInfo & { readonly admin_url: string }, call: NodeCall): Promise<object> {
    const { status, body } = await this.#send(node.admin_url, call)
    const json = parsed(body)
    if (status >= 200 && status <= 299 && json !== undefined) return json
    const problem = v.safeParse(ProblemAnswer, json)
    if (problem.success && status !== 401) throw new Problem(problem.output.code, problem.output.detail)
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
  #send(adminUrl: string, { method, path, query }: NodeCall): Promise<{ status: number; body: string }> {
    const { connectMs = 2000, answerMs = 12_000 } = this.#parts
    return new Promise((resolve, reject) => {
      const url = new URL(adminUrl.replace(/\/$/, '') + path)
      for (const [name, value] of Object.entries(query))
        if (value !== undefined) url.searchParams.set(name, value)
      const headers = this.#token === undefined ? {} : { 'x-service-internal-token': this.#token }
      const request = (url.protocol === 'https:' ? https : http).request(
        url,
        { method, headers },
        (response) => {
          const parts: string[] = []
          response.setEncoding('utf8').on('data', (part: string) => parts.push(part))
          response.on('end', () => resolve({ status: response.statusCode!, body: parts.join('') }))
          response.on('error', (error) => reject(new Unreachable('the answer broke off', { cause: error })))
        },
      )
      const connecting = setTimeout(
        () => request.destroy(new Unreachable(`no connection within ${connectMs} ms`)),
        connectMs,
      )
      const answering = setTimeout(
        () =>
          request.destroy(
            new Problem('timeout', `The node did not answer within ${answerMs / 1000} s; try again.`),
          ),
        answerMs,
      )
      request.on('socket', (socket) => {
        const connected = () => clearTimeout(connecting)
        if (socket.connecting) socket.once('connect', connected)
        else connected()
      })
      // Both methods may be sent twice, so a connection that ends without an answer is no reason to give up.
      request.on('error', (error) =>
        reject(error instanceof Problem ? error : new Unreachable(error.message, { cause: error })),
      )
      request.on('close', () => {
        clearTimeout(connecting)
        clearTimeout(answering)
      })
      request.end()
    })
  }
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
