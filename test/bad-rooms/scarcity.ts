import { setTimeout as sleep } from 'node:timers/promises'

/** What a machine can do to a process: suspend it, or give it 10 % of a core. Its room code is not to blame. */
export const SCARCITIES = ['suspended', 'starved'] as const
export type Scarcity = (typeof SCARCITIES)[number]

export const isScarcity = (kind: string): kind is Scarcity => (SCARCITIES as readonly string[]).includes(kind)

/** Longest time of a scarcity. */
const SCARCE_MS = 60_000
/** Time in which the node serves again, before its process is judged. */
const AFTERWARDS_MS = 15_000
/** A starved process runs for this time in each period. */
const RUNS_MS = 10
const PERIOD_MS = 100

/** Makes CPU time scarce for a process, for a minute at most. Resolves when it has had enough CPU time for 15 s. */
export async function makeScarce(scarcity: Scarcity, pid: number, seconds: number): Promise<void> {
  const runsMs = scarcity === 'starved' ? RUNS_MS : 0
  const deadline = performance.now() + Math.min(SCARCE_MS, seconds * 1000)
  while (performance.now() < deadline && signal(pid, 'SIGSTOP')) {
    await sleep(PERIOD_MS - runsMs)
    if (runsMs > 0) signal(pid, 'SIGCONT')
    await sleep(runsMs)
  }
  if (signal(pid, 'SIGCONT')) await sleep(AFTERWARDS_MS)
}

/** Sends a signal to a process. Returns false if it has ended. */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}
