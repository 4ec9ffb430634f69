import { rm } from 'node:fs/promises'
import { LocalService } from '../../loadtest/local.ts'
import type { MetricsSource } from '../../loadtest/metrics.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { startScript } from './program.ts'

/** Where its parts are. */
interface ServiceAddresses {
  readonly controlUrl: string
  readonly controlToken: string
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
  /** The ids of the processes, by their names. */
  readonly pids: Readonly<Record<string, number>>
  /** Where the logs of the processes are. */
  readonly folder: string
}

/** A service of several processes, which end with the tests. */
export interface ServiceProcesses extends ServiceAddresses {
  /** Ends everything in order, and takes the logs away. */
  close(): Promise<void>
  /** Ends the process that has started them, without a word. */
  kill(): void
}

/** Starts what a load test with `--local` starts, in processes that several runs can use. */
export async function startServiceProcesses(nodes: number): Promise<ServiceProcesses> {
  const program = startScript(import.meta.filename, [String(nodes)])
  const [line] = await program.said(/^\{.*\}$/m)
  const told = JSON.parse(line) as ServiceAddresses
  return {
    ...told,
    close: async () => {
      program.child.stdin?.end()
      await program.ended
      await rm(told.folder, { recursive: true, force: true, maxRetries: 3 })
    },
    kill: () => void program.child.kill('SIGKILL'),
  }
}

/** The words that tell a load test where the service is. */
export const whereIs = ({ controlUrl, controlToken, wsUrls, metrics }: ServiceProcesses): string[] => [
  ...['--control', controlUrl, '--control-token', controlToken],
  ...['--ws', wsUrls.join(','), '--metrics', metrics.map(({ url }) => url).join(',')],
]

/** What the process does: starts a service as a load test with `--local` does, tells where everything is, and ends it all with its input. */
async function serve(nodes: number): Promise<void> {
  const local = await LocalService.start({
    nodes,
    env: process.env,
    clock: systemClock,
    random: systemRandom,
    tell: (line) => void process.stderr.write(`${line}\n`),
  })
  const { wsUrls, metrics, cluster } = local
  const { controlUrl, folder, children, secrets } = cluster
  const told: ServiceAddresses = {
    controlUrl,
    controlToken: secrets.operatorToken,
    wsUrls,
    metrics,
    pids: Object.fromEntries(
      [...children].flatMap(([name, { pid }]) => (pid === undefined ? [] : [[name, pid]])),
    ),
    folder,
  }
  process.stdout.write(`${JSON.stringify(told)}\n`)
  process.stdin.resume()
  process.stdin.once('end', () => void cluster.close())
}

if (process.argv[1] === import.meta.filename) await serve(Number(process.argv[2]))
