import type { AddressInfo } from 'node:net'
import type { Context, Hono } from 'hono'
import { proxy } from 'hono/proxy'
import type { Logger } from '../../shared/log.ts'
import { Problem } from '../../shared/problem.ts'
import type { Random } from '../../shared/random.ts'
import type { QueueDescription } from '../descriptions.ts'
import { type AdminEnv, listen, newAdminApp } from './http.ts'
import type { RuntimeAnswer } from './runtime.ts'

/** Operations side of a process whose workers are nodes. It answers for all of them together, and for each below `/worker/<number>`. */

/** Dependencies of the operations side of a group. */
interface GroupAdminOptions {
  /** Common prefix of the workers' names. */
  readonly name: string
  /** The workers that accept clients, oldest first. */
  readonly workers: () => readonly {
    readonly number: number
    readonly addresses: Readonly<Record<string, string>>
  }[]
  /** The metrics of all workers, in Prometheus' text format. */
  readonly metrics: () => Promise<string>
  readonly random: Random
  readonly log: Logger
}

/** The running operations side of a group. */
interface GroupAdmin {
  /** Its address, such as `http://127.0.0.1:9100`. */
  readonly url: string
  close(): Promise<void>
}

const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** Creates the app of `/metrics`, `/healthz`, `/readyz`, `/admin` and its calls, for all workers together. */
export function createGroupAdminApp({
  name,
  workers,
  metrics,
  random,
  log,
}: GroupAdminOptions): Hono<AdminEnv> {
  const app = newAdminApp(random, (error, c) => {
    log.error({ err: error, request_id: c.get('requestId'), path: c.req.path }, 'a worker did not answer')
    return new Problem('worker_unavailable', 'The worker may be ending; try again.')
  })
  const none = (): never => {
    throw new Problem('no_worker', 'The workers are being started, or drain.')
  }
  type Worker = ReturnType<typeof workers>[number]
  const urlAt = ({ addresses }: Worker, c: Context<AdminEnv>, path: string) =>
    `${addresses.admin}${path}${new URL(c.req.url).search}`
  const headersOf = (c: Context<AdminEnv>) => ({ ...c.req.header(), 'x-request-id': c.get('requestId') })
  const forward = (c: Context<AdminEnv>, worker: Worker, path: string) =>
    proxy(urlAt(worker, c, path), { ...c.req, headers: headersOf(c) })
  /** Sends this request to all workers, without its body, which could be read only once. Returns the answers that arrive. */
  const all = async (c: Context<AdminEnv>): Promise<Response[]> => {
    const request = { method: c.req.method, headers: { ...headersOf(c), 'content-length': undefined } }
    const answers = await Promise.allSettled(
      workers().map((worker) => proxy(urlAt(worker, c, c.req.path), request)),
    )
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
  }

  app.get('/metrics', async (c) => c.body(await metrics(), 200, { 'content-type': METRICS_TYPE }))
  app.get('/healthz', (c) => c.json({ status: 'alive' }))
  // One ready worker is enough: the others are being replaced, or give the same answer.
  app.get('/readyz', async (c) => {
    const answers = await all(c)
    return answers.find(({ ok }) => ok) ?? answers[0] ?? none()
  })
  /** Merges the answers of all workers. If one refuses, returns the first refusal. */
  const merged = async <T>(c: Context<AdminEnv>, merge: (answers: T[]) => object): Promise<Response> => {
    const answers = await all(c)
    const refused = answers.find(({ ok }) => !ok)
    if (refused || answers.length === 0) return refused ?? none()
    const read = await Promise.all(answers.map((answer) => answer.json() as Promise<T>))
    return c.json(merge(read), 200, { 'cache-control': 'no-store' })
  }
  app.get('/admin/runtime', (c) =>
    merged<RuntimeAnswer>(c, (runtimes) => mergeRuntimes(name, runtimes, c.req.query())),
  )
  app.get('/admin/queues', (c) =>
    merged<{ queues: QueueDescription[] }>(c, (all) => ({ queues: all.flatMap(({ queues }) => queues) })),
  )
  for (const action of ['drain', 'cordon', 'uncordon'])
    app.post(`/admin/${action}`, async (c) => {
      const told = workers().length
      const answers = await all(c)
      if (answers.length < told)
        throw new Error(`${told - answers.length} of ${told} workers were not told to ${action}`)
      return answers.find(({ ok }) => !ok) ?? answers[0] ?? none()
    })
  app.all('/worker/:number{[0-9]+}/*', (c) => {
    const worker = workers().find(({ number }) => String(number) === c.req.param('number'))
    if (worker) return forward(c, worker, c.req.path.replace(/^\/worker\/\d+/, ''))
    const there = workers().map(({ number }) => number)
    throw new Problem(
      'not_found',
      `There is no worker ${c.req.param('number')} that serves; there are ${there.join(', ')}.`,
    )
  })
  // Any worker can answer these: the page, the cluster, the owner of a room, a search.
  app.all('*', (c) => {
    const [first] = workers()
    return first ? forward(c, first, c.req.path) : none()
  })
  return app
}

/** Serves the operations side of a group at an address. Rejects if the address is not available. */
export async function serveGroupAdmin(
  options: GroupAdminOptions,
  host: string,
  port: number,
): Promise<GroupAdmin> {
  const server = await listen(createGroupAdminApp(options).fetch, options.random, host, port)
  const bound = (server.address() as AddressInfo).port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/**
 * Merges the answers of several nodes to the same `query` as if they were one node. Order and limit apply to all together, counts are
 * added, and of each load the largest is taken.
 */
function mergeRuntimes(
  name: string,
  runtimes: readonly RuntimeAnswer[],
  query: Readonly<Record<string, string>>,
): RuntimeAnswer {
  const limit = query.limit === undefined ? undefined : Number(query.limit)
  const nodes = runtimes.map(({ node }) => node)
  const sum = (of: (runtime: RuntimeAnswer) => number): number =>
    runtimes.reduce((total, one) => total + of(one), 0)
  const most = (of: (load: RuntimeAnswer['node']['load']) => number): number =>
    Math.max(...nodes.map(({ load }) => of(load)))
  const rooms = runtimes.flatMap((one) => one.rooms).sort((a, b) => b.member_count - a.member_count)
  const sessions = runtimes.flatMap((one) => one.sessions)
  sessions.sort((a, b) => (a.connected_at < b.connected_at ? 1 : -1))
  return {
    node: {
      node_id: name,
      version: nodes[0]!.version,
      commit: nodes[0]!.commit,
      rooms_hash: nodes[0]!.rooms_hash,
      started_at: nodes.map((node) => node.started_at).sort()[0]!,
      draining: nodes.every((node) => node.draining),
      cordoned: nodes.every((node) => node.cordoned),
      listed_types: nodes[0]!.listed_types,
      load: {
        event_loop_utilisation: most((load) => load.event_loop_utilisation),
        event_loop_delay_ms: most((load) => load.event_loop_delay_ms),
        rss_bytes: nodes.reduce((total, { load }) => total + load.rss_bytes, 0),
      },
    },
    problems: runtimes.flatMap(({ node, problems }) =>
      problems.map(({ code, detail }) => ({ code, detail: `${node.node_id}: ${detail}` })),
    ),
    rooms: rooms.slice(0, limit),
    sessions: sessions.slice(0, limit),
    found: { rooms: sum(({ found }) => found.rooms), sessions: sum(({ found }) => found.sessions) },
    totals: {
      rooms: sum(({ totals }) => totals.rooms),
      members: sum(({ totals }) => totals.members),
      sessions: sum(({ totals }) => totals.sessions),
    },
  }
}
