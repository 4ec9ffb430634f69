import { rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Local } from '../../loadtest/local.ts'
import { startScript } from './program.ts'

const SCRIPT = fileURLToPath(new URL('./local-service.ts', import.meta.url))

/** A service of several processes, which end with the tests. */
export interface ServiceProcesses
  extends Pick<Local, 'controlUrl' | 'controlToken' | 'wsUrls' | 'metrics' | 'pids' | 'folder'> {
  /** Ends everything in order, and takes the logs away. */
  close(): Promise<void>
  /** Ends the process that has started them, without a word. */
  kill(): void
}

/** Starts what a load test with `--local` starts, in processes that several runs can use. */
export async function startServiceProcesses(nodes: number): Promise<ServiceProcesses> {
  const program = startScript(SCRIPT, [String(nodes)])
  const [line] = await program.said(/^\{.*\}$/m)
  const told = JSON.parse(line) as Omit<ServiceProcesses, 'close' | 'kill'>
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
