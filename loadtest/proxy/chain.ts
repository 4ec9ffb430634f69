import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url))

/** How a proxy forwards: with the helper of Hono (`hono/proxy`), or with the HTTP client of Node, which costs less. */
export type ProxyKind = 'helper' | 'http'

/** Two proxies and a server behind them, each a process. They end with this process. */
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

  /** CPU time of both proxies since the start, in seconds. */
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
  const child = fork(MAIN, words, {
    execArgv: ['--import', tsx],
    env: { ...process.env, NODE_ENV: 'production' },
  })
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, url: `http://127.0.0.1:${port}` }
}
