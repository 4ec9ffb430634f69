import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { haproxyConfig } from '../../deploy/local/haproxy.ts'
import { choosePorts } from '../../deploy/local/ports.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { ServerUnderTest } from '../bench/server-under-test.ts'
import { Processes } from '../figures/processes.ts'
import { Callers, type TokenCall } from './callers.ts'
import type { Way, Window } from './outcome.ts'

export interface TokenBenchOptions {
  /** Takes what the processes leave behind. */
  readonly folder: string
  readonly controls: number
  readonly connections: number
}

const PREFIX = 'bench:'
const HOST = '127.0.0.1'

/** Redis, control processes (more than one: behind haproxy), the baseline, and callers for both. */
export class TokenBench {
  readonly #processes: Processes
  readonly #servers: Readonly<Record<Way, readonly ServerUnderTest[]>>
  readonly #calls: Readonly<Record<Way, TokenCall>>
  readonly #callers: Callers

  private constructor(
    processes: Processes,
    servers: Record<Way, readonly ServerUnderTest[]>,
    calls: Record<Way, TokenCall>,
    callers: Callers,
  ) {
    this.#processes = processes
    this.#servers = servers
    this.#calls = calls
    this.#callers = callers
  }

  /** Resolves when everything serves. */
  static async start({ folder, controls, connections }: TokenBenchOptions): Promise<TokenBench> {
    const processes = new Processes(folder)
    const ports = await choosePorts({ controls, nodes: 0, free: true })
    await processes.redis(ports.redis, folder)
    const operator_token = randomToken(systemRandom, 32)
    const env = {
      BENCH_REDIS_URL: `redis://${HOST}:${ports.redis}`,
      BENCH_KEY_PREFIX: PREFIX,
      BENCH_OPERATOR_TOKEN: operator_token,
    }
    const control = await Promise.all(
      ports.controls.map((port) =>
        ServerUnderTest.start('../tokens/control-server.ts', { ...env, BENCH_PORT: String(port) }),
      ),
    )
    const bare = [await ServerUnderTest.start('../tokens/bare-server.ts')]
    const first = `http://${HOST}:${ports.controls[0]}`
    const { id: project_id = '' } = await post(`${first}/projects`, operator_token, { name: 'bench' })
    const { secret = '' } = await post(`${first}/projects/${project_id}/keys`, operator_token, {})
    if (controls > 1) {
      const file = join(folder, 'haproxy.cfg')
      await writeFile(file, await haproxyConfig(ports))
      await processes.haproxy(file, `http://${HOST}:${ports.api}/readyz`)
    }
    const url = controls > 1 ? `http://${HOST}:${ports.api}` : first
    const calls = {
      bare: { url: `http://${HOST}:${bare[0]!.port}`, credential: operator_token, project_id },
      project: { url, credential: operator_token, project_id },
      key: { url, credential: secret, project_id },
    }
    return new TokenBench(
      processes,
      { bare, project: control, key: control },
      calls,
      new Callers(connections),
    )
  }

  /** Asks one way for tokens, for so many seconds. */
  async measure(way: Way, seconds: number): Promise<Window> {
    const before = await this.#cpu(way)
    const served = await this.#callers.run(this.#calls[way], seconds)
    return { ...served, cpu_ms: (await this.#cpu(way)) - before }
  }

  async close(): Promise<void> {
    this.#callers.close()
    await Promise.all([...this.#servers.bare, ...this.#servers.project].map((server) => server.stop()))
    await this.#processes.close()
  }

  async #cpu(way: Way): Promise<number> {
    const samples = await Promise.all(this.#servers[way].map((server) => server.sample()))
    return samples.reduce((sum, { cpu_us }) => sum + cpu_us / 1000, 0)
  }
}

async function post(url: string, credential: string, body: object): Promise<Record<string, string>> {
  const headers = { authorization: `Bearer ${credential}`, 'content-type': 'application/json' }
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
  if (!response.ok) throw new Error(`${url} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, string>
}
