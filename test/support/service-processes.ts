import { rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { MetricsSource } from '../../loadtest/metrics.ts'
import { startScript } from './program.ts'

const SCRIPT = fileURLToPath(new URL('./local-service.ts', import.meta.url))

/** Where its parts are. */
export interface ServiceAddresses {
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
  const program = startScript(SCRIPT, [String(nodes)])
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
