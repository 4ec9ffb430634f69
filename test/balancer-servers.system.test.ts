import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { expectProblem } from './support/control-api.ts'
import { BALANCERS, fetchTrusting, startBalancer } from './support/deployment.ts'
import { problemIn, rawHttp } from './support/raw-client.ts'
import { freePort, until } from './support/redis-server.ts'

/** Behaviour of a server towards one kind of request. `silent`: no answer. `broken`: closes the connection. */
type Behaviour = 'serves' | 'refuses' | 'silent' | 'broken'

/** A node or control process that behaves as a test says, towards checks (`/readyz`) and towards all other requests. */
class Server {
  checks: Behaviour = 'serves'
  requests: Behaviour = 'serves'
  readonly #name: string
  readonly #status: number
  readonly #server = createServer((request, response) => this.#answer(request, response))

  constructor(name: string, status: number) {
    this.#name = name
    this.#status = status
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  readonly #answer: RequestListener = (request, response) => {
    const isCheck = request.url === '/readyz'
    const behaviour = isCheck ? this.checks : this.requests
    if (behaviour === 'silent') return
    if (behaviour === 'broken') return void request.socket.destroy()
    const status = behaviour === 'refuses' ? 503 : isCheck ? 200 : this.#status
    response.writeHead(status, { 'x-server': this.#name }).end()
  }
}

/** Each request has a connection, as the websocket of a player has. */
const get = fetchTrusting(undefined)

describe.each(BALANCERS)('%s in front of servers that are slow, gone or not ready', (kind) => {
  /** Like a node, which answers a request that is no upgrade with 426. */
  const nodes = ['one', 'two', 'three'].map((name) => new Server(name, 426))
  const controls = ['first', 'second'].map((name) => new Server(name, 200))
  const servers = [...nodes, ...controls]
  let balancer: Awaited<ReturnType<typeof startBalancer>>
  let playersAt: string

  beforeAll(async () => {
    await Promise.all(servers.map((server) => server.start()))
    const address = async () => `127.0.0.1:${await freePort()}`
    balancer = await startBalancer(kind, {
      websocket: await address(),
      control: await address(),
      operations: await address(),
      nodes: nodes.map(({ port }) => ({ address: `127.0.0.1:${port}`, healthPort: port })),
      controls: controls.map(({ port }) => ({ address: `127.0.0.1:${port}` })),
    })
    playersAt = balancer.wsUrl.replace('ws', 'http')
  })
  beforeEach(() => {
    for (const server of servers) {
      server.checks = 'serves'
      server.requests = 'serves'
    }
  })
  afterAll(async () => {
    await balancer?.close()
    for (const server of servers) server.close()
  })

  /** Number of servers of a backend that haproxy counts as ready. */
  const ready = async (backend: string): Promise<number> => {
    const text = await (await get(`${balancer.operationsUrl}/metrics`)).text()
    return Number(
      new RegExp(`^haproxy_backend_active_servers{proxy="${backend}"} (\\d+)`, 'm').exec(text)![1],
    )
  }
  const readyAre = (nodesReady: number, controlsReady: number): Promise<void> =>
    until(`${nodesReady} nodes and ${controlsReady} control processes are ready`, async () => {
      return (await ready('nodes')) === nodesReady && (await ready('controls')) === controlsReady
    })

  /** Returns the answers to as many new players as it takes to meet each node. */
  const players = () => Promise.all(Array.from({ length: 9 }, () => get(playersAt)))
  const names = (answers: readonly Response[]) => [
    ...new Set(answers.map(({ headers }) => headers.get('x-server'))),
  ]

  if (kind === 'haproxy') {
    it('forwards to all servers while none answers its checks, and to the ready ones afterwards', async () => {
      for (const server of servers) server.checks = 'silent'
      await readyAre(0, 0)
      const answers = await players()
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 426))
      expect(names(answers).sort()).toEqual(['one', 'three', 'two'])
      const calls = await Promise.all([1, 2].map(() => get(`${balancer.controlUrl}/projects`)))
      expect(names(calls).sort()).toEqual(['first', 'second'])

      for (const server of [nodes[0]!, controls[0]!]) server.checks = 'serves'
      await readyAre(1, 1)
      expect(names(await players())).toEqual(['one'])
      expect(names([await get(`${balancer.controlUrl}/projects`)])).toEqual(['first'])
    })

    it('sends players past a node that drains, also while no node answers its checks', async () => {
      for (const node of nodes) node.checks = 'silent'
      nodes[0]!.checks = 'refuses'
      nodes[0]!.requests = 'refuses'
      await readyAre(0, 2)
      const answers = await players()
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 426))
      expect(names(answers).sort()).toEqual(['three', 'two'])
    })
    it('sends the players of a node that does not answer to another one', async () => {
      nodes[0]!.requests = 'silent'
      const answers = await players()
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 426))
      expect(names(answers).sort()).toEqual(['three', 'two'])
    })
  } else {
    it('forwards to all servers again although each has just failed', async () => {
      for (const server of servers) server.requests = 'broken'
      expect((await get(playersAt)).status).toBe(503)
      expect((await get(`${balancer.controlUrl}/projects`)).status).toBe(502)
      for (const server of servers) server.requests = 'serves'
      expect((await get(playersAt)).status).toBe(426)
      expect((await get(`${balancer.controlUrl}/projects`)).status).toBe(200)
    })
  }

  it('answers callers of control with problem documents', async () => {
    const { controlUrl } = balancer
    const post = async (body = '{}') => {
      const answer = await get(`${controlUrl}/projects`, { method: 'POST', body })
      return { status: answer.status, headers: answer.headers, body: await answer.json() }
    }
    const raw = async (text: string) => {
      const answer = await rawHttp(controlUrl, text)
      const [line = '', ...lines] = answer.slice(0, answer.indexOf('\r\n\r\n')).split('\r\n')
      const headers = new Headers(lines.map((header) => header.split(': ') as [string, string]))
      return { status: Number(line.split(' ')[1]), headers, body: problemIn(answer) }
    }
    expectProblem(await post('x'.repeat(65_537)), 413, 'payload_too_large')
    for (const control of controls) control.requests = 'broken'
    const quoting =
      'POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-request-id: "mine"\r\ncontent-length: 0\r\n\r\n'
    expectProblem(await raw(quoting), 502, 'unreachable')
    for (const control of controls) control.requests = 'silent'
    const late = post()
    // nginx ends the connection without an answer instead, and haproxy answers what is not HTTP with a page.
    if (kind === 'haproxy')
      expectProblem(
        await raw('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n'),
        408,
        'request_timeout',
      )
    else expectProblem(await raw('GET / HTTP/1.1\r\nhost: a\r\n: x\r\n\r\n'), 400, 'invalid_request')
    expectProblem(await late, 504, 'timeout')
    for (const control of controls) control.close()
    const gone = await post()
    expectProblem(gone, kind === 'haproxy' ? 503 : 502, 'unreachable')
    expect(gone.headers.get('retry-after')).toBe('1')
  })
})
