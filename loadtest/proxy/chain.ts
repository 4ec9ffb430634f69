import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url))

/** Two proxies and a server behind them, each a process. They end with this process. */
export class ProxyChain {
  /** Address of the first proxy. */
  readonly url: string
  readonly #proxies: readonly ChildProcess[]
  readonly #servers: readonly ChildProcess[]

  constructor(url: string, proxies: readonly ChildProcess[], servers: readonly ChildProcess[]) {
    this.url = url
    this.#proxies = proxies
    this.#servers = servers
  }

  /** Resolves when all three serve. */
  static async start(): Promise<ProxyChain> {
    const server = await started([])
    const second = await started([server.url])
    const first = await started([second.url])
    return new ProxyChain(first.url, [first.child, second.child], [server.child])
  }

  /** CPU time since the start, in seconds: of both proxies, and of the server. */
  async cpuSeconds(): Promise<{ readonly proxies: number; readonly server: number }> {
    return { proxies: await cpuSecondsOf(this.#proxies), server: await cpuSecondsOf(this.#servers) }
  }

  close(): void {
    for (const child of [...this.#proxies, ...this.#servers]) child.kill()
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

async function cpuSecondsOf(children: readonly ChildProcess[]): Promise<number> {
  let sum = 0
  for (const child of children) {
    child.send('cpu')
    const [{ user, system }] = (await once(child, 'message')) as [NodeJS.CpuUsage]
    sum += (user + system) / 1e6
  }
  return sum
}
