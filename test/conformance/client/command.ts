import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { FAULTS, type Fault } from './faults.ts'
import type { Mistake } from './judge.ts'
import { type Cluster, FaultProxy } from './proxy.ts'

/** Options of `npm run conformance -- --client`. */
export interface ClientRun {
  /** Address for the client under test, `ws://127.0.0.1:PORT`. */
  readonly client_url: string
  /** Addresses of the nodes. Empty: those of `npm run cluster`, else that of `npm start`. */
  readonly nodes: readonly string[]
  /** Address of the development routes `/dev/token`, `/dev/kill` and `/dev/drain`. Default: as for `nodes`. */
  readonly dev_url?: string | undefined
  readonly seconds: number
  readonly seed: number
  readonly level: number
  /** Faults that are not injected. */
  readonly without: ReadonlySet<string>
  /** Command of a client program. */
  readonly exec?: string | undefined
  readonly print: (text: string) => void
}

const HOST = '127.0.0.1'
const CLUSTER = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((n) => `ws://${HOST}:${4000 + n}`)
const SINGLE = [`ws://${HOST}:4000`]
const DEV = [`http://${HOST}:8080`, `http://${HOST}:4000`]
const ANSWER_MS = 3000
const PLAYER = 'player'
/** Time limit of a client program after SIGTERM. */
const END_MS = 3000

/** No cluster answers. */
export class NoCluster extends Error {
  override readonly name = 'NoCluster'
}

/** Runs the proxy, and the client program if there is one. Returns the exit code. Throws NoCluster. */
export async function runClient(run: ClientRun): Promise<number> {
  const { print, seconds, seed, level, exec } = run
  const cluster = await find(run)
  const { project_id: projectId, token } = await cluster.token(PLAYER)
  const faults = new Set(FAULTS.filter((fault) => !run.without.has(fault) && possible(fault, cluster)))
  const proxy = await FaultProxy.open({
    cluster,
    port: Number(new URL(run.client_url).port),
    seed,
    level,
    faults,
    tell: (text) => print(`  ${text}\n`),
  })
  const env = {
    ROOMFUL_URL: proxy.url,
    ROOMFUL_PROJECT_ID: projectId,
    ROOMFUL_TOKEN: token,
    ROOMFUL_TOKEN_URL: `${proxy.tokenUrl}${PLAYER}`,
    ROOMFUL_SECONDS: String(seconds),
  }
  print(
    `The proxy forwards to ${cluster.nodes.join(', ')}; --seed ${seed} repeats its faults. A client needs:\n`,
  )
  for (const [name, value] of Object.entries(env)) print(`  ${name}=${value}\n`)
  const program = exec === undefined ? undefined : start(exec, env)
  proxy.play()
  await Promise.race([sleep(seconds * 1000), program?.ended].filter((one) => one !== undefined))
  await proxy.rest(program?.over)
  if (!program?.over()) await proxy.stop(program?.over)
  const problem = await program?.end()
  await proxy.close()
  print(report(proxy, problem))
  if (proxy.judge.counts.sessions === 0) return 2
  return proxy.judge.mistakes.length === 0 && problem === undefined ? 0 : 1
}

const possible = (fault: Fault, cluster: Cluster): boolean =>
  (fault !== 'kill' || cluster.kill !== undefined) && (fault !== 'drain' || cluster.drain !== undefined)

/** Returns the text of the report. `problem`: failure of the client program. */
export function report({ judge, struck, server_faults: serverFaults }: FaultProxy, problem?: string): string {
  const { counts, mistakes } = judge
  const numbers = (all: Iterable<readonly [string, number]>): string =>
    [...all].map(([what, count]) => `${count} ${what}`).join(', ')
  const lines = [
    '',
    `faults: ${numbers(FAULTS.map((fault) => [fault, struck.get(fault) ?? 0] as const))}`,
    `client: ${numbers(Object.entries(counts))}`,
  ]
  for (const fault of new Set(serverFaults)) lines.push(`the server broke the protocol: ${fault}`)
  if (counts.sessions === 0) lines.push('no client has sent hello')
  if (problem !== undefined) lines.push(problem)
  if (mistakes.length > 0) lines.push('', ...mistakes.map(describe), `${mistakes.length} mistakes`)
  else if (problem === undefined && counts.sessions > 0) lines.push('ok')
  return `${lines.join('\n')}\n`
}

