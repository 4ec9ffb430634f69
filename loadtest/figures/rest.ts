import { setTimeout as sleep } from 'node:timers/promises'
import type { FiguresCluster } from './cluster.ts'
import { cpuShares, cpuTimes } from './cpu.ts'

/** What the processes of a cluster did for so many seconds. */
export interface Rest {
  readonly seconds: number
  /** Commands that Redis ran per second, by name. */
  readonly commands: ReadonlyMap<string, number>
  readonly commands_per_second: number
  /** Of one core, node by node. */
  readonly nodes_cpu: readonly number[]
  readonly redis_cpu: number
}

/** Looks at a cluster that is left alone, for so many seconds. */
export const rest = (cluster: FiguresCluster, seconds: number): Promise<Rest> =>
  watch(cluster, () => sleep(seconds * 1000))

/** Looks at a cluster while `work` goes on. */
export async function watch(cluster: FiguresCluster, work: () => Promise<unknown>): Promise<Rest> {
  const began = performance.now()
  const [calls_before, before] = [await calls(cluster), await cpuTimes(cluster, cluster.slots)]
  await work()
  const [calls_after, after] = [await calls(cluster), await cpuTimes(cluster, cluster.slots)]
  const seconds = (performance.now() - began) / 1000
  const commands = new Map<string, number>()
  let sum = 0
  for (const [command, count] of calls_after) {
    const rate = (count - (calls_before.get(command) ?? 0)) / seconds
    // This process' own question.
    if (rate === 0 || command === 'info') continue
    commands.set(command, rate)
    sum += rate
  }
  const cpu = cpuShares(before, after, seconds)
  return { seconds, commands, commands_per_second: sum, nodes_cpu: cpu.nodes, redis_cpu: cpu.redis }
}

/** How often Redis has run each command. */
async function calls(cluster: FiguresCluster): Promise<Map<string, number>> {
  const stats = await cluster.redisInfo('commandstats')
  return new Map(
    [...stats].map(([name, text]) => [
      name.replace(/^cmdstat_/, ''),
      Number(/calls=(\d+)/.exec(text)?.[1] ?? 0),
    ]),
  )
}
