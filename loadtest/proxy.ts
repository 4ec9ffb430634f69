import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { serve } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { proxy } from 'hono/proxy'

/** How a proxy forwards: with the helper of Hono (`hono/proxy`), or with the HTTP client of Node, which costs less. */
export type ProxyKind = 'helper' | 'http'

/** Two proxies and a server behind them, each in a process. They end with this process. */
export class ProxyChain {
  /** Address of the first proxy. */
  readonly url: string
  readonly #proxies: readonly ChildProcess[]
  readonly #server: ChildProcess | undefined

  constructor(url: string, proxies: readonly ChildProcess[], server?: ChildProcess) {
    this.url = url
    this.#proxies = proxies
    this.#server = server
  }

  /** Resolves when all three serve. */
  static async start(kind: ProxyKind): Promise<ProxyChain> {
    const server = await started(['answer'])
    const second = await started([kind, server.url])
    const first = await started([kind, second.url])
    return new ProxyChain(first.url, [first.child, second.child], server.child)
  }

  /** Returns the CPU time of both proxies since the start, in seconds. */
  async cpuSeconds(): Promise<number> {
    let sum = 0
    for (const child of this.#proxies) {
      child.send('cpu')
      const [{ user, system }] = (await once(child, 'message')) as [NodeJS.CpuUsage]
      sum += (user + system) / 1e6
    }
    return sum
  }

  close(): void {
    for (const child of this.#proxies) child.kill()
    this.#server?.kill()
  }
}

async function started(words: string[]): Promise<{ child: ChildProcess; url: string }> {
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
  const child = fork(fileURLToPath(import.meta.url), words, {
    execArgv: ['--import', tsx],
    env: { ...process.env, NODE_ENV: 'production' },
  })
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, url: `http://127.0.0.1:${port}` }
}

/** Runs a process of a chain. `how` is a ProxyKind, and `to` the next process. With `answer`, the process answers as a room does. */
function serveAs(how: string, to: string | undefined): void {
  const agent = new http.Agent({ keepAlive: true })
  /** Forwards a body that is fully buffered. */
  const forward = async (c: Context): Promise<Response> => {
    const body = await c.req.text()
    const headers = { ...c.req.header(), 'content-length': Buffer.byteLength(body) }
    return new Promise((resolve, reject) => {
      const options = { method: c.req.method, headers, agent }
      const request = http.request(`${to}${c.req.path}`, options, (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (part) => (text += part))
        response.on('end', () => resolve(c.body(text, 200, { 'content-type': 'application/json' })))
      })
      request.on('error', reject)
      request.end(body)
    })
  }
  const app = new Hono()
  app.all('*', async (c) => {
    if (how === 'helper') return proxy(`${to}${c.req.path}`, c.req)
    if (how === 'http') return forward(c)
    await c.req.json()
    return c.json({ reply: { total: 1 }, epoch: 1_795_181_400_000, seq: 1 })
  })
  // The caller retries. Without this, Hono prints each error.
  app.onError((_, c) => c.text('', 502))
  serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => process.send!({ port }))
  process.on('message', () => process.send!(process.cpuUsage()))
  process.on('disconnect', () => process.exit())
}

const [, script, how] = process.argv
if (process.send && how !== undefined && script === fileURLToPath(import.meta.url))
  serveAs(how, process.argv[3])