function describe({ rule, what, frame, connection, at_ms: atMs }: Mistake): string {
  const sent = frame === undefined ? '' : `\n    frame: ${frame}`
  return `✗ ${(atMs / 1000).toFixed(2)} s, connection ${connection}: ${what}${sent}\n    broken: level ${rule.level}, ${rule.text}\n`
}

/** Finds the nodes and the development routes. Throws NoCluster. */
async function find({ nodes, dev_url: devUrl }: ClientRun): Promise<Cluster> {
  const dev = await first(devUrl === undefined ? DEV : [devUrl], (url) =>
    ask(`${url}/dev/token`, { sub: PLAYER }),
  )
  if (dev === undefined)
    throw new NoCluster(
      `no tokens at ${devUrl ?? DEV.join(' or ')}; start \`npm run cluster\`, or name the address of its games with --dev`,
    )
  const found = nodes.length > 0 ? nodes : await listening(CLUSTER)
  const chosen = found.length > 0 ? found : await listening(SINGLE)
  if (chosen.length === 0)
    throw new NoCluster('no node listens; start `npm run cluster`, or name the nodes with --cluster')
  const routes = await ask(`${dev}/dev/rooms`)
  const end = (how: string) => (roomId: string) =>
    ask(`${dev}/dev/${how}?room=${encodeURIComponent(roomId)}`, {})
  return {
    nodes: chosen,
    token: async (name) => {
      const answer = await ask(`${dev}/dev/token`, { sub: name })
      return answer as { project_id: string; token: string }
    },
    // `npm start` has no routes that end nodes.
    ...((routes as { kills?: boolean }).kills && { kill: end('kill'), drain: end('drain') }),
  }
}

async function first(
  all: readonly string[],
  works: (one: string) => Promise<unknown>,
): Promise<string | undefined> {
  for (const one of all) if (await works(one).then(Boolean, () => false)) return one
  return undefined
}

async function listening(urls: readonly string[]): Promise<string[]> {
  const answers = await Promise.all(
    urls.map((url) =>
      fetch(url.replace(/^ws/, 'http'), { signal: AbortSignal.timeout(ANSWER_MS) }).then(
        () => true,
        () => false,
      ),
    ),
  )
  return urls.filter((_, index) => answers[index])
}

/** Sends GET, or POST with a body. */
async function ask(url: string, body?: object): Promise<object> {
  const post = body && { method: 'POST', body: JSON.stringify(body) }
  const response = await fetch(url, { ...post, signal: AbortSignal.timeout(60_000) })
  const answer = (await response.json()) as { detail?: string }
  if (!response.ok) throw new Error(answer.detail ?? `${url} answered ${response.status}`)
  return answer
}

/** Starts a client program in a shell with a new process group. */
function start(command: string, env: Readonly<Record<string, string>>) {
  const child = spawn(command, {
    shell: true,
    detached: true,
    stdio: 'inherit',
    env: { ...process.env, ...env },
  })
  const ended = new Promise<string | undefined>((resolve) => {
    child.once('error', (problem) => resolve(`the client program cannot be started: ${problem.message}`))
    child.once('close', (code, signal) =>
      resolve(
        code === 0 || (asked && signal === 'SIGTERM')
          ? undefined
          : `the client program ended with ${code === null ? signal : `exit code ${code}`}`,
      ),
    )
  })
  let asked = false
  let over = false
  void ended.then(() => {
    over = true
  })
  // Ctrl+C in a terminal ends only this process, because the program has another process group.
  process.once('exit', () => signal('SIGKILL'))
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => process.exit(1))
  const signal = (name: NodeJS.Signals): void => {
    if (!over && child.pid !== undefined) process.kill(-child.pid, name)
  }
  return {
    ended,
    over: () => over,
    /** Ends the program. Resolves with its failure. */
    async end(): Promise<string | undefined> {
      asked = true
      signal('SIGTERM')
      const killing = setTimeout(() => signal('SIGKILL'), END_MS)
      const problem = await ended
      clearTimeout(killing)
      return problem
    },
  }
}
